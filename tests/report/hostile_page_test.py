"""A page of somebody else's folder shows texts as texts, and runs nothing of them."""

import json

import folders
import numpy as np
from browser import Tree, browse, needs_browser

from saddle_jax.report.page import embed
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
        lines=folders.metrics(**{HOSTILE: lambda s: s}, zeta_by_layer=lambda s: [0.5, None]),
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
