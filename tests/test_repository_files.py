"""Files for GitHub, PyPI and pre-commit: they parse, and agree with the package."""

import re

import pytest
import yaml

import keras_bert
from tests.conftest import ROOT

FILES = [
    path
    for pattern in (".*.yaml", "*.cff", ".github/**/*.yml", "examples/**/*.yaml")
    for path in sorted(ROOT.glob(pattern))
]


def load(name):
    (first, *_) = yaml.safe_load_all((ROOT / name).read_text(encoding="utf-8"))
    return first


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_yaml_parses(path):
    assert isinstance(load(path), dict)


@pytest.mark.parametrize("name", ["test", "docs", "release"])
def test_workflows(name):
    workflow = load(f".github/workflows/{name}.yml")
    # YAML 1.1 reads the key "on" as True.
    assert workflow["name"] == name and workflow[True]
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert set(job.get("needs", "").split()) <= set(workflow["jobs"])
        if "uses" in job:  # another workflow
            called = load(job["uses"].removeprefix("./"))
            assert "workflow_call" in called[True]
            continue
        assert job["runs-on"]
        assert all(("uses" in step) != ("run" in step) for step in job["steps"])


def test_the_workflow_tests_the_versions_of_the_classifiers():
    setup = (ROOT / "setup.cfg").read_text(encoding="utf-8")
    matrix = load(".github/workflows/test.yml")["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == re.findall(r"Python :: (3\.\d+)", setup)
    assert [name.partition("-")[0] for name in matrix["os"]] == ["ubuntu", "macos", "windows"]


def test_only_the_publishing_job_gets_a_token():
    jobs = load(".github/workflows/release.yml")["jobs"]
    assert [name for name, job in jobs.items() if "permissions" in job] == ["publish"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}


def test_workflows_use_targets_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for name in ("test", "docs", "release"):
        text = (ROOT / ".github" / "workflows" / f"{name}.yml").read_text(encoding="utf-8")
        for target in re.findall(r"- run: make (\S+)", text):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_issue_forms():
    for name in ("bug", "feature"):
        form = load(f".github/ISSUE_TEMPLATE/{name}.yml")
        assert form["name"] and form["description"]
        ids = [part["id"] for part in form["body"]]
        assert len(ids) == len(set(ids))
        assert all(part["attributes"]["label"] for part in form["body"])


def test_citation():
    citation = load("CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["version"] == keras_bert.__version__
    assert citation["license"] == "Apache-2.0"
    assert all("name" in author or "family-names" in author for author in citation["authors"])


def test_pre_commit_has_the_ruff_of_the_constraints():
    (locked,) = re.findall(r"^ruff==(.+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    revisions = {entry["repo"]: entry["rev"] for entry in load(".pre-commit-config.yaml")["repos"]}
    assert [rev for repo, rev in revisions.items() if "ruff" in repo] == [f"v{locked}"]


@pytest.mark.parametrize("name", ["serving", "training"])
def test_dockerfiles(name):
    text = (ROOT / "docker" / f"{name}.Dockerfile").read_text(encoding="utf-8")
    assert re.findall(r"^USER (\S+)", text, re.MULTILINE)[-1] == "1000"
    assert text.count("\nFROM ") == 2
    allowed = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    copied = [line.split()[1:-1] for line in re.findall(r"^COPY [^-].*", text, re.MULTILINE)]
    for source in sum(copied, []):
        assert (ROOT / source).exists() and f"!{source}" in allowed
    extras = re.search(r"'\.\[(.*?)\]'", text)[1].split(",")
    setup = (ROOT / "setup.cfg").read_text(encoding="utf-8")
    assert all(re.search(rf"^{extra} =", setup, re.MULTILINE) for extra in extras)
