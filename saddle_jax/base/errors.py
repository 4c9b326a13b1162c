"""The errors of a run that cannot go on or be read, and errors as one line of text."""


class RunError(Exception):
    """A folder or a disk cannot be used; the message says why and what to do, in one line."""


class DamagedError(RunError):
    """A file of a run is damaged or cannot be read; the message names the file, in one line."""


def one_line(error: BaseException) -> str:
    """Returns an error's message as one line, or its type where it has no message."""
    return " ".join(str(error).split()) or type(error).__name__


def short_line(error: BaseException) -> str:
    """Returns `one_line` of a library's error, which may be long: its middle is cut out where it is."""
    text = one_line(error)
    return text if len(text) < 300 else f"{text[:120]} ... {text[-160:]}"  # the reason often comes last


def printable(text: str) -> str:
    """Returns a text whose control characters, which a terminal would obey, are spelt out as \\x1b."""
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii") for sign in text
    )
