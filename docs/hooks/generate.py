"""What mkdocs calls while it builds the site: it adds the generated pages, mends links and draws equations.

Generated pages are made at each build and committed nowhere.
"""

import functools
import html
import re
from typing import Any

import api_pages
import equations
import method_pages
import setting_pages
import source_links
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_MATH = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are made from the project, and puts every page into the navigation."""
    made: dict[str, tuple[str | None, str]] = {
        **method_pages.method_pages(),
        **method_pages.gradient_pages(),
        **api_pages.api_pages(),
        "settings.md": (None, setting_pages.settings_page()),
        "verbs.md": (None, setting_pages.verbs_page()),
    }
    texts = {page.src_uri: page.content_string for page in files.documentation_pages()}
    addresses = {file.src_uri for file in files if not file.inclusion.is_excluded()} | made.keys()
    homes = source_links.HOMES.items()
    of_project = {address: (source_links.ROOT / name).read_text() for name, address in homes}
    sources = set().union(*(source_links.targets(text, "docs") for text in texts.values()))
    sources |= set().union(*(source_links.targets(text, "") for text in of_project.values()))
    is_page = addresses.__contains__
    for address, text in of_project.items():
        made[address] = (None, source_links.rewritten(text, "", address, is_page))
    for target in sorted(sources):
        address = source_links.address_of(target, is_page)
        if address.startswith("source/") and (source_links.ROOT / target).exists():
            made[address] = (None, source_links.source_page(target))
    for address, (_, text) in made.items():
        files.append(File.generated(config, address, content=text))
    _extend(config, made, texts)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Makes links that lead out of docs/ lead to pages of the site; generated pages do already."""
    if page.file.generated_by:
        return markdown
    is_page = functools.partial(_is_included, files)
    return source_links.rewritten(markdown, "docs", page.file.src_uri, is_page)


def on_page_content(content: str, **_: Any) -> str:
    """Draws the formulas between dollars as MathML."""

    def drawn(found: re.Match[str]) -> str:
        return equations.to_mathml(html.unescape(found[2]).strip(), display=found[1] == "div")

    return _MATH.sub(drawn, content)


def _is_included(files: Files, address: str) -> bool:
    file = files.get_file_from_path(address)
    return file is not None and not file.inclusion.is_excluded()


def _extend(config: MkDocsConfig, made: dict[str, tuple[str | None, str]], texts: dict[str, str]) -> None:
    """Fills the sections that mkdocs.yml leaves open, and adds one of the pages that it does not know."""
    groups = {"METHOD_PAGES": "method/", "GRADIENT_PAGES": "gradient/", "API_PAGES": "api/"}
    entries = {
        name: [{title: address} for address, (title, _) in made.items() if address.startswith(start)]
        for name, start in groups.items()
    }
    config.nav = _filled(config.nav, entries)
    named = set(re.findall(r"[\w/]+\.md", str(config.nav)))
    unknown = sorted(address for address in texts if address not in named)
    if unknown:
        config.nav.append({"More": unknown})


def _filled(nav: Any, entries: dict[str, list[Any]]) -> Any:
    if isinstance(nav, list):
        return [_filled(each, entries) for each in nav]
    if isinstance(nav, dict):
        return {title: _filled(each, entries) for title, each in nav.items()}
    return entries.get(nav, nav)
