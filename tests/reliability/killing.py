"""Starts trainings that are killed: killing.py JOBS.json, in processes that are forked from this one.

What takes long, importing, is done once. JAX has no devices and no threads yet when a child is forked. A job
says where: {"workdir": ..., "at": ["rename", 3, "before"]} ends the child by SIGKILL at its third rename, and
{"signals": [[0.5, "INT"], [0.6, "TERM"]]} sends signals after so many seconds. Jobs in a list of "together"
run at the same time. An answer is [exit status, standard error, seconds]; all are printed as JSON.
"""

import builtins
import contextlib
import io
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import threading
import time

LIMIT = 120.0  # seconds: no child may live longer


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def counted(function, number, moment):
    """The same function, which ends the process before or after its call of that number."""
    calls = iter(range(1, 1_000_000))

    def wrapper(*arguments, **options):
        now = next(calls) == number
        if now and moment == "before":
            die()
        answer = function(*arguments, **options)
        if now:
            die()
        return answer

    return wrapper


def opening(number, moment):
    """open() that ends the process at its call of that number for writing: the file is there, and empty."""
    plain, calls = io.open, iter(range(1, 1_000_000))

    def wrapper(file, mode="r", *arguments, **options):
        opened = plain(file, mode, *arguments, **options)
        if set(mode) & set("wax+") and next(calls) == number:
            if moment == "half":  # as much as a disk may have taken of it
                opened.write("{" if "b" not in mode else b"{")
                opened.flush()
            die()
        return opened

    return wrapper


def saving(number, seconds):
    """orbax's save that ends the process so many seconds after its call of that number began."""
    import orbax.checkpoint as ocp

    plain, calls = ocp.StandardCheckpointer.save, iter(range(1, 1_000_000))

    def wrapper(self, *arguments, **options):
        if next(calls) == number:
            threading.Timer(seconds, die).start()
        return plain(self, *arguments, **options)

    ocp.StandardCheckpointer.save = wrapper


def arm(kind, number, moment):
    """Makes this process end at an event."""
    if kind == "time":
        threading.Timer(number, die).start()
    elif kind == "saving":
        saving(number, moment)
    elif kind == "open":
        builtins.open = io.open = opening(number, moment)
        pathlib.io.open = io.open
    elif kind == "rmtree":
        shutil.rmtree = counted(shutil.rmtree, number, moment)
    else:
        setattr(os, kind, counted(getattr(os, kind), number, moment))


def train(job):
    """Is a child: trains in a folder, or dies."""
    from saddle_jax.cli.__main__ import run

    if "at" in job:
        arm(*job["at"])
    sys.argv = ["saddle", "train", f"--workdir={job['workdir']}", "--quiet", *job["settings"]]
    run()


def start(job):
    """Forks a child; returns its number, when it began, and the file of its standard error."""
    errors = tempfile.TemporaryFile()  # noqa: SIM115
    both = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, both)  # as bin/saddle does; the command unblocks them
    child = os.fork()
    if child:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, both)
    else:
        os.dup2(errors.fileno(), 2)
        os.setsid()
        try:
            train(job)
        except SystemExit as ended:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.flush()
            os._exit(int(ended.code or 0))
        except BaseException:
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
            os._exit(99)
    for seconds, name in job.get("signals", ()):
        timer = threading.Timer(seconds, tell, (child, getattr(signal, f"SIG{name}")))
        timer.daemon = True
        timer.start()
    return child, time.monotonic(), errors


def tell(child, number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, number)


def end(child, began, errors):
    """Waits for a child, not for ever; returns its exit status, negative for a signal, and what it said."""
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        seconds = time.monotonic() - began
        if found:
            code = os.waitstatus_to_exitcode(status)
            break
        if seconds > LIMIT:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            code = "hangs"
            break
        time.sleep(0.005)
    errors.seek(0)
    return [code, errors.read().decode(errors="replace")[-2000:], seconds]


def main(jobs):
    import matplotlib.pyplot
    import orbax.checkpoint
    import tensorboardX
    import tqdm

    import saddle_jax.cli.train
    import saddle_jax.report.figures
    import saddle_jax.training.loop

    del matplotlib, orbax, tensorboardX, tqdm, saddle_jax
    answers = []
    for job in jobs:
        started = [start(each) for each in job.get("together", [job])]
        ends = [end(*each) for each in started]
        answers.append(ends if "together" in job else ends[0])
    print(json.dumps(answers))


if __name__ == "__main__":
    main(json.loads(pathlib.Path(sys.argv[1]).read_text()))
