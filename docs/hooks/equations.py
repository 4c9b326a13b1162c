"""Equations as docstrings write them, such as x <- W (x - eta g), become LaTeX and then MathML.

Browsers draw MathML themselves: the pages need no script and no font, and equations can be searched and read
aloud. An indented block of a docstring is a table: two or more spaces divide a line into cells, each of which
is a formula or words.
"""

import html
import re

import latex2mathml.converter

_GREEK = ("alpha", "beta", "gamma", "delta", "eta", "mu", "rho", "lambda", "xi", "tau")
_SYMBOLS = {name: f"\\{name} " for name in _GREEK} | {"lam": "\\lambda ", "grad": "\\nabla ", "sum": "\\sum "}
_FUNCTIONS = {"argmin", "min", "max", "int", "dist", "sign"}
_NAMES = {"margin", "count", "new"}  # quantities and subscripts that are words
_ACCENTS = {"-hat": "\\hat", "^": "\\hat", "~": "\\tilde"}
_SIGNS = {
    "<-": "\\leftarrow ", "->": "\\to ", "!=": "\\neq ", ">=": "\\geq ", "<=": "\\leq ", "||": "\\| ",
    "%": "\\bmod ", "*": "\\ast ",
}  # fmt: skip
_TOKEN = re.compile(
    r"(?P<power>\d+e-\d+)"
    r"|(?P<label>[A-Z]-[A-Za-z]{2,}|[A-Z]{3,})"
    r"|(?P<name>[A-Za-z]+)(?P<digit>\d?)(?P<accent>-hat|~|\^(?![A-Za-z0-9{(])|\+(?=[\s,);]|$))?(?P<primes>'*)"
    r"|(?P<script>[_^])(?P<of>\{[^}]*\}|\w+)"
    r"|(?P<sign><-|->|!=|>=|<=|\|\||[%*])"
    r"|(?P<inner><[^<>=-]+>)"
    r"|(?P<rest>.)"
)
# How words say symbols: the same letters as in the formulas.
_LETTERS = dict(zip((*_GREEK, "lam"), "αβγδημρλξτλ", strict=True))
_SPOKEN = re.compile(rf"\b(?:{'|'.join(_LETTERS)})(?=[^A-Za-z]|$)|\b([a-z])-hat\b|<-")
_ROOT = re.compile(r"\bsqrt\(")
_RELATION = re.compile(r"\S+ (=|<-|<|>|>=) ")


def from_docstring(text: str) -> str:
    """Turns a module's docstring into Markdown whose indented blocks are tables of equations."""
    parts = re.split(r"\n\s*\n", text)
    return "\n\n".join(_table(part) if part.startswith("    ") else _prose(part) for part in parts)


def to_mathml(latex: str, *, display: bool = False) -> str:
    """Turns LaTeX into MathML."""
    return latex2mathml.converter.convert(latex, display="block" if display else "inline")


def to_latex(formula: str) -> str:
    """Turns a formula of a docstring into LaTeX; words that are no symbols stay words."""
    found = _ROOT.search(formula)
    if found:
        inside, rest = _closed(formula[found.end() :])
        return f"{to_latex(formula[: found.start()])}\\sqrt{{{to_latex(inside)}}}{to_latex(rest)}"
    hat_first = re.sub(r"_(\w+)\^(?![\w{(])", r"^_\1", formula)  # g_p^ is a hat over g, with the subscript p
    return "".join(_token(token) for token in _TOKEN.finditer(hat_first))


def is_formula(cell: str) -> bool:
    """Tells a formula from words: it starts with a relation, or it has no words."""
    return bool(_RELATION.match(cell)) or not any(map(_is_word, re.findall(r"[A-Za-z]{2,}", cell)))


def _closed(text: str) -> tuple[str, str]:
    """Divides a text at the bracket that closes one which was opened before it."""
    depth = 1
    for place, sign in enumerate(text):
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if depth == 0:
            return text[:place], text[place + 1 :]
    raise ValueError(f"no closing bracket in {text!r}")


def _is_word(name: str) -> bool:
    known = name in _SYMBOLS or name in _FUNCTIONS or name in _NAMES or name in ("hat", "sqrt", "agg")
    return not known and not name.endswith("bar") and not re.fullmatch(r"[ij]{2}|[A-Z]+", name)


def _token(token: re.Match[str]) -> str:
    if token["name"]:
        return _name(token)
    if token["power"]:
        return f"10^{{-{int(token['power'].partition('-')[2])}}}"
    if token["script"]:
        of = token["of"].strip("{}")
        inside = f"\\text{{{of}}}" if re.fullmatch("[a-z]{3,}", of) and of not in _SYMBOLS else to_latex(of)
        return f"{token['script']}{{{inside}}}"
    if token["inner"]:
        return f"\\langle {to_latex(token['inner'][1:-1])}\\rangle "
    if token["label"]:
        return f"\\text{{{token['label']}}}"
    return _SIGNS.get(token.group(), token.group())


def _name(token: re.Match[str]) -> str:
    """Writes a symbol with its accent, its digit and its primes, or a word."""
    name, accent, primes = token["name"], token["accent"], token["primes"]
    if name in _FUNCTIONS:
        return f"\\operatorname{{{name}}}{accent or ''}{primes}"
    if name in _NAMES:
        return f"\\text{{{name}}}{primes}"
    if (_is_word(name) and len(name) > 1) or token.string.startswith("sum of", token.start()):
        return f"\\text{{ {name}{accent or ''}{primes} }}"
    symbol = _SYMBOLS.get(name, name)
    if name.endswith("bar"):
        symbol = f"\\bar{{{name.removesuffix('bar')}}}"
    elif accent in _ACCENTS:
        symbol = f"{_ACCENTS[accent]}{{{symbol.strip()}}}"
    digit = f"_{{{token['digit']}}}" if token["digit"] else ""
    return f"{symbol}{digit}{'^{+}' if accent == '+' else ''}{primes}"


def _table(block: str) -> str:
    """Makes a table of an indented block, in one line of HTML, which Markdown leaves alone."""
    rows = []
    for line in block.splitlines():
        aligned = re.sub(r"\s+(=|<-)\s+", r" \1 ", line.strip())
        cells = [_cell(cell) for cell in re.split(r"\s{2,}", aligned)]
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return f'<div class="equations"><table class="rows">{"".join(rows)}</table></div>'


def _cell(cell: str) -> str:
    return to_mathml(to_latex(cell)) if is_formula(cell) else html.escape(_spoken(cell), quote=False)


def _prose(part: str) -> str:
    """Keeps code as it is, and whatever else Markdown would read as its own signs as it is written."""
    pieces = re.split(r"(`[^`]+`)", part)
    return "".join(piece if piece.startswith("`") else _plain(_spoken(piece)) for piece in pieces)


def _plain(text: str) -> str:
    return re.sub(r"([_*\\])", r"\\\1", text.replace("<", "&lt;"))


def _spoken(text: str) -> str:
    """Writes eta as η, x-hat as x̂ and <- as ←, as the formulas do."""

    def letter(found: re.Match[str]) -> str:
        if found.group() == "<-":
            return "←"
        return f"{found[1]}\u0302" if found[1] else _LETTERS[found.group()]

    return _SPOKEN.sub(letter, text)
