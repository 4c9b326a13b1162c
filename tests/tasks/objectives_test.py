"""Objectives: losses and metrics against the same in NumPy, masks, and losses of a user's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import saddle_jax as sj
from saddle_jax.models import functions
from saddle_jax.tasks import objectives
from saddle_jax.tasks.objectives import Metric, objective_of, own_loss

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(11, 3)).astype(np.float32)
LINEAR = functions((lambda key: {"w": jnp.ones((3, 4))}, lambda params, x: x @ params["w"]))
PARAMS = {"w": jnp.asarray(RANDOM.normal(size=(3, 4)), jnp.float32)}
LOGITS = X.astype(np.float64) @ np.asarray(PARAMS["w"], np.float64)
CLASSES = RANDOM.integers(0, 4, 11)


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


@pytest.fixture(params=[3, 11, 500], autouse=True)
def batch_size(request, monkeypatch):
    monkeypatch.setattr(objectives, "_BATCH", request.param)


def evaluate(objective, **samples):
    return objectives.evaluate(objective, PARAMS, samples, None)


def test_classification():
    found = evaluate(objectives.make("classification", LINEAR), inputs=X, targets=CLASSES)
    losses = -log_softmax(LOGITS)[np.arange(11), CLASSES]
    assert found["loss"] == pytest.approx(losses.mean(), rel=1e-5)
    assert found["accuracy"] == np.mean(LOGITS.argmax(axis=1) == CLASSES)


def test_regression():
    targets = RANDOM.normal(size=(11, 4)).astype(np.float32)
    objective = objectives.make("regression", LINEAR)
    found = evaluate(objective, inputs=X, targets=targets)
    assert found["loss"] == pytest.approx(((LOGITS - targets) ** 2).mean(), rel=1e-5)
    assert found["rmse"] == pytest.approx(np.sqrt(found["loss"]))
    mask = np.array([1, 1, 0, 1, 0, 0, 0, 1, 0, 0, 1], np.float32)
    batch = {"inputs": X, "targets": targets, "mask": mask}
    expected = ((LOGITS - targets) ** 2).mean(axis=1)[mask == 1].mean()
    assert float(objective.loss(PARAMS, batch)[0]) == pytest.approx(expected, rel=1e-5)


def test_language():
    texts, targets = RANDOM.normal(size=(11, 5, 3)), RANDOM.integers(0, 4, (11, 5))
    found = evaluate(objectives.make("language", LINEAR), inputs=texts.astype(np.float32), targets=targets)
    logits = texts @ np.asarray(PARAMS["w"], np.float64)
    losses = -np.take_along_axis(log_softmax(logits), targets[..., None], axis=-1)[..., 0]
    assert found["loss"] == pytest.approx(losses.mean(), rel=1e-5)
    assert found["perplexity"] == pytest.approx(np.exp(losses.mean()), rel=1e-5)
    assert found["accuracy"] == pytest.approx(np.mean(logits.argmax(axis=-1) == targets))


def absolute(params, batch):
    errors = jnp.abs(batch["a"] @ params["w"][:, 0] - batch["b"])
    return jnp.mean(errors), {"worst": jnp.max(errors)}


def test_a_loss_of_ones_own_with_metrics():
    b = RANDOM.normal(size=11).astype(np.float32)
    squares = Metric(
        "squares", "lower", lambda params, batch: (batch["a"] @ params["w"][:, 0] - batch["b"]) ** 2
    )
    objective = own_loss(absolute, [squares, Metric("worst", "lower")])
    assert not objective.masked
    assert [metric.name for metric in objective.metrics] == ["squares", "worst", "loss"]
    assert objective.headline is squares
    found = evaluate(objective, a=X, b=b)
    errors = np.abs(LOGITS[:, 0] - b)
    assert found["loss"] == pytest.approx(errors.mean(), rel=1e-5)
    assert found["squares"] == pytest.approx((errors**2).mean(), rel=1e-5)
    assert 0 < found["worst"] <= errors.max() + 1e-5  # the mean over batches of each batch's worst
    with pytest.raises(
        ValueError, match="metric best must have a function, or be a number of the loss's aux"
    ):
        evaluate(own_loss(absolute, [Metric("best", "lower")]), a=X, b=b)


def test_a_loss_alone_and_one_that_is_made_of_the_model():
    assert own_loss(lambda params, batch: jnp.sum(params["w"])).metrics == (Metric("loss", "lower"),)

    def made(apply):
        return lambda params, batch: jnp.mean(apply(params, batch["inputs"]) ** 2)

    found = evaluate(objective_of(made, LINEAR), inputs=X)
    assert found["loss"] == pytest.approx((LOGITS**2).mean(), rel=1e-5)
    extra = Metric("size", "lower", lambda params, batch: jnp.sum(params["w"] ** 2))
    with_more = objective_of("classification", LINEAR, [extra])
    assert [metric.name for metric in with_more.metrics] == ["size", "accuracy", "loss"]
    found = evaluate(with_more, inputs=X, targets=CLASSES)
    assert found["size"] == pytest.approx(float(jnp.sum(PARAMS["w"] ** 2)), rel=1e-5)


MISTAKES = {
    "no loss": (lambda: own_loss(3), "loss must be a function"),
    "no metric": (lambda: own_loss(absolute, ["accuracy"]), "metrics must be sj.Metric"),
    "twice": (lambda: own_loss(absolute, [Metric("a", "lower")] * 2), "different names, got a, a"),
    "better": (
        lambda: Metric("a", "best"),
        "better of metric a must be one of 'higher', 'lower', got 'best'",
    ),
    "name": (lambda: Metric("a b", "lower"), "name of a metric must be a word such as 'top5', got 'a b'"),
    "unknown": (lambda: objectives.make("clasification", LINEAR), "did you mean 'classification'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line(mistake):
    make, told = MISTAKES[mistake]
    with pytest.raises(ValueError, match=told):
        make()


def test_gradients_of_a_masked_batch_do_not_see_what_is_masked():
    objective = objectives.make("classification", LINEAR)
    batch = {"inputs": X, "targets": CLASSES, "mask": np.ones(11, np.float32)}
    batch["mask"][4:] = 0
    other = {**batch, "inputs": np.where(batch["mask"][:, None] > 0, X, 100.0)}
    for one, two in zip(
        *(jax.tree.leaves(jax.grad(lambda p, d=d: objective.loss(p, d)[0])(PARAMS)) for d in (batch, other)),
        strict=True,
    ):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("devices", [2, 4])
def test_devices_share_the_samples_and_the_numbers_are_the_same(devices):
    mesh = sj.agent_mesh(devices)
    for name, targets in (("classification", CLASSES), ("regression", np.ones((11, 4), np.float32))):
        objective = objectives.make(name, LINEAR)
        samples = {"inputs": X, "targets": targets}
        alone, shared = (
            objectives.evaluate(objective, PARAMS, samples, None, where) for where in (None, mesh)
        )
        assert shared == pytest.approx(alone, rel=1e-6)


def test_a_loss_that_looks_at_a_whole_batch_is_not_cut():
    objective = own_loss(absolute)
    samples = {"a": X, "b": np.zeros(11, np.float32)}
    alone, shared = (
        objectives.evaluate(objective, PARAMS, samples, None, mesh) for mesh in (None, sj.agent_mesh(4))
    )
    assert shared == alone
