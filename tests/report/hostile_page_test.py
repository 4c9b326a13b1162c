"""A page of somebody else's folder shows texts as texts, and runs nothing of them."""

import base64
import hashlib
import json

import folders
import numpy as np
from browser import Tree, browse, needs_browser

from saddle_jax.report import landscape
from saddle_jax.report.page import embed
from saddle_jax.settings.settings import Settings

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
    stage = {"step": 1, "epoch": 1, "whose": 2, "lambda_max": 3.0, "density": None}
    grid = np.linspace(-1, 1, 3)
    run = folders.write_run(
        tmp_path / HOSTILE_NAME,
        Settings(agents=3, model="mlp", dataset=HOSTILE),
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


def hostile_numbers(folder):
    """Runs whose numbers and names no training writes."""
    line = {"step": 0, "epoch": 0.0, "train_loss": 5e-324, "bytes_sent_per_agent": 1}
    same = [line, line]
    yield "smallest", folders.write_run(folder / "smallest", lines=same)
    large = [{**line, "step": n, "epoch": 1e17 + 16 * n, "train_loss": 1.0 + n} for n in range(4)]
    yield "epochs", folders.write_run(folder / "epochs", lines=large)
    wide = [{**line, "step": n, "epoch": (-1) ** n * 9e99, "train_loss": 10.0 ** (99 * n)} for n in range(2)]
    yield "wide", folders.write_run(folder / "wide", lines=[*same, *wide])
    each = [0.5] * 100_000
    lines = [{"step": n, "epoch": n, "test_loss": 1.0, "agent_accuracy_each": each} for n in (1, 2)]
    many = {"agent_accuracy_each": each}
    yield "agents", folders.write_run(folder / "agents", lines=lines, result=many)
    names = {f"name{n}": 1.0 for n in range(100_000)}
    yield "names", folders.write_run(folder / "names", lines=[{**line, **names}, {**line, **names}])
    kinds = [{"step": n, "epoch": n, f"kind{n}": 1.0} for n in range(20_000)]
    yield "kinds", folders.write_run(folder / "kinds", lines=[*same, *kinds])
    torn = {"\ud800": 1.0, "a\udfff<b": 2.0}
    about = {"layers": ["\ud83d"], "versions": {"\udead": "\ud800"}}
    yield "torn", folders.write_run(folder / "torn", lines=[{**line, **torn}], about=about)
    density = {"x": [1.0, 2.0, None], "y": [1.0]}
    stage = {"step": 1, "epoch": 1, "whose": "consensus", "lambda_max": 3.0, "density": density}
    sharpness = {"data": "train", "images": 8, "stages": [stage]}
    yield "density", folders.write_run(folder / "density", sharpness=sharpness)


@needs_browser
def test_hostile_numbers_are_drawn_or_told(tmp_path):
    shown = {}
    for name, run in hostile_numbers(tmp_path):
        page = folders.make_page(tmp_path, run)
        tree, console = browse(page, tmp_path)
        assert console == [], name
        for tag, found, _ in tree.elements:
            for attribute in ("d", "points", "x", "y", "cx", "cy", "width", "height"):
                assert "NaN" not in (found.get(attribute) or ""), (name, tag, found)
                assert "Infinity" not in (found.get(attribute) or ""), (name, tag, found)
        assert tree.find("polyline", **{"class": "curve"}), name
        shown[name] = tree, page.stat().st_size
    for name in ("names", "kinds"):
        tree, size = shown[name]
        assert size < 20e6
        assert len(tree.find("figure")) <= 203
        (told,) = [text for _, text in tree.find("p") if "metrics are not shown" in text]
        assert told.endswith("metrics.jsonl has all.")
    tree, _ = shown["agents"]
    assert [text for _, text in tree.find("p") if text == "100,000 agents are too many to draw."]
    assert [text for _, text in tree.find("p") if text.startswith("10,000 of 100,000 agents are listed")]
    captions = [text for _, text in shown["torn"][0].find("figcaption")]
    assert {"\\ud800", "a\\udfff<b"} <= set(captions)


def test_large_landscapes_are_shown_in_part(tmp_path):
    run, axis = folders.write_run(tmp_path / "run"), np.linspace(-1, 1, 401)
    loss = axis[:, None] + 2 * axis + 4
    np.savez(run / "landscape.npz", x=axis, y=axis, loss=loss[None])
    text = folders.make_page(tmp_path, run).read_text()
    ((_, data),) = Tree(text).find("script", id="data")
    shown = json.loads(data)["runs"][0]["landscape"]
    assert shown["points"] == [401, 401]
    assert (len(shown["x"]), len(shown["y"]), shown["x"][0], shown["y"][-1]) == (120, 120, -1.0, 1.0)
    x, y = np.array(shown["x"]), np.array(shown["y"])
    np.testing.assert_allclose(shown["loss"], x + 2 * y[:, None] + 4)
