"""Commands of the reliability tests, in this process, and what must hold of all of them."""

import contextlib
import io
import warnings

from saddle_jax.cli import __main__ as cli
from saddle_jax.cli import process

# 1 is for runs that diverged alone, 130 and 141 for signals and closed pipes: none of these can be here.
USUAL = (0, 2, 3)


class Asked:
    """What a command answered: its exit status, and what it printed and complained about."""

    def __init__(self, status, out, error):
        self.status, self.out, self.error = status, out, error


def ask(*arguments):
    """Runs a command of saddle; a traceback passes through, as it would be a bug with status 70."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    error = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error), warnings.catch_warnings():
        process.silence_libraries()  # as the command does before it comes to its verb
        status = cli.main(["saddle", *map(str, arguments)])
    texts = []
    for stream in (out, error):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    return Asked(status, *texts)


def check(asked, statuses=USUAL):
    """Checks the law of exit statuses: one of the usual ones, and one line that says what is wrong."""
    assert asked.status in statuses, (asked.status, asked.error)
    assert "Traceback" not in asked.error, asked.error
    assert "\x1b" not in asked.out + asked.error, "control characters reach the terminal"
    if asked.status:
        last = asked.error.splitlines()[-1]
        assert last.startswith("saddle: "), asked.error
        assert len(last) < 2100, len(last)
    return asked
