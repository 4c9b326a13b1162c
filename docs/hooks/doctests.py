"""A griffe extension: the examples at the end of a docstring are shown as examples."""

from typing import Any

import griffe


class Doctests(griffe.Extension):
    """Puts the heading that Google's style wants above the first `>>>` of a docstring."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Changes one docstring as it is loaded."""
        if obj.docstring and ">>> " in obj.docstring.value and "Examples:" not in obj.docstring.value:
            obj.docstring.value = with_heading(obj.docstring.value)


def with_heading(text: str) -> str:
    """Indents the examples, which are the last paragraphs of a docstring, below the heading."""
    lines = text.splitlines()
    first = next(number for number, line in enumerate(lines) if line.lstrip().startswith(">>> "))
    examples = [f"    {line}" if line else "" for line in lines[first:]]
    return "\n".join([*lines[:first], "Examples:", *examples])
