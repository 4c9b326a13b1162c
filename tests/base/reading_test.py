"""One reader for files that may be anybody's: it has one error, in one line, and never waits."""

import io
import json
import os
import struct
import zipfile

import numpy as np
import pytest
from damage import CONTENTS

from saddle_jax.base import reading as base_reading
from saddle_jax.base.errors import MISTAKE, DamagedError, RunError, printable, status_of
from saddle_jax.base.reading import open_to_read, read_arrays, read_object, reading


def test_an_object_is_read_and_a_missing_file_is_none(tmp_path):
    (tmp_path / "a.json").write_text('{"a": [1, 2.5, null, "\\u00e9"]}')
    assert read_object(tmp_path / "a.json") == {"a": [1, 2.5, None, "é"]}
    assert read_object(tmp_path / "b.json") is None
    (tmp_path / "link.json").symlink_to("a.json")  # a link to a file is that file
    assert read_object(tmp_path / "link.json") == read_object(tmp_path / "a.json")


@pytest.mark.parametrize("kind", sorted({*CONTENTS} - {"empty object", "rather deep", "control characters"}))
def test_what_is_no_object_is_told_in_one_line(kind, tmp_path):
    (tmp_path / "a.json").write_bytes(CONTENTS[kind])
    with pytest.raises(DamagedError) as caught:
        read_object(tmp_path / "a.json")
    assert str(caught.value).startswith(f"{tmp_path / 'a.json'} cannot be read: ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_brackets_that_can_be_parsed_are_still_too_deep(tmp_path):
    (tmp_path / "a.json").write_bytes(CONTENTS["rather deep"])
    with pytest.raises(DamagedError, match="nested deeper than 64 levels"):
        read_object(tmp_path / "a.json")


@pytest.mark.parametrize("digits", [39, 41, 4000, 10_000])
def test_numbers_that_would_overflow_are_refused(digits, tmp_path):
    (tmp_path / "a.json").write_text(f'{{"a": {"9" * digits}}}')
    if digits == 39:
        assert read_object(tmp_path / "a.json") == {"a": 10**39 - 1}
        return
    with pytest.raises(DamagedError, match=f"a number has {digits:,} digits"):
        read_object(tmp_path / "a.json")


def test_what_is_no_file_hangs_nobody(tmp_path):
    places = {"pipe": "a pipe", "folder": "a folder", "endless": "a device", "loop": ""}
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to("loop")
    for name, kind in places.items():
        for read in (read_object, open_to_read, lambda path: read_arrays(path, ["x"])):
            with pytest.raises(DamagedError, match=f"cannot be read: .*{kind}"):
                read(tmp_path / name)


def huge_header():
    """An archive whose one array claims to have 8 TB."""
    header = "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"
    header = header.ljust(118) + "\n"
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("x.npy", content)
    return buffer.getvalue()


def whole():
    buffer = io.BytesIO()
    np.savez(buffer, x=np.arange(3.0))
    return bytearray(buffer.getvalue())


def with_byte(offset, value):
    data = whole()
    place = data.index(b"PK\x01\x02") + offset  # in the central directory
    data[place] = value
    return bytes(data)


@pytest.mark.parametrize(
    "content",
    [b"", b"PK", huge_header(), with_byte(8, 1), with_byte(10, 99), bytes(whole()[:-30]), CONTENTS["pickle"]],
    ids=["empty", "torn", "8 TB", "encrypted", "unknown compression", "cut", "pickle"],
)
def test_archives_that_are_none_are_told(content, tmp_path):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DamagedError, match=r"a\.npz cannot be read: "):
        read_arrays(tmp_path / "a.npz", ["x"])


def test_arrays_are_read(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(3), y=np.ones((2, 2), np.float32))
    x, y = read_arrays(tmp_path / "a.npz", ["x", "y"])
    np.testing.assert_array_equal(x, [0, 1, 2])
    assert y.dtype == np.float64
    with pytest.raises(DamagedError, match="z"):
        read_arrays(tmp_path / "a.npz", ["z"])


def test_what_goes_wrong_in_a_content_is_one_error_with_its_remedy(tmp_path):
    for kind in (KeyError, TypeError, OverflowError, RecursionError, AttributeError):
        with (
            pytest.raises(DamagedError, match=r"a cannot be read: '?x'?; remove it"),
            reading("a", "remove it"),
        ):
            raise kind("x")
    with pytest.raises(ZeroDivisionError), reading("a"):  # a bug keeps its own name
        raise ZeroDivisionError


def test_too_little_memory_is_no_damage(tmp_path, monkeypatch):
    (tmp_path / "a.json").write_text("{}")

    def lacking(content):
        raise MemoryError

    monkeypatch.setattr(base_reading, "parse", lacking)
    with pytest.raises(RunError, match=r"a\.json cannot be read: this process has too little memory") as told:
        read_object(tmp_path / "a.json")
    assert status_of(told.value) == MISTAKE


def test_control_characters_are_escaped():
    assert printable("a\x1b[2J\x07\n\ud800é") == "a\\x1b[2J\\x07\\n\\ud800é"


def archive_of(**members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return buffer.getvalue()


def header_of(shape, descr="'<f8'", version=b"\x01\x00"):
    """What stands before the data of an array that claims this shape."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    size = struct.pack("<H" if version == b"\x01\x00" else "<I", len(header))
    return b"\x93NUMPY" + version + size + header.encode()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (
            header_of("(134217728,)") + bytes(2**20),
            "at most 4,194,304 numbers of up to 16 bytes, got 134,2",
        ),
        (header_of("(2,)", "('<f8', (1000000,))"), "got 2 of 8,000,000 bytes"),
        (header_of("(2,)", "'<U5000000'"), "got 2 of 20,000,000 bytes"),
        (header_of("(2,)", version=b"\x02\x00") + bytes(16), "must be an array of numbers"),
        (header_of("(-3,)"), "cannot be read"),
        (header_of("(2,)", "'|O'"), "Object arrays cannot be loaded"),
    ],
)
def test_an_array_is_refused_by_its_header(content, told, tmp_path):
    (tmp_path / "a.npz").write_bytes(archive_of(x=content))
    with pytest.raises(DamagedError, match=told):
        read_arrays(tmp_path / "a.npz", ["x"])


def test_the_largest_landscape_is_read(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", loss=np.zeros((1, 2001, 2001)))
    (loss,) = read_arrays(tmp_path / "a.npz", ["loss"])
    assert loss.shape == (1, 2001, 2001)


def test_an_archive_of_very_many_arrays_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        for number in range(2000):
            archive.writestr(f"{number}.npy", b"")
    with pytest.raises(DamagedError, match="its list of arrays must have at most 65,536 bytes"):
        read_arrays(tmp_path / "a.npz", ["0"])
    content = archive_of(x=header_of("(0,)"))  # the same list, said to be as long as a larger number says
    (tmp_path / "a.npz").write_bytes(content[:-22] + b"PK\x06\x07" + bytes(16) + content[-22:])
    with pytest.raises(DamagedError, match="it must be an archive of NumPy"):
        read_arrays(tmp_path / "a.npz", ["x"])


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('{"a": "' + "x" * 2**24 + '"}', "it has more than 16,777,216 bytes"),
        ('{"a": [' + "[]," * 300_000 + "1]}", "it has more than 250,000 objects, lists and names"),
        ('{"a": [' + "1," * 2_000_000 + "1]}", "it has more than 1,500,000 values"),
    ],
    ids=["long", "lists", "values"],
)
def test_json_is_bounded_by_what_it_becomes(content, told, tmp_path):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(DamagedError, match=told):
        read_object(tmp_path / "a.json")


def test_json_of_ten_thousand_agents_is_read(tmp_path):
    counts = [[number % 500] * 100 for number in range(10_000)]
    (tmp_path / "a.json").write_text(json.dumps({"class_counts": counts}, indent=1))
    assert read_object(tmp_path / "a.json") == {"class_counts": counts}
