"""Ctrl-C and SIGTERM: one line and exit status 130, whatever the command is doing.

Python answers a signal only between two of its own instructions, and with an exception, which libraries may
swallow or tell in a traceback, and which cannot end a thread that does not. So the command has a listener: a
thread that the system tells of every signal at once, and that ends the process by itself where it must.

    while starting and ending     the first signal ends the process at once
    in a verb                     the first raises KeyboardInterrupt, so that what is half done is cleaned up
    in a training loop            the first is noted, and the loop saves and ends; see `Noted`
    everywhere                    the second ends the process at once, and so does time running out in a verb

Ending at once leaves what `kill -9` leaves: everything is written so that this does no harm. Whoever uses the
library without the command has no listener, and Python's own behaviour.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from typing import Any, NoReturn

STATUS = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_PATIENCE = 5.0  # seconds that a verb has for cleaning up
_ONE = 0.05  # seconds within which several signals are one: `timeout` sends to a process and to its group


class _State:
    """What the listener, the handlers and the loop know of each other; a process has one."""

    listens = False
    at_once = False  # whether the first signal ends the process
    notes = False  # whether a training loop takes the first signal
    noted = False  # whether a training loop has taken one
    raised = False  # whether KeyboardInterrupt was raised
    told = False  # whether the user has been told already
    heard = 0.0  # when the last signal came; 0: none has


_state = _State()
_ending = threading.RLock()


def listen() -> None:
    """Starts the listener. From here on the first signal ends the process, until `in_verb` says otherwise."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    _state.listens = _state.at_once = True
    for number in _SIGNALS:
        signal.signal(number, _handle)
    signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader,), name="saddle-signals", daemon=True).start()
    sys.unraisablehook = _unraisable
    if hasattr(signal, "pthread_sigmask"):  # bin/saddle has blocked them while Python started
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def in_verb() -> None:
    """From here on the first signal raises KeyboardInterrupt."""
    _state.at_once = False


def is_raised() -> bool:
    """Whether KeyboardInterrupt was raised, whatever a library has made of it since."""
    return _state.raised


def is_heard() -> bool:
    """Whether there was a signal, even if it came too late for the loop that would have ended for it."""
    return _state.heard > 0


def tell(line: str) -> None:
    """Prints the one line about an interruption; nothing if it has been printed."""
    with _ending:
        told, _state.told = _state.told, _state.listens
        if not told:
            print(line, file=sys.stderr, flush=True)


def leave(status: int) -> NoReturn:
    """Ends the command; after an interruption without waiting for threads, which may be stuck for good."""
    _state.at_once = True
    if not _state.raised:
        sys.exit(status)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


class Noted:
    """While entered, the first signal is only noted, in `signal`, and the second ends the process.

    Without a listener the second raises KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self.signal = 0

    def __enter__(self) -> "Noted":
        self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        _state.notes = True
        return self

    def _note(self, number: int, _: Any) -> None:
        if self.signal and not _state.listens:
            raise KeyboardInterrupt
        self.signal = number
        _state.noted = True

    def __exit__(self, *_: Any) -> None:
        _state.notes = False
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _handle(_: int, __: Any) -> None:
    """What the main thread does, when it gets to it."""
    if _state.at_once:
        _end()
    if not _state.raised and not _state.noted:  # else it is the second, of which the listener takes care
        _state.raised = True
        raise KeyboardInterrupt


def _watch(reader: socket.socket) -> None:
    """What the listener does, however busy the main thread is."""
    while received := reader.recv(1):
        if received[0] not in _SIGNALS:
            continue
        now, before = time.monotonic(), _state.heard
        if _state.at_once or (before and now - before > _ONE):
            _end()
        if not before:
            _state.heard = now
            if not _state.notes:
                timer = threading.Timer(_PATIENCE, _end)
                timer.daemon = True
                timer.start()


def _unraisable(args: Any) -> None:
    """KeyboardInterrupt where nobody can catch it, such as in a callback of the garbage collector."""
    if issubclass(args.exc_type, KeyboardInterrupt):
        _end()
    sys.__unraisablehook__(args)


def _end() -> NoReturn:
    """Ends the process from any thread. Writes past Python's streams, whose locks another thread may hold."""
    _ending.acquire(timeout=1.0)  # and never released: a second line would be one too many
    told, _state.told = _state.told, True
    if not told:
        with contextlib.suppress(OSError):
            os.write(2, b"\nsaddle: interrupted\n" if os.isatty(2) else b"saddle: interrupted\n")
    os._exit(STATUS)
