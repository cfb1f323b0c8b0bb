"""The package as a whole: what its import costs, that it is complete, that it is documented."""

import dataclasses
import importlib.metadata
import importlib.util
import inspect
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import keras_bert
from tests import module_map


def run(*command, **environment):
    return subprocess.run(
        [str(part) for part in command],
        env=os.environ | environment,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )


def test_public_signatures_have_types():
    missing = []
    for module in (keras_bert, keras_bert.heads):
        for name in module.__all__:
            value = getattr(module, name)
            if not callable(value) or name == "Tokenizer":  # conftest.py replaces it
                continue
            function = value.__init__ if inspect.isclass(value) else value
            parameters = inspect.signature(function).parameters
            untyped = parameters.keys() - function.__annotations__.keys() - {"self"}
            if untyped or "return" not in function.__annotations__:
                missing.append((name, untyped))
    assert not missing


@pytest.mark.parametrize("backend", ["jax", pytest.param("torch", marks=pytest.mark.peers)])
def test_import_brings_in_no_tensorflow(backend):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    code = "import sys, keras_bert; sys.exit('tensorflow' in sys.modules)"
    done = run(sys.executable, "-c", code, KERAS_BACKEND=backend)
    assert done.returncode == 0, done.stderr


def test_public_names_load():
    missing = [name for name in keras_bert.__all__ if not hasattr(keras_bert, name)]
    assert missing == []
    assert set(dir(keras_bert)) == {*keras_bert.__all__, "__version__"}
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        keras_bert.nonsense  # noqa: B018


@pytest.fixture(params=["module", "script"])
def command(request):
    if request.param == "module":
        return [sys.executable, "-m", "keras_bert"]
    script = shutil.which("keras-bert", path=pathlib.Path(sys.executable).parent)
    if script is None:
        pytest.skip("keras3-bert is not installed")
    return [script]


def test_help_imports_no_framework(command):
    """So it answers at once."""
    done = run(*command, "--help", PYTHONPROFILEIMPORTTIME="1")
    assert "usage: keras-bert" in done.stdout
    imported = {
        line.rpartition("|")[2].strip().partition(".")[0]
        for line in done.stderr.splitlines()
        if line.startswith("import time:")
    }
    assert "argparse" in imported
    assert not imported & {"keras", "tensorflow", "jax", "torch"}


def public_objects():
    """Yield the name and object of each public function and class."""
    for name in keras_bert.__all__:
        value = getattr(keras_bert, name)
        if not inspect.ismodule(value):
            yield name, value
            continue
        for member in getattr(value, "__all__", ()):
            if callable(item := getattr(value, member)):
                yield f"{name}.{member}", item


def needed_sections(value):
    yield "Example"
    function = vars(value).get("__init__") if inspect.isclass(value) else value
    if function and set(inspect.signature(function).parameters) - {"self", "args", "kwargs"}:
        yield "Args"
    if not inspect.isclass(value) and re.search(r"\breturn \S", inspect.getsource(value)):
        yield "Returns"


PUBLIC = dict(public_objects())


@pytest.mark.parametrize("name", PUBLIC)
def test_public_docstrings_are_complete(name):
    value = PUBLIC[name]
    docstring = inspect.getdoc(value)
    lines = {line.strip().partition(":")[0] for line in docstring.splitlines()}
    # Data classes describe their arguments as attributes.
    if dataclasses.is_dataclass(value) and "Attributes" in lines:
        lines.add("Args")
    assert [word for word in needed_sections(value) if word not in lines] == []
    assert ">>> " in docstring


@pytest.mark.generated
def test_the_architecture_page_lists_all_modules():
    assert module_map.PAGE.read_text(encoding="utf-8") == module_map.updated()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["BertEncoder", "heads", "pipeline", "HubLayer", "Preprocessor"])
def test_any_name_can_be_the_first(name):
    """No module is loaded twice, and all layers are registered afterwards."""
    program = f"""
import sys
import keras_bert
keras_bert.{name}
import keras
from keras_bert import heads, model_structure
assert keras_bert.BertEncoder is model_structure.BertEncoder is heads.find_encoder(
    keras_bert.BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
                           num_attention_heads=2, intermediate_size=8)).__class__
registered = keras.saving.get_custom_objects()
assert registered["keras_bert>BertEncoder"] is keras_bert.BertEncoder
assert {{"keras_bert>Preprocessor", "keras_bert>HubLayer", "keras_bert>AdamW"}} <= set(registered)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
