"""What the server of `saddle serve` refuses: other sites, methods and files; how it starts and ends."""

import json
import re
import signal
import socket

import folders
import forked
import pytest
from browser import Tree
from serving import ask, keys_of, served

from saddle_jax.cli import __main__ as cli
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
    monkeypatch.setattr("saddle_jax.serve.scan.listed", lambda *arguments: pytest.fail("read again"))
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
    command = forked.Command("serve", tmp_path, "--port=0")
    shown = re.fullmatch(r"page: http://127\.0\.0\.1:(\d+)/  \(Ctrl-C ends it\)\n", command.line())
    assert ask(int(shown[1])).status == 200
    command.interrupt(number)
    done = command.end()
    assert (done.returncode, done.stdout, done.stderr) == (130, shown[0], "saddle: interrupted\n")
