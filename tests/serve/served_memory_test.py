"""What `saddle list` and `saddle serve` need of memory, whatever lies in a folder."""

import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import folders
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT = 500e6  # bytes; SECURITY.md promises it

# In a process of its own; ru_maxrss of a child would begin with what its parent has.
PROGRAM = """
import pathlib, sys
from saddle_jax.serve.pages import Site
site = Site(pathlib.Path(sys.argv[1]))
print("listed", [entry.row.state for entry in site._runs.entries()])
keys = [entry.key for entry in site._runs.entries() if entry.row.state != "unreadable"]
for chosen in [[], *([key] for key in keys), keys]:
    assert site.page(chosen).status == 200
for chosen in [[], keys]:
    assert site.updates(chosen, "").status == 200
print("shown", len(keys))
print(open("/proc/self/status").read())
"""


def swollen(run, name, content):
    """Puts a text in place of the settings that config.json says, or beside them."""
    about = json.loads((run / "config.json").read_text())
    (run / name).write_text(json.dumps(about)[:-1] + f', "extra": {content}}}')


def lines_of(content, count):
    line = json.dumps({"step": 1, "epoch": 1, "train_loss": 1.0})[:-1]
    return f"{line}, {content}}}\n" * count


@functools.cache
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
        run = folders.write_run(folder / f"config {kind}")
        swollen(run, "config.json", text_of(kind))
        if kind in ("texts", "one text"):  # which become as much as possible
            swollen(run, "result.json", text_of(kind))
    for name, content, count in (
        ("long lines", '"a_each": [' + "1e9," * 900_000 + "1]", 5),
        ("names in lines", ",".join(f'"n{n}": 1' for n in range(300_000)), 5),
        ("endless line", '"a_each": [' + "1," * 20_000_000 + "1]", 1),
        ("wide lines", '"a_each": [' + "1e9," * 5000 + "1]", 1000),
    ):
        run = folders.write_run(folder / name)
        (run / "metrics.jsonl").write_text(lines_of(content, count))
    run, axis = folders.write_run(folder / "landscape"), np.linspace(-1, 1, 2001)
    np.savez_compressed(run / "landscape.npz", x=axis, y=axis, loss=np.ones((1, 2001, 2001)))
    run = folders.write_run(folder / "zeros")
    with (
        zipfile.ZipFile(run / "landscape.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w", force_zip64=True) as member,
    ):
        size = int(LIMIT) // 8
        header = {"descr": "<f8", "fortran_order": False, "shape": (size,)}
        np.lib.format.write_array_header_1_0(member, header)
        for _ in range(8 * size // 2**24 + 1):
            member.write(bytes(2**24))


def test_a_list_and_pages_of_bombs_stay_small(tmp_path):
    write_bombs(tmp_path)
    command = [sys.executable, "-P", "-c", PROGRAM, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    most = 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", done.stdout)[1])
    assert most < LIMIT, f"{most / 1e6:.0f} MB"
    assert "'unreadable'" in done.stdout  # in the list, for which `saddle list` reads the same
    assert int(done.stdout.split("shown ")[1].split()[0]) >= 5  # they are shown, not refused
