"""The pages of the documentation as Markdown, and `llms.txt`."""

import collections
import re
import shutil

import pytest

from docs import generate_reference, markdown_pages
from tests.docs_pages import DOCS

PAGE = """\
---
requires: torch
---

# Guides

See [the results](../../benchmarks/RESULTS.md#speed), [a page](../start/install.md)
and [the program](../../examples/pretrain.py).

![A picture](../_static/search.svg)

```{toctree}
:maxdepth: 1
:glob:

parts/*
```
"""
MARKDOWN = """\
# Guides

See [the results](../reference/results.md#speed), [a page](../start/install.md)
and the program (`examples/pretrain.py`).

![A picture](../_images/search.svg)

- [First](parts/a.md)
- [Second](parts/b.md)
"""


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


def test_a_page_is_plain_markdown(tmp_path):
    (tmp_path / "guides" / "parts").mkdir(parents=True)
    (tmp_path / "guides" / "index.md").write_text(PAGE)
    (tmp_path / "guides" / "parts" / "a.md").write_text("# First\n")
    (tmp_path / "guides" / "parts" / "b.md").write_text("# Second\n")
    assert markdown_pages.markdown(tmp_path, "guides/index.md") == MARKDOWN


def test_no_page_has_a_directive(source):
    names = [path.relative_to(source).as_posix() for path in source.rglob("*.md")]
    names.remove("reference/api/bulk.md")  # its docstrings need Apache Beam
    assert len(names) > 100
    for name in names:
        assert "```{" not in markdown_pages.markdown(source, name), name


@pytest.mark.parametrize(
    ("page", "signature", "sentence"),
    [
        ("finetune", r"keras_bert\.finetune\(encoder, train, dev=None, \*, task=None", "Fine-tune"),
        ("losses", r"keras_bert\.losses\.CoSENT\(scale=20\.0", "Ranks pairs"),
        ("pipeline", r"Pipeline\.evaluate\(self, examples", "Score the model"),
    ],
)
def test_an_api_page_has_signatures_and_docstrings(page, signature, sentence, source):
    text = markdown_pages.markdown(source, f"reference/api/{page}.md")
    assert re.search(rf"^```python\n\S*{signature}.*\)\n```\n\n{sentence}", text, re.MULTILINE)


def test_llms_txt_lists_each_page_once(source):
    text = markdown_pages.llms_txt(source)
    assert re.match(r"# keras_bert\n\n> \S.*\n", text)
    links = re.findall(r"^- \[[^]]+\]\(([^)]+)\): \S", text, re.MULTILINE)
    pages = [path.relative_to(source).as_posix() for path in source.rglob("*.md")]
    pages.remove("index.md")  # the title, the summary and the sections
    assert collections.Counter(links) == collections.Counter(pages)
    assert "- [Tag words](guides/tagging.md): How do you find names" in text
