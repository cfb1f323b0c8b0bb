"""The package as a whole: what its import costs, that it is complete, that it is documented."""

import ast
import importlib.metadata
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest

import keras_bert
from tests import module_map

HOUSE = pathlib.Path(keras_bert.__file__).parent
DOCUMENTED = (
    "layers/encoder_layers.py",
    "layers/head_layers.py",
    "encoder.py",
    "heads.py",
    "optimizers.py",
    "text/tokenizer.py",
    "text/preprocessor.py",
    "hub/loading.py",
    "exporting/saved_model.py",
)


def run(*command, **environment):
    return subprocess.run(
        [str(part) for part in command],
        env=os.environ | environment,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )


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


def test_version_is_that_of_the_distribution():
    try:
        version = importlib.metadata.version("keras3-bert")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("keras3-bert is not installed")
    assert keras_bert.__version__ == version


@pytest.fixture(params=["module", "script"])
def command(request):
    if request.param == "module":
        return [sys.executable, "-m", "keras_bert"]
    script = shutil.which("keras-bert", path=pathlib.Path(sys.executable).parent)
    if script is None:
        pytest.skip("keras3-bert is not installed")
    return [script]


def test_help_answers_at_once(command):
    durations = []
    for _ in range(3):
        start = time.perf_counter()
        done = run(*command, "--help")
        durations.append(time.perf_counter() - start)
        assert done.returncode == 0, done.stderr
        assert "usage: keras-bert" in done.stdout
    assert min(durations) < 0.5


def test_help_imports_no_framework(command):
    done = run(*command, "--help", PYTHONPROFILEIMPORTTIME="1")
    imported = {
        line.rpartition("|")[2].strip().partition(".")[0]
        for line in done.stderr.splitlines()
        if line.startswith("import time:")
    }
    assert "argparse" in imported
    assert not imported & {"keras", "tensorflow", "jax", "torch"}


def public_definitions(file):
    definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    for node in ast.parse((HOUSE / file).read_text(encoding="utf-8")).body:
        if isinstance(node, definition) and not node.name.startswith("_"):
            yield node


def sections_needed(node):
    """The sections of its docstring: of arguments and of a result where it has them."""
    yield "Example"
    function = node
    if isinstance(node, ast.ClassDef):
        function = next((n for n in node.body if getattr(n, "name", "") == "__init__"), None)
    if function is not None:
        arguments = function.args
        names = [a.arg for a in arguments.posonlyargs + arguments.args + arguments.kwonlyargs]
        names += [a.arg for a in (arguments.vararg, arguments.kwarg) if a]
        if set(names) - {"self", "kwargs"}:
            yield "Args"
    # A result inside an inner function is taken for its own: no harm so far.
    if not isinstance(node, ast.ClassDef) and any(
        isinstance(n, ast.Return) and n.value is not None for n in ast.walk(node)
    ):
        yield "Returns"


@pytest.mark.parametrize("file", DOCUMENTED)
def test_public_docstrings_are_complete(file):
    missing = []
    for node in public_definitions(file):
        docstring = ast.get_docstring(node) or ""
        lines = {line.strip().partition(":")[0] for line in docstring.splitlines()}
        missing += [f"{node.name}: {word}" for word in sections_needed(node) if word not in lines]
        if ">>> " not in docstring:
            missing.append(f"{node.name}: >>>")
    assert missing == []


def test_contributing_lists_all_modules():
    assert module_map.CONTRIBUTING.read_text(encoding="utf-8") == module_map.updated()
