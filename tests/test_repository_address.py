"""One script writes the address of the repository into all files; PyPI can follow the links."""

import re
import shutil

import pytest
import readme_renderer.markdown

from docs import repository_address
from tests.conftest import ROOT

READMES = ["README.md", "README.ko.md"]
ADDRESS = "https://github.com/some-one/keras_bert"


@pytest.fixture
def clone(tmp_path):
    for name in (*READMES, "setup.cfg", "CITATION.cff"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def texts(folder):
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


@pytest.mark.parametrize("name", READMES)
def test_readmes_render_on_pypi_with_links_that_it_can_follow(name, clone):
    repository_address.set_address(ADDRESS, clone)
    html = readme_renderer.markdown.render((clone / name).read_text(encoding="utf-8"))
    assert "<table>" in html and "<pre" in html
    links = re.findall(r'(?:href|src)="([^"]+)"', html)
    assert len(links) > 20
    assert all(link.startswith(("https://", "#")) for link in links), links
    assert f"git clone {ADDRESS}" in html


def test_an_address_is_replaced_everywhere(clone):
    repository_address.set_address("https://github.com/other/old.git", clone)
    assert repository_address.address(clone) == "https://github.com/other/old"
    repository_address.set_address(ADDRESS, clone)
    replaced = texts(clone)
    assert repository_address.address(clone) == ADDRESS
    assert not any("other/old" in text for text in replaced.values())
    repository_address.set_address(ADDRESS, clone)
    assert texts(clone) == replaced
    assert f"repository-code: {ADDRESS}\n" in replaced["CITATION.cff"]
