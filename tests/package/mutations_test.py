"""The faults of tests/mutations.toml can be planted; bin/mutate does so, in an hour, and no CI runs it."""

import collections
import pathlib
import runpy
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_every_fault_has_its_place_and_its_tests(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    faults = runpy.run_path(str(ROOT / "bin" / "mutate"))["table"]()  # ends with a line if one has not
    assert len({fault.name for fault in faults}) == len(faults) >= 60
    rooms = collections.Counter(pathlib.PurePath(fault.file).parts[0] for fault in faults)
    assert {"core", "methods", "compression", "sam", "data", "training", "runs"} <= rooms.keys()
