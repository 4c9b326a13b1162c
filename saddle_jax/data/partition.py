"""Partitions of a dataset among agents, computed in NumPy on the host from a seed.

Each function takes labels [N] and returns sample numbers [A, N // A], one row per agent; no sample is in two.
A partition of a user's own is such a function of labels, agents and seed, with options if it likes.
"""

import dataclasses
import functools
import hashlib
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.registry import Registry, Spec


@dataclasses.dataclass(frozen=True, eq=False)
class Partition:
    """The division of a dataset's samples among the agents.

    Attributes:
      name: kind and options, such as "dirichlet(10 agents, alpha=0.1, seed=0)".
      samples: int64 [A, M], sample numbers; row i is valid up to sizes[i].
      sizes: int64 [A], the number of samples of each agent.
      labels: the labels of the whole dataset [N].
    """

    name: str
    samples: np.ndarray
    sizes: np.ndarray
    labels: np.ndarray

    @property
    def agents(self) -> int:
        """The number of agents, A."""
        return len(self.samples)

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash of the partition's content, 16 hex digits; the name does not matter."""
        digest = hashlib.sha256(repr(self.samples.shape).encode())
        digest.update(np.ascontiguousarray(self.samples, "<i8").tobytes())
        digest.update(np.ascontiguousarray(self.sizes, "<i8").tobytes())
        return digest.hexdigest()[:16]

    @functools.cached_property
    def class_counts(self) -> np.ndarray:
        """The number of samples of each agent and class, int64 [A, C]."""
        classes = int(self.labels.max()) + 1
        rows = zip(self.samples, self.sizes, strict=True)
        return np.stack([np.bincount(self.labels[row[:size]], minlength=classes) for row, size in rows])

    @property
    def skew(self) -> "Skew":
        """How far the agents' class distributions are from that of the whole dataset."""
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
      classes_per_agent: the number of classes that an agent has samples of.
      entropy: the entropy of an agent's class distribution in nats; log C if uniform, 0 for a single class.
      earth_movers_distance: sum_c |p_i(c) - p(c)| between the class distributions of an agent and of the
        whole dataset (Zhao et al., 2018); 0 if they agree, at most 2.
    """

    classes_per_agent: float
    entropy: float
    earth_movers_distance: float

    def __str__(self) -> str:
        return (
            f"{self.classes_per_agent:.1f} classes per agent, entropy {self.entropy:.2f} nats, "
            f"earth-mover distance {self.earth_movers_distance:.2f}"
        )


# QGM and its successors divide samples among groups of this many agents, each group from its own slice of the
# samples,
_GROUP = 10
# and repeat a group's draw while an agent has less than this fraction of an equal share.
_LEAST_SHARE = 0.5
# Up to a thousand draws have been needed; with fewer classes than agents no draw may ever succeed.
_MAX_DRAWS = 20_000


def dirichlet_partition(labels: Any, agents: int, alpha: float = 0.1, seed: int = 0) -> np.ndarray:
    """Splits every class over the agents by one Dirichlet(alpha) draw: the paper's heterogeneity.

    The procedure is exactly that of QGM (Lin et al., 2021) and the code derived from it; a plain Dirichlet
    split does not reproduce it. Samples are shuffled and sliced for groups of ten agents. In a group, an
    agent with a full share gets no further class, and a draw that leaves an agent with less than half a share
    is rejected. Finally the agents' lists are concatenated and cut into equal blocks, which moves some
    samples to the next agent.

    Args:
      labels: [N], integers.
      agents: A, the number of agents.
      alpha: the concentration, > 0. With ten classes and ten agents, 0.01 mostly gives one or two classes per
        agent, and 0.001 a single one.
      seed: the seed of a NumPy RandomState.

    Returns:
      int64 [A, N // A].
    """
    labels, agents = _checked(labels, agents)
    checks.real("alpha", alpha, above=0.0)
    random = _random_state(seed)
    order = random.permutation(len(labels))
    groups = math.ceil(agents / _GROUP)
    stride = int(_GROUP / agents * len(labels))
    shares: list[np.ndarray] = []
    for group in range(groups):
        last = group == groups - 1
        samples = order[group * stride : None if last else (group + 1) * stride]
        members = agents - _GROUP * (groups - 1) if last else _GROUP
        by_class = [samples[labels[samples] == c] for c in range(int(labels.max()) + 1)]
        shares += _divide(random, by_class, members, alpha)
    return _equal_blocks(np.concatenate(shares), agents)


def _divide(
    random: np.random.RandomState, by_class: list[np.ndarray], members: int, alpha: float
) -> list[np.ndarray]:
    """Divides a group's samples among its members, drawing again until none has too few."""
    full = sum(map(len, by_class)) / members
    sizes = np.zeros(members, int)
    pieces_by_member: list[list[np.ndarray]] = []
    for draws in itertools.count():
        if pieces_by_member and sizes.min() >= int(_LEAST_SHARE * full):
            break
        if draws == _MAX_DRAWS:
            raise ArgumentError(
                f"alpha must be larger for {members} agents and {len(by_class)} classes, got {alpha}: "
                f"in each of {draws:,} draws an agent had less than half a share"
            )
        pieces_by_member = [[] for _ in range(members)]
        sizes = np.zeros(members, int)
        for of_class in by_class:
            weights = random.dirichlet(np.repeat(alpha, members))
            with np.errstate(invalid="ignore"):  # weights that underflowed give NaN
                shares = weights * (sizes < full)
            total = shares.sum()
            if total > 0:
                cuts = (np.cumsum(shares / total) * len(of_class)).astype(int)[:-1]
            else:
                # 0 / 0: at tiny alpha all weights but those of full agents may underflow. The original code
                # casts the NaN to an integer, which gives the whole class to the last agent.
                cuts = np.zeros(members - 1, int)
            pieces = np.split(of_class, cuts)
            for own_pieces, piece in zip(pieces_by_member, pieces, strict=True):
                own_pieces.append(piece)
            sizes += [len(piece) for piece in pieces]
    return [np.concatenate(own_pieces) for own_pieces in pieces_by_member]


def iid_partition(labels: Any, agents: int, seed: int = 0) -> np.ndarray:
    """Gives every agent an equal random share: int64 [A, N // A]."""
    labels, agents = _checked(labels, agents)
    return _equal_blocks(_random_state(seed).permutation(len(labels)), agents)


def shards_partition(labels: Any, agents: int, per_agent: int = 2, seed: int = 0) -> np.ndarray:
    """Sorts samples by label and cuts them into shards, of which each agent gets `per_agent` random ones.

    One shard per agent is the hardest case; McMahan et al., 2017, use two. Returns int64 [A, per_agent * n].
    """
    labels, agents = _checked(labels, agents)
    per_agent = checks.whole("per_agent", per_agent, at_least=1, at_most=len(labels) // agents)
    random = _random_state(seed)
    order = random.permutation(len(labels))  # shuffles the samples within a class
    order = order[np.argsort(labels[order], kind="stable")]
    pieces = _equal_blocks(order, agents * per_agent)
    return pieces[random.permutation(agents * per_agent)].reshape(agents, -1)


def per_agent_dirichlet_partition(labels: Any, agents: int, alpha: float = 0.1, seed: int = 0) -> np.ndarray:
    """Draws for every agent its own mixture of classes from Dirichlet(alpha): int64 [A, N // A].

    As in Hsu et al., 2019, samples are drawn agent by agent, without the classes that are used up.
    """
    labels, agents = _checked(labels, agents)
    checks.real("alpha", alpha, above=0.0)
    random = _random_state(seed)
    order = random.permutation(len(labels))
    stacks = [list(order[labels[order] == c]) for c in range(int(labels.max()) + 1)]
    samples = np.empty((agents, len(labels) // agents), np.int64)
    for agent in range(agents):
        mixture = _dirichlet(random, alpha, len(stacks))
        for slot in range(samples.shape[1]):
            chances = mixture * [len(stack) > 0 for stack in stacks]
            if chances.sum() <= 0:  # all its classes are used up: the others, equally likely
                chances = np.array([len(stack) > 0 for stack in stacks], float)
            samples[agent, slot] = stacks[random.choice(len(stacks), p=chances / chances.sum())].pop()
    return samples


def quantity_skew(
    labels: Any, agents: int, alpha: float = 0.1, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Gives agents random shares whose sizes are drawn from Dirichlet(alpha), at least one sample each.

    Returns:
      Samples int64 [A, M], where M is the largest share and shorter rows repeat their own samples,
      and the true sizes int64 [A].
    """
    labels, agents = _checked(labels, agents)
    checks.real("alpha", alpha, above=0.0)
    random = _random_state(seed)
    order = random.permutation(len(labels))
    shares = _dirichlet(random, alpha, agents)
    free = len(labels) - agents  # every agent has at least one sample
    cuts = (np.cumsum(shares)[:-1] * free).astype(int) + np.arange(1, agents)
    pieces = np.split(order, cuts)
    sizes = np.array([len(piece) for piece in pieces])
    return np.stack([np.resize(piece, sizes.max()) for piece in pieces]), sizes


PARTITIONS = Registry(
    "partition",
    {
        "dirichlet": "saddle_jax.data.partition:dirichlet_partition",
        "iid": "saddle_jax.data.partition:iid_partition",
        "shards": "saddle_jax.data.partition:shards_partition",
        "per_agent_dirichlet": "saddle_jax.data.partition:per_agent_dirichlet_partition",
        "quantity_skew": "saddle_jax.data.partition:quantity_skew",
    },
    context=["labels", "agents", "seed"],
    group="saddle_jax.partitions",
)


def make_partition(partition: str | Spec, labels: Any, agents: int, *, seed: int) -> Partition:
    """Makes a partition such as "dirichlet(0.1)" or "shards(2)", with its labels, sizes and fingerprint."""
    spec, labels = PARTITIONS.parse(partition), np.asarray(labels)
    made = PARTITIONS.make(spec, labels=labels, agents=agents, seed=seed)
    samples, sizes = made if isinstance(made, tuple) else (made, None)
    if sizes is None:
        sizes = np.full(agents, samples.shape[1])
    values = PARTITIONS.defaults(spec) | PARTITIONS.given(spec)
    options = [f"{name}={value}" for name, value in values.items()]
    name = f"{spec.name}({', '.join([f'{agents} agents', *options, f'seed={seed}'])})"
    return Partition(name, samples, sizes, labels)


def given_partition(
    agent_samples: Sequence[Any], agents: int, labels: np.ndarray | None, size: int
) -> Partition:
    """Makes the partition of data that comes with the sample numbers of each agent.

    `labels` are those of all samples [N], N = `size`; None if there are none.
    """
    if len(agent_samples) != agents:
        raise ArgumentError(f"agents must be {len(agent_samples)} for data that is divided so, got {agents}")
    for agent, own in enumerate(agent_samples):
        if not len(own):
            raise ArgumentError(f"every agent must have samples, got none for agent {agent}")
    sizes = np.array([len(own) for own in agent_samples])
    samples = np.stack([np.resize(np.asarray(own, np.int64), sizes.max()) for own in agent_samples])
    if samples.min() < 0 or samples.max() >= size:
        raise ArgumentError(f"sample numbers must be 0 to {size - 1}, got {samples.min()} to {samples.max()}")
    known = np.zeros(size, np.int32) if labels is None else labels
    return Partition(f"given({agents} agents)", samples, sizes, known)


def _checked(labels: Any, agents: int) -> tuple[np.ndarray, int]:
    labels = np.asarray(labels)
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer) or labels.min(initial=0) < 0:
        raise ArgumentError(
            f"labels must be whole numbers >= 0 [N], got {labels.dtype} of shape {labels.shape}"
        )
    agents = checks.whole("agents", agents, at_least=1)
    if agents > len(labels):
        raise ArgumentError(f"agents must be at most the number of samples, {len(labels)}, got {agents}")
    return labels, agents


def _random_state(seed: int) -> np.random.RandomState:
    return np.random.RandomState(checks.whole("seed", seed, at_least=0, at_most=2**32 - 1))


def _dirichlet(random: np.random.RandomState, alpha: float, count: int) -> np.ndarray:
    """Draws shares [count] from Dirichlet(alpha), also for tiny alpha.

    NumPy divides Gamma(alpha) draws by their sum. At tiny alpha all of them underflow; then they are drawn
    again as logarithms: Gamma(alpha) is Gamma(alpha + 1) times U^(1 / alpha).
    """
    shares = random.dirichlet(np.repeat(alpha, count))
    if np.isfinite(shares).all():
        return shares
    with np.errstate(divide="ignore"):  # U may be 0, which gives a share of 0
        logs = np.log(random.standard_gamma(alpha + 1.0, count)) + np.log(random.random_sample(count)) / alpha
    if not np.isfinite(logs.max()):  # the logarithms overflow, too: one of them, drawn uniformly, gets all
        shares = np.eye(count)[random.randint(count)]
    else:
        shares = np.exp(logs - logs.max())
    return np.asarray(shares / shares.sum())


def _equal_blocks(samples: np.ndarray, blocks: int) -> np.ndarray:
    size = len(samples) // blocks
    return samples[: blocks * size].reshape(blocks, size).astype(np.int64)
