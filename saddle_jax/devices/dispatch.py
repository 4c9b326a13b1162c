"""Programs on several devices of a CPU run one at a time: several can block each other forever.

XLA:CPU has one pool of threads, one for each core. A program on several devices takes one thread per device,
and at a collective each thread waits for the others. Every device may have 32 programs in flight. The launch
of one more waits, in a thread of the same pool, until one has ended. On two cores, the first device then
waits at its collective for the second, while the second one's thread waits in a launch for a program that no
thread computes. After 40 seconds XLA aborts the process. Switching asynchronous dispatch off does not help:
the pool still computes a program on several devices, and the call returns before the program has ended. A
program on one device is launched by the thread that calls it, and blocks nobody.

So every program on several devices is called through `in_turn`. The host can go on working between two calls
while the first one computes. Accelerators have their own queues, and nobody waits for them here.
"""

import threading
from collections.abc import Callable
from typing import Any

import jax

from saddle_jax.devices import policy

_turn = threading.Lock()
_running: Any = None  # the smallest result of the last program on several devices: it is ready when all are


def in_turn(program: Callable[..., Any], *arguments: Any) -> Any:
    """Calls program(*arguments), on CPUs only after the previous program on several devices has ended.

    Only programs that are called through this function may take donated buffers: it waits for their results.
    """
    global _running
    if not policy.programs_take_turns():
        return program(*arguments)
    with _turn:
        before, _running = _running, None  # should it have failed, it is told once
        jax.block_until_ready(before)
        results = program(*arguments)
        shared = [x for x in jax.tree.leaves(results) if isinstance(x, jax.Array) and len(x.devices()) > 1]
        _running = min(shared, key=lambda x: x.size, default=None)
    return results
