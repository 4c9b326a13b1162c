"""Hostile inputs, made from a seed: values and bytes that no run writes, and folders that have them."""

import copy
import json
import os
import random

# Values that stand where another one is expected.
VALUES = [
    None,
    True,
    -1,
    0,
    2**63,
    10**39,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x",
    "\x1b]0;owned\x07\x1b[2J",
    "../../etc/passwd",
    "\ud800",
    [],
    [1],
    [[[1]]],
    ["x", None, {}],
    {},
    {"x": 5},
    {"step": "a"},
]
# Contents that are no file of ours.
CONTENTS = {
    "empty": b"",
    "half": b'{"format": 5, "config": {"agents": 3',
    "deep": b"[" * 100_000,
    "deep object": b'{"a":' * 100_000,
    "rather deep": b'{"status":' + b"[" * 300 + b"]" * 300 + b"}",
    "digits": b'{"steps": ' + b"9" * 5000 + b"}",
    "4000 digits": b'{"steps": ' + b"9" * 4000 + b"}",
    "list": b"[]",
    "number": b"5",
    "text": b'"x"',
    "null": b"null",
    "no utf-8": b"\xff\xfe\x00",
    "utf-8 with a mark": b"\xef\xbb\xbf{}",
    "zeros": bytes(5000),
    "empty object": b"{}",
    "torn archive": b"PK\x03\x04",
    "pickle": b"\x80\x04\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.",
    "control characters": b'{"status": "\\u001b[2J"}',
}


def swapped(content, chance):
    """A copy of plain values in which one, anywhere, is another one or missing; says where."""
    content = copy.deepcopy(content)
    places = list(_places(content))
    holder, key, path = chance.choice(places)
    if chance.random() < 0.2:
        del holder[key]
        return content, f"{path} deleted"
    holder[key] = chance.choice(VALUES)
    return content, f"{path} = {holder[key]!r}"


def _places(content, path=""):
    keys = content if isinstance(content, dict) else range(len(content))
    for key in keys:
        yield content, key, f"{path}.{key}"
        if isinstance(content[key], dict | list):
            yield from _places(content[key], f"{path}.{key}")


def flipped(content, chance):
    """Bytes of which some are others, or that end too early."""
    data = bytearray(content)
    if not data or chance.random() < 0.3:
        return bytes(data[: chance.randrange(len(data) + 1)])
    for _ in range(chance.choice((1, 1, 8))):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


def damage(folder, name, chance):
    """Damages a file of a run's folder in one of many ways; returns which."""
    path = folder / name
    kind = chance.choice(("swap", "swap", "swap", "flip", "content", "special"))
    if kind == "swap" and name.endswith((".json", ".jsonl")):
        lines = path.read_text().splitlines() if name.endswith(".jsonl") else [path.read_text()]
        number = chance.randrange(len(lines))
        content, told = swapped(json.loads(lines[number]), chance)
        lines[number] = json.dumps(content)
        path.write_text("\n".join(lines) + "\n")
        return told
    if kind == "special":
        return _special(path, chance)
    if kind == "content":
        told = chance.choice(sorted(CONTENTS))
        path.write_bytes(CONTENTS[told])
        return told
    path.write_bytes(flipped(path.read_bytes(), chance))
    return "bytes"


def _special(path, chance):
    kind = chance.choice(
        ("pipe", "folder", "link to /dev/zero", "link to itself", "missing", "dangling link")
    )
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link to /dev/zero":
        path.symlink_to("/dev/zero")
    elif kind == "link to itself":
        path.symlink_to(path.name)
    elif kind == "dangling link":
        path.symlink_to("nowhere")
    return kind


def chances(seed, count):
    """Independent random numbers, one for each attempt, which the attempt's number alone decides."""
    return [random.Random(1_000_003 * seed + number) for number in range(count)]
