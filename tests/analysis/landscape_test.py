import functools
import json
import re
import shutil

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from browser import browse, needs_browser

from saddle_jax import models
from saddle_jax.analysis import landscape, sharpness
from saddle_jax.cli import __main__ as cli
from saddle_jax.report.landscape import write_page
from saddle_jax.training import reopen

KEY = jax.random.key(1)


@functools.cache
def network(seed=0):
    return models.init(models.build("cnn", 10), (8, 8, 1), jax.random.key(seed))


# ---- directions ----


def test_every_filter_of_a_direction_has_the_norm_of_the_models():
    params = network()
    for plane in landscape.directions("filter", params, KEY):
        for direction, weights in zip(jax.tree.leaves(plane), jax.tree.leaves(params), strict=True):
            if weights.ndim == 1:
                np.testing.assert_array_equal(direction, 0)
                continue
            for output in range(weights.shape[-1]):
                norms = [np.linalg.norm(np.asarray(t[..., output])) for t in (direction, weights)]
                assert norms[0] == pytest.approx(norms[1], rel=1e-5)
    assert {leaf.ndim for leaf in jax.tree.leaves(params)} == {1, 2, 4}


def test_orthogonal_directions_are_so_and_of_the_models_norm():
    params = network()
    flat = [
        jax.flatten_util.ravel_pytree(tree)[0]
        for tree in (params, *landscape.directions("orthogonal", params, KEY))
    ]
    size, first, second = (np.linalg.norm(vector) for vector in flat)
    assert first == pytest.approx(size, rel=1e-5)
    assert second == pytest.approx(size, rel=1e-5)
    assert abs(flat[1] @ flat[2]) < 1e-4 * size**2


@pytest.mark.parametrize("kind", landscape.KINDS)
def test_two_runs_share_their_draw_and_another_seed_draws_anew(kind):
    one, other = network(0), network(1)
    planes = [landscape.directions(kind, params, KEY) for params in (one, other)]

    def normalised(tree):
        def unit(x):
            axes = tuple(range(x.ndim - 1)) or (0,)
            norms = jnp.sqrt(jnp.sum(x**2, axes, keepdims=True))
            return x / jnp.where(norms > 0, norms, 1)

        return jax.tree.map(unit, tree)

    chex.assert_trees_all_close(normalised(planes[0]), normalised(planes[1]), atol=1e-5)
    anew = landscape.directions(kind, one, jax.random.key(2))
    kernel = [tree["linear"]["kernel"] for tree in (planes[0][0], planes[0][1], anew[0])]
    assert all(float(jnp.abs(kernel[0] - k).max()) > 1e-2 for k in kernel[1:])


# ---- surfaces ----


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("group", [1, 4, 64])
def test_the_surface_of_a_quadratic_is_the_closed_form(group):
    random = np.random.default_rng(0)
    matrices = random.normal(size=(2, 6, 6))
    params, first, second = random.normal(size=(3, 6))

    def loss_fn(p, matrix):
        return p @ matrix @ p

    x, y = landscape.grid(5, 1.5), landscape.grid(3, 0.5)
    told = []
    found = landscape.surface(
        loss_fn,
        jnp.asarray(params),
        (first, second),
        x,
        y,
        [(0.25, matrices[0]), (0.75, matrices[1])],
        group=group,
        progress=told.append,
    )
    matrix = 0.25 * matrices[0] + 0.75 * matrices[1]
    for i, a in enumerate(x):
        for j, b in enumerate(y):
            point = params + a * first + b * second
            assert found[i, j] == pytest.approx(point @ matrix @ point, abs=1e-12)
    assert sum(told) == found.size == 15


def test_the_grid_has_the_model_in_its_middle():
    np.testing.assert_allclose(landscape.grid(5, 2.0), [-2, -1, 0, 1, 2])
    assert landscape.grid(7, 0.3)[3] == 0
    for points, message in (
        (4, "points must be odd, .* got 4"),
        (1, "points must be an integer >= 3 and <= 2001, got 1"),
    ):
        with pytest.raises(ValueError, match=message):
            landscape.grid(points, 1.0)
    with pytest.raises(ValueError, match="span must be a number > 0, got 0"):
        landscape.grid(5, 0.0)
    with pytest.raises(ValueError, match="directions must be one of 'filter', 'orthogonal', got 'x'"):
        landscape.directions("x", {"w": jnp.ones(2)}, KEY)


# ---- runs ----

NASTY = "<script>alert(1)<!script>"  # a folder's name cannot hold a slash


@pytest.fixture(scope="module")
def trained(runs, tmp_path_factory):
    """Two runs under three names."""
    folder = tmp_path_factory.mktemp("runs")
    for name, source in (("one", "alone"), (NASTY, "sharp"), ("$three", "alone")):
        shutil.copytree(runs / source, folder / name)
    return folder


def test_the_command_writes_what_it_promises(trained, tmp_path, capsys):
    runs = [str(trained / name) for name in ("one", NASTY, "$three")]
    options = ["--points=5", "--span=0.5", "--images=100", f"--output={tmp_path / 'out'}"]
    assert cli.main(["saddle", "landscape", *runs, *options]) == 0
    assert "one: step 30, 100 of its training samples, not augmented" in capsys.readouterr().out
    written = {path.name for path in (tmp_path / "out").iterdir()}
    pictures = {"landscape.png", "panels.png", "contours.png", "sections.png"}
    assert written == {"landscape.npz", "landscape.html", *pictures}
    for name in pictures:
        assert (tmp_path / "out" / name).read_bytes().startswith(b"\x89PNG")
    found = np.load(tmp_path / "out" / "landscape.npz")
    assert found["names"].tolist() == ["one", NASTY, "$three"]
    np.testing.assert_allclose(found["x"], [-0.5, -0.25, 0, 0.25, 0.5])
    np.testing.assert_array_equal(found["x"], found["y"])
    assert found["loss"].shape == (3, 5, 5)
    for run, surface in zip(runs, found["loss"], strict=True):
        made, _, params = reopen.open_run(trained / run, pytest.fail)
        model = jax.tree.map(lambda x: np.asarray(x, np.float64), reopen.choose(params, None))["linear"]
        plane = landscape.directions("filter", reopen.choose(params, None), jax.random.key(0))
        moved = model["kernel"] + 0.5 * np.asarray(plane[0]["linear"]["kernel"])
        for kernel, loss in ((model["kernel"], surface[2, 2]), (moved, surface[4, 2])):
            losses = []
            for _, batch in sharpness.training_chunks(made, 100):
                counted = np.asarray(batch["mask"]) == 1
                images = np.asarray(batch["inputs"], np.float64)[counted]
                logits = images.reshape(len(images), -1) @ kernel + model["bias"]
                picked = logits[np.arange(len(logits)), np.asarray(batch["targets"])[counted]]
                losses += list(np.log(np.exp(logits).sum(axis=1)) - picked)
            assert len(losses) == 100
            assert loss == pytest.approx(np.mean(losses), rel=1e-5)


def test_the_page_is_self_contained_and_names_stay_text(tmp_path):
    surfaces = np.arange(18.0).reshape(2, 3, 3)
    surfaces[1, 0, 0] = np.inf
    x = landscape.grid(3, 1.0)
    names = ["</script><script>alert(1)</script>", "LANDSCAPE_DATA & \u2028"]
    write_page(x, x, surfaces, names, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert text.count("<script") == 2  # the data and the program, as in the template
    assert "alert(1)" in text
    assert not re.search(r"""(src|href)\s*=|https?:|innerHTML|fetch\(|import\s""", text)
    stored = re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)[1]
    data = json.loads(stored)
    assert data["names"] == names
    assert data["loss"][0] == surfaces[0].tolist()
    assert data["loss"][1][0][0] is None


BAD = {
    "even": (["one", "--points=4"], "points must be odd"),
    "few": (["one", "--points=1"], "points must be an integer >= 3 and <= 2001, got 1"),
    "span": (["one", "--span=-1"], r"span must be a number > 0, got -1"),
    "directions": (["one", "--directions=x"], "directions"),
    "no run": (["nowhere"], "nowhere holds no run: config.json is missing"),
    "nothing": ([], "arguments must be DIR... and options, got nothing"),
}


@pytest.mark.parametrize("case", BAD)
def test_mistakes_are_one_line_and_write_nothing(case, trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(trained)
    arguments, message = BAD[case]
    assert cli.main(["saddle", "landscape", *arguments, f"--output={tmp_path / 'out'}"]) == 2
    error = capsys.readouterr().err
    assert re.search(message, error)
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "mlp"}, "runs must have the same model, got logistic in .* and mlp in"),
        ({"dataset": "synthetic"}, "runs must have the same dataset, got digits in .* and synthetic in"),
        ({}, "is unfinished: `saddle train` with the same settings continues it"),
    ],
    ids=str,
)
def test_runs_that_cannot_be_compared(changes, message, trained, tmp_path, capsys):
    about = json.loads((trained / "one" / "config.json").read_text())
    about["config"] |= changes
    (tmp_path / "config.json").write_text(json.dumps(about))
    output = f"--output={tmp_path / 'out'}"
    assert cli.main(["saddle", "landscape", str(trained / "one"), str(tmp_path), output]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "out").exists()
    (tmp_path / "result.json").write_text((trained / "one" / "result.json").read_text())
    if not changes:
        assert cli.main(["saddle", "landscape", str(tmp_path), output]) == 2
        assert "has no whole checkpoint: train it first" in capsys.readouterr().err
        assert not (tmp_path / "out").exists()


def test_an_output_that_cannot_be_used_is_told_before_anything_is_computed(trained, capsys, monkeypatch):
    monkeypatch.setattr(landscape, "surface", lambda *arguments, **options: pytest.fail("computed"))
    assert cli.main(["saddle", "landscape", str(trained / "one"), "--output=/dev/null"]) == 2
    assert re.search(r"saddle: /dev/null: .*\n$", capsys.readouterr().err)


@needs_browser
def test_the_page_turns_and_reads_losses(tmp_path):
    loss = np.stack([np.arange(9.0).reshape(3, 3), np.full((3, 3), np.nan)])
    names = ["</script><img src=x onerror=document.title='hacked'>", "other"]
    page = tmp_path / "landscape.html"
    write_page(np.array([-1.0, 0, 1]), np.array([-1.0, 0, 1]), loss, names, page)
    hover = """
        const box = canvas.getBoundingClientRect(), before = view.turn;
        canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowLeft" }));
        const [x, y] = places.find(p => p[4] === 2 && p[5] === 1);
        canvas.dispatchEvent(new PointerEvent("pointermove", {
          clientX: box.left + x * box.width / canvas.width,
          clientY: box.top + y * box.height / canvas.height,
        }));
        document.title = (view.turn - before).toFixed(2);
    """
    tree, console = browse(page, tmp_path, script=hover)
    assert console == []
    assert tree.find("title")[0][1] == "-0.10"  # the key turned it; nothing else touched the title
    assert tree.find("p", id="read")[0][1] == f"{names[0]}: loss 7.0000 at (1.00, 0.00)"
    assert not tree.find("img")
