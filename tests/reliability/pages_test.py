"""Class E: pages of hostile folders, in a browser; texts stay texts, and nothing runs or is fetched."""

import json
import pathlib
import sys

import pytest
from browser import browse, needs_browser
from folders import make_page, metrics, write_run

sys.path.append(str(pathlib.Path(__file__).parents[1] / "report"))
from hostile_page_test import HOSTILE_NAME, hostile

CLASS = "E"
pytestmark = [pytest.mark.slow, needs_browser]

HACK = "document.title='hacked'"
PAYLOADS = [
    f"<script>{HACK}</script>", f"</script><script>{HACK}</script>", f"<img src=x onerror={HACK}>",
    f"'-{HACK}-'", f"<svg onload={HACK}>", f"<iframe srcdoc=\"<script>parent.{HACK}</script>\">",
    f"javascript:{HACK}",
    f"\"><script>{HACK}</script>", f"<!--<script>{HACK}</script>", f"]]><script>{HACK}</script>", "__proto__",
    f"{{{{constructor.constructor(\"{HACK}\")()}}}}", f"<a href=javascript:{HACK}>x</a>", "constructor",
    "\u2028\u2029", f"<style>@import 'http://127.0.0.1:9/x'</style><b onmouseover={HACK}>x</b>",
    "<base href=http://127.0.0.1:9/>",
    f"<math><mi xlink:href=javascript:{HACK}>x", "\x00\x1b[2J", "a" * 100_000,
]  # fmt: skip


def spiced(payload):
    """A run whose every text is the payload."""
    about = {
        "versions": {payload: payload},
        "devices": [payload],
        "dataset": {"source": payload, "class_names": [payload, "b"]},
        "partition": {"name": payload, "fingerprint": payload, "class_counts": [[4, 0], [0, 4], [2, 2]]},
        "topology": {"name": payload},
        "layers": [payload, payload],
    }
    return {"about": about, "lines": metrics(**{payload: lambda step: step})}


@pytest.mark.parametrize("number", range(4))
def test_payloads_in_every_text_of_a_run(number, attack, tmp_path):
    for payload in PAYLOADS[number::4]:
        folder = tmp_path / str(PAYLOADS.index(payload))
        with attack.attempt(payload[:80]):
            run = write_run(folder / "run", **spiced(json.loads(json.dumps(payload))))
            page = make_page(folder, run)
            tree, console = browse(page, folder)
            assert tree.find("title")[0][1] == "run"
            assert not [text for text in console if "favicon" not in text], console
            assert not tree.find("iframe")
            assert not tree.find("img")


def test_the_hostile_folder(attack, tmp_path):
    with attack.attempt("all at once"):
        tree, console = browse(make_page(tmp_path, hostile(tmp_path)), tmp_path)
        assert console == []
        assert tree.find("title")[0][1] == HOSTILE_NAME
