"""Bugs that are planted into things of all other kinds: each is found by its invariant."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import saddle_jax as sj
from saddle_jax import data, testing
from saddle_jax.compression.signs import Sign
from saddle_jax.core.gradients import GradientEstimator, nothing
from saddle_jax.data.dataset import Dataset
from saddle_jax.tasks.objectives import Metric, Objective


def estimator(gradient, needs=()):
    return lambda: GradientEstimator("planted()", nothing, gradient, needs=needs)


def divided_by_its_norm(grad, x, d, state, kind):
    g = grad(x, d)
    size = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(g)))
    return jax.tree.map(lambda leaf: leaf / size, g), state


def with_noise_of_its_own(grad, x, d, state, kind):
    key = jax.random.key(0)
    return jax.tree.map(lambda g: g * (1 + 0.1 * jax.random.normal(key, g.shape, g.dtype)), grad(x, d)), state


class Counted(Sign):
    """Sign, which counts a byte too few."""

    def payload_bytes(self, size, itemsize):
        return super().payload_bytes(size, itemsize) - 1


class Scaled(Sign):
    """Sign, whose decoder does not know of a factor."""

    def compress_vector(self, x, key):
        return 2 * super().compress_vector(x, key)


class Thrown(Sign):
    """Sign, which throws dice that it does not tell of."""

    def compress_vector(self, x, key):
        key = jax.random.key(3) if key is None else key
        return super().compress_vector(x, key) * jax.random.bernoulli(key, 0.9, x.shape)


def heavy(n):
    return dataclasses.replace(
        sj.ring(n), make_links=lambda: sj.ring(n).links._replace(weight=np.full(3 * n, 0.5))
    )


def drawn(n):
    return sj.erdos_renyi(n, 0.5, seed=int(np.random.default_rng().integers(1000)))


class Batched(nn.Module):
    """A model that takes a mean over its batch."""

    num_classes: int

    @nn.compact
    def __call__(self, x):
        x = x.reshape(len(x), -1)
        return nn.Dense(self.num_classes)(x - x.mean(axis=0, keepdims=True))


class Narrow(nn.Module):
    """A model that knows seven classes only."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(7)(x.reshape(len(x), -1))


class Dropped(nn.Module):
    """A model with noise of its own."""

    num_classes: int

    @nn.compact
    def __call__(self, x):
        noise = jax.random.normal(jax.random.key(0), (64,))
        return nn.Dense(self.num_classes)(x.reshape(len(x), -1) + noise[None])


def samples(**changes):
    """A dataset with something wrong, made without the checks of data.from_samples."""
    random = np.random.default_rng(0)
    train = {"inputs": random.normal(size=(60, 4)), "targets": np.arange(60) % 3}
    test = {"inputs": random.normal(size=(30, 4)), "targets": np.arange(30) % 3}
    for place, leaf in changes.items():
        tree, _, name = place.partition("_")
        {"train": train, "test": test}[tree][name] = leaf
    return Dataset("planted", train, test, "made", class_names=("a", "b", "c"))


def with_nan():
    inputs = np.zeros((60, 4))
    inputs[7, 2] = np.nan
    return samples(train_inputs=inputs)


def first_counts_less(params, batch):
    brightness = batch["inputs"].reshape(len(batch["inputs"]), -1).sum(axis=1)
    numbers = sum(jnp.sum(leaf) for leaf in jax.tree.leaves(params))
    return numbers * jnp.sum(brightness * jnp.arange(len(brightness)))


def blind_to_the_mask(apply):
    def loss(params, batch):
        return jnp.mean(apply(params, batch["inputs"]) ** 2), {}

    return Objective("planted", (Metric("loss", "lower"),), loss, lambda p, b: {"loss": loss(p, b)[0]})


def without_its_metric(apply):
    def loss(params, batch):
        return jnp.mean(apply(params, batch["inputs"]) ** 2), {}

    metrics = (Metric("top5", "higher"), Metric("loss", "lower"))
    return Objective("planted", metrics, loss, lambda p, b: {"loss": loss(p, b)[0]}, masked=False)


PLANTED = {
    "a norm of zero": (
        lambda: testing.check_gradient(estimator(divided_by_its_norm)),
        "a gradient that vanishes stays zero",
        "at a minimum kind 0 gives the gradient",
    ),
    "a key of an estimator": (
        lambda: testing.check_gradient(estimator(with_noise_of_its_own)),
        "every random number follows from the step",
        "use s.network.key()",
    ),
    "a byte too few": (
        lambda: testing.check_compressor(Counted),
        "decoding gives the compressed tensor and its length is counted",
        "and 32 are counted",
    ),
    "another decoder": (
        lambda: testing.check_compressor(Scaled),
        "decoding gives the compressed tensor and its length is counted",
        "does not give Q(x)",
    ),
    "dice": (
        lambda: testing.check_compressor(Thrown),
        "random numbers come from the key and from nothing else",
        "its `stochastic` is False",
    ),
    "weights": (lambda: testing.check_graph(heavy), "w keeps what it says", "row 0 summing to 1.5"),
    "a graph by chance": (
        lambda: testing.check_graph(drawn),
        "made twice it is the same graph",
        "it is another graph",
    ),
    "batch statistics": (
        lambda: testing.check_model(Batched),
        "samples of a batch do not see each other",
        "if the other samples do",
    ),
    "seven classes": (
        lambda: testing.check_model(Narrow),
        "outputs fit what is learned",
        "model must give logits [B, 10] for digits, got [B, 7]",
    ),
    "noise": (lambda: testing.check_model(Dropped), "one input gives one output", "draws random numbers"),
    "nan": (
        lambda: testing.check_dataset(with_nan),
        "every number is finite",
        "train['inputs'][7] has a number that is not finite",
    ),
    "lengths": (
        lambda: testing.check_dataset(samples(train_targets=np.arange(59) % 3)),
        "all arrays have as many samples",
        "train['inputs'] has 60, train['targets'] has 59 samples",
    ),
    "classes": (
        lambda: testing.check_dataset(samples(train_targets=np.arange(60) % 4)),
        "classes are numbers from zero on",
        "classes must be 0 to 2, got 0 to 3",
    ),
    "kinds": (
        lambda: testing.check_dataset(samples(test_inputs=np.zeros((30, 5)))),
        "train and test are of one kind",
        "train['inputs'] is float64[N, 4], and in test float64[N, 5]",
    ),
    "data by chance": (
        lambda: testing.check_dataset(lambda: samples(train_inputs=np.random.default_rng().random((60, 4)))),
        "loaded again it is the same",
        "draw from a fixed seed",
    ),
    "order": (
        lambda: testing.check_objective(first_counts_less),
        "the order of the samples does not matter",
        "with the samples turned round",
    ),
    "mask": (
        lambda: testing.check_objective(blind_to_the_mask),
        "samples that the mask leaves out do not count",
        "and beside others",
    ),
    "no metric": (
        lambda: testing.check_objective(without_its_metric),
        "an evaluation finds every metric",
        "metric top5 is not there",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found_by_its_invariant(name):
    check, invariant, seen = PLANTED[name]
    with pytest.raises(testing.InvariantError) as caught:
        check()
    results = {each.invariant: each for each in caught.value.results}
    assert results[invariant].status == "fails"
    assert seen in results[invariant].seen
    assert all("\n" not in each.seen for each in results.values())


@pytest.mark.parametrize(
    ("check", "thing", "told"),
    [
        ("compressor", lambda: 3, "must return a Compressor, got 3"),
        ("graph", lambda n: n, "a Topology or a TimeVarying, got 8"),
        ("gradient", lambda: 3, "must return a GradientEstimator, got 3"),
        ("dataset", 3, "got a int"),
        ("model", 3, r"pair of functions \(init, apply\), got 3"),
    ],
)
def test_what_is_wrong_in_kind_is_told_in_one_line(check, thing, told):
    with pytest.raises(testing.InvariantError, match=f"^[^\n]*{told}$"):
        getattr(testing, f"check_{check}")(thing)


def test_everything_holds_where_nothing_is_planted():
    testing.check_dataset(samples())
    with pytest.raises(testing.InvariantError):  # no batch is left
        testing.check_model(nn.Sequential([jnp.ravel, nn.Dense(10)]))
    regression = data.from_samples((np.ones((9, 4)), np.ones((9, 2))), (np.ones((3, 4)), np.ones((3, 2))))
    results = testing.check_objective("regression", dataset=regression)
    assert {each.status for each in results} == {"holds"}
