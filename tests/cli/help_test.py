"""The help of every verb: a usage line with its arguments, a sentence, and options in plain English."""

import re
import resource
import subprocess
import sys

import pytest

from saddle_jax.cli import __main__ as cli
from saddle_jax.cli.verb import THEMES, first_words, load, names_of

VERBS = load()


def test_the_overview_has_every_verb_and_fits(capsys):
    assert cli.main(["saddle", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "usage: saddle VERB [arguments] [options]"
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line in THEMES] == [*THEMES]
    listed = re.findall(r"^  (\w+(?: \w+)?)(?:  | [A-Z])", "\n".join(lines), re.M)
    assert sorted(listed) == sorted(VERBS)
    assert len(first_words()) <= 18
    for one in VERBS.values():
        assert re.fullmatch(r"[A-Z].*\.", one.meaning), one.name


@pytest.mark.parametrize("name", VERBS)
def test_the_help_of_a_verb(name, capsys):
    assert cli.main(["saddle", *name.split(), "--help"]) == 0
    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert re.fullmatch(rf"usage: saddle {name}( [A-Z\[].*)? \[options\]", lines[0])
    assert lines[1].startswith(VERBS[name].meaning[:40])
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 40
    for unwanted in (
        "flagfile",
        "undefok",
        "manieth",
        "repeat this option to specify",
        "(a comma separated",
        ".;",
    ):
        assert unwanted not in told.out
    assert not re.search(r"\belse\.?$", told.out, re.M)
    assert told.err == ""


def test_an_option_has_its_value_meaning_and_default(capsys):
    assert cli.main(["saddle", "sharpness", "-h"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("usage: saddle sharpness DIR... [options]\n")
    assert "--images=N                Training images to measure on (default: 1024)." in printed
    assert "--data=train|own" in printed
    assert "--output=FILE" in printed
    assert ".png, .pdf or .svg" in printed


def test_choices_are_those_of_the_library():
    """They are written down twice, so that help and completion need not import what computes."""
    from saddle_jax.analysis import landscape, sharpness
    from saddle_jax.analysis.hessian import ITERATIONS
    from saddle_jax.papers import INTERPRETATIONS
    from saddle_jax.report.best import BETTER
    from saddle_jax.report.figures import AXES
    from saddle_jax.report.tables import FORMS
    from saddle_jax.runs.checkpoints import FORMATS

    def option(name, which):
        return VERBS[name].flag_values()[which]

    assert option("landscape", "directions").parser.enum_values == [*landscape.KINDS]
    assert option("sharpness", "data").parser.enum_values == [*sharpness.DATA]
    assert option("sharpness", "iterations").default == ITERATIONS
    assert option("list", "better").parser.enum_values == [*BETTER]
    assert option("export", "format").parser.enum_values == [*FORMATS, "wandb", "mlflow"]
    assert f": {', '.join(FORMS)}." in option("list", "output").help
    assert f": {', '.join(AXES)} (" in option("figure", "x").help
    assert set(INTERPRETATIONS) <= set(names_of(VERBS["reproduce"].flag_values()))


def test_the_overview_comes_at_once_and_imports_no_jax():
    code = (
        "import sys; from saddle_jax.cli.__main__ import main; main(['saddle', '--help'])\n"
        "sys.exit(any(name in sys.modules for name in ('jax', 'numpy', 'flax', 'rich')))"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    # Of the processor's time: other tests run beside this one.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.3
