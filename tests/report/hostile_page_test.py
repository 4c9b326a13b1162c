"""A page of somebody else's folder shows texts as texts, and runs nothing of them."""

import base64
import hashlib
import json

import folders
import numpy as np
from browser import Tree, browse, needs_browser

from saddle_jax.report import landscape
from saddle_jax.report.policy import embed
from saddle_jax.training.config import Config

HOSTILE_NAME = "<img src=x onerror=document.title='hacked'>\"&"  # a folder's name has no slash
HOSTILE = f"</script><script>document.title='hacked'</script>{HOSTILE_NAME}'\u2028"


def hostile(tmp_path):
    about = {
        "versions": {HOSTILE: HOSTILE},
        "devices": [HOSTILE],
        "dataset": {"source": HOSTILE, "class_names": [HOSTILE, HOSTILE_NAME]},
        "partition": {"name": HOSTILE, "fingerprint": HOSTILE, "class_counts": [[4, 0], [0, 4], [2, 2]]},
        "topology": {"name": HOSTILE},
        "layers": [HOSTILE, HOSTILE_NAME],
    }
    stage = {"step": 1, "epoch": 1, "whose": HOSTILE, "lambda_max": 3.0, "density": None}
    grid = np.linspace(-1, 1, 3)
    run = folders.write_run(
        tmp_path / HOSTILE_NAME,
        Config(agents=3, model="mlp", dataset=HOSTILE),
        lines=folders.metrics(
            **dict.fromkeys((HOSTILE, "__proto__", "constructor"), lambda s: s),
            zeta_by_layer=lambda s: [0.5, None],
        ),
        about=about,
        paper=dict.fromkeys(("table", "row", "paper", "scale"), HOSTILE),
        sharpness={"data": HOSTILE, "images": HOSTILE, "stages": [stage, {**stage, "whose": "consensus"}]},
    )
    np.savez(run / "landscape.npz", x=grid, y=grid, loss=np.ones((1, 3, 3)), names=[HOSTILE_NAME])
    return run


def test_json_may_stand_in_a_script_element():
    text = embed({HOSTILE: [HOSTILE, 1.5, None]})
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {HOSTILE: [HOSTILE, 1.5, None]}


def test_names_from_a_hostile_folder_stay_text(tmp_path):
    text = folders.make_page(tmp_path, hostile(tmp_path)).read_text()
    tree = Tree(text)
    assert len(tree.find("script")) == 2  # the data and the page's own
    assert not tree.find("img")
    assert not any(name.startswith("on") for _, found, _ in tree.elements for name in found)
    ((_, title),) = tree.find("title")[:1]
    assert title == HOSTILE_NAME


def test_pages_allow_their_own_script_and_style_and_nothing_else(tmp_path):
    surface = tmp_path / "landscape.html"
    grid = np.linspace(-1, 1, 3)
    landscape.write_page(grid, grid, np.ones((1, 3, 3)), [HOSTILE], surface)
    for path in (folders.make_page(tmp_path, hostile(tmp_path)), surface):
        tree = Tree(path.read_text())
        policies = [found["content"] for found, _ in tree.find("meta") if "http-equiv" in found]
        rules = dict(rule.split(" ", 1) for rule in policies[0].split("; "))
        assert len(policies) == 1
        own = {
            kind: [text for found, text in tree.find(kind) if "type" not in found]
            for kind in ("script", "style")
        }
        for kind, (text,) in own.items():
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert rules.pop(f"{kind}-src") == f"'sha256-{digest}'"
        assert rules.pop("img-src") == "data:"
        assert set(rules) == {"default-src", "connect-src", "form-action", "base-uri"}
        assert set(rules.values()) == {"'none'"}
        assert not any("style" in found for _, found, _ in tree.elements)


@needs_browser
def test_a_hostile_folder_runs_nothing(tmp_path):
    page = folders.make_page(tmp_path, hostile(tmp_path))
    for policy in (True, False):  # the policy is a second line of defence: texts stay texts without it
        tree, console = browse(page, tmp_path, policy=policy)
        assert console == []
        assert tree.find("title")[0][1] == HOSTILE_NAME
        assert not tree.find("img")
        assert len(tree.find("script")) == (2 if policy else 3)  # one is the test's own
        assert any(text == HOSTILE for _, text in tree.find("figcaption"))  # the curve of that name
        assert HOSTILE_NAME in [text for _, text in tree.find("button")]  # the legend
