"""docs/architecture.md names files and folders that exist, and its picture can be read."""

import pathlib
import re
import xml.etree.ElementTree

import pytest
from core_walk_test import WALK
from imports_test import PACKAGE, ROOMS

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "architecture.md").read_text()
LINKS = sorted(set(re.findall(r"\]\(([^)#]+)\)", PAGE)))


@pytest.mark.parametrize("link", LINKS)
def test_every_link_leads_somewhere(link):
    assert (DOCS / link).exists()


def test_a_link_says_where_it_leads():
    for text, link in re.findall(r"\[([^\]]+)\]\((\.\./saddle_jax/[^)]+)\)", PAGE):
        assert link == f"../saddle_jax/{text}"
    for name in re.findall(r"`(tests/\w+\.py)`", PAGE):
        assert (DOCS.parent / name).is_file()


def test_every_room_is_described_in_the_order_of_imports():
    described = re.findall(r"\[(\w+)\]\(\.\./saddle_jax/\1\)", PAGE)
    assert described == [room for room in ROOMS if (PACKAGE / room).is_dir()]


def test_a_step_is_understood_after_eight_files():
    sentence = re.search(r"read these eight files, in this order:(.*?)\n\n", PAGE, flags=re.DOTALL).group(1)
    assert re.findall(r"\[(\S+)\.py\]", sentence) == WALK


def test_the_picture_names_files_that_exist():
    texts = [
        text.text for text in xml.etree.ElementTree.parse(DOCS / "step.svg").getroot().iter() if text.text
    ]
    named = [text for text in texts if re.fullmatch(r"[a-z_]+/([a-z_]+\.py)?", text)]
    assert len(named) >= 5
    for name in named:
        assert (PACKAGE / name).exists()
