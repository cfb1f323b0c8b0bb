"""Make the notebooks for Colab from pages of the documentation.

Run `python docs/notebooks.py`. It writes a notebook for the quickstart, and for each guide and
Korean page with programs. `python` and `ipython` blocks are code cells. A `text` block directly
after a `python` block is its output. All other text is Markdown, without pictures and links to
files.

The title block of a page can have

- `notebook`: name of the file, for a page whose own `ipython` block installs the package;
- `accelerator`: the accelerator to select in Colab;
- `backend`: a Keras backend other than TensorFlow;
- `extra`: the extra of the package that the page needs.
"""

import itertools
import json
import pathlib
import re

DOCS = pathlib.Path(__file__).parent
FOLDER = DOCS.parent / "examples" / "notebooks"
_PAGES = ("start/quickstart.md", "guides/*.md", "korean/*.md")
_HEAD = re.compile(r"---\n(.*?)^---\n", re.DOTALL | re.MULTILINE)
_CODE = re.compile(
    r"^```(i?python)\n(.*?)\n```\n(?:\n```text\n(.*?)\n```\n)?", re.DOTALL | re.MULTILINE
)
# Images with their captions, and links to other files.
_LINK = re.compile(r"!\[.*?\]\([^)]*\)\n*(?:\*[^*]+\*\n*)?|\[([^]]*)\]\((?!http)[^)]*\)")
_INSTALL = """\
# keras3-bert is not on PyPI yet: run "git archive --format zip --output keras_bert.zip HEAD" in a
# clone, and upload the file. "keras-bert" on PyPI is another project.
!unzip -q -n keras_bert.zip -d keras_bert_clone
%cd keras_bert_clone
%pip install -q {package}
%env KERAS_BACKEND={backend}"""


def notebooks():
    """Return {path of a notebook: its text} for all pages that have one."""
    found = {}
    for page in sorted(page for pattern in _PAGES for page in DOCS.glob(pattern)):
        text = page.read_text(encoding="utf-8")
        if "\n```python\n" in text:
            options = _options(text)
            found[path_of(page)] = _notebook(without_title_block(text), options)
    return found


def path_of(page):
    """Return the path of the notebook of a page, or `None` for a page that never has one."""
    if not any(page.relative_to(DOCS).match(pattern) for pattern in _PAGES):
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
    if "notebook" not in options:
        extra = options.get("extra")
        package = f"'.[{extra}]'" if extra else "."
        backend = options.get("backend", "tensorflow")
        cells.insert(1, _code("ipython", _INSTALL.format(package=package, backend=backend), None))
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


if __name__ == "__main__":
    made = notebooks()
    for path in set(FOLDER.glob("*.ipynb")) - set(made):
        path.unlink()
        print(f"{path.relative_to(DOCS.parent)} removed")
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(DOCS.parent))
