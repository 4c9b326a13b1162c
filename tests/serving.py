"""A server of runs in a thread, and requests as bytes: a browser would mend what an attacker sends."""

import contextlib
import http.client
import threading

from browser import Tree

from saddle_jax.serve.pages import Site
from saddle_jax.serve.server import Server


@contextlib.contextmanager
def served(folder, host="127.0.0.1"):
    """Serves a folder; gives the server's port."""
    with Server(Site(folder), host, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def ask(port, path="/", method="GET", **headers):
    """The answer to a request with these headers, Host among them if it is to be another than usual."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.closing(connection):
        connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
        for name, value in headers.items():
            for each in value if isinstance(value, list) else [value]:
                connection.putheader(name.replace("_", "-"), each)
        connection.endheaders()
        answer = connection.getresponse()
        answer.text = answer.read().decode()
        return answer


def keys_of(port):
    """The keys by which the list of runs names them."""
    return [found["value"] for found, _ in Tree(ask(port).text).find("input", name="run")]
