"""Runs on graphs that take turns: what builds, places, describes and trains takes them as one graph."""

import dataclasses
import json

import numpy as np
import pytest

import saddle_jax as sj
from saddle_jax.devices.placement import Placement
from saddle_jax.papers.saddle.theory.bound import mixing_lambda
from saddle_jax.settings.settings import Settings, build_topology
from saddle_jax.training import loop
from saddle_jax.training.progress import Screen

SMALL = Settings(
    topology="base_graph(1)",
    agents=3,
    method="qgm",
    model="logistic",
    epochs=1,
    partition="dirichlet(1.0)",
    log_every_steps=1,
)


def test_settings_build_the_graphs_and_random_ones_follow_the_seed():
    assert build_topology(SMALL).name == "base_graph(3, 1)"
    matchings = dataclasses.replace(SMALL, topology="random_matchings(4)", seed=5)
    assert build_topology(matchings).name == "random_matchings(3, 4, seed=5)"
    with pytest.raises(sj.ArgumentError, match=r"seeds must be one for topology random_matchings\(4\)"):
        dataclasses.replace(SMALL, topology="random_matchings(4)", seeds="0,1")
    with pytest.raises(sj.ArgumentError, match=r"cannot have 3 agents: karate\(\) has 34"):
        dataclasses.replace(SMALL, topology="karate")


def test_devices_get_graphs_with_idle_agents():
    graphs = Placement(5, 2).graph(sj.base_graph(5, 1))
    assert graphs.size == 6
    assert graphs.period == 5
    assert graphs.name == "base_graph(5, 1)"


def test_a_run_on_graphs_that_take_turns_is_trained_and_described(tmp_path):
    result = loop.train(SMALL, tmp_path / "run", Screen(quiet=True))
    assert result["status"] == "finished"
    about = json.loads((tmp_path / "run" / "config.json").read_text())
    assert about["topology"] == {"name": "base_graph(3, 1)", "gap": 1.0}
    graphs = sj.base_graph(3, 1)
    sent = sum(graphs.at(t).out_degree.sum() for t in range(result["steps"])) / 3
    assert result["bytes_sent_per_agent"] == pytest.approx(4 * about["parameters"] * sent)


def test_the_theorem_speaks_of_one_graph_that_keeps_the_average():
    for graph in (sj.base_graph(4, 1), sj.random_digraph(6, 2)):
        with pytest.raises(
            sj.ArgumentError, match="one graph, the same in all steps, that keeps the average"
        ):
            mixing_lambda(graph)
    assert np.isclose(mixing_lambda(sj.complete(4)), 1.0)
