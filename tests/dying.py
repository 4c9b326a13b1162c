"""Runs that die between two steps."""

from saddle_jax.training.progress import Screen


class Killed(BaseException):
    """Stands for a process that dies between two steps."""


class Deadly(Screen):
    """Kills the run after so many steps."""

    def __init__(self, after):
        super().__init__(quiet=True)
        self._left = after

    def advance(self, steps):
        self._left -= steps
        if self._left <= 0:
            raise Killed
        super().advance(steps)
