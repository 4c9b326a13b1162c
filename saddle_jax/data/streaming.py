"""Images that do not fit into memory: decoded when they are asked for, by several threads."""

import concurrent.futures
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from saddle_jax.data.prepared import Resize, read_records

_PER_TASK = 16  # records that one thread decodes at a time


class StreamedImages:
    """Images that look like an array uint8 [N, size, size, 3]: indexing with sample numbers decodes them.

    `ahead` starts to decode a batch that is needed later.
    """

    dtype = np.dtype(np.uint8)

    def __init__(self, source: Any, what: str, resize: Resize, size: int, chosen: np.ndarray | None = None):
        """Numbers the records in the order of `chosen`, or all of them where that is None."""
        self._source, self._what, self._resize, self._size = source, what, resize, size
        self._chosen = np.arange(len(source)) if chosen is None else chosen
        self.shape = (len(self._chosen), size, size, 3)
        self._pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count(), "saddle-decode")

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, samples: Any) -> np.ndarray:
        """Decodes uint8 [..., size, size, 3] for sample numbers of any shape [...], or for a slice."""
        if isinstance(samples, slice):
            samples = np.arange(len(self))[samples]
        return self.ahead(np.asarray(samples))()

    def subset(self, samples: np.ndarray) -> "StreamedImages":
        """Returns the images with these sample numbers, streamed too."""
        return StreamedImages(self._source, self._what, self._resize, self._size, self._chosen[samples])

    def ahead(self, samples: np.ndarray) -> Callable[[], np.ndarray]:
        """Starts decoding, and returns a function that waits for the images."""
        flat = samples.reshape(-1)
        tasks = [
            self._pool.submit(self._decode, flat[start : start + _PER_TASK])
            for start in range(0, len(flat), _PER_TASK)
        ]
        shape = (*samples.shape, *self.shape[1:])
        return lambda: np.concatenate([task.result() for task in tasks]).reshape(shape)

    def _decode(self, samples: np.ndarray) -> np.ndarray:
        records = read_records(self._source, self._what, self._chosen[samples])
        return np.stack([self._resize(record["image"]) for record in records])
