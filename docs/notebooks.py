"""Make the notebooks for Colab from pages of the documentation.

Run `python docs/notebooks.py`. It writes a notebook for each page whose title block has a line such
as `notebook: finetune_on_gpu`. `python` and `ipython` blocks are code cells. A `text` block
directly after a `python` block is its output. All other text is Markdown.
"""

import json
import pathlib
import re

DOCS = pathlib.Path(__file__).parent
FOLDER = DOCS.parent / "examples" / "notebooks"
_HEAD = re.compile(r"---\n(.*?)^---\n", re.DOTALL | re.MULTILINE)
_CODE = re.compile(
    r"^```(i?python)\n(.*?)\n```\n(?:\n```text\n(.*?)\n```\n)?", re.DOTALL | re.MULTILINE
)


def notebooks():
    """Return {path of a notebook: its text} for all pages that have one."""
    found = {}
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        head = _HEAD.match(text)
        options = dict(re.findall(r"^([\w-]+): (.*)$", head[1], re.MULTILINE)) if head else {}
        if "notebook" in options:
            path = FOLDER / f"{options['notebook']}.ipynb"
            found[path] = _notebook(text[head.end() :], options["accelerator"])
    return found


def _notebook(text, accelerator):
    """Return the notebook of a page as JSON."""
    cells, end = [], 0
    for number, block in enumerate(_CODE.finditer(text), 1):
        cells += [_markdown(text[end : block.start()]), _code(number, *block.groups())]
        end = block.end()
    cells = [cell for cell in [*cells, _markdown(text[end:])] if cell["source"]]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        "colab": {"provenance": []},
        "accelerator": accelerator,
    }
    notebook = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook, ensure_ascii=False, indent=1) + "\n"


def _markdown(text):
    lines = text.strip().replace("```py\n", "```python\n").splitlines(keepends=True)
    return {"cell_type": "markdown", "metadata": {}, "source": lines}


def _code(number, language, source, output):
    """Return a code cell. Cells of `ipython` blocks get the tag "colab"; tests skip them."""
    outputs = []
    if output is not None:
        lines = f"{output}\n".splitlines(keepends=True)
        outputs = [{"name": "stdout", "output_type": "stream", "text": lines}]
    return {
        "cell_type": "code",
        "execution_count": number,
        "metadata": {"tags": ["colab"]} if language == "ipython" else {},
        "outputs": outputs,
        "source": source.splitlines(keepends=True),
    }


if __name__ == "__main__":
    for path, text in notebooks().items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(DOCS.parent))
