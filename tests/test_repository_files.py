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

WORKFLOWS = [path for path in FILES if path.parent.name == "workflows"]


def load(name):
    (first, *_) = yaml.safe_load_all((ROOT / name).read_text(encoding="utf-8"))
    return first


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_yaml_parses(path):
    assert isinstance(load(path), dict)


def test_actions_are_pinned_by_digest():
    for path in WORKFLOWS:
        for action in re.findall(r"uses: (\S+)", path.read_text(encoding="utf-8")):
            assert action.startswith("./") or re.search(r"@[0-9a-f]{40}$", action), action


def test_workflows_use_targets_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for path in WORKFLOWS:
        text = path.read_text(encoding="utf-8")
        targets = re.findall(r"- run: make ([\w-]+)", text)
        for suites in re.findall(r"suite: \[(.+)\]", text):
            targets += suites.split(", ")
        for target in targets:
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_workflow_tests_the_versions_of_the_classifiers():
    setup = (ROOT / "setup.cfg").read_text(encoding="utf-8")
    matrix = load(".github/workflows/test.yml")["jobs"]["linux"]["strategy"]["matrix"]
    assert matrix["python"] == re.findall(r"Python :: (3\.\d+)", setup)


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


@pytest.mark.parametrize("name", ["serving", "graph-serving", "training"])
def test_dockerfiles(name):
    text = (ROOT / "docker" / f"{name}.Dockerfile").read_text(encoding="utf-8")
    assert re.findall(r"^USER (\S+)", text, re.MULTILINE)[-1] == "1000"
    images = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert len(images) == 2 and all("@sha256:" in image for image in images)
    allowed = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    copied = [line.split()[1:-1] for line in re.findall(r"^COPY [^-].*", text, re.MULTILINE)]
    for source in sum(copied, []):
        assert (ROOT / source).exists() and f"!{source}" in allowed
    extras = re.search(r"'\.\[(.*?)\]'", text)[1].split(",")
    setup = (ROOT / "setup.cfg").read_text(encoding="utf-8")
    assert all(re.search(rf"^{extra} =", setup, re.MULTILINE) for extra in extras)
