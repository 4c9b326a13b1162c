"""Programs on several devices of a CPU run one at a time: several of them can starve each other for ever.

XLA:CPU has one pool of threads, as many as there are cores. A program on several devices takes a thread for
each of them, which at a collective waits for the others. Every device may have 32 programs in flight, and the
launch of one more waits until one has ended; it does so in a thread of that same pool. On two cores the first
device then waits at its collective for the second one, whose thread waits in a launch for the second one's
program to end, which nobody computes. After 40 seconds XLA aborts the process. It does not help to switch
asynchronous dispatch off: a program on several devices is computed in the pool nonetheless, and its call
returns before it has ended. A program on one device is launched by the thread that calls it, and starves
nobody.

So whatever calls a program on several devices calls it by `in_turn`. What the host does between two calls
goes on beside the first one's computation. Accelerators have queues of their own, and are not waited for.
"""

import threading
from collections.abc import Callable
from typing import Any

import jax

from saddle_jax.devices import policy

_turn = threading.Lock()
_running: Any = None  # the smallest result of the last program on several devices: it is there when all are


def in_turn(program: Callable[..., Any], *arguments: Any) -> Any:
    """program(*arguments), called on CPUs when the program on several devices before it has ended.

    Buffers may be donated to programs that are called by this function alone: it waits for what they return.
    """
    global _running
    if not policy.programs_take_turns():
        return program(*arguments)
    with _turn:
        jax.block_until_ready(_running)
        _running = None
        results = program(*arguments)
        spread = [x for x in jax.tree.leaves(results) if isinstance(x, jax.Array) and len(x.devices()) > 1]
        _running = min(spread, key=lambda x: x.size, default=None)
    return results
