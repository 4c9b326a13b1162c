"""What a run shows: a heading, a bar with rate, time left and newest numbers, evaluations, the result."""

import os
import sys
from typing import Any, TextIO

_BAR = "{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt}, {rate_fmt}, {remaining} left{postfix}"


class Screen:
    """Prints to standard output: with a bar in a terminal, plain lines elsewhere, nothing if quiet.

    Without `lines` there is the bar alone.
    """

    def __init__(self, quiet: bool = False, lines: bool = True):
        self._quiet, self._has_lines = quiet, lines and not quiet
        self._bar: Any = None
        self._noted: dict[str, str] = {}

    def line(self, text: str = "") -> None:
        """Prints one line, above the bar if there is one."""
        if not self._has_lines:
            return
        if self._bar is not None and not self._bar.disable:
            self._bar.write(text)
        else:
            print(text, flush=True)

    def warn(self, text: str) -> None:
        """Prints a warning to standard error, even if quiet."""
        if self._bar is not None and not self._bar.disable:
            self._bar.clear()
        print(f"saddle: {text}", file=sys.stderr, flush=True)

    def start(self, steps: int, done: int) -> None:
        """Shows a progress bar with `done` of `steps` steps taken; none where lines cannot be drawn over."""
        from tqdm import tqdm

        self._noted = {}
        self._bar = tqdm(
            total=steps,
            initial=done,
            unit=" steps",
            leave=self._has_lines,
            bar_format=_BAR,
            dynamic_ncols=True,
            smoothing=0.05,
            disable=self._quiet or not is_drawable(sys.stderr),
        )

    def note(self, **numbers: str) -> None:
        """Shows the newest numbers behind the bar, such as loss and accuracy, until they are given anew."""
        self._noted |= numbers
        if self._bar is not None:
            shown = ", ".join(f"{name} {text}" for name, text in self._noted.items())
            self._bar.set_postfix_str(shown, refresh=False)

    def advance(self, steps: int) -> None:
        """Moves the bar forward by this many steps."""
        self._bar.update(steps)

    def stop(self) -> None:
        """Removes the bar from the screen, if there is one."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    close = stop  # for contextlib.closing


def is_drawable(stream: TextIO) -> bool:
    """Returns whether lines of a stream can be redrawn: it is a terminal, and not a dumb one."""
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # it is closed
        return False
