"""The paper as data: its tables, their settings, and what stands beside them."""

import importlib.util
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from folders import cell

from saddle_jax.methods import METHODS
from saddle_jax.papers.evidence import beside_the_paper, contrasts, numbers
from saddle_jax.papers.saddle.experiments import EXPERIMENTS, PAPER
from saddle_jax.papers.tables import SCALES, Printed, lines_of
from saddle_jax.training import batches, program

ROOT = pathlib.Path(__file__).resolve().parents[2]


def figures(table):
    """Means by (agents, dataset, alpha, method, compressor)."""
    return {
        (e.agents, e.dataset, e.alpha, e.method, e.compressor): e.printed.mean
        for e in EXPERIMENTS[table].entries
    }


def gain(table, dataset, one, other):
    """By how much a method is better than another on average, uncompressed."""
    means = figures(table)
    return np.mean(
        [
            mean - means[agents, name, alpha, other, "none"]
            for (agents, name, alpha, method, compressor), mean in means.items()
            if (name, method, compressor) == (dataset, one, "none")
        ]
    )


def test_the_figures_give_the_averages_that_the_paper_quotes():
    assert gain("1", "cifar10", "q_saddle", "qgm") == pytest.approx(8.4, abs=0.2)
    assert gain("1", "cifar100", "q_saddle", "qgm") == pytest.approx(6, abs=0.5)
    assert gain("2", "imagenette", "q_saddle", "qgm") == pytest.approx(12, abs=0.5)
    assert gain("3", "cifar10", "n_saddle", "ngm") == pytest.approx(2.3, abs=0.06)
    assert gain("3", "cifar100", "n_saddle", "ngm") == pytest.approx(4.2, abs=0.1)
    assert gain("4", "imagenette", "n_saddle", "ngm") == pytest.approx(1.7, abs=0.1)
    assert gain("4", "imagenet", "n_saddle", "ngm") == pytest.approx(4.2, abs=0.1)
    assert gain("5", "cifar10", "q_saddle", "qgm") == pytest.approx(12, abs=0.2)
    assert gain("dpsgd", "cifar10", "d_saddle", "dpsgd") == pytest.approx(10.96, abs=0.01)  # the text: 10
    assert gain("dpsgd", "cifar100", "d_saddle", "dpsgd") == pytest.approx(5.4, abs=0.1)


@pytest.mark.parametrize(("table", "base"), [("top-k", "1"), ("2-bit", "3")])
def test_the_figures_give_the_drops_that_the_paper_prints_but_for_one(table, base):
    full = figures(base)
    wrong = {}
    for e in EXPERIMENTS[table].entries:
        drop = full[e.agents, e.dataset, e.alpha, e.method, "none"] - e.printed.mean
        if abs(drop - e.drop) > 0.001:
            wrong[e.name] = (round(drop, 2), e.drop)
    assert wrong == ({"cifar10-ring5-alpha0.001-q_saddle-top_k0.3": (1.07, 1.18)} if table == "top-k" else {})
    drops = [e.drop for found in EXPERIMENTS.values() for e in found.entries if e.drop is not None]
    assert len(drops) == 24
    assert sum(drops) == pytest.approx(230.20)  # summed by hand from the two tables


def test_a_printed_figure_keeps_its_deviation_and_star():
    ((row, figures),) = lines_of("10 qgm top_k(0.3) 52.23* 23.00±1.96 49.30").items()
    assert row == (10, "qgm", "top_k(0.3)")
    assert figures == [Printed(52.23, None, True), Printed(23.0, 1.96), Printed(49.3)]
    assert [str(figure) for figure in figures] == ["52.23*", "23.00 +- 1.96", "49.30"]


def options(config):
    """The options of a run's method, with its defaults."""
    return {**METHODS.defaults(config.method), **METHODS.given(config.method)}


def test_hyper_parameters_are_those_of_the_appendix():
    def config(table, part):
        (entry,) = [e for e in EXPERIMENTS[table].entries if e.name == part]
        return entry.config()

    def gamma(table, part):
        return options(config(table, part))["gamma"]

    one = config("1", "cifar10-ring10-alpha0.01-q_saddle-quantize8")
    assert (one.learning_rate, one.epochs, one.batch_size) == (0.1, 200, 32)
    found = [options(one)[name] for name in ("rho", "gamma", "beta", "nesterov", "weight_decay")]
    assert found == [0.1, 1.0, 0.9, True, 1e-4]
    assert (one.schedule, one.model) == ("step", "resnet20")
    three = config("3", "cifar100-ring20-alpha0.001-n_saddle-sign")
    assert (three.learning_rate, three.epochs, three.batch_size) == (0.1, 100, 20)
    assert (options(three)["rho"], options(three)["gamma"]) == (0.05, 0.5)
    assert gamma("3", "cifar10-ring5-alpha0.01-ngm-none") == 1.0
    two = config("2", "imagenette-ring5-alpha0.01-q_saddle-quantize10")
    assert (two.learning_rate, options(two)["rho"], two.model) == (0.01, 0.01, "mobilenet_v2")
    assert options(two)["gamma"] == 1.0
    rates = {
        "imagenette-ring10-alpha0.01-ngm-none": 0.5,
        "imagenette-ring10-alpha0.01-n_saddle-sign": 0.1,
        "imagenette-ring10-alpha0.001-ngm-sign": 0.5,
        "imagenet-ring10-alpha0.01-ngm-sign": 0.5,
        "imagenet-ring10-alpha0.01-n_saddle-sign": 1.0,
    }
    assert {name: gamma("4", name) for name in rates} == rates
    four = config("4", "imagenet-ring10-alpha0.001-n_saddle-none")
    assert (four.schedule, four.epochs, four.batch_size, four.model) == ("imagenet", 60, 64, "resnet18")
    assert gamma("5", "cifar10-torus40-alpha0.001-ngm-sign") == 0.5
    assert gamma("top-k", "cifar10-ring5-alpha0.01-qgm-top_k0.3") == 0.4
    efficient = config("efficient", "cifar10-ring20-alpha0.001-q_saddle-quantize8-every5")
    assert options(efficient)["ascent_every"] == 5
    assert config("dpsgd", "cifar100-ring5-iid-dpsgd-none").partition == "iid"
    assert {e.schedule for e in EXPERIMENTS["compression"].entries} == {"exponential"}  # "Figure 2"
    others = [e for name, found in EXPERIMENTS.items() if name != "compression" for e in found.entries]
    assert {e.schedule for e in others if e.dataset != "imagenet"} == {"step"}


def test_the_levels_end_where_the_tables_do_and_share_their_runs():
    levels = EXPERIMENTS["levels"].entries
    tabled = {e.name: e for table in ("1", "3", "2-bit") for e in EXPERIMENTS[table].entries}
    ladder = [e for e in levels if e.method == "ngm"]
    assert (ladder[0].compressor, ladder[-1].compressor) == ("none", "sign")
    # "Test accuracy for QGM drops from about 79 % to 73 %", "NGM incurs an accuracy drop of about 7 %"
    rungs = [e for e in levels if e.method == "qgm"]
    assert (round(rungs[0].printed.mean), round(rungs[-1].printed.mean)) == (79, 73)
    assert round(ladder[0].printed.mean - ladder[-1].printed.mean) == 7
    shared = [e for e in levels if e.name in tabled]
    assert len(shared) == 10
    assert all(e.config() == tabled[e.name].config() for e in shared)


def test_radii_lie_around_the_paper_s_and_share_its_runs():
    base, *others = EXPERIMENTS["rho"].entries
    tabled = {e.name: e for e in EXPERIMENTS["1"].entries}
    assert (base.method, base) == ("qgm", tabled[base.name])
    radii = {options(e.config())["rho"]: e for e in others}
    assert list(radii) == [0.01, 0.02, 0.05, 0.1, 0.2, 0.5]
    assert radii.pop(0.1) == tabled["cifar10-ring10-alpha0.001-q_saddle-none"]
    assert not {e.name for e in radii.values()} & set(tabled)


def test_what_lies_beyond_the_tables_is_in_none_of_them():
    others = {e.name for name, found in EXPERIMENTS.items() if name != "beyond" for e in found.entries}
    assert not {e.name for e in EXPERIMENTS["beyond"].entries} & others


@pytest.mark.parametrize("table", EXPERIMENTS)
def test_every_entry_has_a_name_of_its_own_and_settings_at_every_scale(table):
    entries = EXPERIMENTS[table].entries
    assert len({entry.name for entry in entries}) == len(entries)
    for entry in entries:
        full = entry.config(seed=3)
        for scale in SCALES.values():
            config = scale.apply(full)
            for name in (
                "method", "topology", "agents", "partition", "learning_rate", "schedule", "seed",
            ):  # fmt: skip
                assert getattr(config, name) == getattr(full, name)


def programs():
    """An entry of each kind of step that the experiments need; numbers of bits are one kind."""
    kinds = {}
    for table, found in EXPERIMENTS.items():
        for e in found.entries:
            kind = (e.method, re.sub(r"[\d.]+", "", e.compressor), e.ascent_every)
            kinds.setdefault(kind, pytest.param(e, id=f"{table}-{e.name}"))
    return list(kinds.values())


@pytest.mark.parametrize("entry", programs())
def test_every_kind_of_step_is_built(entry):
    built = program.build(SCALES["smoke"].apply(entry.config()))
    assert built.trial.steps == 2
    assert built.comm_cost.wire_bytes_per_agent(2) > 0


@pytest.mark.parametrize(
    ("table", "name"),
    [
        ("5", "cifar10-torus40-alpha0.001-n_saddle-sign"),
        ("efficient", "cifar10-ring10-alpha0.01-q_saddle-quantize8-every5"),
    ],
)
def test_two_steps_of_an_experiment(table, name):
    (entry,) = (e for e in EXPERIMENTS[table].entries if e.name == name)
    parts = program.build(SCALES["smoke"].apply(entry.config()))
    inputs, carry = batches.stored(parts, 0), parts.start()
    for step in range(2):
        carry, metrics = parts.steps(carry, inputs, step)
    assert int(metrics[0]["first_bad"]) == -1
    apart = [float(jnp.abs(x - x[:1]).max()) for x in jax.tree.leaves(carry[0].params)]
    assert max(apart) > 0  # the agents went their own ways


def test_the_settings_file_names_rows_and_scales():
    spec = importlib.util.spec_from_file_location("configs", ROOT / "configs" / "saddle.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for experiment in EXPERIMENTS.values():
        last = experiment.entries[-1]
        assert module.get_config(last.name) == last.config()
        assert module.get_config(f"cpu/{last.name}") == SCALES["cpu"].apply(last.config(), last.times)
    assert module.get_config("cpu").model == "resnet8"
    assert module.get_config() in [entry.config() for entry in EXPERIMENTS["1"].entries]
    with pytest.raises(ValueError, match=r"did you mean 'cpu'.*variant must be .*, got 'cpi'"):
        module.get_config("cpi")


def test_a_name_means_the_same_run_in_every_table():
    configs = {}
    for entry in (entry for experiment in EXPERIMENTS.values() for entry in experiment.entries):
        assert configs.setdefault(entry.name, entry.config()) == entry.config()


def test_the_table_stands_beside_the_papers():
    entries = [e for e in EXPERIMENTS["1"].entries if e.name.startswith("cifar10-ring10-alpha0.01-")]
    accuracies = {
        ("qgm", "none"): cell((70.0, 72.0), seeds=(0, 1)),
        ("qgm", "quantize(8)"): cell((), diverged=2),
        ("q_saddle", "none"): cell((80.0,), diverged=1, seeds=(1,)),
        ("q_saddle", "quantize(8)"): cell(()),
    }
    cells = {entry: accuracies[entry.method, entry.compressor] for entry in entries}
    rows = beside_the_paper(cells, SCALES["cpu"])
    assert [row[-4:] for row in rows] == [
        ["paper", "ours", "95 % interval", "difference"],
        ["77.41 +- 8.00", "71.00 +- 1.41", "[58.29, 83.71]", "-6.41"],  # 12.706 x 1.414 / sqrt(2)
        ["76.59 +- 5.95", "diverged*", "-", "-"],
        ["87.72 +- 1.59", "80.00*", "-", "-7.72"],
        ["87.82 +- 1.42", "-", "-", "-"],
    ]
    assert {row[5] for row in rows[1:]} == {"cpu"}
    smoke = [row[-1] for row in beside_the_paper(cells, SCALES["smoke"])[1:]]
    assert smoke == ["(71.00 +- 1.41)", "(diverged*)", "(80.00*)", "(-)"]  # no paper, no difference
    assert [row[3:] for row in contrasts(PAPER, cells)[1:]] == [
        ["qgm: quantize(8) - none", "-0.82", "-", "-", "0"],
        ["q_saddle - qgm", "+10.31", "+8.00", "-", "1"],  # of the seed that both have
        ["q_saddle - qgm (quantize(8))", "+11.23", "-", "-", "0"],
        ["q_saddle: quantize(8) - none", "+0.10", "-", "-", "0"],
    ]


def test_drops_are_from_the_uncompressed_runs_of_another_table():
    entries = [e for e in EXPERIMENTS["top-k"].entries if e.name.startswith("cifar10-ring5-alpha0.001-qgm")]
    bases = PAPER.compared_with("top-k", entries)
    assert {e.problem for e in bases} == {entries[0].problem}
    cells = {entries[0]: cell((60.0, 64.0), seeds=(0, 1))}
    found = {e: cell((70.0, 76.0, 99.0), seeds=(0, 1, 2)) for e in bases if e.method == "qgm"}
    (row,) = beside_the_paper(cells, SCALES["cpu"], found)[1:]
    assert row[-2:] == ["21.68", "11.00"]
    by_name = {row[3]: row[4:] for row in contrasts(PAPER, cells, found)[1:]}
    # differences of 10 and 12: 11 +- 12.706 x sqrt(2) / sqrt(2)
    assert by_name == {"qgm: top_k(0.3) - none": ["-21.68", "-11.00", "[-23.71, +1.71]", "2"]}


def test_the_efficient_variant_is_beside_what_the_text_compares_it_with():
    (entry,) = (e for e in EXPERIMENTS["efficient"].entries if "ring10-alpha0.01-q_saddle-none" in e.name)
    bases = PAPER.compared_with("efficient", [entry])
    rows = contrasts(PAPER, {entry: cell(())}, {e: cell(()) for e in bases})[1:]
    assert [row[3:5] for row in rows] == [
        ["q_saddle every 5 - qgm", "+8.09"],  # 85.50 - 77.41
        ["q_saddle every 5 - q_saddle", "-2.22"],  # 85.50 - 87.72
    ]


def test_other_radii_are_named_and_stand_beside_the_papers():
    entries = EXPERIMENTS["rho"].entries
    scores = {None: 60.0, 0.2: 63.0}
    cells = {
        e: cell((50.0 if e.method == "qgm" else scores[e.rho],), seeds=(0,))
        for e in entries
        if e.rho in scores
    }
    found = {row[3]: row[5] for row in contrasts(PAPER, cells)[1:]}
    assert found == {
        "q_saddle - qgm": "+10.00",
        "q_saddle rho 0.2 - qgm": "+13.00",
        "q_saddle rho 0.2 - q_saddle": "+3.00",
    }
    head, *rows = numbers(cells, SCALES["study"])
    assert [row[head.index("rho")] for row in rows] == ["", "", "0.2"]
