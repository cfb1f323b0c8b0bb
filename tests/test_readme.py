"""The programs in the READMEs run as they stand."""

import pathlib
import re

import pytest

import keras_bert
import keras_bert.hub.resolve
from keras_bert import heads
from tests import tiny

ROOT = pathlib.Path(__file__).parent.parent


def programs(name):
    """Return the Python programs in a README, those blocks that import something first."""
    page = (ROOT / name).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    return [block for block in blocks if block.startswith(("import", "from"))]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Enter a folder with the examples' data. Skip the test if MiniLM cannot be downloaded."""
    try:
        keras_bert.hub.resolve.find("minilm")
    except OSError as error:
        pytest.skip(str(error))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def inside(folder, program):
    return f"import os; os.chdir({str(folder)!r})\n{program}"


def test_both_readmes_have_the_same_programs():
    """Their comments and printed lines are in two languages."""
    both = [
        [re.sub(r"\s*#.*|print\(.*", "", program) for program in programs(name)]
        for name in ("README.md", "README.ko.md")
    ]
    assert both[0] == both[1]
    assert len(both[0]) > 5


@pytest.mark.slow
def test_programs(folder, python):
    for program in programs("README.md"):
        python("-c", inside(folder, program), backend="tensorflow")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", pytest.param("torch", marks=pytest.mark.peers)])
def test_fit_on_other_backends(folder, python, backend):
    (program,) = [each for each in programs("README.md") if "to_dataset" in each]
    python("-c", inside(folder, program), backend=backend)


@pytest.mark.slow
def test_load_model_without_the_package(python, tmp_path):
    """The README has the words of Keras' error."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    models = {"TokenModel": heads.classifier(tiny.encoder(), 2), "BertEncoder": tiny.encoder()}
    for name, model in models.items():
        keras_bert.save(model, tmp_path / "model.keras")
        program = f"import keras; keras.models.load_model({str(tmp_path / 'model.keras')!r})"
        error = f"Could not locate class '{name}'"
        assert error in python("-c", program, check=False)
        assert f"`{error}`" in page
        python("-c", f"import keras_bert\n{program}")
