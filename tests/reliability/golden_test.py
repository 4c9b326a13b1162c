"""No number of small runs has changed since golden.json was recorded, not in its last bit."""

import golden
import numpy as np
import pytest
from golden_cases import CASES

RECORDED = golden.read()
ELSEWHERE = golden.elsewhere(RECORDED)
here = pytest.mark.skipif(bool(ELSEWHERE), reason=ELSEWHERE)


@pytest.mark.slow
@here
@pytest.mark.parametrize("name", CASES)
def test_no_number_has_changed(name):
    assert golden.differences(golden.in_new_folder(CASES[name]), RECORDED["runs"][name]) == []


def test_every_run_is_recorded():
    assert list(RECORDED["runs"]) == list(CASES)


@here
def test_the_last_bit_of_a_setting_is_seen():
    rate = CASES["convex"]["learning_rate"]
    other = {**CASES["convex"], "learning_rate": float(np.nextafter(np.float32(rate), np.float32(1)))}
    lines = golden.differences(golden.in_new_folder(other), RECORDED["runs"]["convex"])
    assert lines[0].startswith("[0].models: ")
    assert any(line.startswith("[0].losses") for line in lines)


def test_another_machine_is_told_and_not_compared():
    here = {"machine": golden.machine()}
    assert golden.elsewhere(here) == ""
    for name in here["machine"]:
        other = {"machine": {**here["machine"], name: "another"}}
        assert golden.elsewhere(other).startswith(f"golden numbers were recorded elsewhere: {name} is ")


def test_differences_are_told_by_place():
    found, expected = {"a": [1.0, {"b": float("nan")}]}, {"a": [1.0, {"b": float("nan")}]}
    assert golden.differences(found, expected) == []
    assert golden.differences(found, {"a": [1.0000000000000002, {"b": 2}]}) == [
        ".a[0]: 1.0, was 1.0000000000000002",
        ".a[1].b: nan, was 2",
    ]
    assert golden.differences(found, {"a": [1.0]}) != []
    assert golden.differences(found, {}) != []
    assert golden.differences({}, expected) != []
    assert golden.differences(found, None) != []
