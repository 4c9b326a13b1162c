"""Folders from somebody else: nothing in them is executed, and nothing outside of them is written to."""

import dataclasses
import json
import os
import pathlib
import socket
import stat
import subprocess
import sys
import time

import pytest
from folders import SMALL, write_run

from saddle_jax import data
from saddle_jax.base.errors import RunError
from saddle_jax.base.files import atomic_write
from saddle_jax.cli import __main__ as cli
from saddle_jax.data.prepared import check_features
from saddle_jax.runs import run_folder
from saddle_jax.runs.checkpoints import Checkpoints

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPENING = ("evaluate", "export", "sharpness", "landscape", "reproduce theory")
OWN = "tensorflow_datasets.core.features"
PAYLOAD = "import pathlib; pathlib.Path(__file__).with_name('executed').touch()\n"


def bin_saddle(*arguments, cwd, **variables):
    if not (ROOT / ".venv" / "installed.json").exists():
        pytest.skip("this is not the .venv of bin/test")
    command = [sys.executable, str(ROOT / "bin" / "saddle"), *arguments]
    environment = {**os.environ, **variables}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("variables", [{}, {"PYTHONSAFEPATH": "1"}], ids=["plain", "safe path"])
def test_python_files_in_the_current_folder_are_not_imported(variables, tmp_path):
    write_run(tmp_path / "run")
    for name in ("networkx.py", "string.py", "absl.py", "environment.py", "saddle_jax.py"):
        (tmp_path / name).write_text(PAYLOAD)
    done = bin_saddle("list", ".", cwd=tmp_path, **variables)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "finished" in done.stdout
    assert not (tmp_path / "executed").exists()


def hostile_dataset(folder, features):
    """A prepared dataset "myset" as far as we look at it, with a features.json of the attacker's."""
    version = folder / "myset" / "1.0.0"
    version.mkdir(parents=True)
    splits = [{"name": name, "shardLengths": ["1"]} for name in ("train", "test")]
    info = {"name": "myset", "version": "1.0.0", "fileFormat": "array_record", "splits": splits}
    (version / "dataset_info.json").write_text(json.dumps(info))
    (version / "label.labels.txt").write_text("a\nb\n")
    for split in ("train", "test"):
        (version / f"myset-{split}.array_record-00000-of-00001").write_bytes(b"x")
    (version / "features.json").write_text(json.dumps(features))
    return version


@pytest.fixture
def evil(tmp_path, monkeypatch):
    """A run folder that names data within itself, which names a module of the folder."""
    run = write_run(tmp_path / "evil", dataclasses.replace(SMALL, dataset="myset", data_dir="evil/data"))
    hostile_dataset(run / "data", {"type": "evil.payload.X", "content": "{}"})
    (run / "payload.py").write_text(PAYLOAD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # as if somebody had started Python without -P
    monkeypatch.delenv("TFDS_DATA_DIR", raising=False)
    return run


@pytest.mark.parametrize("verb", OPENING)
def test_a_folder_does_not_say_where_data_is_read(verb, evil, capsys):
    assert cli.main(["saddle", *verb.split(), "evil"]) == 2
    told = capsys.readouterr().err
    assert told == (
        "saddle: evil was trained on data in 'evil/data', which is read only when you say so: "
        "add --data_dir=evil/data\n"
    )
    assert not (evil / "executed").exists()


@pytest.mark.parametrize("verb", OPENING)
def test_features_that_name_other_modules_are_not_opened(verb, evil, capsys):
    assert cli.main(["saddle", *verb.split(), "evil", "--data_dir=evil/data"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "features.json is not opened: it names the class 'evil.payload.X'" in told
    assert not (evil / "executed").exists()


def test_the_users_own_folder_needs_no_telling(evil, capsys, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(evil / "data"))
    assert cli.main(["saddle", "evaluate", "evil"]) == 2
    assert "evil.payload.X" in capsys.readouterr().err  # it was found, and not opened


@pytest.mark.parametrize("name", ["../evil/data/myset", "/abs/myset", "myset/../myset"])
def test_a_dataset_does_not_step_out_of_its_folder(name, evil, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(evil / "data"))
    absolute = name.replace("/abs", str(evil / "data"))
    with pytest.raises(data.DataError, match=r"dataset must be one of|folders? "):
        data.load(absolute, evil / "data")  # no data of tfds


def nested(name, key="pythonClassName"):
    return {key: f"{OWN}.features_dict.FeaturesDict", "featuresDict": {"features": {"image": {key: name}}}}


@pytest.mark.parametrize(
    "features",
    [
        {"type": "os.system", "content": "{}"},
        {"pythonClassName": "os.system"},
        {"python_class_name": "os.system"},
        nested("os.system"),
        nested("os.system", "python_class_name"),
        {"type": f"{OWN}.features_dict.FeaturesDict", "content": {"x": {"type": "os.system"}}},
        {"type": f"{OWN}.features_dict.FeaturesDict", "content": json.dumps(nested("os.system"))},
        {"pythonClassName": f"{OWN}.x.Y", "jsonFeature": {"json": json.dumps([{"type": "os.system"}])}},
        {"pythonClassName": f"{OWN}.x.Y", "jsonFeature": {"json": '[{"\\u0074ype": "os.system"}]'}},
        nested("tensorflow_datasets_evil.core.features.X"),
        nested("tensorflow_datasets.testing.X"),
        nested(f"{OWN}..evil.X"),
        nested(f"{OWN}.X\n"),
        nested(f"{OWN}."),
        nested("x" * 5000),
    ],
    ids=str,
)
def test_every_class_in_features_is_looked_at(features, tmp_path):
    (tmp_path / "features.json").write_text(json.dumps(features))
    with pytest.raises(data.DataError, match="it names the class") as caught:
        check_features(tmp_path)
    assert len(str(caught.value)) < 500


def test_features_of_tfds_itself_are_accepted(tmp_path):
    (tmp_path / "features.json").write_text(json.dumps(nested(f"{OWN}.image_feature.Image")))
    check_features(tmp_path)
    field = {"type": {"pythonClassName": f"{OWN}.text_feature.Text"}}  # a column that is called "type"
    (tmp_path / "features.json").write_text(json.dumps({"featuresDict": {"features": field}}))
    check_features(tmp_path)


@pytest.mark.parametrize("text", ["[" * 100_000, '"' + "[" * 100_000 + '"', "", "{"])
def test_features_that_cannot_be_read_are_told(text, tmp_path):
    (tmp_path / "features.json").write_text(text)
    with pytest.raises(data.DataError, match="cannot be understood"):
        check_features(tmp_path)


NAMES = ("report.html", "metrics.jsonl", "result.json", "sharpness.json", "curves.png", "config.json")
PLANTED = [*NAMES, *(f".partial-{name}" for name in (*NAMES, "model.safetensors", "landscape.npz"))]


@pytest.mark.parametrize("name", PLANTED)
def test_planted_links_are_never_followed(name, tmp_path):
    """What any verb writes goes through `atomic_write`; see the test below."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / name).symlink_to(victim)
    target = folder / name.removeprefix(".partial-")
    with atomic_write(target) as partial:
        partial.write_text("ours")
    assert victim.read_text() == "precious"
    assert target.read_text() == "ours"
    assert not target.is_symlink()


@pytest.mark.usefixtures("unrendered")
def test_verbs_leave_what_links_point_to_alone(tmp_path):
    """All that write into a run's folder, with a link at every name that they write."""
    run, victim = tmp_path / "run", tmp_path / "victim"
    run.mkdir()
    victim.write_text("precious")
    written = {*NAMES, "model.safetensors", "landscape.npz"}
    read = {"config.json", "result.json", "sharpness.json", "landscape.npz"}  # before they are written
    links = {f".partial-{name}" for name in written} | written - read
    for name in links:
        (run / name).symlink_to(victim)
    settings = {"model": "logistic", "agents": 2, "epochs": 1, "eval_agents": "never", "devices": "1"}
    train = ["train", f"--workdir={run}", "--quiet", *(f"--{k}={v}" for k, v in settings.items())]
    small = ["--images=8", "--iterations=2"]
    landscape = ["landscape", str(run), "--images=8", "--points=3"]
    for command in (
        train,
        ["export", str(run)],
        ["sharpness", str(run), *small],
        landscape,
        ["report", str(run)],
    ):
        assert cli.main(["saddle", *command]) == 0, command
    assert victim.read_text() == "precious"
    assert not [name for name in written if not (run / name).is_file() or (run / name).is_symlink()]


def test_every_file_of_a_run_is_written_in_one_go():
    """Nothing else in the package opens a file to write it, but for places that cannot be planted."""
    exceptions = {"hosts.py", "checkpoints.py", "cache.py", "prepared.py", "soak.py", "processes.py"}
    for path in (ROOT / "saddle_jax").rglob("*.py"):
        text = path.read_text()
        writes = any(
            sign in text for sign in (".write_text(", ".write_bytes(", "savefig(", 'open("w', "savez(")
        )
        assert not writes or "atomic_write" in text or path.name in exceptions, path


@pytest.mark.parametrize("name", [".lock", "checkpoints", "tensorboard", "trace"])
def test_a_run_refuses_links_in_its_folder(name, tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir() if name != ".lock" else victim.write_text("precious")
    run = tmp_path / "run"
    run.mkdir()
    (run / name).symlink_to(victim)
    told = f"{name} is a link: what a run writes must lie in its own folder"
    with pytest.raises(RunError, match=told), run_folder.locked(run):
        pytest.fail("was locked")
    assert victim.is_dir() or victim.read_text() == "precious"


def test_a_pipe_as_lock_is_refused_and_hangs_nobody(tmp_path):
    os.mkfifo(tmp_path / ".lock")
    assert run_folder.is_locked(tmp_path) is False
    with pytest.raises(RunError, match="is no regular file"), run_folder.locked(tmp_path):
        pytest.fail("was locked")


def test_a_planted_link_does_not_receive_a_checkpoint(tmp_path):
    import jax.numpy as jnp

    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "seal.json").write_text("precious")
    folder = tmp_path / "run" / "checkpoints"
    folder.mkdir(parents=True)
    (folder / ".writing-00000003").symlink_to(victim)
    checkpoints = Checkpoints(tmp_path / "run", keep=1)
    checkpoints.save(3, {"x": jnp.ones(3)})
    assert checkpoints.steps() == [3]
    assert [path.name for path in victim.iterdir()] == ["seal.json"]
    assert (victim / "seal.json").read_text() == "precious"


def special(kind, path):
    """Something at `path` that is no regular file."""
    if kind == "device":
        if os.geteuid() == 0:
            try:
                os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
                return
            except OSError:  # a container may forbid it
                pass
        pytest.skip("only root can make a device")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.with_name("file").write_text("precious")
        path.symlink_to(path.with_name("file"))
    elif kind == "link to a device":
        path.symlink_to("/dev/null")
    else:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)  # in the current folder: such a path must be short


@pytest.mark.parametrize("kind", ["device", "pipe", "folder", "link", "link to a device", "socket"])
@pytest.mark.parametrize("verb", ["report", "export", "figure", "sharpness", "data"])
def test_outputs_that_are_no_files_are_refused(verb, kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run")
    special(kind, tmp_path / "out.png")
    before = os.lstat("out.png")
    commands = {
        "figure": ["figure", "curves", "run", "--output=out.png"],
        "data": ["data", "show", "digits", "--plot=out.png"],
    }
    assert cli.main(["saddle", *commands.get(verb, [verb, "run", "--output=out.png"])]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "must be a file" in told
    assert "'out.png'" in told
    after = os.lstat("out.png")
    assert (after.st_mode, after.st_ino) == (before.st_mode, before.st_ino)


def test_a_device_at_a_name_of_ours_is_refused_too(tmp_path):
    os.mkfifo(tmp_path / "result.json")
    with pytest.raises(RunError, match="cannot be written: it is a pipe"):
        run_folder.write_json(tmp_path / "result.json", {})
    (tmp_path / "null").symlink_to("/dev/null")
    with pytest.raises(RunError, match="cannot be written: it is a device"):
        run_folder.write_json(tmp_path / "null", {})


def test_what_a_killed_process_left_is_removed_once_it_is_old(tmp_path):
    path = tmp_path / "result.json"
    names = [f".partial-{letter * 16}-{path.name}" for letter in "ab"]
    names.append(f".partial-{'c' * 16}-other-{path.name}")
    for name in names:
        (tmp_path / name).touch()
    for name in names[1:]:
        os.utime(tmp_path / name, (time.time() - 7200, time.time() - 7200))
    run_folder.write_json(path, {})
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([names[0], names[2], path.name])


def test_files_have_the_rights_that_the_user_wants(tmp_path):
    before = os.umask(0o027)
    try:
        run_folder.write_json(tmp_path / "result.json", {})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "result.json").stat().st_mode) == 0o640
