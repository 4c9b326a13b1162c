"""Every example is short, is listed, runs as it is, and prints what it promises."""

import os
import pathlib
import re
import runpy
import subprocess
import sys

import jax
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# What each example prints; numbers in brackets must lie between the two bounds that follow.
PRINTED = {
    "own_method": [
        (r"D-PSGD +([\d.e-]+)", 0.01, 0.03),
        (r"mine +([\d.e-]+)", 0.0, 1e-5),
        (r"lambda_max ([\d.]+), page: report.html", 0.999, 1.001),
    ],
    "own_model": [(r"maxout +([\d.]+) \+-", 88, 100), (r"linear +([\d.]+) \+-", 85, 100)],
    "own_data": [
        (r"partitioned: the consensus model tells ([\d.]+) % of the points apart", 90, 100),
        (r"divided: the consensus model tells ([\d.]+) % of the points apart", 90, 100),
    ],
    "own_loss": [(r"median error ([\d.]+)", 0.0, 0.3)],
    "own_graph": [
        (r"two_rings\(10\): spectral gap ([\d.]+), consensus distance", 0.05, 0.06),
        (r"ring\(10\): spectral gap 0.127, consensus distance ([\d.]+)", 0.1, 0.6),
    ],
    "four_devices": [
        (r"4 devices with (\d) agents on each", 2, 2),
        (r"largest difference from one device: (\S+)", 0, 1e-5),
    ],
    "sweep": [(r"0\.003 .*\n +0\.010 .*\n +0\.030 +([\d.]+)", 0, 1e-3)],
    "rates": [
        (r" ([\d.e-]+) +dpsgd", 1e-2, 3e-2),
        (r" ([\d.e-]+) +gradient_tracking", 0.0, 3e-6),
        (r" ([\d.e-]+) +motef", 0.0, 3e-6),
    ],
    "limits": [
        (r"\| dpsgd \| ([\d.]+) \(1.00\) \|", 0.03, 0.04),
        (r"\| d2 \| exact \| exact \| ([\d.]+) ", 0.1, 0.5),
    ],
    "unreliable_network": [
        (r"nothing lost: consensus distance ([\d.]+)", 0.03, 0.1),
        (r"50 % lost: consensus distance ([\d.]+)", 0.15, 0.3),
        (r"50 % lost: .* error of the average ([\d.]+)", 0.0, 0.002),
        (r"one way: .* error of the average ([\d.]+)", 0.005, 0.1),
    ],
}


def test_every_example_is_run_and_listed():
    assert {path.stem for path in EXAMPLES} == PRINTED.keys()
    page = (ROOT / "docs" / "own.md").read_text()
    for path in EXAMPLES:
        assert f"(../examples/{path.name})" in page
        assert len(path.read_text().splitlines()) < 46  # a page


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_runs_and_prints_what_it_promises(name, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [f"{name}.py"])
    with jax.numpy_rank_promotion("allow"):  # as a user has it; warnings are errors here
        runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    check(name, *capfd.readouterr(), tmp_path)


def test_an_example_runs_in_a_shell(tmp_path):
    command = [sys.executable, ROOT / "examples" / "own_method.py"]
    # As in a user's shell, but on the host's devices, as all tests are.
    user = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=user)
    check("own_method", done.stdout, done.stderr, tmp_path)


def check(name, out, err, folder):
    """Checks what an example has printed and written."""
    assert err == ""
    for pattern, least, most in PRINTED[name]:
        found = re.search(pattern, out)
        assert found, out
        assert least <= float(found.group(1)) <= most, found.group()
    assert {path.name for path in folder.iterdir()} <= {"runs"}
