import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import saddle_jax as sj
from saddle_jax import data, models
from saddle_jax.data import recipes
from saddle_jax.tasks import objectives, supervised

LABELS = np.arange(103) % 4


def batches(partition="iid", agents=4, batch_size=8, seed=0):
    return data.Batches(data.make_partition(partition, LABELS, agents, seed=1), batch_size, seed)


def test_an_epoch_shows_every_agent_each_of_its_samples_once():
    made = batches()
    assert made.steps_per_epoch == 4  # 25 samples in eights
    samples, mask = made.epoch(3)
    chex.assert_shape(samples, (4, 4, 8))
    np.testing.assert_array_equal(mask.sum(axis=1), [8, 8, 8, 1])
    for agent in range(4):
        shown = np.asarray(samples[:, agent])[np.asarray(mask, bool)]
        assert sorted(shown) == sorted(made.partition.samples[agent])


def test_batches_of_size_zero_are_whole_shares():
    made = batches(batch_size=0)
    assert (made.steps_per_epoch, made.size) == (1, 25)
    for epoch in (0, 7):
        samples, mask = made.step(epoch, 0)
        np.testing.assert_array_equal(samples, made.partition.samples)
        np.testing.assert_array_equal(mask, np.ones((4, 25)))


def test_in_whole_shares_each_sample_of_each_agent_counts_once():
    made = batches("quantity_skew(0.5)", batch_size=0)
    samples, mask = made.step(0, 0)
    assert samples.shape == (4, made.partition.sizes.max())
    for agent, size in enumerate(made.partition.sizes):
        shown = np.asarray(samples[agent])[np.asarray(mask[agent], bool)]
        assert sorted(shown) == sorted(made.partition.samples[agent][:size])
    with pytest.raises(ValueError, match=r"batch_size must be at least 1 .* reads no mask, got 0"):
        data.Batches(made.partition, 0, 0, partial=False)
    assert data.Batches(batches().partition, 0, 0, partial=False).size == 25


def test_a_batch_reached_directly_is_the_one_reached_by_going_through():
    made = batches()
    walked = [tuple(jax.device_get(made.step(epoch, step))) for epoch in range(3) for step in range(4)]
    fresh = batches()
    for position in (11, 0, 7):
        chex.assert_trees_all_equal(tuple(jax.device_get(fresh.step(*divmod(position, 4)))), walked[position])
    key = jax.random.key_data(made.augmentation_key(2, 3))
    np.testing.assert_array_equal(key, jax.random.key_data(fresh.augmentation_key(2, 3)))


def test_epochs_agents_and_seeds_have_orders_of_their_own():
    first, second = batches().epoch(0)[0], batches().epoch(1)[0]
    other = batches(seed=1).epoch(0)[0]
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, other)
    made = batches()
    positions = [
        [list(made.partition.samples[a]).index(s) for s in np.asarray(first[0, a])] for a in range(4)
    ]
    assert positions[0] != positions[1]


def test_agents_with_fewer_samples_go_through_their_own_again():
    made = batches("quantity_skew(0.5)")
    samples, mask = made.epoch(0)
    largest = made.partition.sizes.max()
    for agent, size in enumerate(made.partition.sizes):
        shown = np.asarray(samples[:, agent])[np.asarray(mask, bool)]
        assert len(shown) == largest
        counts = np.unique(shown, return_counts=True)[1]
        assert set(shown) <= set(made.partition.samples[agent][:size])
        assert counts.max() - counts.min() <= 1 or len(counts) < size
        assert sorted(shown[:size]) == sorted(made.partition.samples[agent][:size])  # one whole round first


def test_the_masked_loss_divides_by_the_true_count():
    model = models.build("logistic", 4)
    images = jax.random.normal(jax.random.key(0), (8, 2, 2, 1))
    params = models.init(model, (2, 2, 1), jax.random.key(1))
    loss_fn = supervised.cross_entropy(model)
    labels = jnp.arange(8) % 4
    mask = jnp.array([1.0, 1, 1, 0, 0, 0, 0, 0])
    masked, aux = loss_fn(params, {"inputs": images, "targets": labels, "mask": mask})
    whole, whole_aux = loss_fn(params, {"inputs": images[:3], "targets": labels[:3], "mask": jnp.ones(3)})
    np.testing.assert_allclose(masked, whole, rtol=1e-6)
    np.testing.assert_allclose(aux["accuracy"], whole_aux["accuracy"])
    grads = [
        jax.grad(lambda p, b=batch: loss_fn(p, b)[0])(params)
        for batch in (
            {"inputs": images, "targets": labels, "mask": mask},
            {"inputs": images[:3], "targets": labels[:3], "mask": jnp.ones(3)},
        )
    ]
    chex.assert_trees_all_close(*grads, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("batch_size", [1, 7, 360, 500])
def test_evaluation_counts_every_image_once(batch_size, monkeypatch):
    monkeypatch.setattr(objectives, "_BATCH", batch_size)
    dataset = data.load("digits")
    model = models.build("logistic", 10)
    params = models.init(model, dataset.input_shape, jax.random.key(0))
    count = 23 if batch_size == 1 else 360
    images, labels = dataset.test["inputs"][:count], dataset.test["targets"][:count]
    objective = objectives.make("classification", models.functions(model))
    score = objectives.evaluate(objective, params, {"inputs": images, "targets": labels}, dataset.recipe)
    logits = model.apply({"params": params}, dataset.recipe.for_evaluation(jnp.asarray(images)))
    assert score["accuracy"] == pytest.approx(np.mean(np.asarray(jnp.argmax(logits, axis=1)) == labels))
    expected = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.asarray(labels)).mean()
    assert score["loss"] == pytest.approx(float(expected), rel=1e-5)


def test_ten_agents_learn_the_digits():
    """All parts together, as a training loop will put them."""
    dataset = data.load("digits")
    partition = data.make_partition("dirichlet(0.1)", dataset.train["targets"], 10, seed=0)
    made = data.Batches(partition, 32, seed=0)
    model = models.build("logistic", 10)
    method = sj.q_saddle(sj.ring(10), 0.1, 0.05)
    params = sj.replicate(models.init(model, dataset.input_shape, jax.random.key(0)), 10)
    state = method.init(params)
    images, labels = jnp.asarray(dataset.train["inputs"]), jnp.asarray(dataset.train["targets"])
    loss_fn = supervised.cross_entropy(model)

    @jax.jit
    def step(params, state, samples, mask, key):
        batch = {
            "inputs": dataset.recipe.for_agents(key, data.take(images, samples)),
            "targets": data.take(labels, samples),
            "mask": mask,
        }
        return method.step(loss_fn, params, state, batch)[:2]

    for epoch in range(12):
        for number in range(made.steps_per_epoch):
            samples, mask = made.step(epoch, number)
            params, state = step(params, state, samples, mask, made.augmentation_key(epoch, number))
    objective = objectives.make("classification", models.functions(model))
    score = objectives.evaluate(objective, sj.consensus(params), dataset.test, dataset.recipe)
    assert score["accuracy"] > 0.88  # logistic regression on all digits reaches 0.96


# ---- augmentation ----


def test_flip_and_crop_gives_a_window_of_the_padded_image_or_of_its_mirror():
    images = np.random.default_rng(0).integers(1, 256, size=(64, 6, 5, 3), dtype=np.uint8)
    out = np.asarray(recipes.flip_and_crop(jax.random.key(0), jnp.asarray(images), padding=2))
    seen = set()
    for image, result in zip(images, out, strict=True):
        windows = {}
        for mirrored in (False, True):
            padded = np.pad(image[:, ::-1] if mirrored else image, ((2, 2), (2, 2), (0, 0)))
            for top in range(5):
                for left in range(5):
                    windows[padded[top : top + 6, left : left + 5].tobytes()] = (mirrored, top, left)
        seen.add(windows[result.tobytes()])
    assert len(seen) > 30
    assert {mirrored for mirrored, _, _ in seen} == {False, True}
    assert {top for _, top, _ in seen} == {left for _, _, left in seen} == set(range(5))


def test_resized_crop_keeps_a_plain_image_plain_and_follows_a_slope():
    plain = jnp.full((3, 20, 24, 3), 77, jnp.uint8)
    np.testing.assert_array_equal(
        recipes.flip_and_resized_crop(jax.random.key(0), plain, 8), np.full((3, 8, 8, 3), 77)
    )
    slope = jnp.broadcast_to(jnp.arange(64, dtype=jnp.uint8)[None, None, :, None] * 2, (200, 64, 64, 1))
    out = np.asarray(recipes.flip_and_resized_crop(jax.random.key(1), slope, 16)).astype(float)[..., 0]
    assert out.std(axis=1).max() < 0.6  # columns of a horizontal slope are constant
    span = np.abs(out[:, 0, -1] - out[:, 0, 0]) / 2 * 16 / 15  # pixels that the window is wide
    assert span.min() > 64 * np.sqrt(0.08 * 3 / 4) - 2
    assert span.max() <= 64
    assert (out[:, 0, -1] < out[:, 0, 0]).mean() == pytest.approx(0.5, abs=0.12)


def test_boxes_have_the_area_and_aspect_of_torchvision():
    top, left, height, width = (
        np.asarray(side)
        for side in jax.vmap(lambda k: recipes._random_box(k, 50, 60))(
            jax.random.split(jax.random.key(0), 2000)
        )
    )
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (top + height <= 50).all()
    assert (left + width <= 60).all()
    area = height * width / 3000
    assert 0.07 < area.min() < 0.1
    assert area.max() > 0.9
    ratio = width / height
    assert ratio.min() == pytest.approx(3 / 4, abs=0.06)
    assert ratio.max() == pytest.approx(4 / 3, abs=0.06)


def test_recipes_by_hand():
    recipe = data.load("digits").recipe
    images = jnp.array([[[[0]], [[255]]]], jnp.uint8)
    expected = (np.array([0.0, 1.0]) - recipe.mean[0]) / recipe.std[0]
    np.testing.assert_allclose(np.ravel(recipe.for_evaluation(images)), expected, rtol=1e-5)
    np.testing.assert_allclose(np.ravel(recipe.for_training(jax.random.key(0), images)), expected, rtol=1e-5)
    plain = data.Recipe((0.0,), (1.0,), "none", 2).for_training(
        jax.random.key(0), jnp.arange(16, dtype=jnp.uint8).reshape(1, 4, 4, 1)
    )
    np.testing.assert_allclose(np.ravel(plain) * 255, [5, 6, 9, 10], rtol=1e-6)
    middle = data.Recipe((0.0,), (1.0,), "resized_crop", 2).for_evaluation(
        jnp.arange(16, dtype=jnp.uint8).reshape(1, 4, 4, 1)
    )
    np.testing.assert_allclose(np.ravel(middle) * 255, [5, 6, 9, 10], rtol=1e-6)


def test_agents_are_augmented_each_on_its_own():
    recipe = data.Recipe((0.0,), (1.0,), "flip_crop")
    same = jnp.broadcast_to(jnp.arange(64, dtype=jnp.uint8).reshape(1, 1, 8, 8, 1), (3, 5, 8, 8, 1))
    out = np.asarray(recipe.for_agents(jax.random.key(0), same)).reshape(15, -1)
    assert len(np.unique(out, axis=0)) > 10


BAD = {
    "batch": (lambda: batches(batch_size=26), "batch_size must be at most an agent's share, 25, got 26"),
    "negative": (lambda: batches(batch_size=-1), "batch_size must be an integer >= 0, got -1"),
    "augmentation": (lambda: data.Recipe((0.0,), (1.0,), "cut"), "augmentation must be one of .* got 'cut'"),
    "epoch": (lambda: batches().epoch(-1), "epoch must be an integer >= 0 .* got -1"),
    "step": (lambda: batches().step(0, 99), r"step must be an integer >= 0 and <= \d+, got 99"),
    "no name": (lambda: data.load(None), "dataset must be a str, such as 'digits' .* got None"),
    "subset": (lambda: data.load("digits").subset(9999, 0), "subset must be 1 to 1437 samples, got 9999"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_named_with_their_value(name):
    make, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        make()
