"""The two READMEs agree, and Keras' words for a missing import are in the documentation."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent


def programs(path):
    """Return the Python programs of a page."""
    page = (ROOT / path).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", page, re.DOTALL)


def test_both_readmes_have_the_same_programs():
    """Their comments are in two languages. tests/test_docs.py runs the programs."""
    both = []
    for name in ("README.md", "README.ko.md"):
        both.append([re.sub(r"\s*#.*", "", program) for program in programs(name)])
    assert both[0] == both[1]


def test_links_lead_to_files():
    for name in ("README.md", "README.ko.md", "CONTRIBUTING.md", "examples/README.md"):
        page = (ROOT / name).read_text(encoding="utf-8")
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page):
            assert (ROOT / name).parent.joinpath(link).exists(), (name, link)


@pytest.mark.parametrize("name", ["support_train.tsv", "support_dev.tsv"])
def test_example_data_is_that_of_the_package(name):
    """Not links: Git for Windows and archives turn links into files with a path."""
    file = ROOT / "examples" / "data" / name
    assert not file.is_symlink()
    assert file.read_bytes() == (ROOT / "keras_bert" / "data" / "samples" / name).read_bytes()
