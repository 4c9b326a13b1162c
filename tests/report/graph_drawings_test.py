"""Drawings of graphs: in a page, where those that take turns move, and as image files."""

import json
import re
import xml.etree.ElementTree

import folders
import numpy as np
import pytest
from browser import Tree, browse, needs_browser

import saddle_jax as sj
from saddle_jax.cli import __main__ as cli
from saddle_jax.report import graphs as graph_drawings
from saddle_jax.report.figures import _bits_per_number
from saddle_jax.report.graphs import plot_graph
from saddle_jax.report.page import page
from saddle_jax.runs.table import load_runs
from saddle_jax.settings.settings import Settings


def drawings_of(text):
    """The drawings of a page or a part of one, each parsed as XML."""
    return [xml.etree.ElementTree.fromstring(one) for one in re.findall(r'<svg class="graph".*?</svg>', text)]


def test_a_graph_is_one_drawing_with_a_line_and_a_title_for_each_link():
    (drawing,) = drawings_of(graph_drawings.graph(sj.star(5)))
    titles = [path.find("title").text for path in drawing.iter("path")]
    assert titles == ["0 \u2013 1: 0.2", "0 \u2013 2: 0.2", "0 \u2013 3: 0.2", "0 \u2013 4: 0.2"]
    assert [g.find("title").text for g in drawing.iter("g")][:2] == [
        "agent 0: own weight 0.2",
        "agent 1: own weight 0.8",
    ]


def test_arrows_point_to_the_agent_that_hears():
    (drawing,) = drawings_of(graph_drawings.graph(sj.directed_ring(3)))
    paths = list(drawing.iter("path"))
    assert all("arrow" in path.get("marker-end") for path in paths)
    assert [path.find("title").text for path in paths] == [
        "2 \u2192 0: 0.5",
        "0 \u2192 1: 0.5",
        "1 \u2192 2: 0.5",
    ]
    points, _, _ = graph_drawings.places(sj.directed_ring(3))
    start = re.match(r"M([\d.]+) ([\d.]+)", paths[0].get("d")).groups()
    np.testing.assert_allclose([float(x) for x in start], points[2], atol=0.1)


def test_a_wider_line_is_a_larger_weight_in_all_turns():
    graphs = sj.alternate(sj.complete(4), sj.ring(4), sj.isolated(4))
    widths = [
        {float(path.get("stroke-width")) for path in drawing.iter("path")}
        for drawing in drawings_of(graph_drawings.graph(graphs))
    ]
    assert widths == [{2.45}, {3.0}, set()]


def test_graphs_that_take_turns_are_drawn_side_by_side():
    text = graph_drawings.graph(sj.base_graph(5, 1))
    drawings = drawings_of(text)
    assert len(drawings) == 5
    assert text.startswith('<div class="turns">')
    assert re.findall(r"<p>(.*?)</p>", text) == [f"step {t} of 5" for t in range(5)]
    assert len({drawing.get("viewBox") for drawing in drawings}) == 1
    many = graph_drawings.graph(sj.random_matchings(6, 40))
    assert len(drawings_of(many)) == 32
    assert "8 more steps are not drawn" in many


def test_what_is_too_much_is_told_in_words():
    for graph in (sj.ring(300), sj.complete(150), sj.isolated(3), sj.one_peer_exponential(256)):
        assert "nothing is drawn" in graph_drawings.graph(graph)
    assert graph_drawings.edges(sj.complete(150)) == []
    third = 1 / 3
    assert graph_drawings.edges(sj.ring(3)) == [(0, 1, third), (0, 2, third), (1, 2, third)]
    assert graph_drawings.edges(sj.alternate(sj.path(3), sj.directed_ring(3))) == [
        *((0, 1, third, 0), (1, 2, third, 0)),
        *((0, 2, 0.5, 1), (1, 0, 0.5, 1), (2, 1, 0.5, 1)),
    ]


TURNS = Settings(agents=3, model="mlp", method="qgm", epochs=2, topology="base_graph(1)")


def test_the_page_of_a_run_on_graphs_that_take_turns(tmp_path):
    runs = load_runs(
        [folders.write_run(tmp_path / "turns", TURNS), folders.write_run(tmp_path / "ring")],
    )
    text = page(runs)
    assert len(drawings_of(text)) == 3 + 1
    assert "base_graph(3, 1): 3 agents, period 3" in text
    for turn in range(3):
        assert f"mixing matrix W of step {turn}" in text
    ((_, data),) = Tree(text).find("script", id="data")
    edges = json.loads(data)["runs"][0]["edges"]
    assert [edge[3] for edge in edges] == [0, 1, 2]
    # all that moves is a class that the script sets: without it, or without motion, all steps stand
    assert "prefers-reduced-motion: reduce" in text
    assert not re.search(r'class="turns [^"]*playing', text)


def test_the_bits_of_a_run_count_the_links_of_all_turns(tmp_path):
    (run,) = load_runs([folders.write_run(tmp_path / "turns", TURNS)])
    out_degrees = np.mean([graph.out_degree.mean() for graph in sj.base_graph(3, 1).graphs])
    assert _bits_per_number(run) == pytest.approx(8 * 8000 / (8 * out_degrees * 100))


@needs_browser
def test_turns_are_shown_one_after_the_other_until_all_are_asked_for(tmp_path):
    output = tmp_path / "page.html"
    output.write_text(page(load_runs([folders.write_run(tmp_path / "turns", TURNS)])))
    script = """
      const turns = document.querySelector(".turns");
      const seen = () => [...turns.children].filter((one) => one.getClientRects().length).length;
      const told = { playing: seen() };
      turns.previousElementSibling.click();
      told.all = seen();
      const pre = document.createElement("pre");
      pre.textContent = JSON.stringify(told);
      document.body.append(pre);
    """
    tree, console = browse(output, tmp_path, script=script)
    assert console == []
    assert json.loads(tree.find("pre")[0][1]) == {"playing": 1, "all": 3}


# ---- Pictures


@pytest.mark.parametrize(
    ("name", "agents"), [("torus(3, 4)", 12), ("random_digraph(2)", 6), ("base_graph(1)", 5), ("isolated", 3)]
)
def test_a_picture_is_written_with_the_line_that_describes_the_graph(tmp_path, capsys, name, agents):
    path = tmp_path / "graph.png"
    assert cli.main(["saddle", "topology", name, str(agents), f"--output={path}"]) == 0
    assert f": {agents} agents" in capsys.readouterr().out
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_picture_has_a_panel_for_each_turn_and_every_weight(tmp_path):
    path = tmp_path / "graph.svg"
    plot_graph(sj.alternate(sj.star(4), sj.directed_ring(4)), path)
    text = path.read_text()
    xml.etree.ElementTree.fromstring(text)
    for said in ("step 0", "step 1", "0.25", "0.75", "0.5"):
        assert f"<!-- {said} -->" in text
    assert "step 2" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ring", "5", "--output=a.txt"], "output must end in .png, .pdf or .svg, got 'a.txt'"),
        (["ring", "600", "--output=a.png"], "a picture must have at most 500 agents"),
        (["random_matchings(80)", "6", "--output=a.png"], "and 64 steps, got 6, 6 and 80"),
        (["ring", "5", "--output=no/a.png"], "output must be a file that can be written"),
        (["karate", "5"], r"topology 'karate' cannot have 5 agents: karate() has 34"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["saddle", "topology", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())
