"""Freed memory is kept: blocks that come and go are not mapped again."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
from saddle_jax.devices.machine import keep_freed_memory

if {keep}:
    assert keep_freed_memory()
for turn in range(8):
    if turn == 3:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    first, second = b"x" * 16_000_000, b"x" * 48_000_000
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc maps and unmaps large blocks")
def test_large_blocks_are_faulted_in_once():
    faults = {
        keep: int(subprocess.check_output([sys.executable, "-c", PROGRAM.format(keep=keep)]))
        for keep in (False, True)
    }
    if faults[False] < 20_000:  # five turns over 64 MB in pages of 4 KiB are 78,000
        pytest.skip("this kernel gives out huge pages: there is nothing to gain")
    assert faults[True] < faults[False] / 20
