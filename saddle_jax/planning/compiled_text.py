"""What a compiled program says of itself: its collectives, its kernels and the windows of its convolutions.

XLA prints a compiled program as computations of one instruction a line:

    %name = f32[3,16]{1,0} opcode(operands), attribute=value, ...

Collectives that run beside other work have a start and a done; only the start counts.
"""

import collections
import math
import re
from collections.abc import Iterator
from typing import NamedTuple

COLLECTIVES = (
    "all-gather",
    "all-reduce",
    "all-to-all",
    "collective-broadcast",
    "collective-permute",
    "ragged-all-to-all",
    "reduce-scatter",
)
# Instructions that wait for the host, or send to it.
HOST = ("infeed", "outfeed", "send", "recv")

# Where a library or a kernel of XLA's own is called, the target says which; anything else keeps its own name.
_CALLS = {
    "__cudnn$convForward": "convolution",
    "__cudnn$convBiasActivationForward": "convolution",
    "__cudnn$convBackwardInput": "convolution input gradient",
    "__cudnn$convBackwardFilter": "convolution kernel gradient",
    "__cublas$gemm": "matrix product",
    "__cublas$lt$matmul": "matrix product",
}
_KINDS = {
    "convolution": "convolution",
    "dot": "matrix product",
    "while": "loop",
    "sort": "sort",
    "fft": "fft",
}
_COPIES = ("copy", "copy-start", "transpose")

_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?[\w.-]+ = (\(.*?\)|\S+) ([a-z][\w-]*)\((.*)$")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.-]+) .*\{\s*$")
_SHAPE = re.compile(r"\b(pred|[a-z]+\d+\w*)\[([\d,]*)\]")
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
_WINDOW = re.compile(r"window=\{size=([\dx]+)")
_FUSED = re.compile(r"\bfusion\(.*\bcalls=%?([\w.-]+)")


class Instruction(NamedTuple):
    """One line of a program: what it gives, what it does, and the rest of the line."""

    shape: str
    opcode: str
    rest: str
    is_fused: bool  # it is part of another instruction's kernel


class Collective(NamedTuple):
    """One exchange between devices: its kind, the first of the shapes that arrive, and their bytes."""

    kind: str
    shape: str
    bytes: int


def instructions(text: str) -> Iterator[Instruction]:
    """Yields the instructions of a compiled program, those of its fused kernels too."""
    fused = set(_FUSED.findall(text))
    within = ""
    for line in text.splitlines():
        if opening := _COMPUTATION.match(line):  # only these lines begin at the margin
            within = opening[1]
        elif found := _INSTRUCTION.match(line):
            yield Instruction(found[1], found[2], found[3], within in fused)


def collectives(text: str) -> list[Collective]:
    """Returns the exchanges between devices, in the program's order."""
    found = []
    for one in instructions(text):
        kind = one.opcode.removesuffix("-start")
        if kind in COLLECTIVES:
            shapes = _SHAPE.findall(one.shape)
            # A start gives its operands, its results and what its done waits for.
            arriving = shapes[len(shapes) // 2 :] if one.opcode != kind and len(shapes) > 1 else shapes
            if one.opcode == "collective-permute-start":
                arriving = shapes[1:2]
            sizes = [_bytes(dtype, extents) for dtype, extents in arriving]
            found.append(Collective(kind, f"{arriving[0][0]}[{arriving[0][1]}]", sum(sizes)))
    return found


def kernels(text: str) -> dict[str, int]:
    """Counts what a program calls, by kind, the most frequent first.

    Convolutions and matrix products also count where they are part of a fused kernel; all other kernels that
    XLA writes itself are "fused kernel". What a loop calls counts once.
    """
    counted: collections.Counter[str] = collections.Counter()
    for one in instructions(text):
        kind = _kind(one)
        if kind is not None:
            counted[kind] += 1
    return dict(counted.most_common())


def largest_window(text: str) -> int:
    """Returns the longest side of any convolution's window; 0 where there is no convolution."""
    sides = [
        int(side)
        for one in instructions(text)
        if (_kind(one) or "").startswith("convolution") and (window := _WINDOW.search(one.rest))
        for side in window[1].split("x")
    ]
    return max(sides, default=0)


def _kind(one: Instruction) -> str | None:
    """Returns the kind of kernel that an instruction is; None where it is none, or an exchange."""
    if one.opcode == "custom-call":
        target = _TARGET.search(one.rest)
        name = target[1] if target else "unnamed"
        return _CALLS.get(name, f"call of {name}")
    if one.opcode in ("convolution", "dot"):
        return _KINDS[one.opcode]
    if one.is_fused:
        return None
    if one.opcode in HOST:
        return "host transfer"
    if one.opcode in _COPIES:
        return "copy"
    return "fused kernel" if one.opcode == "fusion" else _KINDS.get(one.opcode)


def _bytes(dtype: str, extents: str) -> int:
    count = math.prod(int(extent) for extent in extents.split(",") if extent)
    digits = re.search(r"\d+", dtype)
    return count if digits is None else count * int(digits[0]) // 8  # a bool takes a byte
