"""How benchmarks measure and tell; and a guard that fails on gross ratios only."""

import functools
import itertools
import json
import re
import sys

import jax
import numpy as np
import pytest

from benchmarks import __main__ as bench
from benchmarks import cases, child, growth, measure, parts
from benchmarks.measure import Spread
from benchmarks.work import NO_PYTORCH, Options, Work
from saddle_jax.devices import lifting
from saddle_jax.methods import base_methods
from saddle_jax.tasks import supervised

MLP = Work("q_saddle", "mlp", 3, 8, (8, 8, 1))


@pytest.fixture
def no_pytorch(monkeypatch):
    """As if it were not installed."""
    for name in [name for name in sys.modules if name.startswith("benchmarks.baselines.pytorch.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)


def test_functions_are_called_in_turn_and_compared_round_by_round(monkeypatch):
    calls, clock = [], itertools.accumulate(itertools.chain([0], itertools.cycle([1, 0, 3, 0, 8, 0, 2, 0])))
    monkeypatch.setattr(measure.time, "perf_counter", lambda: next(clock))
    found = measure.interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 3)
    assert "".join(calls) == "ab" + "ab" + "ba" + "ab"  # warm-up, then another one leads each round
    assert found.rounds == {"a": [1, 2, 1], "b": [3, 8, 3]}
    assert found.seconds("b") == Spread(3, 3, 8)
    assert found.ratio("b", "a") == Spread(3, 3, 4)


def test_the_exponent_of_a_power_law():
    sizes = [2, 5, 11]
    assert growth.exponent(sizes, [0.3 * size**1.7 for size in sizes]) == pytest.approx(1.7)


def test_operations_are_those_of_the_layers():
    # three products per layer, forward, by weights, by inputs; nobody asks for the first layer's last one
    layers = [64 * 128, 128 * 64, 64 * 10]
    products = 3 * sum(layers) - layers[0]
    expected = 2 * products * MLP.batch_size * MLP.agents * 2  # SAM's two passes
    assert MLP.flops() == pytest.approx(expected, rel=0.05)
    crossed = Work("n_saddle", "mlp", 5, 8, (8, 8, 1), degree=4)
    assert crossed.flops() == pytest.approx(expected * 5 / 3 * 5, rel=0.05)  # agents, neighbourhood


def test_the_yardsticks_do_what_they_say():
    product, operations = measure.gemm(20)
    assert operations == 16_000
    random = np.random.default_rng(0)
    left, right = (random.standard_normal((20, 20), np.float32) for _ in range(2))
    np.testing.assert_allclose(product(), left @ right, rtol=1e-4, atol=1e-5)
    x = jax.numpy.arange(12.0).reshape(3, 4)
    copy, moved = measure.copy(x)
    assert moved == 2 * 48
    np.testing.assert_array_equal(copy(), x)


def test_a_row_as_text_and_as_json():
    row = measure.Row(
        "gossip", "ring(10)", Spread(0.0021, 0.002, 0.003), "copy", Spread(0.001, 0.001, 0.002),
        Spread(0.48, 0.4, 0.5), {"GB/s": 10.25, "form": "table"},
    )  # fmt: skip
    heading, line = measure.table([row]).splitlines()
    assert heading.split() == ["case", "what", "ours", "against", "ratio"]
    assert re.split(" {2,}", line) == [
        "gossip", "ring(10)", "2.1 ms", "copy", "1 ms", "0.48 (0.40 to 0.50)", "GB/s 10.2, form table",
    ]  # fmt: skip
    content = json.loads(json.dumps(row.to_json()))
    assert content["ratio"] == {"median": 0.48, "low": 0.4, "high": 0.5}
    assert content["figures"] == {"GB/s": 10.25, "form": "table"}


@pytest.mark.usefixtures("no_pytorch")
def test_the_command_without_pytorch(tmp_path, capsys):
    file = tmp_path / "found.json"
    assert bench.main(["bench", "n_saddle", "gossip", "--quick", "--repeats=1", f"--output={file}"]) == 0
    printed = capsys.readouterr().out
    assert "[1/4] n_saddle: n_saddle, mlp, ring(5), batch 8" in printed
    assert printed.endswith("PyTorch is not installed: pip install 'saddle_jax[bench]'\n")
    content = json.loads(file.read_text())
    assert content["options"] == {"quick": True, "repeats": 1, "conv_impl": "auto", "agents_per_call": 0}
    assert content["machine"]["jax"] == jax.__version__
    step, *others = content["rows"]
    assert step["ratio"] is None
    assert step["figures"]["GFLOP/s"] > 0
    assert [row["against"] for row in others] == ["copy"] * 3


def test_cases_are_listed(capsys):
    assert bench.main(["bench", "--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [*cases.CASES]


def test_compile_time_and_memory_of_a_process_of_its_own():
    found = child.measure("ours", MLP)
    numbers = 2 * 3 * (64 * 128 + 128 + 128 * 64 + 64 + 64 * 10 + 10)  # models and momentum
    batch = 3 * 8 * (64 + 1 + 1)
    assert found["program"]["argument"] == pytest.approx(4 * (numbers + batch), rel=0.01)
    assert found["program"]["alias"] == pytest.approx(4 * numbers, rel=0.01)  # donated
    assert found["peak_bytes"] >= found["compiled_bytes"] >= found["start_bytes"] > 10e6
    assert found["compile_seconds"] > found["step_seconds"] > 0


def test_methods_are_measured_beside_dpsgd():
    """Also an estimator that draws, and a method on a tree."""
    todo = {job.what: job for job in cases.jobs_of(["methods"], Options(quick=True, repeats=1))}
    assert {*base_methods(), "qgm+sam", "qgm+esam"} <= todo.keys()
    for row in cases.run([todo[name] for name in ("qgm+esam", "relay_sgd")], lambda _: None):
        assert row.against == "dpsgd"
        assert row.figures["step / dpsgd's"] == pytest.approx(1 / row.ratio.median)
        assert row.figures["compile CPU s"] > 0


def test_both_sides_evaluate_alike():
    pytest.importorskip("torch", reason=NO_PYTORCH)
    runs = parts.evaluations(Work(model="mlp", agents=3, image_shape=(8, 8, 3)), 60)
    assert len(runs) == 3
    ours = runs.pop("ours")()
    for run in runs.values():
        assert run()["accuracy"] == ours["accuracy"]
        assert run()["loss"] == pytest.approx(ours["loss"], abs=1e-4)


@pytest.mark.parametrize("case", ["q_saddle", "many"])
def test_a_step_is_not_twice_as_slow_as_pytorchs(case):
    pytest.importorskip("torch", reason=NO_PYTORCH)
    best = 0.0
    for _ in range(3):  # a busy machine may spoil one
        (row,) = cases.run(cases.jobs_of([case], Options(quick=True)), lambda _: None)
        assert row.ratio is not None
        best = max(best, row.ratio.median)
        if best > 0.5:
            break
    assert best > 0.5


def test_a_loop_over_agents_takes_as_long_as_its_agents():
    """XLA:CPU has a library for some forms of convolution; in a loop others are a hundred times slower."""
    work = Work("q_saddle", "resnet8", agents=3, batch_size=8)
    loss_fn = supervised.cross_entropy(work.network())
    gradient = jax.grad(lambda params, batch: loss_fn(params, batch)[0])
    params, batch = jax.device_put((work.params(), work.batch()))
    one = jax.jit(gradient).lower(*jax.tree.map(lambda x: x[0], (params, batch))).compile()
    alone = functools.partial(one, *jax.tree.map(lambda x: x[0], (params, batch)))
    looped = functools.partial(
        jax.jit(lifting.vmap_agents(gradient)).lower(params, batch).compile(), params, batch
    )
    found = measure.interleaved({"alone": alone, "looped": looped}, 5)
    assert min(found.rounds["looped"]) < 4 * 3 * min(found.rounds["alone"])


def test_curves_of_growth_become_a_picture(tmp_path):
    curve = {"sizes": [2.0, 4.0], "seconds": [0.1, 0.2], "bytes": [1e6, 3e6]}
    row = measure.Row("growth", "step time and memory against agents, mlp", figures={"curve": curve})
    assert growth.curves([row]) == {"agents, mlp": curve}
    growth.plot_growth(growth.curves([row]), tmp_path / "growth.png")
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["q_saddle", "--plot=x.png"], "plot must come with one of the cases growth and soak, got q_saddle"),
        (
            ["growth", "soak", "--plot=x.png"],
            "plot must come with one of the cases growth and soak, got growth soak",
        ),
        (["--plot=/nowhere/x.png"], "plot must be a file in a folder that exists, got '/nowhere/x.png'"),
        (
            ["--conv_impl=slow"],
            "conv_impl must be one of 'auto', 'native', 'fast', 'each', 'patches', 'plain', got 'slow'",
        ),
        (["--agents_per_call=-1"], "agents_per_call must be an integer >= 0, got -1"),
    ],
)
def test_mistakes_in_how_to_measure(arguments, message, capsys):
    assert bench.main(["bench", *arguments]) == 2
    assert message in capsys.readouterr().err
