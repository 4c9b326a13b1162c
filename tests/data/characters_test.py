"""The embedded text: what its windows are, that none is seen twice, and what counting makes of it."""

import numpy as np
import pytest

from saddle_jax import data
from saddle_jax.data import characters


@pytest.fixture(scope="module")
def text():
    return characters.read_text()


def as_texts(text, chosen):
    """Windows, each with the character that follows it, as texts."""
    return ["".join(text.vocabulary[code] for code in window) for window in text.windows[chosen]]


def test_windows_are_text_and_targets_are_what_follows(text):
    first, second = as_texts(text, [0, 1])
    assert first == "Fellow-Citizens of the Senate and House of Representatives: In me"
    assert second == "eting you again I feel much satisfaction in being able to repeat "
    assert len(text.vocabulary) == len(set(text.vocabulary)) == 76
    assert text.windows.max() == 75
    assert text.names[text.writers[0]] == "George Washington"
    assert "In th" in as_texts(text, text.writers == text.names.index("Abraham Lincoln"))[0]
    dataset = characters.load_characters()
    for samples, chosen in ((dataset.train, ~text.is_test), (dataset.test, text.is_test)):
        assert samples["inputs"].dtype == samples["targets"].dtype == np.uint8
        np.testing.assert_array_equal(samples["inputs"], text.windows[chosen, : characters.LENGTH])
        np.testing.assert_array_equal(samples["inputs"][:, 1:], samples["targets"][:, :-1])
        np.testing.assert_array_equal(samples["targets"][:, -1], text.windows[chosen, -1])


def test_training_and_testing_share_no_window_and_every_president_has_both(text):
    train, test = set(as_texts(text, ~text.is_test)), set(as_texts(text, text.is_test))
    assert len(train) == 6966
    assert len(test) == 700
    assert not train & test
    np.testing.assert_array_equal(np.bincount(text.writers[text.is_test]), np.full(10, 70))


def test_perplexities_of_counting_are_those_that_the_docstring_states(text):
    size = len(text.vocabulary)
    train, test = text.windows[~text.is_test].astype(int), text.windows[text.is_test].astype(int)

    def perplexity(chances):
        return float(np.exp(-np.mean(np.log(chances))))

    singles = np.bincount(train[:, 1:].ravel(), minlength=size) + 1.0
    assert perplexity((singles / singles.sum())[test[:, 1:]]) == pytest.approx(19.5, abs=0.05)
    pairs = np.full((size, size), 0.1)
    np.add.at(pairs, (train[:, :-1], train[:, 1:]), 1)
    pairs /= pairs.sum(axis=1, keepdims=True)
    assert perplexity(pairs[test[:, :-1], test[:, 1:]]) == pytest.approx(10.2, abs=0.05)
    triples = np.zeros((size, size, size))
    np.add.at(triples, (train[:, :-2], train[:, 1:-1], train[:, 2:]), 1)
    triples = (triples + 5 * pairs[None]) / (triples.sum(axis=2, keepdims=True) + 5)
    chances = triples[test[:, :-2], test[:, 1:-1], test[:, 2:]]
    assert perplexity(chances) == pytest.approx(6.1, abs=0.05)
    assert all(word in characters.read_text.__doc__ for word in ("19.5", "10.2", "6.1", "6,966", "700"))


def test_samples_are_partitioned_by_writer():
    partition = data.make_partition("dirichlet(0.1)", data.load("characters").labels, 10, seed=0)
    assert partition.skew.classes_per_agent < 5
