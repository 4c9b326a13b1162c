"""docs/study.md says what the committed runs say: its tables are those that the command writes."""

import pathlib
import re
import shutil

import pytest

from saddle_jax.cli.__main__ import main
from saddle_jax.papers.evidence import claim_rows, means_below
from saddle_jax.papers.saddle.claims import CLAIMS
from saddle_jax.papers.saddle.experiments import PAPER
from saddle_jax.papers.tables import SCALES
from saddle_jax.report.tables import as_markdown

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results"
PAGE = (ROOT / "docs" / "study.md").read_text()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The tables that `saddle reproduce --evidence` writes for the committed runs."""
    folder = tmp_path_factory.mktemp("study")
    shutil.copytree(RESULTS / "study", folder / "study")
    assert main(["saddle", "reproduce", "--evidence", "--scale=study", f"--workdir={folder}"]) == 0
    return folder


@pytest.mark.parametrize("name", ["", "-accuracies", "-interpretations", "-summary"])
def test_tables_are_those_of_the_command(name, written):
    table = (written / f"evidence-study{name}.md").read_text().partition("\n\n")[2]
    assert table.startswith("| ")
    assert (table in PAGE) == (name == "-summary")
    assert (RESULTS / f"evidence-study{name}.md").read_text().partition("\n\n")[2] == table


def test_claims_are_those_of_the_command():
    rows = claim_rows(CLAIMS, means_below(PAPER, RESULTS, SCALES["study"]))
    assert (RESULTS / "claims-study.md").read_text().partition("\n\n")[2] == as_markdown(rows)


def test_pictures_are_there_and_have_a_command_before_them():
    for page in (PAGE, (ROOT / "docs" / "study_protocol.md").read_text()):
        pictures = re.findall(r"!\[[^\]]*\]\((results/[^)]+)\)", page)
        assert pictures
        for picture in pictures:
            assert (ROOT / "docs" / picture).is_file()
            before = page[: page.index(f"({picture})")]
            section = before[before.rindex("\n## ") :]
            assert "```sh\nbin/saddle " in section, picture
