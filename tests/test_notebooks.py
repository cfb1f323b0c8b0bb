"""The notebooks for Colab are made from the documentation and hold outputs.

Those for accelerators run here in a small mode. The cells of the others are the programs of their
pages, which test_docs.py runs.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from docs import notebooks
from tests import docs_pages

ROOT = pathlib.Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
FOR_ACCELERATORS = [file for file in NOTEBOOKS if file.stem.startswith("finetune_on_")]
# With a small model in the place of MiniLM, which the quickstart has.
RUN = """
import json, sys
names = {}
for cell in json.load(open(sys.argv[1], encoding="utf-8"))["cells"]:
    if cell["cell_type"] == "code" and "colab" not in cell["metadata"].get("tags", ()):
        exec("".join(cell["source"]).replace('"minilm"', repr(sys.argv[2])), names)
"""


@pytest.mark.generated
def test_they_are_made_from_pages_of_the_documentation():
    made = notebooks.notebooks()
    assert {file: file.read_text(encoding="utf-8") for file in NOTEBOOKS} == made


@pytest.mark.parametrize("page", docs_pages.pages(), ids=lambda page: page.name)
def test_the_cells_are_the_programs_of_the_page(page):
    if page.notebook in NOTEBOOKS:
        sources = docs_pages.notebook_sources(page.notebook)
        assert sources == [block.rstrip("\n") for _, block, _ in page.blocks]


def test_a_notebook_has_no_links_to_files():
    for file in NOTEBOOKS:
        assert not re.search(r"\]\((?!http)", file.read_text(encoding="utf-8")), file.name


@pytest.mark.slow
@pytest.mark.parametrize("file", FOR_ACCELERATORS, ids=lambda file: file.stem)
def test_a_notebook_for_an_accelerator_runs(file, small_model, tmp_path):
    assert '"minilm"' in "".join(docs_pages.notebook_sources(file))
    environment = {key: value for key, value in os.environ.items() if key != "KERAS_BACKEND"}
    environment |= {
        "SMALL": "1",
        "PYTHONPATH": str(ROOT),
        # Two devices, so that the split of each batch over them is not for show.
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    }
    result = subprocess.run(
        [sys.executable, "-c", RUN, file, small_model],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    if file.stem == "finetune_on_tpu":
        assert result.stdout.startswith("2 cpu devices")
    assert "{'epoch': 1, 'loss': " in result.stdout
    assert "  I was charged twice this month\n" in result.stdout


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_holds_outputs(file):
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in code)
    assert any(cell["outputs"] for cell in code)
