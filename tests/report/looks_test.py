"""The colours, lines and names by which a figure tells its runs apart."""

import inspect
import itertools

import matplotlib.colors
import numpy as np
import pytest

import saddle_jax as sj
from saddle_jax.methods import METHODS, base_methods
from saddle_jax.report import plots
from saddle_jax.runs.table import Run
from saddle_jax.settings.settings import Settings


@pytest.mark.parametrize("count", [2, 10, 16, 24])
def test_lines_have_colours_that_differ(count):
    colours = [matplotlib.colors.to_rgb(plots.colour_of(number, count)) for number in range(count)]
    between = [np.abs(np.subtract(one, other)).max() for one, other in itertools.combinations(colours, 2)]
    assert min(between) > 0.1


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["a-ring-qgm-none-seed0", "a-ring-q_saddle-none-seed0"], ["qgm", "q_saddle"]),
        (["a-x-seed0", "a-y-seed1"], ["x-seed0", "y-seed1"]),
        (["a-b-c", "a-b"], ["a-b-c", "a-b"]),
        (["only-one"], ["only-one"]),
        (["same", "same"], ["same", "same"]),
        (["a-$x$", "a-y"], [r"\$x\$", "y"]),
    ],
)
def test_legends_show_what_tells_runs_apart(names, shown):
    assert plots.labels(names) == shown


def group(**settings):
    return [Run("", Settings(**settings))]


def test_a_method_and_its_saddle_version_share_a_hue():
    pairs = [
        group(method=method, gradient=estimator) for method in ("qgm", "d2") for estimator in ("plain", "sam")
    ]
    assert plots.looks(pairs) == [(0, 1), (0, 0), (1, 1), (1, 0)]  # sharp ones are solid
    named = [group(method=method) for method in ("dpsgd", "d_saddle", "q_saddle", "qgm", "d2")]
    assert plots.looks(named) == [(0, 1), (0, 0), (1, 0), (1, 1), (2, 0)]
    tuned = [
        group(method="qgm"),
        group(method="q_saddle(rho=0.2)"),
        group(method="q_saddle", partition="dirichlet(0.5)"),
    ]
    assert plots.looks(tuned) == [(0, 1), (0, 0), (1, 0)]  # another problem is another hue
    swept = [group(method=f"q_saddle(rho={rho / 10})") for rho in range(1, 7)]
    assert plots.looks(swept) == [(number, 0) for number in range(6)]  # too many for shades of one hue
    drawn = plots.in_matplotlib(named)
    assert [line for _, line in drawn] == ["--", "-", "-", "--", "-"]
    assert drawn[1][0] == "C0"
    full, pale = (matplotlib.colors.to_rgb(colour) for colour, _ in drawn[1::-1])
    hues = [matplotlib.colors.rgb_to_hsv(colour)[0] for colour in (full, pale)]
    assert hues[0] == pytest.approx(hues[1])
    assert sum(pale) > sum(full)


def test_the_pairs_are_those_of_the_methods_themselves():
    for name, plain in plots.PLAIN.items():
        made = METHODS[name](sj.ring(3), 0.1, rho=0.1)
        bare = METHODS[plain](sj.ring(3), 0.1)
        assert (made.rule.requires, made.name, bare.name) == (bare.rule.requires, name, plain)
        assert made.gradient.name != bare.gradient.name
    wrapped = {name for name in base_methods() if inspect.unwrap(METHODS[name]).__name__ != name}
    assert wrapped
    assert wrapped <= set(plots.PLAIN)
