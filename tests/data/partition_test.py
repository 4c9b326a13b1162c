import math

import numpy as np
import pytest

from saddle_jax import data
from saddle_jax.data import partition as partitions

CIFAR = np.repeat(np.arange(10), 5000)  # balanced, as CIFAR-10's are
TENTH = CIFAR[::10]
SMALL = np.random.RandomState(0).permutation(np.arange(1003) % 20)


def qgm_lineage(labels, workers, alpha, seed):
    """The original procedure, list by list, as it stands in the QGM lineage; NaN goes to the last."""
    random = np.random.RandomState(seed)
    pairs = np.array(list(enumerate(labels)))
    random.shuffle(pairs)
    splits, start = [], 0
    count = math.ceil(workers / 10)
    for split in range(count):
        end = start + int(10 / workers * len(labels))
        splits.append(pairs[start : len(labels) if split == count - 1 else end])
        start = end
    everybody, left = [], workers
    for targets in splits:
        members = min(10, left)
        left -= 10
        smallest = 0
        while smallest < int(0.50 * len(targets) / members):
            hands = [[] for _ in range(members)]
            for label in range(labels.max() + 1):
                of_class = targets[np.where(targets[:, 1] == label)[0], 0]
                shares = random.dirichlet(np.repeat(alpha, members))
                shares = np.array(
                    [p * (len(hand) < len(targets) / members) for p, hand in zip(shares, hands, strict=True)]
                )
                with np.errstate(invalid="ignore"):
                    shares = shares / shares.sum()
                if np.isnan(shares).any():
                    hands[-1] = hands[-1] + of_class.tolist()
                else:
                    cuts = (np.cumsum(shares) * len(of_class)).astype(int)[:-1]
                    pieces = np.split(of_class, cuts)
                    hands = [hand + piece.tolist() for hand, piece in zip(hands, pieces, strict=True)]
                smallest = min(len(hand) for hand in hands)
        everybody += hands
    joined = [sample for hand in everybody for sample in hand]
    share = len(labels) // workers
    return np.array([joined[i * share : (i + 1) * share] for i in range(workers)])


@pytest.mark.parametrize("alpha", [10.0, 0.1, 0.01, 0.001])
@pytest.mark.parametrize("agents", [1, 3, 10, 16])
def test_dirichlet_is_the_procedure_of_the_lineage_to_the_letter(agents, alpha):
    for seed in range(2):
        samples = data.dirichlet_partition(SMALL, agents, alpha, seed)
        np.testing.assert_array_equal(samples, qgm_lineage(SMALL, agents, alpha, seed))


def test_a_class_that_a_group_lacks_is_drawn_for_all_the_same():
    labels = np.append(np.arange(900) % 9, 9)  # one sample of the last class
    for seed in range(4):
        samples = data.dirichlet_partition(labels, 20, 1.0, seed)
        np.testing.assert_array_equal(samples, qgm_lineage(labels, 20, 1.0, seed))


@pytest.mark.parametrize(
    ("agents", "alpha", "present", "large"),
    [  # classes that an agent has, and those with over 5 % of it, as the original gave them with three seeds
        (5, 0.01, 3.4, 2.0),
        (5, 0.001, 2.4, 2.0),
        (10, 0.01, 1.7, 1.25),
        (10, 0.001, 1.0, 1.0),
        (20, 0.01, 2.8, 1.8),
        (20, 0.001, 1.95, 1.15),
        (40, 0.01, 2.75, 1.7),
    ],
)
def test_classes_per_agent_are_those_measured_on_the_original(agents, alpha, present, large):
    counts = [
        data.make_partition(f"dirichlet({alpha})", CIFAR, agents, seed=seed).class_counts for seed in range(5)
    ]
    counts = np.stack(counts)
    assert (counts > 0).sum(axis=2).mean() == pytest.approx(present, abs=0.4)
    assert (counts > 0.05 * counts.sum(axis=2, keepdims=True)).sum(axis=2).mean() == pytest.approx(
        large, abs=0.3
    )


@pytest.mark.parametrize("kind", partitions.PARTITIONS)
def test_partitions_are_disjoint_and_repeat_themselves(kind):
    fingerprints = set()
    for seed in range(5):
        for agents in (1, 4, 13):
            partition = data.make_partition(kind, SMALL, agents, seed=seed)
            again = data.make_partition(kind, SMALL, agents, seed=seed)
            np.testing.assert_array_equal(partition.samples, again.samples)
            assert partition.fingerprint == again.fingerprint
            fingerprints.add(partition.fingerprint)
            samples = np.concatenate(
                [row[:size] for row, size in zip(partition.samples, partition.sizes, strict=True)]
            )
            assert len(np.unique(samples)) == len(samples)
            if kind == "quantity_skew":
                assert len(samples) == len(SMALL)
                assert partition.sizes.min() >= 1
            elif kind != "shards":
                assert partition.samples.shape == (agents, len(SMALL) // agents)
            np.testing.assert_array_equal(partition.class_counts.sum(axis=1), partition.sizes)
    assert len(fingerprints) == 15


def test_skew_is_measured():
    def skew(partition):
        return data.make_partition(partition, TENTH, 10, seed=0).skew

    even = skew("iid")
    assert even.classes_per_agent == 10
    assert even.entropy == pytest.approx(math.log(10), abs=0.02)
    assert even.earth_movers_distance < 0.2
    single = skew("shards(1)")
    assert single.classes_per_agent == 1
    assert single.entropy == 0
    assert single.earth_movers_distance == pytest.approx(2 * 0.9)
    pair = skew("shards(2)")
    assert 1 < pair.classes_per_agent <= 2
    assert skew("per_agent_dirichlet(0.1)").entropy < skew("per_agent_dirichlet(10.0)").entropy < math.log(10)


def test_unequal_shares_are_unequal():
    partition = data.make_partition("quantity_skew(0.5)", SMALL, 8, seed=0)
    assert partition.sizes.max() > 4 * partition.sizes.min()
    for row, size in zip(partition.samples, partition.sizes, strict=True):
        assert set(row) == set(row[:size])  # the rest repeats the agent's own


BAD = {
    "alpha": (lambda: data.dirichlet_partition(SMALL, 5, 0.0, 0), "alpha must be a number > 0, got 0.0"),
    "nan": (lambda: data.dirichlet_partition(SMALL, 5, float("nan"), 0), "alpha must be .* got nan"),
    "hopeless": (
        lambda: data.dirichlet_partition(np.arange(200) % 2, 10, 0.001, 0),
        "alpha must be larger for 10 agents and 2 classes, got 0.001: in each of 200 draws",
    ),
    "agents": (lambda: data.iid_partition(SMALL, 2000, 0), "agents must be at most .* 1003, got 2000"),
    "seed": (lambda: data.iid_partition(SMALL, 5, -1), "seed must be .* got -1"),
    "labels": (lambda: data.iid_partition(SMALL / 2, 5, 0), "labels must be whole numbers .* got float64"),
    "shards": (lambda: data.shards_partition(SMALL, 5, 0, 0), "per_agent must be .* got 0"),
    "kind": (
        lambda: data.make_partition("dirichle(1.0)", SMALL, 5, seed=0),
        "did you mean 'dirichlet'.* partition must be one of dirichlet, .* got 'dirichle'",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_named_with_their_value(name, monkeypatch):
    monkeypatch.setattr(partitions, "_MAX_DRAWS", 200)
    make, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("alpha", [1e-3, 1e-4, 1e-12, 1e-300])
@pytest.mark.parametrize("kind", ["quantity_skew", "per_agent_dirichlet"])
def test_a_tiny_alpha_leaves_no_agent_without_samples(kind, alpha):
    """All draws of a Dirichlet distribution may be too small for floats, and their quotients no numbers."""
    largest = []
    for seed in range(25):
        partition = data.make_partition(f"{kind}({alpha})", SMALL[:99], 3, seed=seed)
        assert partition.sizes.min() >= 1
        used = np.concatenate(
            [row[:size] for row, size in zip(partition.samples, partition.sizes, strict=True)]
        )
        assert sorted(used) == list(range(99))
        assert math.isfinite(partition.skew.entropy)
        largest.append(int(partition.sizes.argmax()))
    if kind == "quantity_skew":
        assert set(largest) == {0, 1, 2}  # it is not always the same one who gets most
