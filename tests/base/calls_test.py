"""Names with options, as settings spell them: what is read, and what is refused."""

import pytest

from saddle_jax.base import calls
from saddle_jax.base.checks import ArgumentError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("qgm", ("qgm", {})),
        ("qgm()", ("qgm", {})),
        ("größe(weiß='\uff51')", ("größe", {"weiß": "\uff51"})),
        (" d2( variant = relay, half=False ) ", ("d2", {"variant": "relay", "half": False})),
        ("a(b='x, y', c=-0.5, d=None, e=[1, two], f=1e-3)",
         ("a", {"b": "x, y", "c": -0.5, "d": None, "e": [1, "two"], "f": 1e-3})),
    ],
)  # fmt: skip
def test_what_is_read(text, found):
    assert calls.parse("method", text) == found


@pytest.mark.parametrize(
    "text",
    ["", "a b", "a(1)", "a(**b)", "a(b=c())", "a(b=open('x'))", "a.b(c=1)", "a(b=x.y)", "a(b=1)(c=2)",
     "lambda: 0", "a(b=[i for i in c])", "a(b=f'{c}')", "(" * 500, "a(b=" + "-" * 5000 + "1)", "a\nb",
     "\uff51gm", "gut(\uff4du=0.5)", "d2(variant=\uff52elay)", "a(b=\u017f)"],
)  # fmt: skip
def test_everything_else_is_refused_in_one_line(text):
    with pytest.raises(ArgumentError, match=r"method must be NAME or NAME\(option=value") as error:
        calls.parse("method", text)
    assert "\n" not in str(error.value)


def test_lists_are_split_outside_of_brackets():
    assert calls.split("qgm, d2(a=1, b=[2, 3]),ngm,") == ["qgm", "d2(a=1, b=[2, 3])", "ngm"]
    assert calls.split("") == []


def test_unknown_options_are_told_with_those_that_there_are():
    with pytest.raises(ArgumentError, match=r"did you mean 'beta'.*gut takes beta, mu, got option 'bta'"):
        calls.check_options("method", "gut", {"bta": 1}, ["beta", "mu"])
    with pytest.raises(ArgumentError, match="gradient plain takes no options, got option 'rho'"):
        calls.check_options("gradient", "plain", {"rho": 1}, [])
