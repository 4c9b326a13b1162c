"""Graphs as plain lists, and lists that are none."""

import json

import numpy as np
import pytest

import saddle_jax as sj
from saddle_jax.graphs import files


@pytest.mark.parametrize(
    "graphs", [sj.ring(5), sj.star(4), sj.exponential(6), sj.random_digraph(6, 2), sj.one_peer_exponential(8)]
)
def test_a_record_gives_the_graphs_again(graphs):
    record = json.loads(json.dumps(files.to_record(graphs)))
    again = files.from_record(graphs.name, graphs.size, record)
    assert str(again) == str(graphs)
    for one, other in zip(again.graphs, graphs.graphs, strict=True):
        np.testing.assert_array_equal(one.mixing, other.mixing)


def test_what_is_too_large_is_not_recorded():
    assert files.to_record(sj.complete(142)) is None


LINK = [[0, 1], [1, 0], [1.0, 1.0]]


@pytest.mark.parametrize(
    "record",
    [5, "text", [], {}, [[]], [5], [[[0], [1]]], [[[0], [1], [1.0], [2]]], [[[0], [5], [1.0]]],
     [[[-1], [1], [1.0]]], [[[0], [1], ["1"]]], [[[0.5], [1], [1.0]]], [[[0], [1, 0], [1.0]]],
     [[[0, 0], [1, 1], [0.5, 0.5]]], [[[0, 1], [1, 0], [1.0, -1.0]]], [[[0, 1], [1, 0], [1.0, float("nan")]]],
     [[[[0]], [[1]], [[1.0]]]], [[[10**30], [1], [1.0]]], [[[], [], []]], [LINK] * 1001,
     [[[0, 1], [1, 0], [0.5, 0.25]]]],
)  # fmt: skip
def test_what_is_no_record_is_refused(record):
    with pytest.raises(sj.ArgumentError):
        files.from_record("a", 2, record)
