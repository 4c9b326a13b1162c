"""Opening pages in a headless browser, where one is found; and reading HTML."""

import html.parser
import re
import shutil
import subprocess

import pytest

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None
)
# Headless, quiet, and in a container.
FLAGS = (
    *("headless", "no-sandbox", "disable-gpu", "disable-quic", "disable-dev-shm-usage", "no-first-run"),
    *("disable-background-networking", "disable-component-update", "disable-sync"),
)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no chromium or google-chrome on PATH")


class Tree(html.parser.HTMLParser):
    """Elements as (tag, attributes, text inside), in order."""

    def __init__(self, text):
        super().__init__()
        self.elements, self._open = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), []))
        if tag not in ("meta", "link", "br", "img"):
            self._open.append(self.elements[-1])

    def handle_endtag(self, tag):
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data):
        for element in self._open:
            element[2].append(data)

    def find(self, tag, **attributes):
        return [
            (found, "".join(text))
            for name, found, text in self.elements
            if name == tag and all(found.get(key) == value for key, value in attributes.items())
        ]


def browse(page, tmp_path, script="", policy=True):
    """The page after its scripts, and what the console said; `script` runs last, in a page without policy."""
    text = page.read_text()
    if script or not policy:
        text = re.sub(r"<meta http-equiv=[^>]*>", "", text)
        text = text.replace("</body>", f"<script>{script}</script></body>")
    target = tmp_path / "opened.html"
    target.write_text(text)
    return opened(target.as_uri(), tmp_path)


def opened(address, tmp_path):
    """What an address shows after its scripts, and what the console said."""
    flags = [*FLAGS, f"user-data-dir={tmp_path / 'profile'}", "enable-logging=stderr", "v=0"]
    flags += ["virtual-time-budget=3000", "dump-dom"]
    command = [BROWSER, *(f"--{flag}" for flag in flags), address]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return Tree(done.stdout), re.findall(r"CONSOLE[^\]]*\] (.*)", done.stderr)
