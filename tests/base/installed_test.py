"""Names that installed packages register by entry points: listed as ours, imported when they are used."""

import json
import subprocess
import sys

import pytest

import saddle_jax as sj
from saddle_jax.base.registry import Registry
from saddle_jax.base.user_code import UserCodeError

ENTRIES = """\
[saddle_jax.methods]
theirs = their_package.things:theirs
qgm = their_package.things:theirs
not-a-name = their_package.things:theirs
broken = their_package.broken:broken

[saddle_jax.gradients]
their_gradient = their_package.things:their_gradient

[saddle_jax.compressors]
their_sign2 = their_package.things:TheirSign

[saddle_jax.graphs]
their_ring = their_package.things:their_ring
"""
THINGS = """\
import dataclasses

import saddle_jax as sj
from saddle_jax.compression.signs import Sign

def theirs(topology, learning_rate, beta=0.5, compressor=None, half=False):
    return sj.dpsgd(topology, learning_rate, beta=beta, compressor=compressor)

def their_gradient(radius=0.1):
    return sj.sam(radius)

@dataclasses.dataclass(frozen=True)
class TheirSign(Sign):
    count: int = 1

def their_ring(n, hops=1):
    return sj.circulant(n, list(range(1, hops + 1)))
"""


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """A folder with an installed package, as pip leaves one."""
    about = tmp_path / "their_package-1.5.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.5\n")
    (about / "entry_points.txt").write_text(ENTRIES)
    (tmp_path / "their_package").mkdir()
    (tmp_path / "their_package/__init__.py").write_text("")
    (tmp_path / "their_package/things.py").write_text(THINGS)
    (tmp_path / "their_package/broken.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "their_package"]:
        del sys.modules[name]


def table():
    return Registry("thing", {"qgm": "saddle_jax.methods.qgm:qgm"}, group="saddle_jax.methods")


def test_installed_names_are_listed_without_an_import(packages):
    methods = table()
    with pytest.warns(UserWarning, match="is ignored") as warned:
        assert [*methods] == ["qgm", "theirs", "broken"]
    assert [str(each.message) for each in warned] == [
        "saddle_jax.methods: 'qgm' of the package their-package is ignored: it is taken",
        "saddle_jax.methods: 'not-a-name' of the package their-package is ignored: it is no name",
    ]
    assert methods.ours == ("qgm",)
    assert methods.installed == ("theirs", "broken")
    assert "theirs" in methods
    assert methods.package_of("theirs") == "their-package 1.5"
    assert len(methods) == 3
    assert "their_package" not in sys.modules
    assert methods["qgm"] is sj.qgm
    assert methods["theirs"](sj.ring(4), 0.1).name == "dpsgd"
    assert "their_package.broken" not in sys.modules


@pytest.mark.filterwarnings("ignore:saddle_jax.methods")
def test_a_package_that_fails_says_so_when_it_is_used(packages):
    methods = table()
    with pytest.raises(
        UserCodeError, match=r"^broken of their-package 1.5 cannot be imported: Zero"
    ) as failure:
        methods["broken"]
    assert "broken.py" in failure.value.trace
    with pytest.raises(KeyError):
        methods["no such"]


def test_a_table_can_be_patched(monkeypatch):
    methods = Registry("thing", {"qgm": "saddle_jax.methods.qgm:qgm"})
    monkeypatch.setitem(methods, "qgm", sj.dpsgd)
    assert methods["qgm"] is sj.dpsgd
    monkeypatch.undo()
    assert methods["qgm"] is sj.qgm
    del methods["qgm"]
    assert not len(methods)


SCRIPT = """\
import dataclasses, json, sys, warnings
warnings.simplefilter("ignore")
from saddle_jax.cli.__main__ import main
from saddle_jax.settings.settings import Settings, build_topology
from saddle_jax.training import build as methods
config = Settings(
    method="theirs(half=True, beta=0.25, compressor=their_sign2(count=3))",
    gradient="their_gradient(radius=0.2)", topology="their_ring(hops=2)", agents=6,
)
assert "their_package.things" not in sys.modules, "a Settings imported it"
graph = build_topology(config)
method = methods.build_method(config, graph, lambda t: 0.1)
print(json.dumps([graph.name, method.name, method.gradient.name, methods.options_of(method)["beta"]]))
for method in ("theirs(halv=True)", "theirs(gamma=0.5)", "qgm(compressor=their_sign3)"):
    try:
        build = Settings(method=method)
        methods.build_method(build, build_topology(build), lambda t: 0.1)
    except ValueError as error:
        print(json.dumps(str(error)))
assert main(["saddle", "methods"]) == 0
assert main(["saddle", "methods", "theirs"]) == 0
assert main(["saddle", "methods", "--gradients", "--json"]) == 0
assert main(["saddle", "topology", "their_ring(hops=3)", "8"]) == 0
assert main(["saddle", "settings"]) == 0
assert main(["saddle", "train", "--method=thiers"]) == 2
assert main(["saddle", "train", "--method=broken", "--workdir=nothing"]) == 2
"""


def test_commands_and_settings_know_installed_names(packages):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=False,
        cwd=packages,
        env={"PYTHONPATH": str(packages), "JAX_PLATFORMS": "cpu", "PATH": ""},
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert json.loads(lines[0]) == ["circulant(6, [1, 2])", "dpsgd", "sam(rho=0.2)", 0.25]
    assert json.loads(lines[1]).endswith(
        "'half'? method theirs takes beta, compressor, half, got option 'halv'"
    )
    assert json.loads(lines[2]) == "method theirs takes beta, compressor, half, got option 'gamma'"
    assert "their_sign2" in json.loads(lines[3])
    rows = [line for line in lines if line.startswith("theirs ")]
    assert rows, done.stdout
    assert "circulant(8, [1, 2, 3]): 8 agents" in done.stdout
    assert ", theirs, broken; with options" in done.stdout
    assert "their_gradient" in done.stdout
    assert ", their_ring, or any graphs" in done.stdout
    assert "method must be one of dpsgd, " in done.stderr
    assert "did you mean 'theirs'? " in done.stderr
    last = done.stderr[
        done.stderr.rindex("saddle: broken of their-package 1.5 cannot be imported: ZeroDiv") :
    ]
    assert last.count("Traceback") == 1
    assert last.splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert not (packages / "nothing").exists()
