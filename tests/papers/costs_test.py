import json

import pytest

from saddle_jax.cli import __main__ as cli
from saddle_jax.papers.saddle.costs import costs
from saddle_jax.papers.saddle.printed import SETTINGS


@pytest.mark.usefixtures("of_one_tensor")
def test_all_printed_figures_are_derived():
    found = list(costs())
    assert len(found) == 39
    for cost in found:
        if cost.compressor != "top_k(0.3)":  # k is floored per tensor
            assert cost.derived_gb == cost.paper_gb, cost


def test_top_k_is_counted_per_tensor():
    assert [cost.derived_gb for cost in costs("top-k")] == [cost.paper_gb for cost in costs("top-k")]


def test_steps_are_those_the_figures_imply():
    steps = {("cifar10", 5): 62_600, ("cifar10", 40): 8_000, ("cifar100", 40): 6_300}
    steps |= {("imagenette", 5): 6_000, ("imagenette", 10): 3_000, ("imagenet", 10): 120_120}
    for (dataset, agents), expected in steps.items():
        assert SETTINGS[dataset].steps(agents) == expected


@pytest.mark.usefixtures("of_one_tensor")
def test_what_travels_is_more_than_is_printed_where_signs_and_scales_do():
    for cost in costs():
        ratio = cost.wire_gb / cost.paper_gb
        expected = {"quantize(8)": 9 / 8, "quantize(10)": 11 / 10, "top_k(0.3)": (32 * 0.3 + 1) / (48 * 0.3)}
        assert ratio == pytest.approx(expected.get(cost.compressor, 1.0), rel=0.005)


@pytest.mark.usefixtures("of_one_tensor")
def test_the_command(capsys):
    assert cli.main(["saddle", "reproduce", "costs", "--table=4", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 4
    assert rows[0] == {
        "table": "4",
        "agents": 10,
        "dataset": "imagenette",
        "method": "ngm",
        "compressor": "none",
        "paper_gb": 110.25,
        "derived_gb": 110.25,
        "wire_gb": rows[0]["wire_gb"],
    }
    assert cli.main(["saddle", "reproduce", "costs", "--table=top-k"]) == 0
    assert "of 3 printed figures derived exactly" in capsys.readouterr().out
    assert cli.main(["saddle", "reproduce", "costs", "--table=9"]) == 2
    assert "table must be one of 1, 2, 3, 4, top-k, got '9'" in capsys.readouterr().err
