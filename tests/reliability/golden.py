"""Records the numbers of small runs, and compares them bit for bit with those of another commit.

    .venv/bin/python tests/reliability/golden.py --record FILE     in one checkout
    .venv/bin/python tests/reliability/golden.py --compare FILE    in the other one, on the same machine

`golden.json` is such a FILE, which golden_test.py compares with. Where XLA generates other code, numbers
differ in their last bits and nothing can be compared: on another kind of processor, with other versions, with
other flags. Where settings, results or folders are renamed, `config_of`, `run_of` and `outcome` say how.
"""

import argparse
import importlib.metadata
import json
import math
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np
from golden_cases import CASES

import saddle_jax as sj
from saddle_jax.methods import METHODS
from saddle_jax.runs import run_folder
from saddle_jax.settings import sweep
from saddle_jax.settings.settings import Settings
from saddle_jax.training import loop
from saddle_jax.training.progress import Screen

FILE = pathlib.Path(__file__).with_name("golden.json")
ROOT = FILE.parents[2]
FLAGS = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"  # as bin/test has them
DEVICES = 4  # as conftest.py has them
PACKAGES = ("jax", "jaxlib", "numpy", "flax", "optax")
INSTRUCTIONS = ("sse", "ssse", "avx", "fma", "f16c", "bmi", "amx", "asimd", "sve")

OWN = '''\
"""Things of a user's own."""

import dataclasses

import jax.numpy as jnp

import saddle_jax as sj


def method(topology, learning_rate, beta=0.9, weight_decay=0.0):
    made = sj.qgm(topology, learning_rate, beta=beta, mu=0.7, nesterov=True, weight_decay=weight_decay)
    return dataclasses.replace(made, name="own")


def estimator(radius):
    return sj.sam(radius)


def graph(n, hops):
    return sj.circulant(n, list(range(1, hops + 1)))


def loss(apply):
    def squares(params, batch):
        return jnp.mean((apply(params, batch["inputs"]) - batch["targets"][:, None]) ** 2)
    return squares
'''


def config_of(settings, folder):
    """Returns the Settings of a case, as settings are spelt today."""
    settings = dict(settings)
    brought = settings.pop("brought", None)
    settings.pop("killed_after", None)
    own = f"{folder}/golden_own.py:" if brought == "file" else ""
    method, options = settings["method"]
    own_options = {name: settings.pop(name) for name in ("mu", "local_steps") if name in settings}
    slowmo = {"every": settings.pop("slowmo_every"), "beta": settings.pop("slowmo_beta")}
    estimator, of_estimator = settings["gradient"]
    names = {"rho": "rho", "every": "ascent_every", "reuse": "ascent_reuse"}
    of_sam = {option: settings[name] for option, name in names.items() if name in settings}
    of_estimator = {**(of_sam if estimator == "sam" else {}), **of_estimator}
    estimator = "plain" if estimator == "none" else estimator
    settings["gradient"] = "auto" if estimator == "of the method" else own + _call(estimator, of_estimator)
    written = _call(method, {**_options(method, settings, bool(own)), **options, **own_options})
    if slowmo["every"]:
        written = f"slowmo({written}, every={slowmo['every']}, beta={slowmo['beta']})"
    settings["method"] = own + written
    if not own:
        settings["topology"] = "+".join(_graph(*graph) for graph in settings["topology"])
    else:
        ((graph, arguments),) = settings["topology"]
        settings["topology"] = own + _call(graph, arguments)
        settings["objective"] = own + settings["objective"]
    settings["dataset"] = _call(*settings["dataset"])
    settings["devices"] = str(settings["devices"])
    settings["seeds"] = ",".join(map(str, settings["seeds"]))
    settings["sweep"] = " ".join(
        f"{NAMES.get(name, name)}={','.join(map(repr, values))}" for name, values in settings["sweep"].items()
    )
    faults = {"drop": 0.0, "burst": 0.0, "symmetric": True, "lost_weight": "self", "delay": 0, "offline": 0.0,
              "mean_offline": 0.0, "offline_computes": False, "joins": {}, "leaves": {}}  # fmt: skip
    given = {name: settings.pop(name) for name in faults}
    for name in ("joins", "leaves"):
        given[name] = [[agent, step] for agent, step in given[name].items()]
    settings["faults"] = _given("faults", {
        name.removeprefix("offline_"): value
        for name, value in given.items()
        if value not in (faults[name], [])
    })  # fmt: skip
    for name, unit in (("latency", "s"), ("bandwidth", "bit"), ("compute_time", "s")):
        value = settings.pop(name)
        settings[name] = None if value is None else f"{value!r}{unit}"
    times = {name: settings.pop(name) for name in ("latency", "bandwidth", "compute_time", "compute_sigma")}
    settings["timing"] = _given("timing", {
        name.removesuffix("_time"): value for name, value in times.items() if value
    })  # fmt: skip
    kind, alpha = settings["partition"], settings.pop("alpha")
    settings["partition"] = {"iid": "iid", "sorted": f"shards({alpha:g})"}.get(kind, f"{kind}({alpha})")
    return Settings(**settings)


NAMES = {"drop": "faults.drop", "rho": "method.rho", "beta": "method.beta", "gamma": "method.gamma"}
OF_METHODS = ("beta", "nesterov", "weight_decay", "gamma", "self_gradient", "rho", "ascent_every",
              "ascent_reuse", "mixing", "order", "compressor")  # fmt: skip


def _options(method, settings, is_own):
    """Takes the options of a method out of the settings; returns those that it has, as they are written."""
    given = {name: settings.pop(name) for name in OF_METHODS if name in settings}
    compressor = given.pop("compressor", ("none", {}))
    takes = ("beta", "weight_decay") if is_own else METHODS.options(method)
    options = {name: value for name, value in given.items() if name in takes}
    if compressor[0] != "none":
        options["compressor"] = _Bare(_compressor(*compressor))
    order, mixing = given.get("order", "choco"), given.get("mixing", "auto")
    if "gossip" in takes and (order, mixing) != ("choco", "auto"):
        gamma, compressor = options.pop("gamma", 1.0), options.pop("compressor", None)
        gossip = f"exact({gamma!r}, {mixing!r})"
        if compressor is not None:
            gossip = f"choco({compressor}, {gamma!r}, {order!r}, {mixing!r})"
        options["gossip"] = _Bare(gossip)
    return options


class _Bare(str):
    """A text that is written without quotes."""

    __repr__ = str.__str__


def _given(name, options):
    return _call(name, options) if options else "none"


def _call(name, options):
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in options.items())})" if options else name


def _graph(name, arguments):
    return f"{name}({', '.join(map(repr, arguments))})" if arguments else name


def _compressor(name, options):
    numbers = [repr(value) for value in options.values() if not isinstance(value, bool)]
    switches = [f"{key}=True" for key, value in options.items() if value is True]
    return f"{name}({', '.join([*numbers, *switches])})" if options else name


class _Streamed:
    """Samples that are fetched batch by batch."""

    def __init__(self, samples):
        self._samples, self.shape, self.dtype = samples, samples.shape, samples.dtype

    def __getitem__(self, chosen):
        return self._samples[chosen]


def run_of(settings, folder):
    """Returns the Experiment of a case that is made of Python objects, as they are made today."""
    random = np.random.RandomState(5)
    x = random.normal(size=(300, 12)).astype(np.float32)
    y = x @ random.normal(size=(12, 4)).astype(np.float32)
    with_loss = settings["brought"] == "objects with a loss"
    targets = y if with_loss else y.argmax(axis=1).astype(np.int32)
    train, test = (x[:240], targets[:240]), (x[240:], targets[240:])
    if settings["brought"] == "streamed":
        train = (_Streamed(train[0]), train[1])
    if with_loss:
        train, test = {"a": train[0], "b": train[1]}, {"a": test[0], "b": test[1]}
    factory = {"qgm": sj.qgm, "dpsgd": sj.dpsgd}[settings["method"][0]]
    names = ("beta", "mu", "nesterov", "weight_decay", "gamma", "order", "mixing", "local_steps")
    options = {name: settings[name] for name in names if name in settings} | settings["method"][1]
    if not {"order", "mixing"}.isdisjoint(options):
        gamma, mixing, _ = (
            options.pop(name) for name in ("gamma", "mixing", "order")
        )  # nothing is compressed
        options["gossip"] = sj.exact(gamma, mixing)
    graph = sj.ring(settings["agents"])

    def method(beta):
        return factory(graph, settings["learning_rate"], **{**options, "beta": beta})

    same = ("epochs", "batch_size", "norm", "precision", "steps_per_dispatch", "agents_per_call",
            "conv_impl", "eval_every_epochs", "eval_agents", "log_every_steps", "subset", "diagnostics",
            "checkpoint_every_steps", "keep_checkpoints", "keep_every_epochs")  # fmt: skip
    return sj.Experiment(
        method if settings["sweep"] else method(settings["beta"]), train, test, model=(_init, _apply),
        loss=_loss if with_loss else "classification", name="own", seed=settings["seed"],
        partition="iid" if settings["partition"] == "iid" else f"dirichlet({settings['alpha']})",
        sweep=settings["sweep"], devices=str(settings["devices"]), workdir=folder,
        **{name: settings[name] for name in same},
    )  # fmt: skip


def _init(key):
    return {"w": 0.1 * jax.random.normal(key, (12, 4)), "b": jnp.zeros(4)}


def _apply(params, x):
    return jnp.tanh(x @ params["w"]) + params["b"][None]


def _loss(params, batch):
    errors = jnp.abs(batch["a"] @ params["w"] + params["b"][None] - batch["b"])
    return jnp.mean(errors**2), {"worst": jnp.max(errors)}


class _Killed(BaseException):
    pass


class _Deadly(Screen):
    """Kills a run after so many steps, as a process that dies does."""

    def __init__(self, steps):
        super().__init__(quiet=True)
        self._left = steps

    def advance(self, steps):
        self._left -= steps
        if self._left <= 0:
            raise _Killed
        super().advance(steps)


def perform(settings, folder):
    """Trains the run of a case in an empty folder, and returns its numbers."""
    (folder / "golden_own.py").write_text(OWN)
    workdir = folder / "run"
    if settings.get("brought", "file") != "file":
        run = run_of(settings, workdir)
        return outcome(run.train(quiet=True), workdir)
    config = config_of(settings, folder)
    if "killed_after" in settings:
        try:
            loop.train(config, workdir, _Deadly(settings["killed_after"]))
            raise AssertionError("the run was not killed")
        except _Killed:
            pass
    return outcome(loop.train(config, workdir, Screen(quiet=True)), workdir)


def outcome(result, workdir):
    """Returns the numbers of a run, or of each of several, by names that are golden.json's own."""
    ends = result.get("trials", [result])
    lines = [line for line in run_folder.read_metrics(workdir) if "train_loss" in line]
    return [
        {
            "status": end["status"],
            "steps": result["steps"],
            "models": end["params_sha256"],
            "bytes": [end["bytes_sent_per_agent"], end["paper_bytes_sent_per_agent"]],
            "test": {name[5:]: value for name, value in end.items() if name.startswith("test_")},
            "consensus": end["consensus_distance"],
            "agents": next(value for name, value in end.items() if name.endswith("_each")),
            "seconds": end.get("simulated_seconds"),
            "losses": [sweep.of_trial(line, number)["train_loss"] for line in lines],
        }
        for number, end in enumerate(ends)
    ]


def machine():
    """Describes what the last bits of a number depend on beside the program."""
    try:
        lines = [line.split(":", 1) for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()]
    except OSError:
        lines = []
    facts = {line[0].strip(): line[1].strip() for line in lines if len(line) == 2}
    instructions = facts.get("flags", facts.get("Features", "")).split()
    return {
        "processor": facts.get("model name", platform.processor() or platform.machine()),
        "instructions": " ".join(sorted(each for each in instructions if each.startswith(INSTRUCTIONS))),
        **{name: importlib.metadata.version(name) for name in PACKAGES},
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
        "C++ compiler": _compiler(),
    }


def _compiler():
    """Returns the version of the compiler of our own kernels."""
    name = next(filter(None, map(shutil.which, [os.environ.get("CXX") or "c++", "g++", "clang++"])), None)
    if name is None:
        return "none"
    return subprocess.run([name, "--version"], capture_output=True, text=True).stdout.partition("\n")[0]


def elsewhere(recorded):
    """Says why this machine's numbers cannot be compared with recorded ones; nothing if they can."""
    here = machine()
    other = [
        f"{name} is {here.get(name)!r} here and was {value!r}"
        for name, value in recorded["machine"].items()
        if here.get(name) != value
    ]
    return "golden numbers were recorded elsewhere: " + "; ".join(other) if other else ""


def read(file=FILE):
    """Reads what was recorded."""
    return json.loads(pathlib.Path(file).read_text())


def differences(found, expected, place=""):
    """Lists where two outcomes differ, in words; equal NaNs do not."""
    if isinstance(found, dict) and isinstance(expected, dict):
        names = [*expected, *(name for name in found if name not in expected)]
        pairs = [(f"{place}.{name}", found.get(name), expected.get(name)) for name in names]
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        pairs = [
            (f"{place}[{number}]", *both) for number, both in enumerate(zip(found, expected, strict=True))
        ]
    else:
        numbers = isinstance(found, float) and isinstance(expected, float)
        same = numbers and math.isnan(found) and math.isnan(expected)
        return [] if same or repr(found) == repr(expected) else [f"{place}: {found!r}, was {expected!r}"]
    return [line for name, one, other in pairs for line in differences(one, other, name)]


def in_new_folder(settings):
    """Performs a case in a folder of its own, which goes afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        return json.loads(json.dumps(perform(settings, pathlib.Path(folder))))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--record", metavar="FILE", type=pathlib.Path)
    what.add_argument("--compare", metavar="FILE", type=pathlib.Path)
    parser.add_argument("--only", metavar="TEXT", default="", help="cases whose names have this in them")
    options = parser.parse_args()
    os.environ.setdefault("XLA_FLAGS", FLAGS)
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", DEVICES)
    jax.config.update("jax_traceback_in_locations_limit", 0)
    jax.config.update("jax_compilation_cache_dir", str(ROOT / ".cache" / "jax"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    recorded = read(options.compare) if options.compare else None
    if recorded and (why := elsewhere(recorded)):
        print(why, file=sys.stderr)
        sys.exit(2)  # 1 is for numbers that differ
    found, failed = {}, 0
    for name in [name for name in CASES if options.only in name]:
        began = time.perf_counter()
        found[name] = in_new_folder(CASES[name])
        lines = differences(found[name], recorded["runs"].get(name)) if recorded else []
        failed += bool(lines)
        print(f"{time.perf_counter() - began:6.1f} s  {name}{': DIFFERS' if lines else ''}", flush=True)
        for line in lines[:5]:
            print(f"          {line}")
    if recorded is None:
        options.record.write_text(json.dumps({"machine": machine(), "runs": found}, indent=1) + "\n")
        print(f"recorded {len(found)} runs in {options.record}")
    elif lost := [name for name in recorded["runs"] if options.only in name and name not in found]:
        failed += len(lost)
        print(f"no such runs any more: {', '.join(lost)}")
    if recorded:
        print(f"{len(found)} runs compared with {options.compare}: {failed} differ")
        sys.exit(failed > 0)


if __name__ == "__main__":
    main()
