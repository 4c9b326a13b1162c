"""What to change so that a run fits its devices; each change is tried on our estimate before it is told.

The estimate is corrected by what the compiler needed for the run as it is.
"""

import dataclasses
from collections.abc import Callable

from saddle_jax.core.ledger import readable
from saddle_jax.devices import placement as placements
from saddle_jax.devices import policy
from saddle_jax.settings.config import Config
from saddle_jax.training import memory
from saddle_jax.training.build import make
from saddle_jax.training.program import Program

_LAST = ("fewer agents, a smaller model or devices with more memory",)


def remedies(program: Program, working: int, room: int) -> tuple[str, ...]:
    """Returns lines that each say what would suffice.

    `working` are the bytes of working memory that the compiler needed, `room` those that each device has.
    """
    excess = working / max(1, memory.estimate(program).working)

    def needed(changed: Program) -> int:
        told = memory.estimate(changed)
        return told.carried + told.data + int(excess * told.working)

    found = [remedy(program, needed, room) for remedy in (_group, _devices, _compressor)]
    lines = [line for line in found if line] or [_batch(program, needed, room)]
    return tuple(line for line in lines if line) or _LAST


_Needed = Callable[[Program], int]


def _group(program: Program, needed: _Needed, room: int) -> str:
    """Says which smaller group suffices, the largest one."""
    at_a_time = program.group * program.at_once
    while at_a_time > 1:
        at_a_time //= 2
        smaller = _with(program, group=at_a_time)
        if (bytes_needed := needed(smaller)) <= room:
            return f"group={at_a_time}: about {readable(bytes_needed)}, with {at_a_time} agents at a time"
    return ""


def _devices(program: Program, needed: _Needed, room: int) -> str:
    """Says how many devices suffice, the fewest."""
    config, batch = program.config, program.replica.batches.size
    if policy.devices_share_memory():  # more of them bring no more of it
        return ""
    used = program.placement.devices * program.placement.batch_devices

    def on(count: int) -> Program:
        own = dataclasses.replace(config, group=0, devices="auto")
        return Program(own, program.replicas, placements.spread(config.agents, batch, count))

    counts = [*range(used + 1, config.agents + 1), *(config.agents * n for n in range(2, batch + 1))]
    counts = [count for count in counts if count > used]
    low, high = 0, len(counts)
    while low < high:  # more devices never need more of each
        middle = (low + high) // 2
        low, high = (low, middle) if needed(on(counts[middle])) <= room else (middle + 1, high)
    if low == len(counts):
        return ""
    enough = on(counts[low])
    also = " and group=0" if config.group else ""
    return f"{counts[low]} such devices{also} instead of {used}: about {readable(needed(enough))} on each"


def _compressor(program: Program, needed: _Needed, room: int) -> str:
    """Says whether it suffices to compress nothing: methods then remember no public copies of models."""
    if program.config.compressor == "none":
        return ""
    plain = dataclasses.replace(program.config, compressor="none")
    bytes_needed = needed(_made_again(program, plain))
    return f"compressor=none: about {readable(bytes_needed)}" if bytes_needed <= room else ""


def _batch(program: Program, needed: _Needed, room: int) -> str:
    """Says which smaller batch suffices, the largest one; it is the last resort, since it changes the run."""
    size = program.config.batch_size
    while size > 1:
        size //= 2
        smaller = _made_again(program, dataclasses.replace(program.config, batch_size=size))
        if (bytes_needed := needed(smaller)) <= room:
            return f"batch_size={size}: about {readable(bytes_needed)}, but what is learned changes with it"
    return ""


def _with(program: Program, group: int) -> Program:
    return Program(dataclasses.replace(program.config, group=group), program.replicas, program.placement)


def _made_again(program: Program, config: Config) -> Program:
    replicas = tuple(make(each, program.replica.parts) for each in config.each())
    return Program(config, replicas, program.placement)
