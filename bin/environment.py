"""Sets up .venv at first use and runs a command in it. It needs only the standard library.

`.venv/installed.json` is written last of all. It holds a fingerprint of what was installed, so that a later
start installs nothing if nothing has changed. If it is missing, an installation was interrupted, and the
folder is made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
INSTALLED = VENV / "installed.json"
OLDEST = (3, 11)
_HASHED = ("all", "test")  # extras of which requirements/ has every file's hash
# What the tests run with.
FOR_TESTS = {
    # Workers compile the same programs: they share what they have compiled, and keep it for the next run.
    # Small ones too: keeping one takes 1.5 ms and finding it saves 9 ms, and every third was compiled before.
    "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    # Tests compile more than they compute: without LLVM's optimisations, with XLA's older emitters and
    # without the lines of Python that operations come from, compiling takes half the time. (In one piece,
    # with --xla_cpu_parallel_codegen_split_count=1, it would take less, but then some numbers are wrong.)
    "XLA_FLAGS": os.environ.get(
        "XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
    ),
    "JAX_TRACEBACK_IN_LOCATIONS_LIMIT": os.environ.get("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0"),
}
# Says on one line why the package is not there.
_IMPORT = """
try:
    import saddle_jax
except Exception as error:
    print(type(error).__name__, error, sep=": ")
"""


def prepare(*extras: str) -> None:
    """Makes sure that .venv holds the project with these extras, and with those that SADDLE_EXTRAS names.

    If SADDLE_EXTRAS is not set and there is an NVIDIA GPU, `cuda` is installed too, but only when something
    is installed anyway: a node with GPUs and without internet can use a .venv that was set up elsewhere.
    `saddle train` says if JAX then does not use the GPU. With SADDLE_INSTALL=no, .venv is taken as it is:
    somebody else has set it up, with other versions perhaps.
    """
    if os.environ.get("SADDLE_INSTALL") == "no":
        return
    extras += _named_extras()
    if not _is_ready(extras):
        if sys.version_info < OLDEST:
            _restart_with_newer_python()
        _check_names(extras)
        with _lock():
            if not _is_ready(extras):  # another process may have finished it in the meantime
                _install(extras + _extras_for_hardware())


def run(arguments: list[str], *, takes_signals: bool = False, **variables: str) -> None:
    """Runs .venv's Python in place of this process, with the same exit status.

    A program that takes signals finds SIGINT and SIGTERM blocked and unblocks them itself. Otherwise Python
    would answer a signal during its start with a traceback.
    """
    environment = {**os.environ, **variables}
    if takes_signals and hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    if os.name == "nt":
        sys.exit(subprocess.run([PYTHON, *arguments], env=environment, check=False).returncode)
    os.execve(PYTHON, [str(PYTHON), *arguments], environment)


def _named_extras() -> tuple[str, ...]:
    names = os.environ.get("SADDLE_EXTRAS", "").split(",")
    return tuple(name.strip() for name in names if name.strip())


def _check_names(extras: tuple[str, ...]) -> None:
    """Ends with one line if SADDLE_EXTRAS names an extra that pyproject.toml does not have."""
    if not _named_extras():
        return
    import tomllib  # not in the Pythons that are too old for us

    available = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    unknown = [name for name in extras if name not in available]
    if unknown:
        _refuse(
            f"SADDLE_EXTRAS must be a list, with commas, of {', '.join(sorted(available))}, "
            f"got {', '.join(unknown)}"
        )


def _extras_for_hardware() -> tuple[str, ...]:
    """Returns the extras that the hardware needs; none where SADDLE_EXTRAS is set, even to nothing."""
    if "SADDLE_EXTRAS" in os.environ:
        return ()
    # By itself: the package around this file needs what is not installed yet.
    file = pathlib.Path(__file__).resolve().parent.parent / "saddle_jax" / "devices" / "machine.py"
    spec = importlib.util.spec_from_file_location("machine", file)
    machine = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(machine)
    if not machine.has_gpu():
        return ()
    _say("found an NVIDIA GPU: installing JAX for CUDA (SADDLE_EXTRAS= in the environment leaves it out)")
    return ("cuda",)


def _fingerprint() -> str:
    digest = hashlib.sha256()
    # The package carries the licence and the notice.
    files = [ROOT / name for name in ("pyproject.toml", "constraints.txt", "LICENSE", "NOTICE")]
    for path in [*files, *sorted((ROOT / "requirements").glob("*.txt"))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _place() -> str:
    """Returns what a virtual environment depends on: its own path and its interpreter."""
    return f"{VENV} {os.path.realpath(PYTHON)}"


def _installed() -> dict:
    try:
        return json.loads(INSTALLED.read_text())
    except (OSError, ValueError):
        return {}


def _is_ready(extras: tuple[str, ...]) -> bool:
    installed = _installed()
    same = installed.get("fingerprint") == _fingerprint() and installed.get("place") == _place()
    return same and set(extras) <= set(installed.get("extras", [])) and PYTHON.exists()


def _install(extras: tuple[str, ...]) -> None:
    names = sorted({*extras, *_installed().get("extras", [])})
    try:
        if _installed().get("place") == _place() and PYTHON.exists():
            INSTALLED.unlink()  # after an interruption from now on, everything is made again
        else:
            _say(f"creating {VENV}")
            shutil.rmtree(VENV, ignore_errors=True)
            _call([sys.executable, "-P", "-m", "venv", VENV])
        _say("installing saddle_jax" + (f" with {', '.join(names)}" if names else "") + ", once ...")
        tell = _Installing()
        for command in _pip_commands(names):
            _call(command, tell)
        heard: list[str] = []
        _call([PYTHON, "-P", "-c", _IMPORT], heard.append)
        if heard:
            raise OSError(" ".join("".join(heard).split()))
    except (subprocess.CalledProcessError, OSError) as error:
        _refuse(f"setting up {VENV} failed ({error}); run the command again to start over")
    partial = INSTALLED.with_suffix(".partial")
    partial.write_text(json.dumps({"fingerprint": _fingerprint(), "place": _place(), "extras": names}))
    os.replace(partial, INSTALLED)
    _say("ready")


def _pip_commands(extras: list[str]) -> list[list]:
    """Returns the commands that install the project with these extras.

    What `all` and `test` need is installed from requirements/, whose files have the hashes of everything:
    nothing else is accepted, and nothing is fetched to build with. Other extras depend on the hardware; they
    have versions, and no hashes. At the end the project itself is installed, and what may still be missing.
    """
    install = [PYTHON, "-P", "-m", "pip", "install", "--progress-bar=off", "--disable-pip-version-check"]
    hashed = [name for name in _HASHED if name in extras]
    commands: list[list] = [
        [*install, "--require-hashes", "--no-deps", "--no-build-isolation", "--requirement", file]
        for file in (ROOT / "requirements" / f"{name}.txt" for name in (("build", *hashed) if hashed else ()))
    ]
    requirement = f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT)
    isolation = ["--no-build-isolation"] if hashed and set(extras) <= set(_HASHED) else []
    constraints = ["--constraint", ROOT / "constraints.txt"]
    return [*commands, [*install, *isolation, *constraints, "--editable", requirement]]


class _Installing:
    """Turns the many lines of pip into a few that say how far the installation is."""

    _APART = 5.0  # seconds between two lines

    def __init__(self):
        self._started = self._said = time.monotonic()
        self._packages = 0

    def __call__(self, line: str) -> None:
        """Says what a line of pip's output tells, if it is worth a line and the last one was a while ago."""
        words = line.split()
        if words[:3] == ["Installing", "collected", "packages:"]:
            _say(f"unpacking {len(words) - 3} packages ({self._elapsed()}); this takes a while")
        elif len(words) > 1 and words[0] in ("Collecting", "Downloading", "Building"):
            self._packages += words[0] == "Collecting"
            if time.monotonic() - self._said >= self._APART:
                self._said = time.monotonic()
                size = f" {' '.join(words[2:4])}" if words[0] == "Downloading" else ""
                name = os.path.basename(words[1]).partition("-")[0]
                _say(f"package {self._packages}: {words[0].lower()} {name}{size} ({self._elapsed()})")

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self._started:.0f} s"


def _call(command: list, tell: Callable[[str], None] | None = None) -> None:
    """Runs a command in a session of its own: Ctrl-C reaches only this process, which ends the command.

    `tell` gets the lines that it prints, which are not shown then; errors are shown in any case.
    """
    output = None if tell is None else subprocess.PIPE
    with subprocess.Popen(
        command, start_new_session=True, stdout=output, text=True, errors="replace"
    ) as process:
        try:
            for line in process.stdout or ():
                tell(line)
            status = process.wait()
        except BaseException:
            if os.name == "nt":
                process.kill()
            else:
                os.killpg(process.pid, signal.SIGKILL)  # pip and the processes that pip has started
            process.wait()
            raise
    if status:
        raise subprocess.CalledProcessError(status, command)


def _restart_with_newer_python() -> None:
    for minor in range(14, OLDEST[1] - 1, -1):
        newer = shutil.which(f"python3.{minor}")
        if newer:
            os.execv(newer, [newer, *sys.argv])
    version = ".".join(map(str, sys.version_info[:3]))
    _refuse(f"Python must be 3.11 or newer, got {version} ({sys.executable})")


@contextlib.contextmanager
def _lock():
    """Allows one installer at a time. The system releases the lock when the process ends."""
    try:
        file = open(ROOT / ".venv.lock", "w")  # noqa: SIM115
    except OSError as error:
        _refuse(f"{ROOT} must be a folder that can be written to, for .venv: {error.strerror}")
    with file:
        if os.name != "nt":
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                _say("waiting for another set-up of .venv to finish")
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _refuse(message: str) -> None:
    """Ends with one line and the status of a mistake: 1 is for runs that diverged."""
    _say(message)
    sys.exit(2)


def _say(message: str) -> None:
    print(f"saddle: {message}", file=sys.stderr, flush=True)
