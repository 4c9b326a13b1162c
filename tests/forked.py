"""Commands in processes of their own that need not start Python and import JAX: children of one that has.

What such a process does with its streams, limits and signals is as real as that of a shell. What JAX reads
from the environment when it is imported, and how Python itself starts, needs a process that is started anew.
"""

import atexit
import functools
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import types

SERVER = """
import importlib, io, json, os, resource, sys, traceback
for name in ("jax", "saddle_jax.cli.verb", "saddle_jax.report.page", "saddle_jax.serve.server"):
    importlib.import_module(name)
from saddle_jax.cli import verb
verb.load()

def child(request):
    os.chdir(request["cwd"])
    os.environ.update(request["env"])
    for number, path in enumerate(request["streams"]):
        os.close(number)
        if path is not None:
            flags = os.O_WRONLY | os.O_CREAT if number else os.O_RDONLY
            descriptor = os.open(path, flags)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
    opened = [None if path is None else io.TextIOWrapper(io.FileIO(number, "w"), request["encoding"])
              for number, path in enumerate(request["streams"]) if number]
    sys.stdin, (sys.stdout, sys.stderr) = None, opened
    if request["files"]:
        resource.setrlimit(resource.RLIMIT_NOFILE, (request["files"], request["files"]))
    sys.argv = request["argv"]
    try:
        exec(request["program"], {"__name__": "__main__"})
        status = 0
    except SystemExit as ending:
        status = ending.code or 0
    except BaseException:
        traceback.print_exc()
        status = 1
    for stream in opened:
        stream and not stream.closed and stream.flush()
    os._exit(status)

answers = os.fdopen(os.dup(1), "w")
for line in sys.stdin:
    request = json.loads(line)
    if "wait" in request:
        answer = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
    else:
        answer = os.fork()
        if not answer:
            child(request)
    print(answer, file=answers, flush=True)
"""
COMMAND = "from saddle_jax.cli.__main__ import run; run()"


@functools.cache
def _server():
    """The process whose children the commands are; there is one for all tests of a worker."""
    command = [sys.executable, "-P", "-c", SERVER]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(server.communicate)  # ends it, as it reads nothing more
    return server


def _asked(**request):
    server = _server()
    print(json.dumps(request), file=server.stdin, flush=True)
    return int(server.stdout.readline())


class Command:
    """A command that runs: `saddle` with some arguments, or another program."""

    def __init__(self, *arguments, program=COMMAND, cwd=".", files=0, encoding="utf-8", streams=(), **env):
        """Starts it; `streams` replace the files of standard input, output and error, None closes one."""
        self._folder = tempfile.TemporaryDirectory()
        self.out, self.err = (pathlib.Path(self._folder.name, name) for name in ("out", "err"))
        own = {1: str(self.out), 2: str(self.err)} | dict(streams)
        self.pid = _asked(
            argv=["saddle", *map(str, arguments)],
            program=program,
            cwd=str(pathlib.Path(cwd).resolve()),
            files=files,
            encoding=encoding,
            streams=[os.devnull, own[1], own[2]],
            env=env,
        )

    def line(self, seconds=60):
        """The first line that it prints, once it is there."""
        deadline = time.monotonic() + seconds
        while not (self.out.exists() and "\n" in self.out.read_text()):
            assert time.monotonic() < deadline, self.err.read_text()
            time.sleep(0.02)
        return self.out.read_text().splitlines(keepends=True)[0]

    def interrupt(self, number=signal.SIGINT):
        """Sends it a signal."""
        os.kill(self.pid, number)

    def end(self):
        """Its exit status and what it printed, when it has ended."""
        status = _asked(wait=self.pid)
        texts = [path.read_text() if path.exists() else "" for path in (self.out, self.err)]
        self._folder.cleanup()
        return types.SimpleNamespace(returncode=status, stdout=texts[0], stderr=texts[1])


def run(*arguments, **options):
    """Runs a command to its end."""
    return Command(*arguments, **options).end()
