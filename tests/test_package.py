"""The package as a whole: what its import costs, that it is complete, that it is documented."""

import importlib.metadata
import importlib.util
import inspect
import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest

import keras_bert
from tests import module_map
from tests.machine import slowness


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
    assert min(durations) < 0.5 * slowness()


def test_help_imports_no_framework(command):
    done = run(*command, "--help", PYTHONPROFILEIMPORTTIME="1")
    imported = {
        line.rpartition("|")[2].strip().partition(".")[0]
        for line in done.stderr.splitlines()
        if line.startswith("import time:")
    }
    assert "argparse" in imported
    assert not imported & {"keras", "tensorflow", "jax", "torch"}


@pytest.mark.generated
def test_the_architecture_page_lists_all_modules():
    assert module_map.PAGE.read_text(encoding="utf-8") == module_map.updated()


def test_public_docstrings_have_an_example():
    for name in keras_bert.__all__:
        value = getattr(keras_bert, name)
        assert inspect.ismodule(value) or ">>> " in inspect.getdoc(value), name
