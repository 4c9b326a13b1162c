"""Keeping memory between steps, on Linux: on a CPU a third of a step went into asking for it anew.

XLA:CPU allocates a program's temporary buffers at every call. glibc maps blocks of that size into the
process and unmaps them when they are freed, so that every page of them is a page fault, a zeroed page and a
fault again in the next step. Served from the heap, and the heap not given back, they are touched once.
"""

import ctypes
import sys

# Of glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_NEVER = -1
_AHEAD = 64 * 2**20


def keep_freed_memory() -> bool:
    """Tells glibc to keep what is freed for the next step; call it first of all. False: no glibc here.

    One arena, because only the main one is not bound to mappings. The process's memory then stays at the
    height that its largest step has needed.
    """
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    settings = {_ARENA_MAX: 1, _MMAP_MAX: 0, _TRIM_THRESHOLD: _NEVER, _TOP_PAD: _AHEAD}
    return all(mallopt(option, value) == 1 for option, value in settings.items())
