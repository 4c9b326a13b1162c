"""A disk that is full: the line names the file that a user knows, and no thread dies with a traceback."""

import errno
import json
import os
import struct
import subprocess
import sys
import threading
import types

import pytest

from saddle_jax.base.files import atomic_write
from saddle_jax.cli import process
from saddle_jax.runs import run_folder
from saddle_jax.runs.run_folder import Metrics, write_json
from saddle_jax.training import signals


def read_events(folder):
    """The events of all files of a folder, by the format of TensorBoard: length, sum, bytes, sum."""
    from tensorboardX.proto.event_pb2 import Event

    events = []
    for path in sorted(folder.iterdir()):
        content, place = path.read_bytes(), 0
        while place < len(content):
            (length,) = struct.unpack_from("<Q", content, place)
            events.append(Event.FromString(content[place + 12 : place + 12 + length]))
            place += 12 + length + 4
    return events


def test_metrics_are_written_to_both_places_without_a_thread(tmp_path):
    before = threading.active_count()
    metrics = Metrics(tmp_path, resume_at=0, last_step=9)
    metrics.write({"step": 1, "epoch": 0.5, "train_loss": 2.5, "each": [1.0], "bad": float("nan")})
    metrics.write({"step": 2, "epoch": 1.0, "test_loss": 1.5})
    assert threading.active_count() == before
    metrics.close()
    first, second = (json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert first == {"step": 1, "epoch": 0.5, "train_loss": 2.5, "each": [1.0], "bad": None}
    assert second["test_loss"] == 1.5
    events = read_events(tmp_path / "tensorboard")
    assert events[0].file_version == "brain.Event:2"
    assert [event.step for event in events if event.HasField("session_log")] == [1]
    shown = {(event.step, value.tag): value.simple_value for event in events for value in event.summary.value}
    assert shown == {(1, "epoch"): 0.5, (1, "train_loss"): 2.5, (2, "epoch"): 1.0, (2, "test_loss"): 1.5}


def test_metrics_on_a_full_disk_name_their_file(tmp_path):
    metrics = Metrics(tmp_path, resume_at=0, last_step=9)
    metrics._file.close()
    metrics._file = open("/dev/full", "a")  # noqa: SIM115
    with pytest.raises(OSError, match="No space left") as caught:
        metrics.write({"step": 1, "epoch": 0.5})
    assert caught.value.filename == str(tmp_path / "metrics.jsonl")
    with pytest.raises(OSError, match="No space left") as caught:
        metrics.close()  # what could not be written cannot be written now either
    assert caught.value.filename == str(tmp_path / "metrics.jsonl")


def test_event_files_on_a_full_disk_name_their_folder(tmp_path):
    metrics = Metrics(tmp_path, resume_at=0, last_step=9)
    records = metrics._loggers[tmp_path / "tensorboard"]._records
    records._writer.close()
    records._writer = open("/dev/full", "wb")  # noqa: SIM115
    with pytest.raises(OSError, match="No space left") as caught:
        metrics.write({"step": 1, "epoch": 0.5})
    assert caught.value.filename == str(tmp_path / "tensorboard")
    with pytest.raises(OSError, match="No space left"):
        metrics.close()
    assert metrics._file.closed


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_files_in_one_go_name_themselves_and_not_their_partial_file(tmp_path, monkeypatch, capsys):
    path = tmp_path / "result.json"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left") as caught:
            write_json(path, {})
    assert caught.value.filename == str(path)
    assert list(tmp_path.iterdir()) == []
    assert process.tell(caught.value) == 2
    assert capsys.readouterr().err == f"saddle: {path}: No space left on device\n"
    with pytest.raises(FileNotFoundError) as missing, atomic_write(tmp_path / "no" / "file"):
        pytest.fail("there is no such folder")
    assert missing.value.filename == str(tmp_path / "no" / "file")
    with pytest.raises(FileNotFoundError) as other, atomic_write(path):
        (tmp_path / "elsewhere").read_text()
    assert str(other.value.filename) == str(tmp_path / "elsewhere")  # its own name stays


def test_the_lock_on_a_full_disk_names_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left") as caught, run_folder.locked(tmp_path):
        pytest.fail("it is not locked")
    assert caught.value.filename == str(tmp_path / ".lock")


def test_threads_that_find_a_closed_loop_say_nothing(capsys, monkeypatch):
    monkeypatch.setattr(sys, "__unraisablehook__", lambda args: print("told", file=sys.stderr))

    def raised(error):
        return types.SimpleNamespace(exc_type=type(error), exc_value=error, object=None)

    signals._unraisable(raised(RuntimeError("Event loop is closed")))
    assert capsys.readouterr().err == ""
    signals._unraisable(raised(RuntimeError("anything else")))
    assert capsys.readouterr().err == "told\n"


def test_an_event_loop_without_descriptors_says_nothing_twice():
    """asyncio complains of a loop that it could not make, too, while the failure itself is told."""
    program = """
import asyncio, gc, os, resource
from saddle_jax.training import signals
signals.listen()
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 1, 4096))
try:
    asyncio.new_event_loop()
except OSError as error:
    print(error.strerror)
gc.collect()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("Too many open files\n", "")
