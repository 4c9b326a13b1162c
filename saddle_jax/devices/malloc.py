"""Keeps memory between steps on Linux: on a CPU, a third of a step went into allocating it again.

XLA:CPU allocates a program's temporary buffers at every call. glibc maps blocks of that size into the process
and unmaps them when they are freed, so every page of them is faulted in and zeroed again in the next step. If
they come from the heap, and the heap is never given back, this happens only once.
"""

import ctypes
import sys

# Options of mallopt, from glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_NEVER = -1
_AHEAD = 64 * 2**20


def keep_freed_memory() -> bool:
    """Makes glibc keep freed memory for the next step, and returns whether there is a glibc. Call it first.

    There is one arena, because only the main one does not depend on mappings. The process's memory then stays
    at the peak of its largest step.
    """
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    settings = {_ARENA_MAX: 1, _MMAP_MAX: 0, _TRIM_THRESHOLD: _NEVER, _TOP_PAD: _AHEAD}
    return all(mallopt(option, value) == 1 for option, value in settings.items())
