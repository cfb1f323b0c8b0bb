"""Make the notebooks for Colab from pages of the documentation.

Run `python docs/notebooks.py`. It writes a notebook for each page in `PAGES`. `python` and
`ipython` blocks are code cells. A `text` block directly after a `python` block is its output. All
other text is Markdown, without pictures and links to files.

The title block of a page can have

- `notebook`: name of the file;
- `accelerator`: the accelerator to select in Colab;
- `backend`: a Keras backend other than TensorFlow;
- `extra`: the extra of the package that the page needs.
"""

import itertools
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import repository_address  # noqa: E402

DOCS = pathlib.Path(__file__).parent
FOLDER = DOCS.parent / "examples" / "notebooks"
# Pages that readers want to run in Colab: the start, accelerators, and one for each task.
PAGES = (
    "start/quickstart.md",
    "guides/colab-gpu.md",
    "guides/colab-tpu.md",
    "guides/text-classification.md",
    "guides/pairs.md",
    "guides/multi-label.md",
    "guides/tagging.md",
    "guides/question-answering.md",
    "guides/multiple-choice.md",
    "guides/masked-tokens.md",
    "guides/embeddings.md",
    "guides/reranking.md",
    "guides/sparse-search.md",
    "guides/pretraining.md",
    "korean/tasks.md",
)
_HEAD = re.compile(r"---\n(.*?)^---\n", re.DOTALL | re.MULTILINE)
_CODE = re.compile(
    r"^```(i?python)\n(.*?)\n```\n(?:\n```text\n(.*?)\n```\n)?", re.DOTALL | re.MULTILINE
)
# Images with their captions, and links to other files.
_LINK = re.compile(r"!\[.*?\]\([^)]*\)\n*(?:\*[^*]+\*\n*)?|\[([^]]*)\]\((?!http)[^)]*\)")
_UPLOAD = """\
# keras3-bert is not on PyPI yet: run "git archive --format zip --output keras_bert.zip HEAD" in a
# clone, and upload the file. "keras-bert" on PyPI is another project.
!unzip -q -n keras_bert.zip -d keras_bert_clone"""
_CLONE = "!git clone -q --depth 1 {address} keras_bert_clone"
_INSTALL = """\
{files}
%cd keras_bert_clone
%pip install -q {package}
%env KERAS_BACKEND={backend}"""


def notebooks():
    """Return {path of a notebook: its text}."""
    found = {}
    for name in PAGES:
        page = DOCS / name
        text = page.read_text(encoding="utf-8")
        found[path_of(page)] = _notebook(without_title_block(text), _options(text))
    return found


def path_of(page):
    """Return the path of the notebook of a page, or `None` for a page without one."""
    if page.relative_to(DOCS).as_posix() not in PAGES:
        return None
    options = _options(page.read_text(encoding="utf-8"))
    prefix = "korean_" if page.parent.name == "korean" else ""
    name = options.get("notebook", prefix + page.stem.replace("-", "_"))
    return FOLDER / f"{name}.ipynb"


def without_title_block(text):
    """Return the text of a page without its title block, if it has one."""
    head = _HEAD.match(text)
    return text[head.end() :] if head else text


def _options(text):
    """Return the title block of a page as a dict."""
    head = _HEAD.match(text)
    return dict(re.findall(r"^([\w-]+): (.*)$", head[1], re.MULTILINE)) if head else {}


def _notebook(text, options):
    """Return the notebook of a page as JSON."""
    cells, end = [], 0
    for block in _CODE.finditer(text):
        cells += [_markdown(text[end : block.start()]), _code(*block.groups())]
        end = block.end()
    cells = [cell for cell in [*cells, _markdown(text[end:])] if cell["source"]]
    cells.insert(1, _code("ipython", _installation(options), None))
    numbers = itertools.count(1)
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
        if cell["cell_type"] == "code":
            cell["execution_count"] = next(numbers)
    metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        "colab": {"provenance": []},
    }
    if "accelerator" in options:
        metadata["accelerator"] = options["accelerator"]
    notebook = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook, ensure_ascii=False, indent=1) + "\n"


def _installation(options):
    """Return the cell that gets and installs the repository, whose programs read its data."""
    address = repository_address.address()
    extra = options.get("extra")
    return _INSTALL.format(
        files=_UPLOAD if address is None else _CLONE.format(address=address),
        package="." if extra is None else f"'.[{extra}]'",
        backend=options.get("backend", "tensorflow"),
    )


def _markdown(text):
    text = _LINK.sub(lambda found: found[1] or "", text)
    lines = text.strip().replace("```py\n", "```python\n").splitlines(keepends=True)
    return {"cell_type": "markdown", "metadata": {}, "source": lines}


def _code(language, source, output):
    """Return a code cell. Cells of `ipython` blocks get the tag "colab"; tests skip them."""
    outputs = []
    if output is not None:
        lines = f"{output}\n".splitlines(keepends=True)
        outputs = [{"name": "stdout", "output_type": "stream", "text": lines}]
    return {
        "cell_type": "code",
        "metadata": {"tags": ["colab"]} if language == "ipython" else {},
        "outputs": outputs,
        "source": source.splitlines(keepends=True),
    }


def write():
    """Write all notebooks, and delete those of other pages."""
    made = notebooks()
    for path in set(FOLDER.glob("*.ipynb")) - set(made):
        path.unlink()
        print(f"{path.relative_to(DOCS.parent)} removed")
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(DOCS.parent))


if __name__ == "__main__":
    write()
