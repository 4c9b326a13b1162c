"""What a registry, a citation tool and a contributor's tools read of the project agrees with the project."""

import pathlib
import re
import tomllib

import yaml

from saddle_jax.version import __version__

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CHECKS = re.findall(r"^\.venv/bin/.*$", (ROOT / ".ci" / "run").read_text(), flags=re.MULTILINE)
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()


def test_the_changelog_has_the_version_with_its_date_below_what_is_unreleased():
    headings = re.findall(r"^## (.*)$", CHANGELOG, flags=re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert re.fullmatch(rf"\[{re.escape(__version__)}\] - \d{{4}}-\d\d-\d\d", headings[1])
    assert "semver.org" in CHANGELOG.split("## [Unreleased]")[0]


def test_the_citation_names_the_paper_and_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["cff-version"], citation["type"]) == ("1.2.0", "software")
    assert citation["version"] == __version__
    assert f"## [{__version__}] - {citation['date-released']}" in CHANGELOG
    assert citation["license"] == PROJECT["license"]
    paper = citation["preferred-citation"]
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert f"title = {{{paper['title']}}}" in readme
    authors = [f"{author['family-names']}, {author['given-names']}" for author in paper["authors"]]
    assert f"author = {{{' and '.join(authors)}}}" in readme
    assert f"booktitle = {{{paper['collection-title']}}}" in readme
    assert f"pages = {{{paper['start']}-{paper['end']}}}" in readme
    assert f"year = {{{paper['year']}}}" in readme


def test_a_registry_is_told_what_this_is_and_no_names():
    assert {"description", "readme", "license", "keywords", "classifiers"} <= PROJECT.keys()
    assert not {"authors", "maintainers"} & PROJECT.keys()
    assert "Typing :: Typed" in PROJECT["classifiers"]
    assert not any(classifier.startswith("License") for classifier in PROJECT["classifiers"])  # see `license`
    oldest = PROJECT["requires-python"].removeprefix(">=")
    assert f"Programming Language :: Python :: {oldest}" in PROJECT["classifiers"]


def test_ci_runs_on_pythons_that_the_registry_is_told_of_and_checks_what_ci_run_checks():
    workflows = {path.stem: yaml.safe_load(path.read_text()) for path in ROOT.glob(".github/workflows/*.yml")}
    jobs = workflows["ci"]["jobs"]
    pythons = jobs["tests"]["strategy"]["matrix"]["python"]
    assert {f"Programming Language :: Python :: {python}" for python in pythons} <= {*PROJECT["classifiers"]}
    assert PROJECT["requires-python"] == f">={pythons[0]}"
    steps = [step.get("run", "") for step in jobs["lint-and-types"]["steps"]]
    assert [step for step in steps if step.startswith(".venv/bin/")] == CHECKS
    # What publishes has no right but to say who it is, and nothing else may.
    rights = {name: job.get("permissions", {}) for name, job in workflows["release"]["jobs"].items()}
    assert {name: right for name, right in rights.items() if right} == {"publish": {"id-token": "write"}}
    assert all(workflow["permissions"] == {"contents": "read"} for workflow in workflows.values())


def test_pre_commit_checks_what_ci_checks():
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"  # nothing is downloaded
    entries = [hook["entry"] for hook in repository["hooks"]]
    assert entries == CHECKS
    assert all(hook["always_run"] and not hook["pass_filenames"] for hook in repository["hooks"])
