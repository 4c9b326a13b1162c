"""A file is the old one or the new one, and nothing is left beside it."""

import pytest

from saddle_jax.base.files import in_one_go


def fail_halfway(path):
    with in_one_go(path) as partial:
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
    with in_one_go(path) as partial:
        assert partial.suffix == ".csv"
        partial.write_text("new")
    assert [file.name for file in tmp_path.iterdir()] == ["table.csv"]
    assert path.read_text() == "new"
