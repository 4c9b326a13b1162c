"""A small local web server: it answers GET and HEAD, never writes, and refuses requests from other sites.

A page of another site in the same browser can send requests here, and with DNS rebinding could even read the
answers. So the Host of a request must be one of this server's names, and an Origin, if there is one, must be
this server.
"""

import contextlib
import errno
import ipaddress
import socket
import socketserver
import sys
import threading
import time
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from saddle_jax.serve.pages import MOST_RUNS, Answer, Site
from saddle_jax.version import __version__

_MOST_CONNECTIONS = 256  # simultaneous connections; each has a thread and a file descriptor
_PAUSE = 0.1  # seconds
_SILENCE = 3.0  # seconds without a request, after which a connection may be closed
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def names_of(host: str) -> frozenset[str]:
    """Returns the allowed Host names for a server on this host; "*" stands for any IP address."""
    own = {host.lower().strip("[]")}
    if is_everywhere(host):
        with contextlib.suppress(OSError):
            own |= {"*", socket.gethostname().lower(), socket.getfqdn().lower()}
    return _LOOPBACK | own


def is_everywhere(host: str) -> bool:
    """Returns whether a host stands for all addresses of this machine."""
    return host.strip("[]") in ("", "0.0.0.0", "::")


def refusal(headers: Message, names: frozenset[str]) -> str:
    """Returns why a request with these headers is refused; an empty text if it is not."""
    hosts = headers.get_all("Host") or []
    if len(hosts) != 1 or not _is_own(hosts[0], names):
        return "this server does not answer for that host"
    origins = headers.get_all("Origin") or []
    if any(origin.lower() != f"http://{hosts[0].lower()}" for origin in origins):
        return "this server does not answer other sites"
    is_link = headers.get("Sec-Fetch-Mode") == "navigate" and headers.get("Sec-Fetch-Dest") == "document"
    if headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin") and not is_link:
        return "this server does not answer other sites"
    return ""


def _is_own(host: str, names: frozenset[str]) -> bool:
    try:
        parts = urlsplit(f"//{host}")
        name = (parts.hostname or "").rstrip(".")
        if parts.netloc != host or parts.username is not None or parts.path or (parts.port or 1) < 0:
            return False
    except ValueError:
        return False
    if name in names:
        return True
    if "*" not in names:
        return False
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(name))  # an IP address cannot be rebound
    return False


class _Handler(BaseHTTPRequestHandler):
    """Answers the requests of a connection one after another."""

    protocol_version = "HTTP/1.1"
    server_version = f"saddle_jax/{__version__}"
    sys_version = ""
    timeout = 30.0  # seconds to wait for a browser
    server: "Server"

    def handle_one_request(self) -> None:
        """Waits for a request and answers it."""
        self.server.waiting[self.connection] = time.monotonic()
        super().handle_one_request()

    def do_GET(self) -> None:
        """Answers with a page or an update; a bug is a status 500, and its traceback is printed here."""
        self.server.waiting.pop(self.connection, None)
        try:
            answer = self._answer()
        except Exception:
            self.close_connection = True
            self._send(_plain(500, "this is a bug of saddle_jax: its traceback is where the server runs"))
            raise
        self._send(answer)

    do_HEAD = do_GET  # noqa: N815

    def _answer(self) -> Answer:
        if reason := refusal(self.headers, self.server.names):
            return _plain(403, reason)
        try:
            parts = urlsplit(self.path)
            asked = parse_qs(parts.query, strict_parsing=bool(parts.query), max_num_fields=2 * MOST_RUNS)
        except ValueError:
            return _plain(400, "the address cannot be read")
        keys = asked.pop("run", [])
        if parts.scheme or parts.netloc or asked or len(keys) > MOST_RUNS:
            return _plain(400, f"an address has up to {MOST_RUNS} runs, and nothing else")
        site = self.server.site
        try:
            if parts.path == "/updates":
                return site.updates(keys, self.headers.get("If-None-Match", ""))
            if parts.path == "/runs" or (parts.path == "/" and not keys):
                return site.page(keys)  # without keys, from a form without a selection, the list
        except KeyError:
            return _plain(404, "there is no such run")
        return _plain(404, "there is no such page")

    def _send(self, answer: Answer) -> None:
        content = answer.text.encode("utf-8", errors="backslashreplace")
        self.send_response(answer.status)
        self.send_header("Content-Type", f"{answer.kind}; charset=utf-8")
        self.send_header("Content-Security-Policy", f"{answer.policy}; frame-ancestors 'none'")
        for name, value in _ALWAYS.items():
            self.send_header(name, value)
        if answer.version:
            self.send_header("ETag", answer.version)
        if answer.status == 405:
            self.send_header("Allow", "GET, HEAD")
        if answer.status != 304:
            self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD" and answer.status != 304:
            self.wfile.write(content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answers an invalid request, with the usual headers."""
        self.close_connection = True
        if not getattr(self, "command", None):
            self.command = ""
        if code == 501:
            self._send(_plain(405, "only GET and HEAD are answered"))
        else:
            self._send(_plain(code, "the request cannot be read"))

    def log_message(self, format: str, *args: Any) -> None:
        """Prints nothing, to keep the terminal free of requests."""


def _connections() -> int:
    """Returns the maximal number of connections, which leaves half of the file descriptors for reading."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return _MOST_CONNECTIONS
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_CONNECTIONS if files < 0 else max(1, min(_MOST_CONNECTIONS, files // 2))


def _plain(status: int, text: str) -> Answer:
    return Answer(status, "text/plain", f"{text}\n")


class Server(ThreadingHTTPServer):
    """Serves a folder on a host and a port; port 0 takes any free one.

    Connections beyond the limit wait in the system's queue until others are closed.
    """

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, site: Site, host: str, port: int) -> None:
        self.site, self.names = site, names_of(host)
        self.waiting: dict[socket.socket, float] = {}  # those without a complete request, since when
        self._room = threading.BoundedSemaphore(_connections())
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host.strip("[]"), port), _Handler)

    def server_bind(self) -> None:
        """Binds the port without a DNS query for this machine's name, as the base class would make."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accepts a connection if the limit allows; pauses if the system has no resources for it."""
        if not self._room.acquire(timeout=_PAUSE):
            self._close_idle()
            raise BlockingIOError("all connections are in use")  # serve_forever tries again
        try:
            return super().get_request()
        except OSError as error:
            self._room.release()
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(_PAUSE)
            raise

    def _close_idle(self) -> None:
        """Closes idle connections when others are waiting."""
        latest = time.monotonic() - _SILENCE
        for request, since in list(self.waiting.items()):
            if since < latest:
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        """Closes a connection and frees its place."""
        self.waiting.pop(request, None)
        try:
            super().shutdown_request(request)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores closed connections; any other error is a bug and is printed."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)
