"""What SECURITY.md promises is what the code does: its numbers, its verbs, and what serve answers."""

import re

import pages
import pytest

from saddle_jax.base import errors, registry
from saddle_jax.cli.verb import load
from saddle_jax.serve import pages as served
from saddle_jax.serve import server

TEXT = (pages.ROOT / "SECURITY.md").read_text()
FLAT = " ".join(TEXT.split())


@pytest.mark.parametrize(
    ("sentence", "number"),
    [
        (r"for up to (\d+) runs in one page", served.MOST_RUNS),
        (r"silent for (\d+) seconds", server._Handler.timeout),
        (r"at most (\d+) letters", registry._LONGEST),
        (r"exit status (\d+)", errors.DAMAGED),
    ],
)
def test_its_numbers_are_those_of_the_code(sentence, number):
    assert [float(found) for found in re.findall(sentence, FLAT)] == [number]


def test_the_verbs_that_import_what_you_name_are_all_named():
    sentence = re.search(r"in no sandbox\. (.*?) have it", FLAT)[1]
    assert re.findall(r"`([\w ]+)`", sentence) == sorted(
        name for name, verb in load().items() if "code" in verb.flag_values()
    )


def test_serve_listens_to_this_machine_alone():
    assert "listens to 127.0.0.1 alone" in FLAT
    source = (pages.ROOT / "saddle_jax/cli/figures.py").read_text()
    assert re.search(r'text\("host", "127\.0\.0\.1"', source)
    methods = {name.removeprefix("do_") for name in vars(server._Handler) if name.startswith("do_")}
    assert methods == {"GET", "HEAD"}


def test_no_address_is_invented():
    assert not re.search(r"\w@\w|https?://", TEXT)
