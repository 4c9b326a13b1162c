"""An embedded text for character-level language modelling: annual messages of ten US presidents."""

import pathlib
from typing import NamedTuple

import numpy as np

from saddle_jax.data.dataset import Dataset

_FILE = pathlib.Path(__file__).with_name("characters.npz")
LENGTH = 64  # characters per window, as a model sees it
_PASSAGE = 10  # consecutive windows that are split into training or test data together
_TEST_EVERY = 10  # of so many passages the last is test data


class Windows(NamedTuple):
    """Windows of a text, with the next character of each position.

    Attributes:
      inputs: uint8 [N, T], character indices.
      targets: uint8 [N, T], the next characters: targets[:, :-1] equals inputs[:, 1:].
      writers: int32 [N], the author of each window, by which samples are partitioned.
    """

    inputs: np.ndarray
    targets: np.ndarray
    writers: np.ndarray


class Text(NamedTuple):
    """Training and test windows of a text, and their vocabulary."""

    train: Windows
    test: Windows
    vocabulary: str  # character c has the index vocabulary.index(c)
    writers: tuple[str, ...]


def load_characters() -> Dataset:
    """Loads messages of ten presidents in windows of 64 characters, to predict each next character.

    Samples are partitioned by president. The texts are works of the US Government, in the public domain.
    """
    text = read_text()
    train, test = (
        {"inputs": windows.inputs, "targets": windows.targets} for windows in (text.train, text.test)
    )
    return Dataset(
        name="characters",
        train=train,
        test=test,
        class_names=text.writers,
        partition_labels=text.train.writers,
        outputs=len(text.vocabulary),
        objective="language",
        model="causal_mlp",
        source="embedded in saddle_jax",
    )


def read_text() -> Text:
    """Reads the embedded text: about 50,000 characters by each of ten presidents, 1790 to 1915.

    Windows do not overlap. Ten consecutive windows are a passage, and every tenth passage of a president is
    test data: 6,966 training and 700 test windows. Character n-gram frequencies of the training data have a
    test perplexity of 19.5 (unigrams), 10.2 (bigrams) and 6.1 (trigrams).
    """
    with np.load(_FILE, allow_pickle=False) as file:
        text, ends, writers = file["text"], file["ends"], file["presidents"]
    codes, numbers = np.unique(text, return_inverse=True)
    vocabulary = codes.tobytes().decode("latin-1")
    parts = [_cut(part) for part in np.split(numbers.astype(np.uint8), ends[:-1])]
    windows = np.concatenate(parts)
    of_writers = np.repeat(np.arange(len(parts), dtype=np.int32), [len(part) for part in parts])
    places = np.concatenate([np.arange(len(part)) for part in parts])
    is_test = places // _PASSAGE % _TEST_EVERY == _TEST_EVERY - 1
    train, test = (
        Windows(windows[chosen, :-1], windows[chosen, 1:], of_writers[chosen])
        for chosen in (~is_test, is_test)
    )
    return Text(train, test, vocabulary, tuple(writers.tolist()))


def _cut(part: np.ndarray) -> np.ndarray:
    """Cuts a text into windows of LENGTH + 1 characters and drops the remainder."""
    size = LENGTH + 1
    return part[: len(part) // size * size].reshape(-1, size)
