"""Parsing the text of a compiled XLA program: its collectives, kernels and convolution windows.

XLA prints a compiled program as computations with one instruction per line:

    %name = f32[3,16]{1,0} opcode(operands), attribute=value, ...

An asynchronous collective has a start and a done instruction; only the start counts.
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
# Instructions that transfer data from or to the host.
HOST = ("infeed", "outfeed", "send", "recv")

# The library or XLA kernel behind the target of a custom call; other targets keep their name.
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
    """One instruction: the shape of its result, its opcode, and the rest of the line."""

    shape: str
    opcode: str
    rest: str
    is_fused: bool  # part of another instruction's kernel


class Collective(NamedTuple):
    """One collective: its kind, the first shape received, and the bytes received."""

    kind: str
    shape: str
    bytes: int


def instructions(text: str) -> Iterator[Instruction]:
    """Yields the instructions of a compiled program, also those inside fused kernels."""
    fused = set(_FUSED.findall(text))
    within = ""
    for line in text.splitlines():
        if opening := _COMPUTATION.match(line):  # only these lines are not indented
            within = opening[1]
        elif found := _INSTRUCTION.match(line):
            yield Instruction(found[1], found[2], found[3], within in fused)


def collectives(text: str) -> list[Collective]:
    """Returns the collectives in the program's order."""
    found = []
    for one in instructions(text):
        kind = one.opcode.removesuffix("-start")
        if kind in COLLECTIVES:
            shapes = _SHAPE.findall(one.shape)
            # The result of a start holds its operands, its results and context for the done.
            arriving = shapes[len(shapes) // 2 :] if one.opcode != kind and len(shapes) > 1 else shapes
            if one.opcode == "collective-permute-start":
                arriving = shapes[1:2]
            sizes = [_bytes(dtype, extents) for dtype, extents in arriving]
            found.append(Collective(kind, f"{arriving[0][0]}[{arriving[0][1]}]", sum(sizes)))
    return found


def kernels(text: str) -> dict[str, int]:
    """Counts the kernels of a program by kind, the most frequent first.

    Convolutions and matrix products also count inside fused kernels; all other kernels that XLA generates are
    "fused kernel". A kernel in a loop counts once.
    """
    counted: collections.Counter[str] = collections.Counter()
    for one in instructions(text):
        kind = _kind(one)
        if kind is not None:
            counted[kind] += 1
    return dict(counted.most_common())


def largest_window(text: str) -> int:
    """Returns the longest side of any convolution's window; 0 without convolutions."""
    sides = [
        int(side)
        for one in instructions(text)
        if (_kind(one) or "").startswith("convolution") and (window := _WINDOW.search(one.rest))
        for side in window[1].split("x")
    ]
    return max(sides, default=0)


def _kind(one: Instruction) -> str | None:
    """Returns an instruction's kind of kernel; None for collectives and instructions without a kernel."""
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
