"""What `saddle list` and `saddle serve` need of memory, whatever lies in a folder."""

import json
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import folders
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT = 500e6  # bytes; SECURITY.md promises it

# Both in processes of their own; ru_maxrss of a child would begin with what its parent has.
LISTED = """
import sys
from saddle_jax.cli import __main__ as cli
status = cli.main(["saddle", "list", sys.argv[1]])
print(open("/proc/self/status").read())
sys.exit(status)
"""
SERVED = """
import pathlib, sys
from saddle_jax.serve.pages import Site
site = Site(pathlib.Path(sys.argv[1]))
site.page([])
keys = [entry.key for entry in site._runs.entries() if entry.row.state != "unreadable"]
for chosen in [[], *([key] for key in keys), keys]:
    assert site.page(chosen).status == 200
    assert site.updates(chosen, "").status == 200
print("shown", len(keys))
print(open("/proc/self/status").read())
"""


def peak(program, folder):
    """What a process had of memory at most, in bytes, and what it printed."""
    command = [sys.executable, "-P", "-c", program, str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", done.stdout)[1]), done.stdout


def swollen(run, name, content):
    """Puts a text in place of the settings that config.json says, or beside them."""
    about = json.loads((run / "config.json").read_text())
    (run / name).write_text(json.dumps(about)[:-1] + f', "extra": {content}}}')


def lines_of(content, count):
    line = json.dumps({"step": 1, "epoch": 1, "train_loss": 1.0})[:-1]
    return f"{line}, {content}}}\n" * count


def text_of(kind):
    """JSON of somewhat less than what is read, that becomes as much as possible."""
    return {
        "lists": "[" + "[]," * 5_000_000 + "1]",
        "few lists": "[" + "[[]]," * 100_000 + "1]",
        "texts": "[" + ",".join(f'"\\ud83d\\ude00{n:07}"' for n in range(600_000)) + "]",
        "numbers": "[" + "1e9," * 1_400_000 + "1]",
        "names": "{" + ",".join(f'"{n}":{{}}' for n in range(120_000)) + "}",
        "one text": '"' + "\U0001f600" + "x" * 15_000_000 + '"',
    }[kind]


KINDS = ("lists", "few lists", "texts", "numbers", "names", "one text")


def write_bombs(folder):
    """Runs of which each is as large, or as much larger, as a file can be made easily."""
    for kind in KINDS:
        swollen(folders.write_run(folder / f"config {kind}"), "config.json", text_of(kind))
        run = folders.write_run(folder / f"both {kind}")
        swollen(run, "config.json", text_of(kind))
        swollen(run, "result.json", text_of(kind))
    for name, content, count in (
        ("long lines", '"a_each": [' + "1e9," * 900_000 + "1]", 20),
        ("names in lines", ",".join(f'"n{n}": 1' for n in range(300_000)), 20),
        ("endless line", '"a_each": [' + "1," * 20_000_000 + "1]", 1),
        ("wide lines", '"a_each": [' + "1e9," * 5000 + "1]", 3000),
    ):
        run = folders.write_run(folder / name)
        (run / "metrics.jsonl").write_text(lines_of(content, count))
    for number in range(4):
        run, axis = folders.write_run(folder / f"landscape{number}"), np.linspace(-1, 1, 2001)
        np.savez_compressed(run / "landscape.npz", x=axis, y=axis, loss=np.ones((1, 2001, 2001)))
    run = folders.write_run(folder / "zeros")
    with zipfile.ZipFile(run / "landscape.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("x", "y", "loss"):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_1_0(
                    member, {"descr": "<f8", "fortran_order": False, "shape": (2**27,)}
                )
                for _ in range(2**27 * 8 // 2**24):
                    member.write(bytes(2**24))


@pytest.fixture(scope="module")
def bombs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bombs")
    write_bombs(folder)
    return folder


def test_the_list_of_bombs_stays_small(bombs):
    most, told = peak(LISTED, bombs)
    assert most < LIMIT, f"{most / 1e6:.0f} MB"
    assert "config lists" in told


def test_the_pages_of_bombs_stay_small(bombs):
    most, told = peak(SERVED, bombs)
    assert most < LIMIT, f"{most / 1e6:.0f} MB"
    assert int(told.split("shown ")[1].split()[0]) >= 10  # they are shown, not refused
