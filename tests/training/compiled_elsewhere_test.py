"""The paper's six methods compiled for GPUs and TPUs that are not here: what no test on a CPU can see."""

import dataclasses
import importlib.util

import numpy as np
import pytest

from saddle_jax.data.recipes import RECIPES
from saddle_jax.planning import targets
from saddle_jax.planning.forecast import forecast
from saddle_jax.settings.settings import Settings
from saddle_jax.training import build

METHODS = ["dpsgd", "d_saddle", "qgm", "q_saddle", "ngm", "n_saddle"]
SETTINGS = Settings(model="resnet20", dataset="synthetic")
# Losses come to every device, one number of each agent; models and batches must not.
SMALL = 1000

pytestmark = [
    pytest.mark.slow,
    # The compilers' own, of plugins that find no device.
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning"),
]


def needs(module, extra):
    reason = f"{module} is not installed: pip install 'saddle_jax[{extra}]'"
    return pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=reason)


def like_cifar(config):
    """The settings' own run with images of CIFAR-10's shape, all of them black."""

    def images(count):
        labels = (np.arange(count) % 10).astype(np.int32)
        return {"inputs": np.zeros((count, 32, 32, 3), np.uint8), "targets": labels}

    made = build.of_settings(config)
    data = dataclasses.replace(made.data, train=images(2000), test=images(10), recipe=RECIPES["cifar10"])
    return dataclasses.replace(made, data=data)


def compiled_for(text, **changes):
    config = dataclasses.replace(SETTINGS, **changes)
    return forecast(config, targets.target_of(text), like_cifar(config))


def check(found):
    """Only rows of the ring move, no window is larger than a kernel, the host waits, memory is as told."""
    moved = [one for one in found.collectives if one.bytes > SMALL]
    assert {one.kind for one in moved} == {"collective-permute"}
    assert 1 <= found.largest_window <= 7
    assert "host transfer" not in found.kernels
    assert not [kind for kind in found.kernels if kind.startswith("call of")]  # kernels of a CPU, callbacks
    assert found.donated == pytest.approx(found.models + found.state, rel=0.01)
    assert found.estimate.total == pytest.approx(found.total, rel=0.1)
    assert found.fits
    assert found.steps == 5


@needs("jax_cuda12_plugin", "plan-cuda")
@pytest.mark.parametrize("agents", [10, 40])
@pytest.mark.parametrize("method", METHODS)
def test_four_a40s(method, agents):
    found = compiled_for("a40x4", method=method, agents=agents)
    assert found.devices == 4
    check(found)
    assert found.kernels["convolution kernel gradient"] % 21 == 0  # of each layer, none by another kernel
    loops = 2 if method in ("ngm", "n_saddle") else 1  # over the steps of a call, and over neighbours
    assert found.kernels["loop"] == loops


@needs("jax_cuda12_plugin", "plan-cuda")
def test_jaxs_own_rule_has_windows_as_large_as_the_image():
    """What `check` is there to refuse: without it, a test that compiles would prove nothing."""
    found = compiled_for("a40x4", method="dpsgd", agents=10, conv_impl="plain")
    assert found.largest_window == 32
    assert "convolution kernel gradient" not in found.kernels


@needs("libtpu", "plan-tpu")
@pytest.mark.parametrize("method", ["q_saddle", "n_saddle"])
def test_four_tpus(method):
    """An MLP: convolutions take libtpu many minutes to compile, and it pads data in ways we do not tell."""
    found = compiled_for("v5e:2x2", method=method, agents=10, model="mlp")
    assert found.devices == 4
    moved = [one for one in found.collectives if one.bytes > SMALL]
    assert {one.kind for one in moved} == {"collective-permute"}
    assert "host transfer" not in found.kernels
    assert not [kind for kind in found.kernels if "saddle" in kind]
    assert found.donated >= found.models + found.state
    assert found.fits
    assert found.steps == 5
