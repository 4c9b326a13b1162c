"""What every dataset that needs no download must hold, those of the table and those to come."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saddle_jax import data
from saddle_jax.data.sources import BUILTIN

every_dataset = pytest.mark.parametrize("name", BUILTIN)


@every_dataset
def test_images_labels_and_classes_fit_together(name):
    dataset = data.load(name)
    assert dataset.name == name
    for images, labels in (
        (dataset.train["inputs"], dataset.train["targets"]),
        (dataset.test["inputs"], dataset.test["targets"]),
    ):
        assert (images.dtype, images.ndim, labels.dtype) == (np.uint8, 4, np.int32)
        assert len(images) == len(labels)
        assert images.shape[1:] == dataset.input_shape
        np.testing.assert_array_equal(np.unique(labels), np.arange(dataset.num_outputs))
    assert dataset.source


@every_dataset
def test_a_second_load_is_the_same_data(name):
    one, other = data.load(name), data.load(name)
    np.testing.assert_array_equal(one.train["inputs"], other.train["inputs"])
    np.testing.assert_array_equal(one.test["targets"], other.test["targets"])


@every_dataset
def test_the_recipe_normalises_and_the_samples_can_be_dealt(name):
    dataset = data.load(name)
    seen = dataset.recipe.for_evaluation(jnp.asarray(dataset.train["inputs"][:512]))
    assert abs(float(seen.mean())) < 0.2
    assert 0.5 < float(seen.std()) < 1.5
    augmented = dataset.recipe.for_training(jax.random.key(0), jnp.asarray(dataset.train["inputs"][:4]))
    assert augmented.shape == (4, *dataset.input_shape)
    partition = data.make_partition("dirichlet", dataset.train["targets"], 5, alpha=0.1, seed=0)
    assert partition.skew.classes_per_agent <= dataset.num_outputs
