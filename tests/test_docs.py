"""The documentation: its prose, its commands, and its programs."""

import ast
import importlib.util
import inspect
import re
import shlex

import pytest

import keras_bert
import keras_bert.hub.resolve
from docs import pictures
from keras_bert.cli.parser import make_parser
from keras_bert.tasks.registry import TASKS
from tests import docs_pages

ROOT = docs_pages.ROOT
PAGES = {page.name: page for page in docs_pages.pages()}


@pytest.mark.slow
@pytest.mark.generated
def test_pictures_have_the_texts_of_the_script(tmp_path):
    """Not their bytes, which depend on matplotlib and on the system."""
    pictures.write(tmp_path)
    drawn = sorted(tmp_path.iterdir())
    assert drawn
    for path in drawn:
        tracked = docs_pages.DOCS / "_static" / path.name
        texts = [
            re.search("<dc:description>([^<]+)", each.read_text())[1] for each in (path, tracked)
        ]
        assert texts[0] == texts[1], path.name


def test_commands():
    """The commands in the pages are valid."""
    parser, count = make_parser(), 0
    for path in docs_pages.DOCS.rglob("*.md"):
        for block in re.findall(r"^```bash\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE):
            for line in block.replace("\\\n", " ").splitlines():
                if line.startswith("keras-bert "):
                    arguments = shlex.split(line, comments=True)[1:]
                    if not {"--help", "--version"} & set(arguments):
                        assert parser.parse_args(arguments), (path, line)
                    count += 1
    assert count > 20


def _messages():
    """Return the string literals of the package, with `...` for the values in f-strings."""
    for file in (ROOT / "keras_bert").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            elif isinstance(node, ast.JoinedStr):
                yield "".join(
                    part.value if isinstance(part, ast.Constant) else "..." for part in node.values
                )


def test_formats_are_complete():
    """The page on formats has all keys of the encoder, and our environment variables."""
    page = (docs_pages.DOCS / "reference" / "formats.md").read_text(encoding="utf-8")
    arguments = set(inspect.signature(keras_bert.BertEncoder).parameters)
    assert {key for key in arguments if f"| `{key}` |" not in page} == set()
    variables = {name for text in _messages() for name in re.findall(r"KERAS_BERT_[A-Z_]+", text)}
    assert {name for name in variables if f"| `{name}` |" not in page} == set()


@pytest.mark.parametrize("page", ["deploy/savedmodel.md", "guides/tasks.md"])
def test_tables_have_all_heads(page):
    text = (docs_pages.DOCS / page).read_text(encoding="utf-8")
    heads = {task.head_function().__name__ for task in TASKS} - {"pretraining"}
    rows = "".join(line for line in text.splitlines() if line.startswith("|"))
    assert {name for name in heads if not re.search(rf"`(heads\.)?{name}\b", rows)} == set()


def _runs(page):
    return "not-executable" not in page.options


def _marks(page):
    if page.name == "README.md":
        return pytest.mark.slow
    # `make test-older` installs optimum, `make test-peers` torch and FAISS.
    if page.options.get("requires", "").startswith("optimum."):
        return [pytest.mark.documents]
    if {"torch", "faiss"} & set(page.options.values()):
        return [pytest.mark.documents, pytest.mark.peers]
    return [pytest.mark.documents]


@pytest.fixture
def folder(tmp_path):
    """A folder with the examples' data. Skip the test if MiniLM cannot be downloaded."""
    try:
        keras_bert.hub.resolve.find("minilm")
    except OSError as error:
        pytest.skip(str(error))
    docs_pages.prepare(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=_marks(page)) for name, page in PAGES.items() if _runs(page)]
)
def test_programs(name, folder, python):
    page = PAGES[name]
    if "requires" in page.options:
        pytest.importorskip(page.options["requires"])
    backend = page.options.get("backend", "tensorflow")
    if backend == "torch" and importlib.util.find_spec("torch") is None:
        pytest.skip("no torch")
    outputs = page.printed(python("-c", page.program(folder), backend=backend))
    assert len(outputs) == len(page.blocks)
    for (line, _, wanted), got in zip(page.blocks, outputs, strict=True):
        where = f"{name}, line {line}"
        assert wanted is None or docs_pages.matches(wanted.strip(), got), (where, wanted, got)
