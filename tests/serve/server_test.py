"""What the server of `saddle serve` refuses: other sites, methods and files; how it starts and ends."""

import dataclasses
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import time

import folders
import pytest
from browser import Tree
from damage import CONTENTS, swapped
from serving import ask, served

from saddle_jax.cli import __main__ as cli
from saddle_jax.serve.listed import STATES
from saddle_jax.serve.pages import Site
from saddle_jax.serve.scan import Runs
from saddle_jax.serve.server import names_of, refusal


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "runs"
    folders.write_run(folder / "one")
    folders.write_run(folder / "two" / "deep")
    (folder.parent / "secret.txt").write_text("secret")
    with served(folder) as number:
        yield number


def keys_of(port):
    return [found["value"] for found, _ in Tree(ask(port).text).find("input", name="run")]


# ---- Whom it answers


def test_names_of_this_machine_are_answered(port):
    for host in (
        "127.0.0.1",
        f"127.0.0.1:{port}",
        f"localhost:{port}",
        "LOCALHOST",
        "localhost.",
        "[::1]:80",
    ):
        assert ask(port, Host=host).status == 200, host


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "127.0.0.1.evil.example", "evil.example:8765", "localhost.evil.example", ""),
        *("10.0.0.1", "0.0.0.0", "[::ffff:10.0.0.1]", "localhost@evil.example", "evil.example@localhost"),
        *("localhost/evil", "[::1", "localhost:port", "127.1", "2130706433", "localhost:99999"),
    ],
)
def test_foreign_hosts_are_refused(port, host):
    answer = ask(port, Host=host)
    assert (answer.status, answer.text) == (403, "this server does not answer for that host\n")


def test_two_hosts_or_none_are_refused(port):
    assert ask(port, Host=["localhost", "evil.example"]).status == 403
    with socket.create_connection(("127.0.0.1", port)) as raw:
        raw.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 403")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1"},
        {"Origin": "http://localhost:1"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "cors"},
        {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "image"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"},
    ],
    ids=str,
)
@pytest.mark.parametrize("path", ["/", "/updates"])
def test_other_sites_are_refused(port, path, headers):
    answer = ask(port, path, **headers)
    assert (answer.status, answer.text) == (403, "this server does not answer other sites\n")


def test_the_own_site_and_links_to_it_are_answered(port):
    assert ask(port, Origin=f"http://127.0.0.1:{port}").status == 200
    assert ask(port, Sec_Fetch_Site="same-origin", Sec_Fetch_Mode="cors").status == 200
    link = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert ask(port, **link).status == 200


def test_a_server_for_all_addresses_answers_addresses_but_no_foreign_names():
    import email.message

    def refused(host, names):
        headers = email.message.Message()
        headers["Host"] = host
        return bool(refusal(headers, names))

    everywhere = names_of("0.0.0.0")
    assert not refused("192.168.7.7:8765", everywhere)
    assert not refused(f"{socket.gethostname()}:80", everywhere)
    assert refused("evil.example", everywhere)
    assert not refused("lab.example", names_of("lab.example"))
    assert refused("192.168.7.7", names_of("lab.example"))


# ---- What it answers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW"])
def test_only_reading_is_answered(port, method):
    answer = ask(port, "/", method)
    assert answer.status == 405
    assert answer.headers["Allow"] == "GET, HEAD"


def test_head_is_get_without_content(port):
    get, head = ask(port), ask(port, method="HEAD")
    assert (head.status, head.text) == (200, "")
    assert head.headers["Content-Length"] == get.headers["Content-Length"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/../secret.txt", 404),
        ("/..%2f..%2fsecret.txt", 404),
        ("/one/config.json", 404),
        ("/runs", 200),  # nothing was ticked: the list
        ("/runs?run=../secret", 404),
        ("/runs?run=one", 404),
        ("/runs?run=0000000000000000", 404),
        ("/runs?run=", 200),
        ("/runs?file=/etc/passwd", 400),
        ("/runs?" + "&".join(["run=0"] * 300), 400),
        ("/?run=x", 404),
        ("/updates?run=..", 404),
        ("//evil.example/", 404),
        ("http://evil.example/", 400),
        ("/%00", 404),
        ("/\x7f", 404),
        ("//[", 404),
    ],
)
def test_nothing_else_has_an_address(port, path, status):
    with socket.create_connection(("127.0.0.1", port)) as raw:
        raw.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: raw.recv(65536), b""))
    assert answer.startswith(f"HTTP/1.1 {status}".encode()), answer[:80]
    assert b"secret" not in answer.split(b"\r\n\r\n", 1)[1]


def test_every_answer_has_a_policy(port):
    answers = [
        ask(port),
        ask(port, "/updates"),
        ask(port, f"/runs?run={keys_of(port)[0]}"),
        ask(port, "/updates", If_None_Match=ask(port, "/updates").headers["ETag"]),
        ask(port, "/nowhere"),
        ask(port, Host="evil.example"),
        ask(port, "/", "POST"),
        ask(port, "/", "BREW"),
        ask(port, "/" + "x" * 70_000),
    ]
    assert [answer.status for answer in answers] == [200, 200, 200, 304, 404, 403, 405, 405, 414]
    for answer in answers:
        (policy,) = answer.headers.get_all("Content-Security-Policy")
        assert policy.startswith("default-src 'none'")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "Access-Control-Allow-Origin" not in answer.headers


def test_nonsense_is_told_and_hangs_nobody(port):
    for line in (
        b"\r\n",
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x02\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as raw:
            raw.sendall(line)
            raw.shutdown(socket.SHUT_WR)
            while raw.recv(65536):
                pass
    assert ask(port).status == 200


# ---- What it reads


def states(folder):
    return {entry.name: (entry.state, entry.why) for entry in Runs(folder).entries()}


def test_links_that_lead_out_are_not_followed(tmp_path):
    outside = folders.write_run(tmp_path / "outside")
    inside = folders.write_run(tmp_path / "runs" / "inside")
    (inside / "metrics.jsonl").unlink()
    (inside / "metrics.jsonl").symlink_to(outside / "metrics.jsonl")
    (tmp_path / "runs" / "whole").symlink_to(outside)
    within = folders.write_run(tmp_path / "runs" / "within")
    (within / "paper.json").symlink_to(within / "result.json")
    replicas = folders.write_run(tmp_path / "runs" / "several")
    (replicas / "sharpness-1.json").symlink_to(outside / "result.json")
    assert states(tmp_path / "runs") == {
        "inside": ("unreadable", "metrics.jsonl is a link that leads out of the folder: it is not read"),
        "several": ("unreadable", "sharpness-1.json is a link that leads out of the folder: it is not read"),
        "within": ("finished", ""),
    }
    with served(tmp_path / "runs") as port:
        # It may have become a link after it was listed: nothing of it is shown then either.
        (key,) = keys_of(port)
        (within / "metrics.jsonl").unlink()
        (within / "metrics.jsonl").symlink_to(outside / "metrics.jsonl")
        text = ask(port, f"/runs?run={key}").text
        assert "is a link that leads out of the folder" in text
        assert "train_loss" not in text.split("<main")[1]


def test_one_damaged_run_spoils_no_other(tmp_path):
    folders.write_run(tmp_path / "good")
    folders.write_run(tmp_path / "hurt", status="interrupted")
    folders.write_run(tmp_path / "cut", status=None)
    folders.write_run(tmp_path / "lost", status="diverged", result={"diverged_at_step": 3})
    os.mkfifo(folders.write_run(tmp_path / "pipe", lines=[]) / "paper.json")
    bad = folders.write_run(tmp_path / "bad")
    (bad / "metrics.jsonl").write_text('{"step": "x\\u001b[2J", "epoch": 1}\n')
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "config.json").write_text("[" * 100_000)
    found = states(tmp_path)
    assert {name: state for name, (state, _) in found.items()} == {
        "bad": "unreadable",
        "cut": "interrupted",
        "good": "finished",
        "hurt": "interrupted",
        "lost": "diverged",
        "pipe": "finished",
        "torn": "unreadable",
    }
    assert "\x1b" not in found["bad"][1]
    assert str(tmp_path) not in found["bad"][1]  # where the folder lies is nobody's business
    with served(tmp_path) as port:
        tree = Tree(ask(port).text)
        assert tree.find("p", id="summary")[0][1].startswith("7 runs: 2 finished, 1 diverged, 2 interrupted")
        keys = keys_of(port)
        assert len(keys) == 5
        answer = ask(port, f"/runs?{'&'.join(f'run={key}' for key in keys)}")
        assert answer.status == 200
        assert "it is a pipe" in answer.text  # and the others are shown
        assert [found["id"] for found, _ in Tree(answer.text).find("section")][:2] == ["results", "curves"]


@pytest.mark.parametrize(
    "name", ["config.json", "metrics.jsonl", "result.json", "sharpness.json", "paper.json"]
)
def test_whatever_stands_in_a_file_is_answered(tmp_path, name):
    """Bytes that no run writes, and values of other kinds in the places of ours."""
    folders.write_run(tmp_path / "sound", sharpness={"stages": []}, paper={"table": "1"})
    chance = random.Random(name)
    content = (tmp_path / "sound" / name).read_text().splitlines()[0]
    bad = list(CONTENTS.values())
    for _ in range(20):
        changed, _ = swapped(json.loads(content), chance)
        bad.append(json.dumps(changed).encode("utf-8", errors="surrogatepass"))
    site = Site(tmp_path)
    for number, each in enumerate(bad):
        run = folders.write_run(tmp_path / f"bad{number}", sharpness={"stages": []}, paper={"table": "1"})
        (run / name).write_bytes(each)
    entries = Runs(tmp_path).entries()
    assert len(entries) == len(bad) + 1
    assert site.page([]).status == 200
    for entry in entries:
        for answer in (site.page([entry.key]), site.updates([entry.key], "")):
            assert answer.status == 200, (entry.name, bad)
            answer.text.encode("utf-8", errors="backslashreplace")
    assert {entry.state for entry in entries} <= {*STATES}
    assert next(entry.state for entry in entries if entry.name == "sound") == "finished"


def test_numbers_and_times_beyond_all_bounds_are_answered(tmp_path):
    for seed in range(3):
        lines = folders.metrics()
        for line in lines:
            line["train_loss"] = 1.7e308  # finite, but no sum of them is
        run = folders.write_run(
            tmp_path / str(seed), dataclasses.replace(folders.SMALL, seed=seed), lines=lines
        )
        os.utime(run / "metrics.jsonl", (0, 2**40))
    site = Site(tmp_path)
    keys = [entry.key for entry in Runs(tmp_path).entries()]
    assert (site.page([]).status, site.page(keys).status, site.updates(keys, "").status) == (200, 200, 200)


def test_a_bug_is_told_on_both_sides(tmp_path, monkeypatch, capsys):
    folders.write_run(tmp_path / "run")
    with served(tmp_path) as port:
        monkeypatch.setattr("saddle_jax.serve.pages.list_page", lambda *arguments: 1 / 0)
        answer = ask(port)
    assert (answer.status, answer.text.startswith("this is a bug of saddle_jax")) == (500, True)
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    told, deadline = "", time.monotonic() + 30
    while "ZeroDivisionError" not in told:  # the answer comes first
        told += capsys.readouterr().err
        assert time.monotonic() < deadline, told


def test_hostile_names_stay_text_and_keys_tell_nothing(tmp_path):
    nasty = "<img src=x onerror=alert(1)>\"'&\x1b[31m\n"
    folders.write_run(tmp_path / "runs" / nasty)
    with served(tmp_path / "runs") as port:
        text = ask(port).text
        tree = Tree(text)
        assert not tree.find("img")
        assert "\x1b" not in text
        assert any(r"onerror=alert(1)>" in said for _, said in tree.find("td"))
        (key,) = keys_of(port)
        assert re.fullmatch("[0-9a-f]{16}", key)
        for path in (f"/runs?run={key}", f"/updates?run={key}"):
            answer = ask(port, path)
            assert answer.status == 200
            content = json.loads(answer.text)["sections"] if "updates" in path else [{"text": answer.text}]
            for part in content:
                inner = Tree(part["text"])
                assert not inner.find("img")
                assert not any(name.startswith("on") for _, found, _ in inner.elements for name in found)


def test_nothing_is_written(tmp_path):
    run = folders.write_run(tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with served(tmp_path) as port:
        (key,) = keys_of(port)
        assert ask(port, f"/runs?run={key}").status == 200
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert run in before


# ---- What is new


def test_what_has_not_changed_is_not_sent_again_and_not_read_again(tmp_path, monkeypatch):
    run = folders.write_run(tmp_path / "run", status=None)
    with served(tmp_path) as port:
        (key,) = keys_of(port)
        for path in ("/updates", f"/updates?run={key}"):
            first = ask(port, path)
            again = ask(port, path, If_None_Match=first.headers["ETag"])
            assert (first.status, again.status, again.text) == (200, 304, "")
            with (run / "metrics.jsonl").open("a") as file:
                file.write('{"step": 99, "epoch": 9, "train_loss": 0.125}\n')
            fresh = ask(port, path, If_None_Match=first.headers["ETag"])
            assert fresh.status == 200
            assert fresh.headers["ETag"] != first.headers["ETag"]
        assert json.loads(fresh.text)["data"]["runs"][0]["columns"]["train_loss"][-2:] == [0.125, 0.125]
        page = Tree(ask(port, f"/runs?run={key}").text).find("body")[0][0]
        assert page["data-version"] == fresh.headers["ETag"]
    runs = Runs(tmp_path)
    assert len(runs.entries()) == 1
    monkeypatch.setattr("saddle_jax.serve.scan._summary", lambda *arguments: pytest.fail("read again"))
    assert len(runs.entries()) == 1


# ---- The command


def test_mistakes_are_one_line(tmp_path, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        mistakes = {
            (tmp_path / "nowhere",): "DIR must be a folder, got",
            (): "arguments must be DIR and options, got nothing",
            (tmp_path, f"--port={number}"): "Address already in use; --port=0 takes any port that is free",
            (tmp_path, "--port=70000"): "port",
            (tmp_path, "--host=no.such.host.invalid"): "host and port must be free, and this machine's",
        }
        for arguments, said in mistakes.items():
            assert cli.main(["saddle", "serve", *map(str, arguments)]) == 2
            error = capsys.readouterr().err
            assert said in error
            assert error.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_interrupted(tmp_path, number):
    folders.write_run(tmp_path / "run")
    command = [sys.executable, "-m", "saddle_jax.cli", "serve", str(tmp_path), "--port=0"]
    root = pathlib.Path(__file__).resolve().parents[2]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=root, text=True, **pipes) as process:
        line = process.stdout.readline()
        port = int(re.fullmatch(r"page: http://127\.0\.0\.1:(\d+)/  \(Ctrl-C ends it\)\n", line)[1])
        assert ask(port).status == 200
        process.send_signal(number)
        out, error = process.communicate(timeout=30)
    assert (process.returncode, out, error) == (130, "", "saddle: interrupted\n")
