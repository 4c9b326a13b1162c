"""A file is the old one or the new one, and nothing is left beside it; private folders are private."""

import grp
import os
import pwd
import stat
import types

import pytest

from saddle_jax.base import files
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.files import atomic_write


def fail_halfway(path):
    with atomic_write(path) as partial:
        partial.write_text("ha")
        assert path.read_text() == "old"
        raise RuntimeError


def test_a_file_changes_only_when_all_went_well(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("old")
    with pytest.raises(RuntimeError):
        fail_halfway(path)
    assert [file.name for file in tmp_path.iterdir()] == ["table.csv"]
    assert path.read_text() == "old"
    with atomic_write(path) as partial:
        assert partial.suffix == ".csv"
        partial.write_text("new")
    assert [file.name for file in tmp_path.iterdir()] == ["table.csv"]
    assert path.read_text() == "new"


@pytest.fixture
def above(tmp_path):
    folder = tmp_path / "above"
    folder.mkdir(mode=0o700)
    return folder


def test_a_private_folder_is_made_with_those_above_it(above):
    made = files.private_folder(above / "new" / "folder")
    assert made == above / "new" / "folder"
    assert [each.stat().st_mode & 0o777 for each in (made, made.parent)] == [0o700] * 2
    assert files.private_folder(made) == made
    (above / "link").symlink_to("new")  # whoever made it: what it leads to is checked, and returned
    assert files.private_folder(above / "link" / "folder") == made


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_can_change_is_no_private_one(above, monkeypatch, mode):
    monkeypatch.setattr(files, "_is_own_group", lambda number: False)
    folder = files.private_folder(above / "folder")
    folder.chmod(mode)
    with pytest.raises(ArgumentError, match=r"above/folder must be a folder that only you can write to$"):
        files.private_folder(folder)
    folder.chmod(0o700)
    above.chmod(mode)  # others could rename it, and put another one in its place
    line = rf"must be a folder that only you can write to, but others can change {above}$"
    with pytest.raises(ArgumentError, match=line):
        files.private_folder(folder)
    above.chmod(mode | stat.S_ISVTX)  # as /tmp is
    assert files.private_folder(folder) == folder


def test_a_group_that_is_the_users_alone_may_write_above(above, monkeypatch):
    above.chmod(0o770)
    monkeypatch.setattr(files, "_is_own_group", lambda number: True)
    files.private_folder(above / "folder").chmod(0o770)
    with pytest.raises(ArgumentError, match="only you"):
        files.private_folder(above / "folder")


@pytest.mark.parametrize(
    ("name", "members", "is_own"),
    [("me", [], True), ("me", ["me"], True), ("me", ["me", "you"], False), ("staff", [], False)],
)
def test_a_group_is_the_users_alone_by_its_name_and_members(monkeypatch, name, members, is_own):
    user = types.SimpleNamespace(pw_name="me")
    monkeypatch.setattr(pwd, "getpwuid", lambda number: user)
    group = types.SimpleNamespace(gr_name=name, gr_mem=members)
    monkeypatch.setattr(grp, "getgrgid", lambda number: group)
    assert files._is_own_group(5) == is_own


def test_what_belongs_to_another_user_is_no_private_folder(above, monkeypatch):
    folder = files.private_folder(above / "folder")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(ArgumentError, match="must be a folder that only you can write to"):
        files.private_folder(folder)


def test_a_link_or_a_file_is_no_private_folder(above):
    files.private_folder(above / "folder")
    (above / "link").symlink_to("folder")
    (above / "file").touch()
    for name in ("link", "file"):
        with pytest.raises(ArgumentError, match=f"{name} must be a folder that only you"):
            files.private_folder(above / name)
    with pytest.raises(ArgumentError, match="file/folder cannot be made: Not a directory"):
        files.private_folder(above / "file" / "folder")
