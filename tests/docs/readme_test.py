"""Programs and commands of README and docs/ run as they stand; tests/pages.py says at what size.

Commands of all pages share a folder, where a run that another page has trained is not trained again.
"""

import dataclasses
import functools
import os
import re
import shlex
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pages
import pytest

import saddle_jax as sj
from saddle_jax.cli import verb
from saddle_jax.compression import COMPRESSORS
from saddle_jax.graphs import GRAPHS
from saddle_jax.methods import METHODS
from saddle_jax.papers.saddle.theory import testbed


def program(name, number=0):
    """A Python block of README or of a page of docs/."""
    return pages.programs(pages.page(name))[number]


@pytest.fixture(autouse=True)
def as_a_user_has_it():
    """Without the strictness of the tests."""
    with jax.numpy_rank_promotion("allow"):
        yield


def test_the_first_example_trains_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = [line for line in program("README").splitlines() if line.strip()]
    assert len(lines) <= 8
    exec(program("README"), {"__name__": "readme"})
    printed, said = capsys.readouterr().out.splitlines()[-1], lines[-1].split("# ")[1]
    assert abs(float(printed.rstrip("%")) - float(said.rstrip("%"))) < 2  # other devices round otherwise


def test_loops_of_ones_own_train(capsys):
    names = {}
    exec(program("library"), names)  # the page's own text
    assert len([line for line in program("library").splitlines() if line.strip()]) <= 25
    np.testing.assert_allclose(names["model"]["w"].ravel(), [1.0, -2.0, 0.5, 0.0], atol=0.05)
    np.testing.assert_allclose(names["model"]["b"], [0.3], atol=0.05)
    assert capsys.readouterr().out
    exec(program("library", 1), names)
    assert f"# {capsys.readouterr().out.splitlines()[-1]}" == program("library", 1).splitlines()[-1]
    exec(program("library", 2), names)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2  # Adam and gradient tracking
    for line in lines:
        *weights, distance = (float(word.strip("[]")) for word in line.split() if word.strip("[]"))
        np.testing.assert_allclose(weights, [1.0, -2.0, 0.5, 0.0], atol=0.05)
        assert distance < 0.05


def test_swept_numbers_are_in_the_state(capsys):
    names = {}
    exec(program("library", 3), names)
    assert capsys.readouterr().out == "['beta', 'learning_rate', 'rho']\n"
    assert names["xs"].shape == (3, 8, 3)


def test_gradient_tracking_as_it_is_written_there_finds_the_optimum():
    names = {}
    exec(program("own", 1), names)
    targets = jnp.linspace(-1, 1, 8 * 5).reshape(8, 5)  # every agent pulls elsewhere
    method = dataclasses.replace(names["method"], gradient=sj.plain_gradient())  # SAM stays rho away from it
    params = jnp.full((8, 5), 3.0)
    state, step = method.init(params), jax.jit(method.step, static_argnums=0)

    def loss_fn(params, batch):
        return jnp.sum((params - batch) ** 2)

    for t in range(400):
        params, state, _ = step(loss_fn, params, state, targets, jax.random.key(t))
    np.testing.assert_allclose(params, np.tile(targets.mean(axis=0), (8, 1)), atol=1e-3)
    assert names["method"].gradient.name == "sam(rho=0.05)"


def test_the_composed_method_learns_what_its_parts_promise():
    names = {}
    exec(program("own", 2), names)
    method, topology = names["method"], names["topology"]
    targets = jnp.linspace(-1, 1, 12 * 5).reshape(12, 5)  # every agent pulls elsewhere

    def loss_fn(params, batch):
        return jnp.sum((params - batch) ** 2)

    params = sj.replicate(jnp.full(5, 3.0), 12)
    state = method.init(params)
    step = jax.jit(method.step, static_argnums=0)
    first = None
    for _ in range(400):
        params, state, metrics = step(loss_fn, params, state, targets)
        first = metrics["loss"] if first is None else first
    optimum = targets.mean(axis=0)
    np.testing.assert_allclose(sj.consensus(params), optimum, atol=0.1)
    assert metrics["loss"].mean() < first.mean() / 10
    assert topology.size == 12


def test_the_method_on_the_internet_loses_messages_and_tells_the_time():
    names = {}
    exec(program("networks"), names)
    method, x = names["on_the_internet"], jnp.ones((10, 3))
    state = method.init(x)
    for t in range(3):
        x, state, metrics = method.step(
            lambda p, d: jnp.sum(p * d), x, state, jnp.ones((10, 3)), jax.random.key(t)
        )
    each = 0.05 + 0.01 + 2 * 3 * 32 / 1e8  # a gradient, and one round of two times three numbers
    np.testing.assert_allclose(metrics["simulated_seconds"], 3 * each, rtol=1e-5)
    assert state.faults.sent.max() <= 6


def test_the_compressor_of_ones_own_serves_in_a_method():
    names = {}
    exec(program("building_blocks"), names)
    method = names["method"]
    params = jnp.full((8, 3), 4.0)
    updated, _, _ = method.step(lambda p, d: jnp.sum(p * d), params, method.init(params), jnp.zeros((8, 3)))
    np.testing.assert_allclose(updated, params, rtol=1e-4)  # weight decay alone moves it
    with pytest.raises(NotImplementedError, match="define payload_bytes"):
        names["Clip"](0.5).bits((3,))


def test_models_and_data_as_shown(capsys):
    names = {}
    exec(program("building_blocks", 1), names)
    assert names["images"].shape == (10, 32, 8, 8, 1)
    assert "classes per agent" in capsys.readouterr().out


def test_a_program_on_four_devices(tmp_path):
    last = "print(len(params['w'].sharding.device_set), 'devices')"
    command = [sys.executable, "-c", f"{program('devices')}\n{last}"]
    four = {**os.environ, "JAX_NUM_CPU_DEVICES": "4"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=four)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("\n4 devices\n")


def test_adam_becomes_decentralised_in_one_line():
    topology = sj.complete(4)
    chain = optax.chain(optax.adam(0.1), sj.gossip(topology))
    method = sj.Method("adam", topology, sj.rule_of(chain))

    def loss_fn(params, batch):
        return jnp.sum((params - batch) ** 4)

    targets = jnp.array([1.0, -2.0])
    params, alone = jnp.zeros((4, 2)), jnp.zeros(2)
    state, adam = method.init(params), optax.adam(0.1)
    alone_state = adam.init(alone)
    for _ in range(5):  # agents that see the same data do what one does
        params, state, _ = method.step(loss_fn, params, state, sj.replicate(targets, 4))
        updates, alone_state = adam.update(jax.grad(loss_fn)(alone, targets), alone_state)
        alone = optax.apply_updates(alone, updates)
    np.testing.assert_allclose(params, np.tile(alone, (4, 1)), rtol=1e-5)


@pytest.mark.parametrize("page", pages.ALL, ids=lambda page: page.stem)
def test_commands_shown_exist_and_their_options_too(page):
    text = page.read_text()
    for words in re.findall(r"^bin/saddle ([a-z][^\n#]*)", text.replace("\\\n", " "), flags=re.MULTILINE):
        found, rest = verb.find(shlex.split(words), verb.load())
        verb.parse(found.flag_values(), rest, found.arguments)  # an option that it does not have is an error
    for path in re.findall(r"--config=(\S+\.py)", text):
        assert (pages.ROOT / path).is_file() or path == "FILE.py"


@pytest.mark.parametrize("page", pages.ALL, ids=lambda page: page.stem)
def test_links_lead_to_files_that_exist(page):
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in link:
            made = page.parent == pages.DOCS_FOLDER and link in pages.MADE_BY_THE_SITE
            assert made or (page.parent / link).exists(), link


def test_the_verbs_are_shown():
    shown = " ".join(command for page in pages.ALL for command in pages.commands(page))
    assert {name for name in verb.load() if f"saddle {name}" not in shown} == set()


def test_readme_and_docs_are_short():
    assert len(pages.README.read_text().splitlines()) <= 95
    assert len(pages.DOCS) <= 21
    assert sum(len(page.read_text().split()) for page in pages.DOCS) < 21_000


def test_readme_counts_methods_graphs_and_compressors():
    counts = re.search(
        r"(\d+)\s+methods, (\d+) graphs and (\d+) compressors", pages.README.read_text()
    ).groups()
    others = {"saddle", "slowmo", "alternate", "identity"}  # wrap methods or graphs, or do nothing
    tables = [{*table.ours} - others for table in (METHODS, GRAPHS, COMPRESSORS)]
    assert [int(count) for count in counts] == [len(table) for table in tables]


def test_the_table_of_costs_is_what_the_code_says():
    text = pages.page("building_blocks").read_text()
    operators = {
        "identity()": sj.identity(),
        "quantize(8)": sj.quantize(8),
        "top_k(0.3)": sj.top_k(0.3),
        "random_k(0.3)": sj.random_k(0.3),
        "sign()": sj.sign(),
        "natural()": sj.natural(),
        "ternary()": sj.ternary(),
        "low_rank(2)": sj.low_rank(2),
    }
    for name, operator in operators.items():
        row = f"| `{name}` | {operator.bits((3, 3, 64, 64)):,} | {operator.paper_bits((3, 3, 64, 64)):,} |"
        assert row in text, row


def checkout_in(path):
    """Makes `bin` and `configs` the project's in a folder."""
    for name in ("bin", "configs"):
        (path / name).symlink_to(pages.ROOT / name)
    # Commands draw pictures there, and read the runs that are kept.
    shutil.copytree(pages.DOCS_FOLDER / "results", path / "docs" / "results")
    return path


def enter(path, monkeypatch):
    """Makes a folder the current one, which knows of no datasets."""
    monkeypatch.setenv("TFDS_DATA_DIR", str(path / "datasets"))
    monkeypatch.setenv("SADDLE_CACHE_DIR", str(path / "cache"))
    monkeypatch.chdir(path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return checkout_in(tmp_path_factory.mktemp("checkout"))


@pytest.fixture
def checkout(folder, monkeypatch):
    return enter(folder, monkeypatch)


@pytest.fixture
def in_ci(monkeypatch):
    """The one size that no flag appends to a command: over how many steps the corollary is measured."""
    monkeypatch.setattr(testbed, "sweep", functools.partial(testbed.sweep, steps=200, repetitions=2))


def run_smallest(page):
    for command in pages.commands(page):
        if pages.entry({**pages.NOT_RUN, **pages.NOT_IN_CI}, command) is None:
            smallest = pages.with_appended(command, pages.HOURS, pages.MINUTES)
            assert pages.run_here(smallest) == 0, smallest


def test_the_first_command_as_it_is_typed(checkout):
    command = next(each for each in pages.commands(pages.README) if not each.startswith("pip"))
    assert command == "bin/saddle train"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"test accuracy +9\d\.\d\d %", done.stdout)
    (report,) = [each for each in pages.commands(pages.page("quickstart")) if "report" in each]
    assert pages.run_here(report) == 0


# What the commands of a page must have written.
WRITTEN = {
    "commands": ("torus.png", "best.tex", "compression.png"),
    "building_blocks": ("partition.png",),
    "runs": ("sharpness.png", "curves.pdf", "runs/qgm/report.html"),
    "reproductions": ("runs/paper/table-1-smoke.md", "runs/theory/theory.png"),
}


@pytest.mark.parametrize("page", pages.ALL, ids=lambda page: page.name)
def test_every_command_runs_or_is_understood(checkout, in_ci, page):
    run_smallest(page)  # what measures or trains much, only lists or plans: its flags and names are read
    for name in WRITTEN.get(page.stem, ()):
        assert (checkout / name).stat().st_size > 0


@pytest.mark.slow
@pytest.mark.parametrize("page", pages.ALL, ids=lambda page: page.name)
def test_every_command_runs_as_it_is_typed(tmp_path, page, monkeypatch):
    enter(checkout_in(tmp_path), monkeypatch)
    monkeypatch.delenv("XLA_FLAGS", raising=False)  # bin/test's compile fast, and run slowly
    for command in pages.commands(page):
        if pages.entry(pages.NOT_RUN, command) is None:
            typed = pages.with_appended(command, pages.HOURS)
            assert pages.run_in_a_shell(typed) == 0, typed


def test_things_of_ones_own_as_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(program("own"), {"__name__": "own"})
    assert re.search(r"^mine +9\d\.\d\d \+- ", capsys.readouterr().out, flags=re.MULTILINE)


@pytest.mark.slow
def test_the_program_that_measures_runs():
    names = {}
    exec(program("performance").replace("(40, 1024)", "(4,)"), names)
    assert names["agents"] == 4


def test_the_tables_of_what_is_appended_name_commands_that_are_shown():
    shown = [command for page in pages.ALL for command in pages.commands(page)]
    for table in (pages.HOURS, pages.MINUTES, pages.NOT_IN_CI, pages.NOT_RUN):
        for beginning in table:
            assert any(command.startswith(beginning) for command in shown), beginning
