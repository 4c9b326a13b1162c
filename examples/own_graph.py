"""A graph of your own: two rings joined by one bridge, against the ring of as many agents."""

import networkx as nx

import saddle_jax as sj


def two_rings(n):
    """Joins two rings of n / 2 agents by the link between agents 0 and n / 2."""
    half = n // 2
    graph = nx.disjoint_union(nx.cycle_graph(half), nx.cycle_graph(n - half))
    graph.add_edge(0, half)
    return sj.from_networkx(graph, name=f"two_rings({n})")


task = {"train": "digits", "model": "mlp", "partition": "dirichlet(0.1)"}
runs = {
    graph.name: sj.Experiment(sj.qgm(graph, 0.1), **task, epochs=8, workdir=f"runs/own/{graph.name}")
    for graph in (two_rings(10), sj.ring(10))
}
print(sj.compare(runs, quiet=True))
for name, run in runs.items():
    gap, apart = run.method.topology.spectral_gap, run.result()["consensus_distance"]
    print(f"{name}: spectral gap {gap:.3f}, consensus distance {apart:.3f}")
