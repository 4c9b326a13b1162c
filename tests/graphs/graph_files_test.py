"""Graphs from files and from a user's own functions: each against a graph that is made here."""

import io
import pathlib

import networkx as nx
import numpy as np
import pytest

import saddle_jax as sj
from saddle_jax.base.registry import parse
from saddle_jax.base.user_code import Source
from saddle_jax.graphs import GRAPHS, files, is_random, make_graph

EDGES = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]


def read(name, content):
    return files.read_graph(Source(pathlib.Path(name), "0" * 64, content))


def npy(array):
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def graphml(graph):
    return "\n".join(nx.generate_graphml(graph)).encode()


def adjacency(edges=EDGES, size=4):
    hears = np.zeros((size, size), int)
    for i, j in edges:
        hears[i, j] = hears[j, i] = 1
    return hears


BY_DEGREES = sj.from_networkx(nx.Graph(EDGES)).mixing
SAME = {
    "spaces": ("a.edges", "\n".join(f"{i} {j}" for i, j in EDGES).encode()),
    "commas, both ways": ("a.csv", b"from,to\n" + "\n".join(f"{j},{i}\n{i},{j}" for i, j in EDGES).encode()),
    "comments": ("a.txt", b"# friends\n\n0 1 # a\n1\t2\n2 3\n3 0\r\n0 2\n"),
    "GraphML": ("a.graphml", graphml(nx.Graph(EDGES))),
    "GraphML of several edges": ("a.graphml", graphml(nx.MultiGraph([*EDGES, (0, 1)]))),
    "integers": ("a.npy", npy(adjacency())),
    "booleans with a diagonal": ("a.npy", npy(adjacency().astype(bool) | np.eye(4, dtype=bool))),
    "W itself": ("a.npy", npy(BY_DEGREES)),
    "weights": (
        "a.edges",
        "\n".join(f"{i} {j} {float(BY_DEGREES[i, j])!r}" for i, j in EDGES).encode(),
    ),
}


@pytest.mark.parametrize("kind", SAME)
def test_a_file_gives_the_weights_of_its_graph(kind):
    name, content = SAME[kind]
    graph = read(name, content)
    np.testing.assert_allclose(graph.mixing, BY_DEGREES, atol=1e-12)
    assert graph.name == name
    assert parse("topology", name).is_path


def test_directed_files_say_who_hears_whom():
    hears = np.array([[0, 0, 1], [1, 0, 0], [1, 1, 0]])
    expected = sj.directed(hears).mixing
    np.testing.assert_allclose(read("a.npy", npy(hears)).mixing, expected)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(3))  # they are agents in this order
    graph.add_edges_from((j, i) for i in range(3) for j in range(3) if hears[i, j])
    np.testing.assert_allclose(read("a.graphml", graphml(graph)).mixing, expected)


BOMB = b"""<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>
<graphml><graph edgedefault="undirected"><node id="&b;"/></graph></graphml>"""
HIDDEN = b'<?xml version="1.0" encoding="cp037"?>' + BOMB.partition(b"?>")[2].decode().encode("cp037")
WRONG = {
    "empty": ("a.edges", b"", "must have at least one, got none"),
    "one": ("a.edges", b"0 1\n2\n", "line 2 must be two different agents from 0 to 9999, .* got '2'"),
    "words": ("a.edges", b"0 x", "line 1 must be two different agents"),
    "itself": ("a.edges", b"3 3", "line 1 must be two different agents"),
    "below": ("a.edges", b"-1 3", "line 1 must be two different agents"),
    "huge": ("a.edges", b"0 99999999999999", "line 1 must be two different agents"),
    "too much": ("a.edges", b"0 1 0.5 7", "line 1 must be two different agents"),
    "no weight": ("a.edges", b"0 1 nan", "line 1 must be two different agents"),
    "negative": ("a.edges", b"0 1 -0.5", "line 1 must be two different agents"),
    "some weights": ("a.edges", b"0 1 0.5\n1 2\n", "all links must have a weight, or none"),
    "two weights": ("a.edges", b"0 1 0.5\n1 0 0.4\n", "line 2 must not say another weight"),
    "much weight": ("a.edges", b"0 1 0.6\n0 2 0.6\n", "at most 1, got 1.2 of agent 0"),
    "parts": ("a.edges", b"0 1\n2 3\n", "connected graph, got 2 separate parts"),
    "binary": ("a.edges", b"\xff\xfe", "a list of edges must be text"),
    "long": ("a.edges", b"x" * 10000, "got 'x{80}'$"),
    "escape": ("a.edges", b"\x1b[2J 1", r"got '\\x1b\[2J 1'$"),
    "no XML": ("a.graphml", b"<graphml", "GraphML cannot be read: "),
    "no graph": ("a.graphml", b"<graphml/>", "GraphML cannot be read: "),
    "no nodes": ("a.graphml", graphml(nx.Graph()), "GraphML must have 1 to 10000 nodes, got 0"),
    "bomb": ("a.graphml", BOMB, "GraphML must not have a DOCTYPE"),
    "hidden bomb": ("a.graphml", HIDDEN, "GraphML must be written in UTF-8"),
    "UTF-16 bomb": ("a.graphml", BOMB.decode().encode("utf-16"), "GraphML must be written in UTF-8"),
    "no array": ("a.npy", b"hello", "NumPy cannot read it"),
    "pickle": ("a.npy", npy(np.array([{}], object)), "NumPy cannot read it"),
    "cut": ("a.npy", npy(np.eye(4))[:-8], "NumPy cannot read it"),
    "vast": ("a.npy", npy(np.eye(4)).replace(b"(4, 4)", b"(4000000, 4000000)"), "NumPy cannot read it"),
    "shape": ("a.npy", npy(np.ones((2, 3))), r"must be a square matrix \[A, A\], got shape \(2, 3\)"),
    "no number": ("a.npy", npy(np.array([["a"]])), "must be one matrix of numbers"),
    "no W": ("a.npy", npy(adjacency().astype(float)), "W must have rows or columns"),
    "negative W": ("a.npy", npy(np.array([[1.5, -0.5], [-0.5, 1.5]])), "W must be non-negative"),
    "nan": ("a.npy", npy(np.full((2, 2), np.nan)), "W must be finite"),
    "counts": ("a.npy", npy(2 * adjacency()), "must have the values True and False"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_file_is_one_line(kind):
    name, content, line = WRONG[kind]
    with pytest.raises(sj.ArgumentError, match=line) as refusal:
        read(name, content)
    assert str(refusal.value).startswith(f"topology {name}: ")
    assert "\n" not in str(refusal.value)


MINE = """
import numpy as np
import saddle_jax as sj

FIXED = sj.ring(4)

def wheel(n, spokes=3):
    return sj.circulant(n, [1, spokes])

def drawn(n, seed):
    return sj.erdos_renyi(n, 0.7, seed=seed)

def without_seed(n):
    return sj.from_networkx(__import__("networkx").gnp_random_graph(n, 0.9), name=str(np.random.rand()))

def turns(n):
    return sj.one_peer_exponential(n)

def number(n):
    return n
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "four.edges").write_text("0 1\n1 2\n2 3\n3 0\n")
    return tmp_path


def test_graphs_of_ones_own_are_made_for_so_many_agents(folder):
    GRAPHS.check("mine.py:wheel(spokes=2)")
    assert not GRAPHS.is_ours("mine.py:wheel")
    assert GRAPHS.is_ours("spanning_tree(torus)")
    assert make_graph("mine.py:wheel(spokes=2)", 7, 0).name == "circulant(7, [1, 2])"
    assert make_graph("mine.py:drawn", 6, 5).name == sj.erdos_renyi(6, 0.7, seed=5).name
    assert is_random("mine.py:drawn")
    assert not is_random("mine.py:wheel+ring+four.edges+mine.py:FIXED")
    assert is_random("ring+mine.py:drawn")
    assert make_graph("mine.py:FIXED", 4, 0).name == "ring(4)"
    assert make_graph("mine.py:turns", 8, 0).name == sj.one_peer_exponential(8).name
    np.testing.assert_allclose(make_graph("four.edges", 4, 0).mixing, sj.ring(4).mixing)
    turns = make_graph("complete+four.edges+mine.py:wheel(spokes=+1)", 4, 0)
    assert [graph.name for graph in turns.graphs] == ["complete(4)", "four.edges", "circulant(4, [1, 1])"]


def test_a_graph_stays_the_same_while_its_file_does(folder):
    first = make_graph("mine.py:without_seed", 9, 0)
    assert make_graph("mine.py:without_seed", 9, 0) is first
    (folder / "mine.py").write_text(MINE + "\n")
    assert make_graph("mine.py:without_seed", 9, 0) is not first


REFUSED = {
    ("mine.py:number", 4): "topology mine.py:number must return a Topology or a TimeVarying, got 4",
    ("mine.py:FIXED", 5): "topology 'mine.py:FIXED' cannot have 5 agents: ring(4) has 4",
    ("four.edges", 5): "topology 'four.edges' cannot have 5 agents: four.edges has 4",
    ("none.edges", 5): "topology must name a file that exists, got 'none.edges'",
    ("mine.py:wheel(sokes=2)", 5): "did you mean 'spokes'? topology mine.py:wheel takes "
    "spokes, got option 'sokes'",
    ("mine.py:whel", 5): "did you mean 'wheel'? topology must be in mine.py, got no 'whel' there",
    ("mine.py:wheel(spokes=9)", 5): "offsets must be an integer >= 1 and <= 4, got 9",
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_what_cannot_be_is_one_line(folder, wrong):
    GRAPHS.check(wrong[0])
    with pytest.raises(sj.ArgumentError) as refusal:
        make_graph(*wrong, 0)
    assert str(refusal.value) == REFUSED[wrong]


@pytest.mark.parametrize("text", ["mine.py", "mine.py:f(", "a\nb.edges", "spanning_tree(mine).py:f", "ring+"])
def test_wrong_spellings_are_refused_by_their_form(text):
    with pytest.raises(sj.ArgumentError, match=r"^topology must be "):
        GRAPHS.check(text)
