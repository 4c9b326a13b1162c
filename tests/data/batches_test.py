import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

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


def test_seeds_epochs_and_agents_have_orders_of_their_own():
    """Orders as positions within an agent's own samples; no two of them are equal."""
    orders = []
    for seed, epoch in itertools.product((0, 1), (0, 1, 2)):
        made = batches(seed=seed)
        samples = np.asarray(made.epoch(epoch)[0]).swapaxes(0, 1).reshape(4, -1)[:, :25]
        orders += [
            np.argsort(own)[np.searchsorted(np.sort(own), row)]
            for own, row in zip(made.partition.samples, samples, strict=True)
        ]
    assert len(np.unique(orders, axis=0)) == 2 * 3 * 4


def test_every_step_of_every_epoch_and_seed_has_a_key_of_its_own():
    """Its augmentation would otherwise repeat itself; `epoch` has the same root, for another purpose."""
    keys = [
        jax.random.key_data(batches(seed=seed).augmentation_key(epoch, step))
        for seed, epoch, step in itertools.product((0, 1), (0, 1, 2), (0, 1, 2))
    ]
    assert len(np.unique(keys, axis=0)) == 2 * 3 * 3
    np.testing.assert_array_equal(jax.random.key_data(batches().augmentation_key(2, 2)), keys[8])


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
    value_and_grad = jax.jit(jax.value_and_grad(loss_fn, has_aux=True))
    masked = value_and_grad(params, {"inputs": images, "targets": labels, "mask": mask})
    whole = value_and_grad(params, {"inputs": images[:3], "targets": labels[:3], "mask": jnp.ones(3)})
    chex.assert_trees_all_close(masked, whole, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("batch_size", [7, 23, 30])
def test_evaluation_counts_every_image_once(batch_size, monkeypatch):
    monkeypatch.setattr(objectives, "_BATCH", batch_size)
    digits = data.load("digits")
    model = models.functions(models.build("logistic", 10))
    params = models.init(model, digits.input_shape, jax.random.key(0))
    test = {name: leaf[:23] for name, leaf in digits.test.items()}
    score = objectives.evaluate(objectives.make("classification", model), params, test, digits.recipe)

    @jax.jit
    def expected(params, batch):
        logits = model.apply(params, digits.recipe.for_evaluation(batch["inputs"]))
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"])
        return {"loss": loss.mean(), "accuracy": jnp.mean(logits.argmax(axis=1) == batch["targets"])}

    chex.assert_trees_all_close(score, jax.device_get(expected(params, test)), rtol=1e-5)


# ---- augmentation ----


def test_flip_and_crop_gives_a_window_of_the_padded_image_or_of_its_mirror():
    images = np.random.default_rng(0).integers(1, 256, size=(64, 6, 5, 3), dtype=np.uint8)
    flip_and_crop = jax.jit(recipes.flip_and_crop, static_argnames="padding")
    out = np.asarray(flip_and_crop(jax.random.key(0), images, padding=2))
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
    plain = np.full((3, 64, 48, 3), 77, np.uint8)
    slope = np.broadcast_to(2 * np.arange(48, dtype=np.uint8)[:, None], (200, 64, 48, 3))
    resized_crop = jax.jit(recipes.flip_and_resized_crop, static_argnums=2)
    out = np.asarray(resized_crop(jax.random.key(1), np.concatenate([plain, slope]), 16), float)
    np.testing.assert_array_equal(out[:3], np.full((3, 16, 16, 3), 77))
    sloped = out[3:, ..., 0]
    assert sloped.std(axis=1).max() < 0.6  # columns of a horizontal slope are constant
    span = np.abs(sloped[:, 0, -1] - sloped[:, 0, 0]) / 2 * 16 / 15  # pixels that the window is wide
    assert span.min() > np.sqrt(64 * 48 * 0.08 * 3 / 4) - 2
    assert span.max() <= 48
    assert (sloped[:, 0, -1] < sloped[:, 0, 0]).mean() == pytest.approx(0.5, abs=0.12)


def test_boxes_have_the_area_and_aspect_of_torchvision():
    boxes = jax.jit(jax.vmap(lambda key: recipes._random_box(key, 50, 60)))
    top, left, height, width = jax.device_get(boxes(jax.random.split(jax.random.key(0), 2000)))
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
    out = np.asarray(jax.jit(recipe.for_agents)(jax.random.key(0), same)).reshape(15, -1)
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
