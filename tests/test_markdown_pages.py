"""The pages of the documentation as Markdown, and `llms.txt`."""

import collections
import re
import shutil

import pytest

from docs import generate_reference, markdown_pages
from tests.docs_pages import DOCS


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A folder with all pages of the documentation, also the generated ones."""
    folder = tmp_path_factory.mktemp("site") / "docs"
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns("_static", "__pycache__"))
    shutil.copy(DOCS.parent / "README.md", folder.parent)  # a page includes its program
    generate_reference.write(folder / "reference")
    return folder


def test_the_first_page_has_its_program_and_cards():
    text = markdown_pages.markdown(DOCS, "index.md")
    assert "```python\nimport keras_bert" in text
    assert "- Tag: [Find names in a text](guides/tagging.md)\n- Answer:" in text
    assert "{" not in re.sub(r"```(python|text)\n.*?```", "", text, flags=re.DOTALL)
    assert ":::" not in text


def test_no_page_has_a_directive(source):
    names = [path.relative_to(source).as_posix() for path in source.rglob("*.md")]
    names.remove("reference/api/bulk.md")  # its docstrings need Apache Beam
    assert len(names) > 100
    for name in names:
        text = markdown_pages.markdown(source, name)
        assert "```{" not in text, name
        assert not re.search(r"\]\([^)]*(_static|benchmarks|examples)/", text), name


def test_llms_txt_lists_each_page_once(source):
    text = markdown_pages.llms_txt(source)
    assert re.match(r"# keras_bert\n\n> \S.*\n", text)
    links = re.findall(r"^- \[[^]]+\]\(([^)]+)\): \S", text, re.MULTILINE)
    pages = [path.relative_to(source).as_posix() for path in source.rglob("*.md")]
    pages.remove("index.md")  # the title, the summary and the sections
    assert collections.Counter(links) == collections.Counter(pages)
    assert "- [Tag words](guides/tagging.md): How do you find names" in text
