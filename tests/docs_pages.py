"""Run the programs in the pages of the documentation, and compare what they print.

    python -m tests.docs_pages docs/guides/tagging.md ...

runs pages and writes what the programs print into the pages. tests/test_docs.py compares.

The `python` blocks of a page are one program. A `text` block directly after a `python` block is
what that block prints. `...` in it stands for any text. The title block of a page can have

- `not-executable`: the reason why the programs of the page do not run here;
- `requires`: a package without which the page is skipped;
- `backend`: a Keras backend other than TensorFlow.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from docs import notebooks

ROOT = pathlib.Path(__file__).parents[1]
DOCS = ROOT / "docs"
_BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)
_NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]\d+)?")
# Scores of trained models differ between processors.
_ABSOLUTE, _RELATIVE = 0.15, 0.15
_END = "end of block"


class Page:
    """The title block and the programs of a page.

    Attributes:
        name: Path relative to the repository.
        notebook: Path of the notebook of the page, or `None`.
        options: The title block, a dict.
        blocks: A tuple (line number, program, expected output or `None`) for each program.
    """

    def __init__(self, path):
        self.name = path.relative_to(ROOT).as_posix()
        self.notebook = notebooks.path_of(path) if DOCS in path.parents else None
        text = path.read_text(encoding="utf-8")
        head = re.match(r"---\n(.*?)^---\n", text, re.DOTALL | re.MULTILINE)
        lines = head[1].splitlines() if head else []
        self.options = dict(re.split(r": *", line, maxsplit=1) for line in lines)
        self.blocks = [
            (text[: found.start(1)].count("\n"), found[1], found[2])
            for found in _BLOCK.finditer(text)
        ]

    def program(self, folder):
        """Return a program that runs the blocks in a folder, and prints a line after each."""
        lines = [f"import os; os.chdir({str(folder)!r})"]
        for line, block, _ in self.blocks:
            source = "\n" * line + block
            lines.append(f"exec(compile({source!r}, {self.name!r}, 'exec'))")
            lines.append(f"print({_END!r}, flush=True)")
        return "\n".join(lines)

    def printed(self, output):
        """Return what each block printed, from the output of the program."""
        parts = output.split(f"{_END}\n")
        return ["\n".join(line.rstrip() for line in part.splitlines()) for part in parts[:-1]]


def notebook_sources(path):
    """Return the code cells of a notebook without those for Colab only."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [
        "".join(cell["source"])
        for cell in cells
        if cell["cell_type"] == "code" and "colab" not in cell["metadata"].get("tags", ())
    ]


def pages():
    """Return the pages with programs, and the README."""
    found = map(Page, [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))])
    return [page for page in found if page.blocks]


def prepare(folder):
    """Link the data of the examples into a folder, and make the folder for exports."""
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "saved_models").mkdir()


def matches(wanted, got):
    """Return True if a program printed what a page states.

    Decimal numbers may differ by 15%, or by 0.15.

    Example:

    >>> matches("accuracy 0.79 in ... s", "accuracy 0.81 in 10 s")
    True
    >>> matches("3 rows, 0.79", "4 rows, 0.79")
    False
    >>> matches("accuracy 0.79 in ... s", "accuracy 0.41 in 10.5 s")
    False
    """
    parts = re.split(rf"({_NUMBER.pattern}|\.\.\.)", " ".join(wanted.split()))
    patterns = {"...": ".*?"}
    pattern = "".join(
        f"({_NUMBER.pattern})" if _NUMBER.fullmatch(part) else patterns.get(part, re.escape(part))
        for part in parts
    )
    found = re.fullmatch(pattern, " ".join(got.split()))
    if not found:
        return False
    pairs = zip(filter(_NUMBER.fullmatch, parts), found.groups(), strict=True)
    return all(
        abs(a - b) <= max(_ABSOLUTE, _RELATIVE * abs(a))
        for a, b in (map(float, pair) for pair in pairs)
    )


def _update(path):
    """Run a page, and replace the outputs in it."""
    page = Page(path)
    with tempfile.TemporaryDirectory() as folder:
        prepare(pathlib.Path(folder))
        command = [sys.executable, "-W", "error"]
        command += ["-W", "ignore:__array__ implementation doesn't accept a copy keyword"]
        environment = {"KERAS_BACKEND": page.options.get("backend", "tensorflow")}
        result = subprocess.run(
            [*command, "-c", page.program(folder)],
            cwd=ROOT,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
            capture_output=True,
            text=True,
        )
    if result.returncode:
        return result.stderr[-3000:] + result.stdout[-500:]
    outputs = iter(page.printed(result.stdout))

    def replaced(found):
        output, stated = next(outputs), found[2]
        if stated is None or (stated.strip() and matches(stated.strip(), output)):
            return found[0]
        return f"```python\n{found[1]}```\n\n```text\n{output}\n```\n"

    text = path.read_text(encoding="utf-8")
    path.write_text(_BLOCK.sub(replaced, text), encoding="utf-8")
    return ""


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        start = time.monotonic()
        error = _update(pathlib.Path(argument).resolve())
        print(f"{argument}: {time.monotonic() - start:.0f} s{error and ': FAILED'}", flush=True)
        print(error, end="", flush=True)
