"""An embedded text, character by character: annual messages of ten presidents, who write differently."""

import pathlib
from typing import NamedTuple

import numpy as np

from saddle_jax.data.dataset import Dataset

_FILE = pathlib.Path(__file__).with_name("characters.npz")
LENGTH = 64  # characters that a model sees of a window
_PASSAGE = 10  # windows in a row that stay together in training or in testing
_TEST_EVERY = 10  # passages, of which the last is for testing


class Windows(NamedTuple):
    """Windows of a text, and what follows each of their characters.

    Attributes:
      inputs: uint8 [N, T], numbers of characters.
      targets: uint8 [N, T], the next ones: targets[:, :-1] equals inputs[:, 1:].
      writers: int32 [N], who wrote a window; by it windows are given to agents.
    """

    inputs: np.ndarray
    targets: np.ndarray
    writers: np.ndarray


class Text(NamedTuple):
    """A text in windows: those to train with and those to test with, and what their numbers mean."""

    train: Windows
    test: Windows
    vocabulary: str  # character c has the number vocabulary.index(c)
    writers: tuple[str, ...]


def load_characters() -> Dataset:
    """Loads messages of ten presidents, in windows of 64 characters; a model learns each next character.

    Samples are partitioned by president. They are works of the US Government, in the public domain.
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
        dealt_by=text.train.writers,
        outputs=len(text.vocabulary),
        objective="language",
        model="causal_mlp",
        source="embedded in saddle_jax",
    )


def read_text() -> Text:
    """Reads the embedded text: about 50,000 characters of each of ten presidents, 1790 to 1915.

    No character is in two windows. Ten windows in a row are a passage, and every tenth passage of a president
    is for testing: 6,966 windows to train with and 700 to test with. On the latter the frequencies of single
    characters in the former have a perplexity of 19.5, those of pairs 10.2, and those of triples 6.1.
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
    """Cuts a text into windows of LENGTH + 1 characters; what is left over at the end is dropped."""
    size = LENGTH + 1
    return part[: len(part) // size * size].reshape(-1, size)
