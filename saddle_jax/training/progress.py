"""What a run shows: a heading, a bar with rate and time left, evaluations, a closing table."""

import sys
from typing import Any


class Screen:
    """Prints to standard output: with a bar in a terminal, plain lines elsewhere, nothing if quiet."""

    def __init__(self, quiet: bool = False):
        self._quiet = quiet
        self._bar: Any = None

    def line(self, text: str = "") -> None:
        """Prints one line, above the bar if there is one."""
        if self._quiet:
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
        """Shows a progress bar with `done` of `steps` steps taken."""
        from tqdm import tqdm

        # disable=None: no bar where standard error is not a terminal
        self._bar = tqdm(
            total=steps,
            initial=done,
            unit=" steps",
            dynamic_ncols=True,
            smoothing=0.05,
            disable=True if self._quiet else None,
        )

    def advance(self, steps: int) -> None:
        """Moves the bar forward by this many steps."""
        self._bar.update(steps)

    def stop(self) -> None:
        """Removes the bar from the screen, if there is one."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    close = stop  # for contextlib.closing
