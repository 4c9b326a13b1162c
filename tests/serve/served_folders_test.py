"""What the server of `saddle serve` reads: folders of others, with links, damage and hostile names."""

import dataclasses
import json
import os
import random
import re
import time

import folders
import pytest
from browser import Tree
from damage import CONTENTS, swapped
from serving import ask, keys_of, served

from saddle_jax.cli import __main__ as cli
from saddle_jax.serve.pages import STATES, Site
from saddle_jax.serve.scan import Runs


def states(folder):
    return {entry.row.run: (entry.row.state, entry.row.reason or "") for entry in Runs(folder).entries()}


def test_links_that_lead_out_are_not_followed(tmp_path):
    outside = folders.write_run(tmp_path / "outside")
    inside = folders.write_run(tmp_path / "runs" / "inside")
    (inside / "metrics.jsonl").unlink()
    (inside / "metrics.jsonl").symlink_to(outside / "metrics.jsonl")
    (tmp_path / "runs" / "whole").symlink_to(outside)
    within = folders.write_run(tmp_path / "runs" / "within")
    (within / "paper.json").symlink_to(within / "result.json")
    trials = folders.write_run(tmp_path / "runs" / "several")
    (trials / "sharpness-1.json").symlink_to(outside / "result.json")
    assert states(tmp_path / "runs") == {
        "inside": ("unreadable", "metrics.jsonl is a link that leads out of the folder: it is not read"),
        "several": ("unreadable", "sharpness-1.json is a link that leads out of the folder: it is not read"),
        "within": ("finished", ""),
    }
    with served(tmp_path / "runs") as port:
        # It may have become a link after it was listed: nothing of it is shown then either.
        (key,) = keys_of(port)
        (within / "metrics.jsonl").unlink()
        (within / "metrics.jsonl").symlink_to(outside / "metrics.jsonl")
        text = ask(port, f"/runs?run={key}").text
        assert "is a link that leads out of the folder" in text
        assert "train_loss" not in text.split("<main")[1]


def test_one_damaged_run_spoils_no_other(tmp_path):
    folders.write_run(tmp_path / "good")
    folders.write_run(tmp_path / "hurt", status="interrupted")
    folders.write_run(tmp_path / "cut", status=None)
    folders.write_run(tmp_path / "lost", status="diverged", result={"diverged_at_step": 3})
    os.mkfifo(folders.write_run(tmp_path / "pipe", lines=[]) / "paper.json")
    bad = folders.write_run(tmp_path / "bad")
    (bad / "metrics.jsonl").write_text('{"step": "x\\u001b[2J", "epoch": 1}\n')
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "config.json").write_text("[" * 100_000)
    found = states(tmp_path)
    assert {name: state for name, (state, _) in found.items()} == {
        "bad": "unreadable",
        "cut": "interrupted",
        "good": "finished",
        "hurt": "interrupted",
        "lost": "diverged",
        "pipe": "finished",
        "torn": "unreadable",
    }
    assert "\x1b" not in found["bad"][1]
    assert str(tmp_path) not in found["bad"][1]  # where the folder lies is nobody's business
    with served(tmp_path) as port:
        tree = Tree(ask(port).text)
        assert tree.find("p", id="summary")[0][1].startswith("7 runs: 2 finished, 1 diverged, 2 interrupted")
        keys = keys_of(port)
        assert len(keys) == 5
        answer = ask(port, f"/runs?{'&'.join(f'run={key}' for key in keys)}")
        assert answer.status == 200
        assert "it is a pipe" in answer.text  # and the others are shown
        assert [found["id"] for found, _ in Tree(answer.text).find("section")][:2] == ["results", "curves"]


@pytest.mark.parametrize(
    "name", ["config.json", "metrics.jsonl", "result.json", "sharpness.json", "paper.json"]
)
def test_whatever_stands_in_a_file_is_answered(tmp_path, name):
    """Bytes that no run writes, and values of other kinds in the places of ours."""
    folders.write_run(tmp_path / "sound", sharpness={"stages": []}, paper={"table": "1"})
    chance = random.Random(name)
    content = (tmp_path / "sound" / name).read_text().splitlines()[0]
    bad = list(CONTENTS.values())
    for _ in range(12):
        changed, _ = swapped(json.loads(content), chance)
        bad.append(json.dumps(changed).encode("utf-8", errors="surrogatepass"))
    site = Site(tmp_path)
    for number, each in enumerate(bad):
        run = folders.write_run(tmp_path / f"bad{number}", sharpness={"stages": []}, paper={"table": "1"})
        (run / name).write_bytes(each)
    entries = Runs(tmp_path).entries()
    assert len(entries) == len(bad) + 1
    assert site.page([]).status == 200
    answers = {entry.row.run: site.updates([entry.key], "") for entry in entries}
    answers["all"] = site.page([entry.key for entry in entries])
    for name_of_run, answer in answers.items():
        assert answer.status == 200, (name_of_run, bad)
        answer.text.encode("utf-8", errors="backslashreplace")
    assert {entry.row.state for entry in entries} <= {*STATES}
    assert next(entry.row.state for entry in entries if entry.row.run == "sound") == "finished"


def test_numbers_and_times_beyond_all_bounds_are_answered(tmp_path):
    for seed in range(3):
        lines = folders.metrics()
        for line in lines:
            line["train_loss"] = 1.7e308  # finite, but no sum of them is
        run = folders.write_run(
            tmp_path / str(seed), dataclasses.replace(folders.SMALL, seed=seed), lines=lines
        )
        os.utime(run / "metrics.jsonl", (0, 2**40))
    site = Site(tmp_path)
    keys = [entry.key for entry in Runs(tmp_path).entries()]
    assert (site.page([]).status, site.page(keys).status, site.updates(keys, "").status) == (200, 200, 200)


def test_a_bug_is_told_on_both_sides(tmp_path, monkeypatch, capsys):
    folders.write_run(tmp_path / "run")
    with served(tmp_path) as port:
        monkeypatch.setattr("saddle_jax.serve.pages.list_page", lambda *arguments: 1 / 0)
        answer = ask(port)
    assert (answer.status, answer.text.startswith("this is a bug of saddle_jax")) == (500, True)
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    told, deadline = "", time.monotonic() + 30
    while "ZeroDivisionError" not in told:  # the answer comes first
        told += capsys.readouterr().err
        assert time.monotonic() < deadline, told


def test_hostile_names_stay_text_and_keys_tell_nothing(tmp_path):
    nasty = "<img src=x onerror=alert(1)>\"'&\x1b[31m\n"
    folders.write_run(tmp_path / "runs" / nasty)
    with served(tmp_path / "runs") as port:
        text = ask(port).text
        tree = Tree(text)
        assert not tree.find("img")
        assert "\x1b" not in text
        assert any(r"onerror=alert(1)>" in said for _, said in tree.find("td"))
        (key,) = keys_of(port)
        assert re.fullmatch("[0-9a-f]{16}", key)
        for path in (f"/runs?run={key}", f"/updates?run={key}"):
            answer = ask(port, path)
            assert answer.status == 200
            content = json.loads(answer.text)["sections"] if "updates" in path else [{"text": answer.text}]
            for part in content:
                inner = Tree(part["text"])
                assert not inner.find("img")
                assert not any(name.startswith("on") for _, found, _ in inner.elements for name in found)


def test_nothing_is_written(tmp_path):
    run = folders.write_run(tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with served(tmp_path) as port:
        (key,) = keys_of(port)
        assert ask(port, f"/runs?run={key}").status == 200
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert run in before


@pytest.mark.parametrize("score", [1e308, -1e308, 1e100])
def test_one_number_that_is_too_large_spoils_no_comparison(tmp_path, score, capsys):
    for seed in (0, 1):
        config = dataclasses.replace(folders.SMALL, seed=seed)
        folders.write_run(tmp_path / f"seed{seed}", config)
    config = dataclasses.replace(folders.SMALL, seed=2)
    folders.write_run(tmp_path / "large", config, result={"test_accuracy": score})
    logged = folders.metrics(test_accuracy=lambda step: score)
    folders.write_run(tmp_path / "logged", dataclasses.replace(config, seed=3), lines=logged)
    assert states(tmp_path)["large"][0] == "unreadable"
    with served(tmp_path) as port:
        query = "&".join(f"run={key}" for key in keys_of(port))
        for path in (f"/runs?{query}", f"/updates?{query}"):
            assert ask(port, path).status == 200
    runs = [str(tmp_path / name) for name in ("seed0", "large", "logged")]
    assert cli.main(["saddle", "report", *runs, f"--output={tmp_path / 'page.html'}"]) == 3
    assert "test_accuracy must be a number" in capsys.readouterr().err
    assert cli.main(["saddle", "report", *runs[::2], f"--output={tmp_path / 'page.html'}"]) == 0
