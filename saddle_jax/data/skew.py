"""A partition with its name, its fingerprint and its measured skew."""

import dataclasses
import functools
import hashlib

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Partition:
    """The division of a dataset's samples among the agents.

    Attributes:
      name: kind and settings, such as "dirichlet(10 agents, alpha=0.1, seed=0)".
      samples: int64 [A, M], sample numbers; row i is valid up to sizes[i].
      sizes: int64 [A], how many samples each agent has.
      labels: the labels of the whole dataset [N].
    """

    name: str
    samples: np.ndarray
    sizes: np.ndarray
    labels: np.ndarray

    @property
    def agents(self) -> int:
        """The number of agents, A, of the partition."""
        return len(self.samples)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Sixteen hex digits that differ between any two partitions, whatever their names."""
        digest = hashlib.sha256(repr(self.samples.shape).encode())
        digest.update(np.ascontiguousarray(self.samples, "<i8").tobytes())
        digest.update(np.ascontiguousarray(self.sizes, "<i8").tobytes())
        return digest.hexdigest()[:16]

    @functools.cached_property
    def class_counts(self) -> np.ndarray:
        """How many samples of each class each agent has, int64 [A, C]."""
        classes = int(self.labels.max()) + 1
        rows = zip(self.samples, self.sizes, strict=True)
        return np.stack([np.bincount(self.labels[row[:size]], minlength=classes) for row, size in rows])

    @property
    def skew(self) -> "Skew":
        """How far the agents' classes are from those of the whole dataset."""
        counts = self.class_counts
        shares = counts / counts.sum(axis=1, keepdims=True)
        whole = counts.sum(axis=0) / counts.sum()
        logs = np.log(shares, where=shares > 0, out=np.zeros_like(shares))
        return Skew(
            classes_per_agent=float((counts > 0).sum(axis=1).mean()),
            entropy=abs(float((shares * logs).sum(axis=1).mean())),
            earth_movers_distance=float(np.abs(shares - whole).sum(axis=1).mean()),
        )


@dataclasses.dataclass(frozen=True)
class Skew:
    """Three measures of label skew, each averaged over the agents.

    Attributes:
      classes_per_agent: how many classes an agent has at all.
      entropy: the entropy of an agent's classes in nats; log C if it has all equally, 0 if it has one.
      earth_movers_distance: sum_c |p_i(c) - p(c)| between the classes of an agent and of the whole dataset
        (Zhao et al., 2018); 0 if they agree, at most 2.
    """

    classes_per_agent: float
    entropy: float
    earth_movers_distance: float

    def __str__(self) -> str:
        return (
            f"{self.classes_per_agent:.1f} classes per agent, entropy {self.entropy:.2f} nats, "
            f"earth-mover distance {self.earth_movers_distance:.2f}"
        )
