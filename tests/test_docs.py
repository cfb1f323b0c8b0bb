"""The documentation: its prose, its commands, and its programs."""

import importlib.util
import re
import shlex

import pytest

from docs import pictures
from keras_bert.cli.parser import make_parser
from tests import docs_pages
from tests.test_readme import folder  # noqa: F401

PAGES = {page.name: page for page in docs_pages.pages()}


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


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=_marks(page)) for name, page in PAGES.items() if _runs(page)],
)
def test_programs(name, folder, python):  # noqa: F811
    page = PAGES[name]
    if "requires" in page.options:
        pytest.importorskip(page.options["requires"])
    backend = page.options.get("backend", "tensorflow")
    if backend == "torch" and importlib.util.find_spec("torch") is None:
        pytest.skip("no torch")
    (folder / "saved_models").mkdir()
    outputs = page.printed(python("-c", page.program(folder), backend=backend))
    assert len(outputs) == len(page.blocks)
    for (line, _, wanted), got in zip(page.blocks, outputs, strict=True):
        where = f"{name}, line {line}"
        assert wanted is None or docs_pages.matches(wanted.strip(), got), (where, wanted, got)
