"""The server of `saddle serve` among many clients, silent ones, and with few files that may be open."""

import concurrent.futures
import contextlib
import http.client
import os
import pathlib
import re
import signal
import socket
import threading
import time

import folders
import forked
import pytest
from serving import ask, served

from saddle_jax.serve.scan import Runs


def test_a_burst_of_500_clients_is_answered(tmp_path):
    folders.write_run(tmp_path / "run")
    with served(tmp_path) as port:
        gate = threading.Barrier(500)

        def status(_):
            gate.wait()
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            with contextlib.closing(connection):
                connection.request("GET", "/nowhere")
                return connection.getresponse().status

        with concurrent.futures.ThreadPoolExecutor(500) as pool:
            assert list(pool.map(status, range(500))) == [404] * 500


@pytest.fixture
def starved(tmp_path):
    """A server that may have 64 files open: its process and its port."""
    folders.write_run(tmp_path / "run")
    command = forked.Command("serve", tmp_path, "--port=0", files=64)
    yield command.pid, int(re.search(r":(\d+)/", command.line())[1])
    command.interrupt(signal.SIGTERM)
    assert command.end().returncode == 130


def seconds_computed(process):
    fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_silent_clients_make_room_for_others(starved):
    process, port = starved
    with contextlib.ExitStack() as silent:
        for _ in range(100):
            raw = silent.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            raw.sendall(b"GET / HTTP/1.1\r\nHost: local")
        time.sleep(0.5)
        before = seconds_computed(process)
        began = time.monotonic()
        assert ask(port).status == 200
        waited = time.monotonic() - began
        assert seconds_computed(process) - before < 0.3 * waited + 0.3
        assert waited < 20  # less than the time after which a silent client is given up anyway


def test_a_slow_folder_does_not_keep_others_from_the_list(tmp_path, monkeypatch):
    for name in ("a", "b"):
        folders.write_run(tmp_path / name)
    runs, slow, reached = Runs(tmp_path), threading.Event(), threading.Event()
    entry = runs._entry

    def waiting(workdir, signature):
        if workdir.name == "b":
            reached.set()
            slow.wait(30)
        return entry(workdir, signature)

    monkeypatch.setattr(runs, "_entry", waiting)
    thread = threading.Thread(target=runs.entries)
    thread.start()
    try:
        assert reached.wait(30)
        assert [entry.row.run for entry in runs.entries()] == ["a"]
    finally:
        slow.set()
        thread.join()
    assert [entry.row.run for entry in runs.entries()] == ["a", "b"]
