"""Errors as one line of text."""

from saddle_jax.base.errors import one_line, short_line


def test_a_message_becomes_one_line():
    assert one_line(ValueError("a\n  b\tc\n")) == "a b c"
    assert one_line(KeyError()) == "KeyError"


def test_a_long_message_keeps_its_start_and_its_reason():
    message = "start " + "x" * 500 + " reason"
    assert one_line(OSError(message)) == message
    line = short_line(OSError(message))
    assert line.startswith("start x")
    assert line.endswith("x reason")
    assert " ... " in line
    assert len(line) < 300
    assert short_line(OSError("short")) == "short"
