"""Things with options as settings spell them: NAME, or NAME(option=value, ...), with plain values only.

    looksam(every=10, alpha=0.5)        d2(variant=relay, half=False)

A value is a number, a text with or without quotes, True, False, None, or a list of these. Nothing is
evaluated: the text is read as Python's grammar reads it, and everything else is refused.
"""

import ast
import warnings
from typing import Any

from saddle_jax.base.checks import ArgumentError, did_you_mean


def parse(what: str, text: str) -> tuple[str, dict[str, Any]]:
    """Returns the name and the options in a text such as "looksam(every=10)"; `what` names the setting."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's own, of a grammar that is refused below
            tree = ast.parse(text.strip(), mode="eval").body
        _check_letters(text.strip(), tree)
        call = tree if isinstance(tree, ast.Call) else ast.Call(tree, [], [])
        words = [word.arg for word in call.keywords]
        plain = isinstance(call.func, ast.Name) and not call.args and all(words)
        if isinstance(call.func, ast.Name) and plain and len(set(words)) == len(words):
            return call.func.id, {str(word.arg): _value(word.value) for word in call.keywords}
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        pass
    raise ArgumentError(f"{what} must be NAME or NAME(option=value, ...) with plain values, got {text!r}")


def check_options(what: str, name: str, options: dict[str, Any], allowed: list[str]) -> None:
    """Checks that a thing takes these options; the error lists those that it takes."""
    for option in options:
        if option not in allowed:
            known = f"takes {', '.join(allowed)}" if allowed else "takes no options"
            raise ArgumentError(
                f"{did_you_mean(option, allowed)}{what} {name} {known}, got option {option!r}"
            )


def with_option(text: str, option: str, value: Any) -> str:
    """Returns the text with one option more: "gut" and mu = 0.5 give "gut(mu=0.5)"."""
    text = text.strip()
    if text.startswith("<") and text.endswith(">"):
        return f"<{with_option(text[1:-1], option, value)}>"
    begun = text[:-1].rstrip() if text.endswith(")") else f"{text}("
    return f"{begun}{'' if begun.endswith(('(', ',')) else ', '}{option}={value})"


def split(text: str, separator: str = ",") -> list[str]:
    """Splits a list at its commas, but not at those inside brackets; nothing gives an empty list."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def _check_letters(text: str, tree: ast.expr) -> None:
    """Checks that names are written as Python reads them: it takes fullwidth letters for plain ones."""
    for node in ast.walk(tree):
        name = {ast.Name: "id", ast.keyword: "arg"}.get(type(node))
        written = ast.get_source_segment(text, node) or ""
        if name and not written.startswith(getattr(node, name) or ""):
            raise ValueError(f"{written} is written in other letters")


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):  # a word without quotes
        return node.id
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(element) for element in node.elts]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        node_of_number = node.operand
    else:
        node_of_number = node
    if not isinstance(node_of_number, ast.Constant):
        raise ValueError("no plain value")
    return ast.literal_eval(node)
