"""What every dataset that needs no download must hold, those of the table and those to come."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saddle_jax import data, testing
from saddle_jax.data.sources import BUILTIN

EMBEDDED = [name for name in BUILTIN if name != "leaf"]  # which reads a folder
every_dataset = pytest.mark.parametrize("name", EMBEDDED)
every_images = pytest.mark.parametrize("name", [name for name in EMBEDDED if data.load(name).recipe])


@every_dataset
def test_every_invariant_holds(name):
    results = testing.check_dataset(functools.partial(data.load, name))
    assert [each for each in results if each.status != "holds"] == []
    dataset = data.load(name)
    assert dataset.name == name
    assert dataset.source


@every_images
def test_images_have_a_recipe_that_normalises_them(name):
    dataset = data.load(name)
    images, labels = dataset.train["inputs"], dataset.train["targets"]
    assert (images.dtype, images.ndim, labels.dtype) == (np.uint8, 4, np.int32)
    np.testing.assert_array_equal(np.unique(dataset.test["targets"]), np.arange(dataset.num_outputs))
    seen = dataset.recipe.for_evaluation(jnp.asarray(images[:512]))
    assert abs(float(seen.mean())) < 0.2
    assert 0.5 < float(seen.std()) < 1.5
    augmented = dataset.recipe.for_training(jax.random.key(0), jnp.asarray(images[:4]))
    assert augmented.shape == (4, *dataset.input_shape)


def test_options_of_a_dataset_stand_in_brackets():
    dataset = data.load("convex(kind=logistic, dimension=5, samples=60)")
    assert (dataset.objective, dataset.input_shape, dataset.size) == ("logistic", (5,), 60)
    assert dataset.name == "convex(kind=logistic, dimension=5, samples=60)"


BAD = {
    "convex(kond=1)": "did you mean 'kind'.*dataset convex takes kind, .* got option 'kond'",
    "convex(condition=0.5)": "dataset convex: condition must be a number > 1, got 0.5",
    "convex(kind=lasso)": "dataset convex: kind must be one of 'ridge', 'logistic', got 'lasso'",
    "convex(": "dataset must be NAME, NAME",
    "digits(size=9)": "dataset digits takes no options, got option 'size'",
}


@pytest.mark.parametrize("spec", BAD)
def test_bad_options_of_a_dataset_are_named(spec):
    with pytest.raises(ValueError, match=BAD[spec]):
        data.load(spec)


def test_embedded_digits_are_real_and_split_for_good():
    digits = data.load("digits")
    assert digits.train["inputs"].shape == (1437, 8, 8, 1)
    assert digits.test["inputs"].shape == (360, 8, 8, 1)
    whole = np.concatenate([digits.train["inputs"], digits.test["inputs"]])
    # scikit-learn's: 1,797 images whose pixels sum to 561,718 in steps of 1/16
    assert int(np.round(whole / (255 / 16)).sum()) == 561_718
    counts = np.bincount(np.concatenate([digits.train["targets"], digits.test["targets"]]))
    np.testing.assert_array_equal(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180])
    np.testing.assert_array_equal(digits.train["inputs"], data.load("digits").train["inputs"])


def test_synthetic_clusters_can_be_told_apart_but_not_quite():
    dataset = data.load("synthetic")
    means = np.stack([dataset.train["inputs"][dataset.train["targets"] == c].mean(axis=0) for c in range(10)])
    distances = ((dataset.test["inputs"][:, None] - means[None]) ** 2).sum(axis=(2, 3, 4))
    assert (distances.argmin(axis=1) == dataset.test["targets"]).mean() > 0.95


def test_subsets_are_random_and_repeat_themselves():
    digits = data.load("digits")
    part = digits.subset(100, seed=3)
    assert part.train["inputs"].shape == (100, 8, 8, 1)
    np.testing.assert_array_equal(part.train["targets"], digits.subset(100, seed=3).train["targets"])
    assert not np.array_equal(part.train["targets"], digits.subset(100, seed=4).train["targets"])
    assert len(np.unique(part.train["targets"])) == 10
