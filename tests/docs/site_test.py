"""The site of docs/ builds strictly, has every page that it must have, and opens from disk, offline."""

import dataclasses
import json
import os
import re
import subprocess
import sys

import browser
import pages
import pytest

import saddle_jax as sj
from saddle_jax.cli.verb import load
from saddle_jax.methods import METHODS
from saddle_jax.report import algorithms
from saddle_jax.sam import GRADIENTS
from saddle_jax.settings.settings import Settings

# No proxy answers there: whatever the build wanted from a network would fail.
ALONE = {f"{scheme}_proxy": "http://127.0.0.1:9" for scheme in ("http", "https")}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as README says but into another folder."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, **ALONE, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=pages.ROOT, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def test_every_page_of_docs_is_there(site):
    for page in pages.DOCS:
        assert (site / f"{page.stem}.html").is_file(), page
    assert "Beside others" in (site / "index.html").read_text()


def test_every_method_and_gradient_has_a_page(site):
    measured = json.loads((pages.DOCS_FOLDER / "pictures" / "convex.json").read_text())["methods"]
    for name in METHODS.ours:
        text = (site / "method" / f"{name}.html").read_text()
        facts = algorithms.facts_of_method(name)
        assert facts.citation in text
        assert "<math" in text
        assert ('<svg class="convex"' if name in measured else "Not measured yet") in text
    assert "the worst point nearby" in (site / "method" / "q_saddle.html").read_text()  # SAM's own words
    for name in GRADIENTS.ours:
        assert (site / "gradient" / f"{name}.html").is_file()


def test_every_public_name_is_described(site):
    described = {
        anchor
        for page in (site / "api").glob("*.html")
        for anchor in re.findall(r'id="([\w.]+)"', page.read_text())
    }
    rooms = {"data", "models", "tasks", "testing"}
    names = {name for name in dir(sj) if not name.startswith("_")} - {"METHODS"} - rooms
    assert {f"saddle_jax.{name}" for name in names} <= described


def test_examples_are_shown_as_code(site):
    text = (site / "api" / "graphs.html").read_text()
    assert "<blockquote>" not in text  # what Markdown makes of >>> outside of code
    assert text.count("&gt;&gt;&gt; ") > 20


def test_every_setting_is_listed_with_its_default(site):
    text = (site / "settings.html").read_text()
    for field in dataclasses.fields(Settings):
        assert f"<code>{field.name}</code>" in text
    assert "<td><code>q_saddle</code></td>" in text


def test_every_verb_is_listed(site):
    text = re.sub(r"<[^>]+>", "", (site / "verbs.html").read_text())
    assert {verb for verb in load() if f"\n  {verb} " not in text} == set()


def test_nothing_is_loaded_from_a_network(site):
    for page in site.rglob("*.html"):
        for tag, attributes, _ in browser.Tree(page.read_text()).elements:
            loaded = attributes.get("src") or (attributes.get("href") if tag == "link" else None) or ""
            assert not re.match(r"(https?:)?//", loaded), f"{page}: {loaded}"


def test_formulas_are_drawn(site):
    text = (site / "concepts.html").read_text()
    assert text.count("<math") >= 8
    assert not re.search(r"\\\(|\\\[|arithmatex|\\rho", text)


def test_links_out_of_docs_lead_to_pages_of_the_site(site):
    text = (site / "architecture.html").read_text()
    assert 'href="source/saddle_jax/core/topology.py.html"' in text
    assert "class Topology" in re.sub(
        r"<[^>]+>", "", (site / "source/saddle_jax/core/topology.py.html").read_text()
    )
    assert 'href="contributing.html"' in text


def test_the_search_knows_methods_and_settings(site):
    index = json.loads((site / "search" / "search_index.json").read_text())
    found = " ".join(each["location"] for each in index["docs"])
    for place in (
        "method/relay_sgd.html",
        "settings.html",
        "concepts.html#glossary",
        "api/graphs.html#saddle_jax.ring",
    ):
        assert place in found


@browser.needs_browser
def test_the_search_works_where_the_site_is_opened_from_disk(site, tmp_path):
    address = f"{(site / 'index.html').as_uri()}?q=RelaySGD"
    tree, said = browser.opened(address, tmp_path)
    assert said == []
    links = [attributes["href"] for attributes, _ in tree.find("a", **{"class": "md-search-result__link"})]
    assert any("method/relay_sgd.html" in link for link in links), links
