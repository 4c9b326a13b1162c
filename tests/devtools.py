"""A headless browser that stays open: pages of a server, in real time, driven through the DevTools pipe."""

import base64
import contextlib
import json
import os
import select
import subprocess
import sys
import time

from browser import BROWSER, FLAGS

AS_THREE_AND_FOUR = """
import os, sys
for number, end in ((30, sys.argv[1]), (31, sys.argv[2]), (3, 30), (4, 31)):
    os.dup2(int(end), number)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One tab. `console` collects what pages complain about; `evaluate` runs in the page's world."""

    def __init__(self, profile):
        read_end, self._to = os.pipe()
        self._from, write_end = os.pipe()
        flags = [*FLAGS, f"user-data-dir={profile}", "remote-debugging-pipe", "hide-scrollbars"]

        # A Python of its own renames the pipes' ends: here, JAX has threads, which fork would leave behind.
        renamed = [sys.executable, "-c", AS_THREE_AND_FOUR, str(read_end), str(write_end)]
        self._process = subprocess.Popen(
            [*renamed, BROWSER, *(f"--{flag}" for flag in flags), "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(read_end, write_end),
        )
        os.close(read_end)
        os.close(write_end)
        self._number, self._rest, self._session, self.console = 0, b"", None, []
        pages = self._ask("Target.getTargets")["targetInfos"]
        page = next(one for one in pages if one["type"] == "page")
        attached = self._ask("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")

    def close(self):
        """Ends the browser that this object has started."""
        with contextlib.suppress(Exception):
            self._session = None
            self._ask("Browser.close")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def go(self, url, seconds=30):
        """Opens an address and waits until it is there; returns the seconds that it took."""
        began = time.monotonic()
        self._loaded = False
        self._ask("Page.navigate", url=url)
        while not self._loaded:
            self._take(self._read(began + seconds))
        return time.monotonic() - began

    def evaluate(self, expression):
        """The value of an expression in the page, promises awaited."""
        options = {"returnByValue": True, "awaitPromise": True}
        found = self._ask("Runtime.evaluate", expression=expression, **options)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, expression, seconds=30):
        """Waits until an expression is true; returns its value."""
        deadline = time.monotonic() + seconds
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < deadline, f"{expression} did not become true"
            time.sleep(0.05)
        return value

    def look(self, width=1280, height=900, dark=False):
        """Sets the size of the window, and whether the system is dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._ask("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path, whole=False):
        """Writes what is seen, or the whole page, as a PNG."""
        data = self._ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def _ask(self, method, **params):
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 60
        while True:
            found = self._read(deadline)
            if found.get("id") == message["id"]:
                assert "error" not in found, found["error"]
                return found["result"]
            self._take(found)

    def _read(self, deadline):
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            block = os.read(self._from, 2**20)
            assert block, "the browser has gone"
            self._rest += block
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _take(self, message):
        if message.get("method") == "Page.loadEventFired":
            self._loaded = True
        elif message.get("method") == "Log.entryAdded":
            self.console.append(message["params"]["entry"]["text"])
        elif message.get("method") == "Runtime.exceptionThrown":
            self.console.append(str(message["params"]["exceptionDetails"]))
