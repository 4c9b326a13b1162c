"""Counts attempts and failures of each class of attacks, and prints them as a table at the end."""

import contextlib
import traceback

import pytest

CLASSES = {
    "A": "settings, paths, environment",
    "B": "tampered folders",
    "C": "kills, signals, races",
    "D": "two processes",
    "E": "pages in a browser",
    "F": "numbers",
    "G": "supply chain",
    "H": "load",
}


class Attack:
    """The attempts of one test, of which all are made before it fails."""

    def __init__(self, letter):
        self.letter, self.attempts, self.failures = letter, 0, []

    @contextlib.contextmanager
    def attempt(self, what):
        """Counts what is done inside; whatever it raises is a failure, and the next attempt follows."""
        self.attempts += 1
        try:
            yield
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            told = f"{what}: {type(error).__name__} {error} ({where.filename}:{where.lineno})"
            self.failures.append(ascii(told))  # whatever was tried may be in it, and no text


@pytest.fixture
def attack(request, record_property):
    """The counter of a test of the class that its module's CLASS names."""
    counted = Attack(request.module.CLASS)
    yield counted
    record_property("attack", [counted.letter, counted.attempts, len(counted.failures)])
    shown = "\n".join(failure[:600] for failure in counted.failures[:20])
    assert not counted.failures, f"{len(counted.failures)} of {counted.attempts} attempts failed:\n{shown}"
    assert counted.attempts, "nothing was tried"


def pytest_terminal_summary(terminalreporter):
    found = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == "attack" and report.when == "teardown":
                    letter, attempts, failures = value
                    before = found.get(letter, (0, 0))
                    found[letter] = (before[0] + attempts, before[1] + failures)
    if found:
        terminalreporter.section("attacks")
        terminalreporter.write_line("| class | attempts | failures |\n|---|---|---|")
        for letter, (attempts, failures) in sorted(found.items()):
            terminalreporter.write_line(f"| {letter} {CLASSES[letter]} | {attempts:,} | {failures:,} |")
