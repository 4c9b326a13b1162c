"""One grammar for what settings name: what is read, what is refused, and what a registry makes of it."""

import json
import pathlib
import random
import re
import subprocess
import sys

import pytest
from suited import suited

import saddle_jax as sj
from saddle_jax.base import registry
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.registry import Name, Registry, Spec, parse, parse_value, split
from saddle_jax.base.user_code import UserCodeError
from saddle_jax.compression import COMPRESSORS
from saddle_jax.data.sources import BUILTIN
from saddle_jax.graphs import GRAPHS
from saddle_jax.methods import METHODS, base_methods
from saddle_jax.models import MODELS
from saddle_jax.sam import GRADIENTS
from saddle_jax.tasks import OBJECTIVES

ROOT = pathlib.Path(__file__).parent.parent.parent

READ = {
    "qgm": Spec("qgm"),
    "qgm()": Spec("qgm"),
    "größe(weiß='\uff51')": Spec("größe", (), (("weiß", "\uff51"),)),
    " d2( variant = relay, half=False ) ": Spec("d2", (), (("variant", Name("relay")), ("half", False))),
    "a(-0.5, 'x, y', [1, two], c=None, d=1e-3)": Spec(
        "a", (-0.5, "x, y", [1, Name("two")]), (("c", None), ("d", 1e-3))
    ),
    "spanning_tree(torus(2, 4))": Spec("spanning_tree", (Spec("torus", (2, 4)),)),
    "choco(top_k(0.3), gamma=0.4)": Spec("choco", (Spec("top_k", (0.3,)),), (("gamma", 0.4),)),
    "ring+star+torus(2, 2)": Spec("alternate", (Name("ring"), Name("star"), Spec("torus", (2, 2)))),
    "mine.py:f": Spec("mine.py:f"),
    "some folder/mine.py:f": Spec("some folder/mine.py:f"),
    "/a/b.c/mine.py:f(beta=0.5, name=relay)": Spec(
        "/a/b.c/mine.py:f", (), (("beta", 0.5), ("name", Name("relay")))
    ),
    r"C:\work\mine.py:f": Spec(r"C:\work\mine.py:f"),
    "pkg.module:Net(sizes=[1, 2], path='a.py:b')": Spec(
        "pkg.module:Net", (), (("sizes", [1, 2]), ("path", "a.py:b"))
    ),
    "spanning_tree(mine.py:f(k=2))": Spec("spanning_tree", (Spec("mine.py:f", (), (("k", 2),)),)),
    "'c++ (old)/mine.py:f'(k=2)": Spec("c++ (old)/mine.py:f", (), (("k", 2),)),
    "a b/four.edges": Spec("a b/four.edges"),
    "ring+a/four.edges": Spec("alternate", (Name("ring"), Spec("a/four.edges"))),
    "<my method>": Spec("<my method>"),
    "<gut(mu=0.5)>": Spec("<gut>", (), (("mu", 0.5),)),
}


@pytest.mark.parametrize("text", READ)
def test_what_is_read_is_written_again(text):
    spec = parse("method", text)
    assert spec == READ[text]
    assert parse("method", str(spec)) == spec
    kinds = [type(each) for each in (*spec.args, *dict(spec.kwargs).values())]
    assert kinds == [type(each) for each in (*READ[text].args, *dict(READ[text].kwargs).values())]


REFUSED = [
    "", "a b", "a(**b)", "a(*b)", "a.b(c=1)", "a(b=x.y)", "a(b=1)(c=2)", "lambda: 0", "a(b=[i for i in c])",
    "a(b=f'{c}')", "(" * 450, "a(b=" + "-" * 450 + "1)", "a(x=" + "[" * 240 + "]" * 240 + ")", "a\nb", "1",
    "'a'", "a(b=1e999)", "a(1+2)", "a(1j)", "a(b'x')", "a(...)", "a(b={1: 2})", "a(b=1, b=2)", "ring+",
    "+ring", "ring-star", "mine.py", "mine.py:", "mine.py:f(", "mine.py:f.g", "mine.py:1f", "mi\nne.py:f",
    "mine.py:f:g", "mine.py:f(x='\x1b[2J')", "''()", "'\\x1b'()", "__place0", "mine.py:f(x=__place0)",
    "\uff51gm", "gut(\uff4du=0.5)", "d2(variant=\uff52elay)", "a(b=\u017f)", "top_k(\uff11)", "torus:5x8",
    "circulant:1,5", "equi_static:4,undirected", "\udcff",
]  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_everything_else_is_refused_in_one_line(text):
    with pytest.raises(ArgumentError, match=r"^method must be NAME, NAME") as refusal:
        parse("method", text)
    assert str(refusal.value).isprintable()


def test_texts_are_bounded():
    with pytest.raises(ArgumentError, match=r"^method must be at most 500 letters long, got 10005$"):
        parse("method", "a" * 10000 + ".py:f")


WORDS = (
    "qgm",
    "top_k",
    "größe",
    "x1",
    "_a",
    "mine.py:f",
    "work/mine.py:g",
    "pkg.mod:Net",
    "a/b.edges",
    "f.npy",
)


def drawn(source, depth=0):
    """Draws a spec, with values of all kinds and further specs inside."""

    def value():
        kind = source.randrange(8 if depth < 3 else 6)
        if kind == 7:
            return drawn(source, depth + 1)
        return (
            source.choice([True, False, None]),
            source.randrange(-10, 10**6),
            source.uniform(-1, 1) * 10 ** source.randrange(-30, 30),
            source.choice(["", "a b", "it's", 'say "x"', "\x1b[2J", "\uff51", "a.py:b", "\\", "ring+star"]),
            Name(source.choice(["relay", "mixed", "ring"])),
            source.choice([[], [1, 2.5, Name("two")], [[1], ["x"]]]),
            Spec(source.choice(["a b/x (1).py:f", "c++/four.edges", "ring"])),
        )[kind]

    args = tuple(value() for _ in range(source.randrange(3)))
    kwargs = tuple((name, value()) for name in source.sample(["a", "beta", "weiß"], source.randrange(3)))
    return Spec(source.choice(WORDS), args, kwargs)


def test_drawn_specs_are_written_and_read_again():
    source, read = random.Random(0), 0
    for _ in range(1000):
        spec = drawn(source)
        if len(str(spec)) <= 500:
            assert parse("method", str(spec)) == spec
            assert str(spec).isprintable()
            read += 1
    assert read > 800


def test_noise_is_read_or_refused_in_one_line():
    source, refusals = random.Random(1), []
    signs = "()[],=+'\"-:. <>{}*/#@;\\\x00\u0301\uff51é"
    pieces = [*signs, "ring", "mine.py:f", "1e9", "lambda", "None", "a=1"]
    for _ in range(5000):
        text = "".join(source.choices(pieces, k=source.randrange(1, 12)))
        try:
            spec = parse("method", text)
        except ArgumentError as error:
            refusals.append(str(error))
        else:
            assert parse("method", str(spec)) == spec
    assert all(map(str.isprintable, refusals))
    assert 500 < len(refusals) < 5000


# What pages and configs say of things with options; a page also shows calls of Python, which have an n.
WITH_OPTIONS = "|".join(name for table in (COMPRESSORS, GRAPHS, GRADIENTS, BUILTIN) for name in table)
SPEC = re.compile(rf"[=`,\"'|+( ]((?:{WITH_OPTIONS})\([^()`\"\n]*\))")
IN_PROSE = re.compile(r"\((offsets|degree|count) \d|\*")  # of tables of graphs


def test_every_spec_in_docs_and_configs_is_read():
    pages = [*ROOT.glob("docs/*.md"), *ROOT.glob("configs/*.py"), ROOT / "README.md"]
    calls = {text for page in pages for text in SPEC.findall(page.read_text()) if not IN_PROSE.search(text)}
    assert len(calls) > 20
    for text in calls:
        parse("page", text)
    runs = [*(ROOT / "docs/results").glob("*/*/config.json")]
    assert len(runs) > 50
    for path in runs:
        settings = json.loads(path.read_text())["config"]
        METHODS.check(settings["method"], whole=False)
        GRAPHS.check(settings["topology"])


def test_to_read_a_spec_imports_no_jax():
    program = (
        "import sys\n"
        "from saddle_jax.methods import METHODS, base_methods\n"
        "from saddle_jax.compression import COMPRESSORS\n"
        "from saddle_jax.graphs import GRAPHS\n"
        "from saddle_jax.sam import GRADIENTS\n"
        "from saddle_jax.tasks import OBJECTIVES\n"
        "METHODS.parse('qgm(beta=0.5)'), COMPRESSORS.parse('top_k(0.3)'), GRADIENTS.parse('sam(rho=0.1)')\n"
        "GRAPHS.parse('spanning_tree(torus(2, 4))')\n"
        "sys.exit('jax' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-P", "-c", program], check=False).returncode == 0


def test_an_option_is_added_or_replaced():
    spec = parse("method", "gut(0.5, point=mixed)")
    assert str(spec.with_option("mu", 0.1)) == "gut(0.5, point=mixed, mu=0.1)"
    assert str(spec.with_option("point", parse_value("point", "local"))) == "gut(0.5, point=local)"
    assert str(parse("method", "<gut>").with_option("mu", 0.5)) == "<gut(mu=0.5)>"


def test_files_move():
    spec = parse("topology", "a/b.npy+ring+c/d.py:g(x='a/b', y=e/f.py:h)")
    moved = spec.renamed(lambda each: each.name.rpartition("/")[2])
    assert str(moved) == "alternate(b.npy, ring, d.py:g(x='a/b', y=f.py:h))"
    assert [each.name for each in spec.walk() if each.is_code or each.is_path] == [
        "a/b.npy", "c/d.py:g", "e/f.py:h",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["qgm(nesterov=yes)", "qgm(nesterov=false)", "qgm(nesterov=0)"])
def test_a_truth_is_no_other_word(text):
    with pytest.raises(ArgumentError, match=r"^nesterov must be True or False, got '(yes|false|0)'$"):
        METHODS.make(text, topology=sj.ring(4), learning_rate=0.1)


def test_lists_are_split_outside_of_brackets():
    assert split("qgm, d2(a=1, b=[2, 3]),ngm,") == ["qgm", "d2(a=1, b=[2, 3])", "ngm"]
    assert split("none quantize(2, biased=True)", " ") == ["none", "quantize(2, biased=True)"]
    assert split("") == []


# ---- registries ----


def test_places_are_imported_under_the_names_of_the_registry():
    table = Registry("thing", {"mine": "saddle_jax.methods.qgm:qgm", "his": "math:sqrt"})
    assert list(table) == ["mine", "his"]
    assert table["mine"] is sj.qgm
    assert table["his"](9) == 3
    assert list(GRAPHS.options("torus")) == ["rows", "cols"]
    assert METHODS.options("dpsgd").keys().isdisjoint(METHODS.context)


@pytest.mark.parametrize(
    ("place", "error"), [("saddle_jax.no_such:thing", ImportError), ("math:no_such", AttributeError)]
)
def test_a_wrong_place_is_a_bug_and_keeps_its_traceback(place, error):
    with pytest.raises(error, match="no_such"):
        Registry("thing", {"mine": place})["mine"]


@pytest.mark.parametrize("table", [METHODS, GRAPHS, COMPRESSORS, GRADIENTS])
def test_what_is_public_is_what_the_registry_says(table):
    for name, factory in table.items():
        assert getattr(sj, name, factory) is factory


def test_things_answer_to_their_names():
    for name in base_methods():
        assert METHODS[name](suited(name, sj.ring(4)), 0.1).name == name
    for name, load in BUILTIN.items():
        assert name == "leaf" or load().name == name  # which reads a folder
    assert all(callable(each) for table in (MODELS, OBJECTIVES) for each in table.values())


def test_a_registry_makes_what_a_spec_says():
    def made(spec):
        return METHODS.make(spec, topology=sj.ring(4), learning_rate=0.1)

    method = made("qgm(beta=0.8, compressor=top_k(0.3))")
    assert repr(method) == repr(sj.qgm(sj.ring(4), 0.1, beta=0.8, compressor=sj.top_k(0.3)))
    assert made(method) is method
    method = made("qgm(gossip=choco(top_k(0.3), gamma=0.4))")
    assert repr(method) == repr(sj.qgm(sj.ring(4), 0.1, gossip=sj.choco(sj.top_k(0.3), gamma=0.4)))
    with pytest.raises(ArgumentError, match=r"^did you mean 'choco'.*gossip must be one of exact, choco"):
        made("qgm(gossip=chocco(top_k(0.3)))")
    assert made(parse("method", "qgm").with_option("compressor", sj.sign())).name == "qgm"
    tree = GRAPHS.make("spanning_tree(torus(2, 4))", n=8, seed=0)
    assert tree == sj.spanning_tree(sj.torus(2, 4))
    with pytest.raises(ArgumentError, match=r"^method must be a Method, got ring\(4\)"):
        made(sj.ring(4))
    with pytest.raises(ArgumentError, match=r"^method <mine> was made from Python objects"):
        made("<mine>")


MINE = """
import dataclasses
import saddle_jax as sj

COUNT = 3
TEXT = "a"

@dataclasses.dataclass
class Thing:
    size: int = 7

def thing(n, size=5, *, scale=1.0):
    return Thing(n + size)

def joined(*things: sj.Topology, name="x", **options):
    return Thing(sum(each.size for each in things) + len(options))

def number(n):
    return n

def failing():
    raise KeyError("lost")

def refusing(n):
    from saddle_jax.base import checks
    return checks.whole("n", n, at_least=100)
"""


@pytest.fixture
def things(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    own = Registry("thing", {}, context=["n", "unused"])
    return lambda text, n=1: own.make(text, n=n, unused=None)


def test_a_users_own_thing_is_given_what_it_takes(things):
    assert things("mine.py:thing").size == 6
    assert things("mine.py:thing(10)").size == 11
    assert things("mine.py:thing(size=10, scale=2)", n=2).size == 12
    assert things("mine.py:Thing").size == 7
    assert things("mine.py:joined(karate, karate(), a=1)").size == 69
    assert Registry("thing", {}, kinds=["builtins:int"]).make("mine.py:COUNT") == 3


WRONG = {
    "mine.py:thing(sise=1)": "did you mean 'size'? thing mine.py:thing takes size, scale, got option 'sise'",
    "mine.py:thing(n=1)": "thing mine.py:thing takes size, scale, got option 'n'",
    "mine.py:thing(1, 2)": "thing mine.py:thing takes size, scale, got 'mine.py:thing(1, 2)': "
    "too many positional arguments",
    "mine.py:TEXT": "thing mine.py:TEXT must be a function or a class, got 'a'",
    "mine.py:refusing": "n must be an integer >= 100, got 1",
    "math:sqrt": "thing math:sqrt must be given x, got 'math:sqrt'",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_cannot_be_made_is_one_line(things, text):
    with pytest.raises(ArgumentError) as refusal:
        things(text)
    assert str(refusal.value) == WRONG[text]
    assert not isinstance(refusal.value, UserCodeError)


def test_a_factory_that_fails_has_its_own_traceback(things):
    with pytest.raises(UserCodeError, match=r"^thing mine.py:failing failed: KeyError: 'lost'$") as failure:
        things("mine.py:failing")
    assert 'raise KeyError("lost")' in failure.value.trace
    assert "saddle_jax" not in failure.value.trace


def test_only_specs_name_code():
    assert registry.is_code("mine.py:f(x=1)")
    assert registry.is_code("spanning_tree(mine.py:f)")
    for text in (
        "qgm",
        "gut(mu=0.5)",
        "",
        "none",
        "graph.npy",
        "imagenette/160px-v2",
        "f(path='a.py:b')",
        "a:",
    ):
        assert not registry.is_code(text)
