"""An embedded text for character-level language modelling: annual messages of ten US presidents."""

import pathlib
from typing import NamedTuple

import numpy as np

from saddle_jax.data.dataset import Dataset

_FILE = pathlib.Path(__file__).with_name("characters.npz")
LENGTH = 64  # characters per window, as a model sees it
_PASSAGE = 10  # consecutive windows that are split into training or test data together
_TEST_EVERY = 10  # of so many passages the last is test data


class Text(NamedTuple):
    """The embedded text in windows of T characters and the one that follows, writer by writer.

    Attributes:
      windows: uint8 [N, T + 1], character indices: vocabulary[c] is character c.
      writers: int32 [N], the author of each window, by which samples are partitioned.
      is_test: bool [N].
      names: the authors.
      vocabulary: all characters.
    """

    windows: np.ndarray
    writers: np.ndarray
    is_test: np.ndarray
    names: tuple[str, ...]
    vocabulary: str


def load_characters() -> Dataset:
    """Loads messages of ten presidents in windows of 64 characters, to predict each next character.

    Samples are partitioned by president. The texts are works of the US Government, in the public domain.
    """
    text = read_text()

    def samples(windows: np.ndarray) -> dict[str, np.ndarray]:
        return {"inputs": windows[:, :-1], "targets": windows[:, 1:]}

    return Dataset(
        name="characters",
        train=samples(text.windows[~text.is_test]),
        test=samples(text.windows[text.is_test]),
        class_names=text.names,
        partition_labels=text.writers[~text.is_test],
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
        text, ends, names = file["text"], file["ends"], file["presidents"]
    codes, numbers = np.unique(text, return_inverse=True)
    size = LENGTH + 1
    parts = [  # the rest of a writer's text is dropped
        part[: len(part) // size * size].reshape(-1, size)
        for part in np.split(numbers.astype(np.uint8), ends[:-1])
    ]
    places = np.concatenate([np.arange(len(part)) for part in parts])
    return Text(
        windows=np.concatenate(parts),
        writers=np.repeat(np.arange(len(parts), dtype=np.int32), [len(part) for part in parts]),
        is_test=places // _PASSAGE % _TEST_EVERY == _TEST_EVERY - 1,
        names=tuple(names.tolist()),
        vocabulary=codes.tobytes().decode("latin-1"),
    )
