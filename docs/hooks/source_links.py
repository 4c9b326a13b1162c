"""Links of the pages that lead out of docs/: the site has a page for each file or folder that they name."""

import pathlib
import posixpath
import re
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Files of the project that are pages of the site.
HOMES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
_LINK = re.compile(r"\[([^\]]*)\]\((?!\w+:|#)([^)\s#]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".yml": "yaml"}


def targets(text: str, folder: str) -> set[str]:
    """Returns the paths in the project that a page's links name; the page lies in a folder of it."""
    return {posixpath.normpath(posixpath.join(folder, link)) for _, link, _ in _LINK.findall(_outside(text))}


def rewritten(text: str, folder: str, page: str, is_page: Callable[[str], bool]) -> str:
    """Makes the links of a page lead to pages of the site, and shows titles in place of names of files."""

    def lead(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, found[2]))
        address = posixpath.relpath(address_of(target, is_page), posixpath.dirname(page) or ".")
        shown = title(target) if found[1].endswith(".md") else found[1]
        return f"[{shown}]({address}{found[3] or ''})"

    pieces = _FENCE.split(text)
    return "".join(piece if piece.startswith("```") else _LINK.sub(lead, piece) for piece in pieces)


def address_of(target: str, is_page: Callable[[str], bool]) -> str:
    """Returns where the site has a path of the project."""
    if target in HOMES:
        return HOMES[target]
    within = target.removeprefix("docs/")
    return within if within != target and is_page(within) else f"source/{target}.md"


def title(target: str) -> str:
    """Returns the first heading of a page of the project; of one that the site makes, its name."""
    path = ROOT / target
    found = re.search(r"^# (.*)$", path.read_text(), re.MULTILINE) if path.is_file() else None
    return found[1] if found else path.stem


def source_page(target: str) -> str:
    """Returns the page of a file or a folder of the project."""
    path = ROOT / target
    head = f"# {target}\n\n"
    if path.is_dir():
        rows = sorted(f"{each.name}/" if each.is_dir() else each.name for each in path.iterdir())
        return head + "\n".join(f"- `{row}`" for row in rows if not row.startswith(("__", ".")))
    text = path.read_text()
    return f"{head}````{_LANGUAGES.get(path.suffix, 'text')}\n{text.rstrip()}\n````\n"


def _outside(text: str) -> str:
    return "".join(piece for piece in _FENCE.split(text) if not piece.startswith("```"))
