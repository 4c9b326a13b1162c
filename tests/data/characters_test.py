"""The embedded text: what its windows are, that none is seen twice, and what counting makes of it."""

import numpy as np
import pytest

from saddle_jax import data
from saddle_jax.data import characters


@pytest.fixture(scope="module")
def text():
    return characters.read_text()


def spelt(text, windows, number):
    """One window with the character that follows it, as a text."""
    codes = [*windows.inputs[number], windows.targets[number, -1]]
    return "".join(text.vocabulary[code] for code in codes)


def test_windows_are_text_and_targets_are_what_follows(text):
    first = spelt(text, text.train, 0)
    assert first == "Fellow-Citizens of the Senate and House of Representatives: In me"
    assert spelt(text, text.train, 1) == "eting you again I feel much satisfaction in being able to repeat "
    for windows, count in ((text.train, 6966), (text.test, 700)):
        assert windows.inputs.shape == windows.targets.shape == (count, characters.LENGTH)
        assert windows.inputs.dtype == windows.targets.dtype == np.uint8
        np.testing.assert_array_equal(windows.inputs[:, 1:], windows.targets[:, :-1])
        assert windows.writers.shape == (count,)
        np.testing.assert_array_equal(np.unique(windows.writers), np.arange(10))
    assert len(text.vocabulary) == len(set(text.vocabulary)) == 76
    assert text.train.inputs.max() == 75
    assert text.writers[text.train.writers[0]] == "George Washington"
    lincoln = np.flatnonzero(text.train.writers == text.writers.index("Abraham Lincoln"))[0]
    assert "In th" in spelt(text, text.train, lincoln)


def test_training_and_testing_share_no_window_and_every_president_has_both(text):
    train = {spelt(text, text.train, number) for number in range(len(text.train.writers))}
    test = {spelt(text, text.test, number) for number in range(len(text.test.writers))}
    assert len(train) == 6966
    assert len(test) == 700
    assert not train & test
    np.testing.assert_array_equal(np.bincount(text.test.writers), np.full(10, 70))


def test_perplexities_of_counting_are_those_that_the_docstring_states(text):
    size = len(text.vocabulary)

    def joined(windows):
        return np.concatenate([windows.inputs, windows.targets[:, -1:]], axis=1).astype(int)

    train, test = joined(text.train), joined(text.test)

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


def test_writers_can_be_dealt(text):
    partition = data.make_partition("dirichlet(0.1)", text.train.writers, 10, seed=0)
    assert partition.skew.classes_per_agent < 5
