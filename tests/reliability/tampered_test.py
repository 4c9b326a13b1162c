"""Class B: folders that somebody has changed; every verb that reads them answers in one line, and changes
nothing outside."""

import json
import os
import shutil

import numpy as np
import pytest
from asking import ask, check
from damage import chances, damage, flipped
from trainings import FLAGS

from saddle_jax.runs.checkpoints import Checkpoints

CLASS = "B"
pytestmark = pytest.mark.slow

STAGE = {"step": 2, "epoch": 0.2, "whose": "consensus", "lambda_max": 3.0, "density": None}
LIGHT = (
    ["list", "."],
    ["report", "run", "--output=page.html"],
    ["figure", "curves", "run", "--output=o.png"],
    ["figure", "bits", "run", "--output=o.png"],
    ["figure", "partition", "run", "--output=o.png"],
    ["list", "--best", "."],
)
FILES = ("config.json", "metrics.jsonl", "result.json", "sharpness.json", "paper.json", "landscape.npz")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run with everything that verbs write beside it."""
    folder = tmp_path_factory.mktemp("trained")
    check(ask("train", f"--workdir={folder / 'run'}", "--quiet", *FLAGS, "--keep_checkpoints=2"), (0,))
    run, grid = folder / "run", np.linspace(-1, 1, 3)
    (run / "sharpness.json").write_text(json.dumps({"data": "train", "images": 8, "stages": [STAGE]}))
    paper = dict.fromkeys(("table", "row", "scale"), "1") | {"paper": [90.0, 0.1]}
    (run / "paper.json").write_text(json.dumps(paper))
    np.savez(run / "landscape.npz", x=grid, y=grid, loss=np.ones((1, 3, 3)), names=["run"])
    return run


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The folder that commands run in, beside a file that nobody may touch."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "victim").write_text("untouched")
    return tmp_path


def fresh(trained, place):
    shutil.rmtree(place / "run", ignore_errors=True)
    shutil.copytree(trained, place / "run")
    return place / "run"


def untouched(place):
    assert (place / "victim").read_text() == "untouched"
    assert not (place / "executed").exists()


@pytest.mark.parametrize("name", FILES)
def test_files_changed_in_many_ways_against_verbs_that_only_read(name, attack, trained, place):
    for chance in chances(FILES.index(name), 40):
        run = fresh(trained, place)
        told = damage(run, name, chance)
        for verb in LIGHT:
            with attack.attempt(f"{name}: {told}: {' '.join(verb)}"):
                check(ask(*verb))
                untouched(place)


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "result.json"])
def test_files_changed_against_verbs_that_open_the_run(name, attack, trained, place):
    for chance in chances(100 + FILES.index(name), 10):
        run = fresh(trained, place)
        told = damage(run, name, chance)
        for verb in (
            ["export", "run", "--output=m.safetensors"],
            ["train", "--workdir=run", "--quiet", *FLAGS],
        ):
            with attack.attempt(f"{name}: {told}: {verb[0]}"):
                check(ask(*verb))
                untouched(place)


def test_checkpoints_changed_byte_by_byte_are_passed_over(attack, trained, place):
    """The newest is damaged: an earlier one is used, and a resumed run ends as the undamaged one did."""
    expected = json.loads((trained / "result.json").read_text())["params_sha256"]
    for number, chance in enumerate(chances(7, 24)):
        run = fresh(trained, place)
        newest = run / "checkpoints" / f"{Checkpoints(run, 1).steps()[-1]:08d}"
        files = sorted(path for path in newest.rglob("*") if path.is_file())
        path = chance.choice(files)
        path.write_bytes(flipped(path.read_bytes(), chance))
        with attack.attempt(f"{path.relative_to(newest)} {number}"):
            check(ask("export", "run", "--output=m.safetensors"), (0,))
            if number % 4 == 0:
                (run / "result.json").unlink()
                check(ask("train", "--workdir=run", "--quiet", *FLAGS), (0,))
                assert json.loads((run / "result.json").read_text())["params_sha256"] == expected
            untouched(place)


LINKS = (".lock", "metrics.jsonl", "result.json", "config.json", "curves.png", "report.html", "checkpoints")
LINKS += ("tensorboard", "model.safetensors", "trace", "code", ".partial-report.html", ".partial-curves.png")


@pytest.mark.parametrize("kind", ["file", "folder", "/dev/zero", "/dev/full", "itself"])
def test_planted_links_lead_nowhere(kind, attack, trained, place):
    (place / "elsewhere").mkdir()
    (place / "elsewhere" / "kept").write_text("untouched")
    targets = {"file": place / "victim", "folder": place / "elsewhere"}
    verbs = (["report", "run"], ["list", "."], ["train", "--workdir=run", "--quiet", *FLAGS])
    for name in LINKS:
        run = fresh(trained, place)
        if (run / name).is_dir():
            shutil.rmtree(run / name)
        (run / name).unlink(missing_ok=True)
        os.symlink(name if kind == "itself" else targets.get(kind, kind), run / name)
        for verb in verbs:
            with attack.attempt(f"{name} -> {kind}: {verb[0]}"):
                check(ask(*verb))
                untouched(place)
                assert os.listdir(place / "elsewhere") == ["kept"]
                assert (place / "elsewhere" / "kept").read_text() == "untouched"


PAYLOAD = "import pathlib; pathlib.Path('executed').touch()\n"


def test_programs_in_a_folder_are_not_run(attack, trained, place):
    """Whatever a folder names, verbs import nothing from it unless they are told to."""
    (place / "evil.py").write_text(PAYLOAD)
    for name in ("method", "gradient", "topology", "model", "dataset", "objective"):
        spellings = ("evil.py:x", "run/evil.py:x", "evil:x", "run.evil:x", "../evil.py:x")
        if name == "method":
            spellings += tuple(f"qgm(compressor={each})" for each in spellings)
        for spelling in spellings:
            run = fresh(trained, place)
            (run / "evil.py").write_text(PAYLOAD)
            about = json.loads((run / "config.json").read_text())
            about["config"][name] = spelling
            (run / "config.json").write_text(json.dumps(about))
            for verb in (["list", "."], ["report", "run"], ["evaluate", "run"], ["export", "run"]):
                with attack.attempt(f"{name}={spelling}: {verb[0]}"):
                    check(ask(*verb))
                    untouched(place)
