"""Class C: trainings that are killed, signalled and started twice are the uninterrupted run, bit for bit."""

import pathlib
import random

import pytest
from trainings import outcome, perform

from saddle_jax.runs.checkpoints import Checkpoints

CLASS = "C"
pytestmark = pytest.mark.slow

# Chosen moments: an event of a run, its number from the start, and whether the process ends before it.
EVENTS = [
    ("replace", (1, 2, 3, 4), ("before", "after")),  # config.json, metrics.jsonl, result.json
    ("rename", (1, 2, 3, 5), ("before", "after")),  # a sealed checkpoint is put in its place
    ("fsync", (1, 2, 3, 6), ("before", "after")),
    ("open", (1, 2, 3, 5, 8), ("after", "half")),  # files that are empty, or half written: seals among them
    ("rmtree", (1, 2, 3), ("before", "after")),  # of checkpoints that are no longer needed
    ("unlink", (1, 2, 4, 9), ("before", "after")),  # in the middle of that
    ("rmdir", (1, 3), ("before", "after")),
    ("mkdir", (1, 2, 3, 5), ("before", "after")),
    ("saving", (1, 2, 4), (0.0, 0.005, 0.02, 0.05, 0.1)),  # while orbax's threads write
]


def chosen():
    return [[kind, number, how] for kind, numbers, hows in EVENTS for number in numbers for how in hows]


def at_random(chance, count, seconds):
    """Moments of a run that takes so many seconds on this machine."""
    return [["time", round(chance.uniform(0.02, 0.8 * seconds), 3), None] for _ in range(count)]


def whole(folder):
    (answer,) = perform([{"workdir": str(folder / "whole")}], folder)
    assert answer[0] == 0, answer
    return outcome(folder / "whole"), answer[2]


def test_kills_at_chosen_and_random_moments(attack, tmp_path):
    """Chains of kills in one folder, which is then trained to its end: the run that nobody killed."""
    expected, seconds = whole(tmp_path)
    chance = random.Random(20)
    moments = chosen() + at_random(chance, 100, seconds)
    chance.shuffle(moments)
    chains = [moments[start : start + 3] for start in range(0, len(moments), 3)]
    jobs = []
    for number, chain in enumerate(chains):
        workdir = str(tmp_path / f"chain{number}")
        jobs += [{"workdir": workdir, "at": at} for at in chain] + [{"workdir": workdir}]
    answers = iter(perform(jobs, tmp_path))
    for number, chain in enumerate(chains):
        workdir, ends, last = tmp_path / f"chain{number}", [next(answers) for _ in chain], next(answers)
        for at, (status, error, _) in zip(chain, ends, strict=True):
            if status == 0:
                continue  # the event did not come any more: the run had ended
            with attack.attempt(f"{chain} at {at}"):
                assert status == -9, (status, error)
                assert last[:2] == [0, ""], last
                assert outcome(workdir) == expected
                assert not list((workdir / "checkpoints").glob(".writing-*"))
    assert attack.attempts >= 100


def test_two_signals_at_any_moment(attack, tmp_path):
    """The first asks to save and end, the second ends at once; always with 130 and at most one line."""
    expected, seconds = whole(tmp_path)
    chance = random.Random(21)
    kinds = [("INT", "INT"), ("INT", "TERM"), ("TERM", "TERM"), ("INT",), ("TERM",)]
    jobs = []
    for number in range(32):
        names = chance.choice(kinds)
        first, after = chance.uniform(0.0, seconds), (0.0, chance.choice((0.06, 0.2, 0.5)))
        signals = [[first + wait, name] for wait, name in zip(after, names, strict=False)]
        jobs.append({"workdir": str(tmp_path / f"signalled{number // 4}"), "signals": signals})
        if number % 4 == 3:  # and then to its end
            jobs.append({"workdir": jobs[-1]["workdir"]})
    for job, (status, error, _) in zip(jobs, perform(jobs, tmp_path), strict=True):
        with attack.attempt(str(job)):
            assert "signals" in job or (status, error) == (0, "")
            assert status in (0, 130), error
            assert error.count("\n") == (status == 130), error
            assert "Traceback" not in error
            assert outcome(pathlib.Path(job["workdir"])) == expected


def test_races_of_two_processes(attack, tmp_path):
    """One of two trains; the other is refused in a line, or finds the run finished."""
    expected, _ = whole(tmp_path)
    folders = [tmp_path / f"raced{number % 6}" for number in range(12)]  # the second time they have finished
    jobs = [{"workdir": str(folder)} for folder in folders]
    answers = perform([{"together": [job, job]} for job in jobs], tmp_path)
    for workdir, (one, two) in zip(folders, answers, strict=True):
        with attack.attempt(workdir.name):
            assert sorted((one[0], two[0])) in ([0, 2], [0, 0]), (one, two)
            for status, error, _ in (one, two):
                assert ("is in use by another run" in error) == (status == 2), error
                assert error.count("\n") == (status == 2)
            assert outcome(workdir) == expected
            assert len(Checkpoints(workdir, 1).steps()) == 1
