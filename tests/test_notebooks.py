"""The notebooks run from top to bottom in a small mode, and hold outputs."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
# With a small model in the place of MiniLM, which the quickstart has.
RUN = """
import json, sys
names = {}
for cell in json.load(open(sys.argv[1], encoding="utf-8"))["cells"]:
    if cell["cell_type"] == "code" and "colab" not in cell["metadata"].get("tags", ()):
        exec("".join(cell["source"]).replace('"minilm"', repr(sys.argv[2])), names)
"""


def code_cells(file):
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    return [
        cell
        for cell in cells
        if cell["cell_type"] == "code" and "colab" not in cell["metadata"].get("tags", ())
    ]


def test_there_is_one_for_each_accelerator():
    assert [file.stem for file in NOTEBOOKS] == ["finetune_on_gpu", "finetune_on_tpu"]


@pytest.mark.slow
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_runs(file, small_model, tmp_path):
    assert '"minilm"' in "".join("".join(cell["source"]) for cell in code_cells(file))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
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
        assert result.stdout.startswith("2 devices")
    assert "{'epoch': 1, 'loss': " in result.stdout
    assert "  I was charged twice this month\n" in result.stdout


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_holds_outputs(file):
    assert all(cell["execution_count"] for cell in code_cells(file))
    assert any(cell["outputs"] for cell in code_cells(file))
