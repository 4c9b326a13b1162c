"""C++ that is compiled at its first use: once, for this machine, in a folder that is the user's alone."""

import concurrent.futures
import os
import shlex
import shutil

import pytest

from saddle_jax.kernels import native

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, native._COMPILERS)), reason="there is no C++ compiler"
)


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.setenv("SADDLE_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "answer.cc"
    path.write_text('extern "C" int answer() { return 42; }')
    return path


def libraries(source):
    return sorted((source.parent / "cache" / "native").iterdir())


def test_a_source_is_compiled_once(source, monkeypatch):
    first = native.load(source)
    assert first.functions.answer() == 42
    (path,) = libraries(source)
    assert path.stat().st_mode & 0o077 == 0
    monkeypatch.setattr(native, "_compiled", None)
    again = native.load(source)
    assert (again.key, again.functions.answer()) == (first.key, 42)


@pytest.mark.parametrize("content", [b"", b"not a library"])
def test_a_damaged_library_is_made_again(source, content):
    native.load(source)
    (path,) = libraries(source)
    path.unlink()  # it is mapped into this process
    path.write_bytes(content)
    assert native.load(source).functions.answer() == 42
    assert libraries(source) == [path]
    assert path.read_bytes() != content


def test_another_source_is_another_library(source):
    first = native.load(source)
    source.write_text('extern "C" int answer() { return 43; }')
    second = native.load(source)
    assert first.key != second.key
    assert (first.functions.answer(), second.functions.answer()) == (42, 43)


def test_another_header_is_another_library(source):
    header = source.with_name("answer.h")
    header.write_text("constexpr int kAnswer = 42;")
    source.write_text('#include "answer.h"\nextern "C" int answer() { return kAnswer; }')
    first = native.load(source)
    header.write_text("constexpr int kAnswer = 43;")
    second = native.load(source)
    assert first.key != second.key
    assert (first.functions.answer(), second.functions.answer()) == (42, 43)


def test_two_that_compile_at_once_do_not_disturb_each_other(source):
    """As processes do, threads share nothing here but the folder."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        loaded = list(pool.map(native.load, [source] * 2))
    assert [library.functions.answer() for library in (*loaded, native.load(source))] == [42] * 3
    assert not [path for path in libraries(source) if path.suffix != ".so"]


def test_a_folder_that_others_may_write_to_is_refused(source):
    native.load(source)
    folder = source.parent / "cache" / "native"
    for mode in (0o777, 0o770, 0o702):
        folder.chmod(mode)
        with pytest.raises(native.UnavailableError, match="native must be a folder that only you can write"):
            native.load(source)
    folder.chmod(0o700)
    assert native.load(source).functions.answer() == 42
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to("elsewhere")
    with pytest.raises(native.UnavailableError, match="native must be a folder"):
        native.load(source)


def test_another_users_folder_is_refused(source, monkeypatch):
    native.load(source)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(native.UnavailableError, match="native must be a folder that only you can write"):
        native.load(source)


def test_a_library_that_others_may_write_to_is_made_again(source):
    native.load(source)
    (path,) = libraries(source)
    path.chmod(0o777)
    assert native.load(source).functions.answer() == 42
    assert path.stat().st_mode & 0o077 == 0


def test_what_is_missing_is_said_in_one_line(source, monkeypatch):
    source.write_text("this is no C++")
    with pytest.raises(native.UnavailableError, match=r"failed on answer\.cc: .*error: .*") as found:
        native.load(source)
    assert "\n" not in str(found.value)
    monkeypatch.setenv("SADDLE_CACHE_DIR", str(source))
    with pytest.raises(native.UnavailableError, match=r"native cannot be made: .*; set SADDLE_CACHE_DIR"):
        native.load(source)
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(native.UnavailableError, match=r"no C\+\+ compiler was found \(no-such-compiler\)"):
        native.load(source)
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(native.UnavailableError, match=r"does not compile C\+\+17 for this machine"):
        native.load(source)


def test_signs_in_a_command_mean_nothing(source, monkeypatch):
    monkeypatch.setenv("CXX", f"true; touch {source.parent}/made")
    with pytest.raises(native.UnavailableError, match="no C"):
        native.load(source)
    assert not (source.parent / "made").exists()


def test_a_compiler_may_have_options_or_another_command_before_it(source, monkeypatch):
    found = next(filter(None, map(shutil.which, native._COMPILERS)))
    source.write_text('extern "C" int answer() { return ANSWER; }')
    for before, answer in ((shlex.quote(found), 42), (f"env {shlex.quote(found)}", 43)):
        monkeypatch.setenv("CXX", f"{before} -DANSWER={answer}")
        assert native.load(source).functions.answer() == answer


def test_what_is_no_compiler_is_blamed_itself(source, monkeypatch):
    monkeypatch.setenv("CXX", shutil.which("true"))
    with pytest.raises(native.UnavailableError, match=r"/true is no C\+\+ compiler: it made nothing of ans"):
        native.load(source)
    monkeypatch.setenv("CXX", "g++ 'x")
    with pytest.raises(native.UnavailableError, match=r"CXX must be a command, got .*: No closing quot"):
        native.load(source)


def test_nothing_is_loaded_where_others_can_swap_the_folder(source):
    native.load(source)
    cache = source.parent / "cache"
    cache.chmod(0o777)
    with pytest.raises(native.UnavailableError, match=r"others can change .*cache; set SADDLE_CACHE_DIR"):
        native.load(source)
    cache.chmod(0o1777)
    assert native.load(source).functions.answer() == 42
