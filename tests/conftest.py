"""Fixtures that several test files share.

The tests themselves run on the TensorFlow backend; what must hold on each backend runs in
processes of its own, see `python` and `contract.py`.
"""

import functools
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
    """A function that runs Python in a fresh process and gives its output.

    Warnings are errors there as well; an exit status other than 0 fails the test, unless with
    `check=False`.
    """
    environment = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        # The tests compile many small programs; how fast those run does not matter.
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "true",
    }

    def run(*args, backend="tensorflow", check=True):
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
        output = result.stdout + result.stderr
        assert result.returncode == 0 or not check, output
        return output

    return run


@pytest.fixture(scope="session")
def contract(python, tmp_path_factory):
    """A function that says what `contract.py` printed about a subject on a backend.

    Everything is saved, moved to another folder and loaded again in a fresh process; what
    TensorFlow saved also on JAX.
    """

    @functools.cache
    def report(backend):
        saved = tmp_path_factory.mktemp("saved") / "here"
        saved.mkdir()
        output = python("-m", "tests.contract", "check", saved, backend=backend, check=False)
        moved = saved.rename(saved.parent / "moved")
        for where, tolerance in ((backend, 1e-6), ("jax", 2e-5))[: 1 + (backend == "tensorflow")]:
            output += python(
                "-m", "tests.contract", "reload", moved, tolerance, backend=where, check=False
            )
        return output

    def check(subject, backend):
        output = report(backend)
        times = 2 if backend == "tensorflow" else 1
        assert f"FAILED {subject} " not in output, output
        assert output.count(f"ok {subject} reload\n") == times, output

    return check


@pytest.fixture(scope="session")
def shared():
    """The folder of real vocabularies and texts beside the repository, where there is one."""
    folder = pathlib.Path(os.environ.get("KERAS_BERT_SHARED", ROOT.parent / "shared"))
    if not (folder / "vocab").is_dir():
        pytest.skip(f"no {folder / 'vocab'}")
    return folder
