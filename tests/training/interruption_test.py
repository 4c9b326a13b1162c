"""Ctrl-C and SIGTERM, once and twice: one line and exit status 130, whatever the command is doing."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
INT, TERM = signal.SIGINT, signal.SIGTERM
START = (
    "import sys, time, saddle_jax.training.signals as i\ni._PATIENCE = {patience}; i.listen(); i.in_verb()\n"
)
# A minute or more in C, in which Python answers no signal.
STUCK = "import hashlib; hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)\n"
SWALLOWED = "try:\n  time.sleep(60)\nexcept BaseException:\n  pass\ntime.sleep(60)\n"
COLLECTOR = "import gc; gc.callbacks.append(lambda *_: time.sleep(60)); gc.collect(); time.sleep(60)\n"
TIDY = "try:\n  time.sleep(60)\nfinally:\n  print('tidied', flush=True)\n"


def interrupt(process, signals, gap=0.6):
    """Sends them, waits for the end, and returns what was printed and how long the end took."""
    for count, number in enumerate(signals):
        if count:
            time.sleep(gap)
        if process.poll() is None:
            process.send_signal(number)
    sent = time.monotonic()
    try:
        out, error = process.communicate(timeout=60)
    finally:
        process.kill()
    return out, error, time.monotonic() - sent


def start(program, patience=30):
    """A process that has said that it is listening."""
    text = START.format(patience=patience) + "print('ready', flush=True)\n" + program
    process = subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.1)
    return process


@pytest.mark.parametrize(
    ("program", "signals"),
    [(STUCK, (INT, INT)), (SWALLOWED, (INT, TERM)), (TIDY, (TERM, TERM))],
    ids=["stuck", "swallowed", "tidy"],
)
def test_the_second_signal_ends_whatever_is_going_on(program, signals):
    process = start(program.replace("print('tidied', flush=True)", "time.sleep(60)"))
    _, error, seconds = interrupt(process, signals)
    assert (process.returncode, error) == (130, "saddle: interrupted\n")
    assert seconds < 10  # on a busy machine; a hundredth of a second elsewhere


@pytest.mark.parametrize("program", [STUCK, SWALLOWED], ids=["stuck", "swallowed"])
def test_patience_with_the_first_signal_ends(program):
    process = start(program, patience=0.5)
    _, error, seconds = interrupt(process, [INT])
    assert (process.returncode, error) == (130, "saddle: interrupted\n")
    assert 0.3 < seconds < 10


def test_an_exception_that_nobody_can_catch_ends_too():
    process = start(COLLECTOR)
    _, error, seconds = interrupt(process, [INT])
    assert (process.returncode, error) == (130, "saddle: interrupted\n")
    assert seconds < 10


def test_the_first_signal_lets_a_verb_tidy_up():
    program = f"try:\n{''.join(f'  {line}' + chr(10) for line in TIDY.splitlines())}"
    program += "except KeyboardInterrupt:\n  i.tell('saddle: interrupted')\n  i.leave(130)\n"
    process = start(program)
    out, error, _ = interrupt(process, [INT])
    assert (process.returncode, out, error) == (130, "tidied\n", "saddle: interrupted\n")


def test_two_signals_at_once_are_one():
    """`timeout` sends one to the process and one to its group."""
    noting = (
        "with i.Signals() as seen:\n  while not seen.signal: time.sleep(0.01)\n  time.sleep(1)\nsys.exit(7)\n"
    )
    process = start(noting)
    _, error, _ = interrupt(process, [TERM, TERM], gap=0.01)
    assert (process.returncode, error) == (7, "")


@pytest.mark.parametrize("moment", [0.0, 0.4, 2.0])
def test_the_first_seconds_of_a_command(moment, tmp_path):
    """Imports, above all, and Python's own start; nobody can tell at which of them a signal arrives."""
    if not (ROOT / ".venv" / "installed.json").exists() or not pathlib.Path("/proc/self/cmdline").exists():
        pytest.skip("this is not the .venv of bin/test, or not Linux")
    process = subprocess.Popen(
        [sys.executable, ROOT / "bin" / "saddle", "train", f"--workdir={tmp_path}", "--epochs=2000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while b"saddle_jax.cli" not in pathlib.Path(f"/proc/{process.pid}/cmdline").read_bytes():
        assert process.poll() is None
        time.sleep(0.001)
    time.sleep(moment)
    _, error, _ = interrupt(process, [TERM if moment == 0.4 else INT])
    assert (process.returncode, error.count("\n")) == (130, 1), error
    assert "interrupted" in error


def test_nothing_that_takes_time_is_imported_before_the_command_listens():
    program = "import sys, saddle_jax.cli.__main__; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"jax", "numpy", "absl", "networkx", "flax"} & set(done.stdout.split())


def test_the_set_up_is_interrupted_in_one_line(tmp_path):
    """A copy of bin/ beside a project whose installation waits for ever."""
    (tmp_path / "bin").mkdir()
    for name in ("saddle", "environment.py"):
        (tmp_path / "bin" / name).write_bytes((ROOT / "bin" / name).read_bytes())
    for name in ("pyproject.toml", "constraints.txt", "LICENSE", "NOTICE"):
        (tmp_path / name).write_text("")
    slow = "import os, sys, time\nprint(os.getpid(), file=open('installer', 'w'))\ntime.sleep(60)\n"
    (tmp_path / "venv.py").write_text(slow)  # found before Python's own, by PYTHONPATH
    process = subprocess.Popen(
        [sys.executable, "bin/saddle", "--version"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "SADDLE_EXTRAS": ""},  # no GPU is looked for
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    installer = tmp_path / "installer"
    while not (installer.exists() and installer.read_text().endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    _, error, _ = interrupt(process, [INT])
    assert process.returncode == 130
    assert error == f"saddle: creating {tmp_path / '.venv'}\nsaddle: interrupted\n"
    with pytest.raises(ProcessLookupError):  # nothing goes on behind the user's back
        os.kill(int(installer.read_text()), 0)
