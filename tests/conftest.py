"""Fixtures that several test files share.

The tests themselves run on the TensorFlow backend; what must hold on each backend runs in
processes of its own, see `python` and `contract.py`.
"""

import os
import pathlib
import subprocess
import sys

import pytest

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture(params=["tensorflow", "jax", "torch"])
def backend(request):
    """Each Keras backend; torch only where it is installed."""
    if request.param == "torch":
        pytest.importorskip("torch")
    return request.param


@pytest.fixture(scope="session")
def python():
    """A function that runs Python in a fresh process and gives its standard output.

    Warnings are errors there as well; an exit status other than 0 fails the test.
    """
    environment = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        # The tests compile many small programs; how fast those run does not matter.
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "true",
    }

    def run(*args, backend="tensorflow"):
        command = [sys.executable, "-W", "error"]
        # Keras 3.15 is behind NumPy 2 here.
        command += ["-W", "ignore:__array__ implementation doesn't accept a copy keyword"]
        result = subprocess.run(
            [*command, *map(str, args)],
            cwd=ROOT,
            env={**environment, "KERAS_BACKEND": backend},
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    return run


@pytest.fixture(scope="session")
def contract(python, tmp_path_factory):
    """A function that holds a subject of `contract.py` to the contract, save and reload included."""

    def check(subject, backend):
        saved = tmp_path_factory.mktemp("saved") / "here"
        saved.mkdir()
        python("-m", "tests.contract", subject, saved, backend=backend)
        moved = saved.rename(saved.parent / "moved")
        python("-m", "tests.contract", "reload", moved, 1e-6, backend=backend)
        if backend == "tensorflow":
            python("-m", "tests.contract", "reload", moved, 2e-5, backend="jax")

    return check


@pytest.fixture(scope="session")
def shared():
    """The folder of real vocabularies and texts beside the repository, where there is one."""
    folder = pathlib.Path(os.environ.get("KERAS_BERT_SHARED", ROOT.parent / "shared"))
    if not (folder / "vocab").is_dir():
        pytest.skip(f"no {folder / 'vocab'}")
    return folder
