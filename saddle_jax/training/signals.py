"""Ctrl-C and SIGTERM: one line and exit status 130, whatever the command is doing.

Python handles a signal only between two of its own instructions, and with an exception. Libraries may swallow
it or print a traceback, and it cannot end a thread that does not return. So the command has a listener: a
thread that learns of every signal immediately, and ends the process by itself where it must.

    while starting and ending     the first signal ends the process immediately
    in a verb                     the first raises KeyboardInterrupt, so that unfinished work is cleaned up
    in a training loop            the first is noted, and the loop saves and ends; see `Signals`
    everywhere                    the second ends the process immediately; so does a clean-up that lasts long

Ending immediately leaves what `kill -9` leaves: everything is written so that this does no harm. Whoever uses
the library without the command has no listener, and Python's own behaviour.
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
_PATIENCE = 5.0  # seconds that a verb has to clean up
_ONE = 0.05  # seconds within which several signals count as one: `timeout` signals a process and its group


class _State:
    """What the listener, the handlers and the loop know of each other; there is one per process."""

    listens = False
    at_once = False  # whether the first signal ends the process
    notes = False  # whether a training loop handles the first signal
    noted = False  # whether a training loop has noted one
    raised = False  # whether KeyboardInterrupt was raised
    printed = False  # whether the line about the interruption has been printed
    first_signal = 0.0  # when the first signal came; 0 before


_state = _State()
_ending = threading.RLock()


def listen() -> None:
    """Starts the listener. The first signal ends the process from now on, until `in_verb` is called."""
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
    """Makes the first signal raise KeyboardInterrupt from now on."""
    _state.at_once = False


def is_raised() -> bool:
    """Returns whether KeyboardInterrupt was raised, even if a library has caught it since."""
    return _state.raised


def is_heard() -> bool:
    """Returns whether a signal came, even if it came too late for the training loop to stop."""
    return _state.first_signal > 0


def tell(line: str) -> None:
    """Prints the one line about an interruption, unless one has been printed before."""
    with _ending:
        printed, _state.printed = _state.printed, _state.listens
        if not printed:
            print(line, file=sys.stderr, flush=True)


def leave(status: int) -> NoReturn:
    """Ends the command; after an interruption without waiting for threads, which may be stuck forever."""
    _state.at_once = True
    if not _state.raised:
        sys.exit(status)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


class Signals:
    """A context in which the first signal is only noted, in `signal`, and the second ends the process.

    Without a listener the second raises KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self.signal = 0

    def __enter__(self) -> "Signals":
        _state.notes = True  # first, lest the listener take a signal that is noted for one that raises
        self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def _note(self, number: int, _: Any) -> None:
        if self.signal and not _state.listens:
            raise KeyboardInterrupt
        self.signal = number
        _state.noted = True

    def __exit__(self, *_: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        _state.notes = False


def _handle(_: int, __: Any) -> None:
    """Handles a signal in the main thread, as soon as that gets to it."""
    if _state.at_once:
        _end()
    if not _state.raised and not _state.noted:  # otherwise it is the second, which the listener handles
        _state.raised = True
        raise KeyboardInterrupt


def _watch(reader: socket.socket) -> None:
    """Handles signals in the listener's thread, however busy the main thread is."""
    while received := reader.recv(1):
        if received[0] not in _SIGNALS:
            continue
        now, before = time.monotonic(), _state.first_signal
        if _state.at_once or (before and now - before > _ONE):
            _end()
        if not before:
            _state.first_signal = now
            if not _state.notes:
                timer = threading.Timer(_PATIENCE, _end)
                timer.daemon = True
                timer.start()


def _unraisable(args: Any) -> None:
    """Handles a KeyboardInterrupt that nobody can catch, such as one in a garbage collector's callback.

    Threads of tensorstore that still write a checkpoint, after another of them has failed, find orbax's event
    loop closed. A loop for which there were too few free descriptors cannot be closed, as it was never whole.
    The failure itself is raised and reported.
    """
    if issubclass(args.exc_type, KeyboardInterrupt):
        _end()
    if issubclass(args.exc_type, RuntimeError) and str(args.exc_value) == "Event loop is closed":
        return
    if getattr(args.object, "__qualname__", "") == "BaseEventLoop.__del__":
        return
    sys.__unraisablehook__(args)


def _end() -> NoReturn:
    """Ends the process from any thread. It bypasses Python's streams: another thread may hold their locks."""
    _ending.acquire(timeout=1.0)  # never released: there must not be a second line
    printed, _state.printed = _state.printed, True
    if not printed:
        with contextlib.suppress(OSError):
            os.write(2, b"\nsaddle: interrupted\n" if os.isatty(2) else b"saddle: interrupted\n")
    os._exit(STATUS)
