"""Attack: modules in the current folder, which processes of Python would import."""

import os
import subprocess
import sys

import pytest

from keras_bert.hub import named_source
from keras_bert.pretraining import workers
from tests.conftest import ROOT


@pytest.fixture
def current_folder(tmp_path, monkeypatch):
    """The folder of a stranger, whose modules write a file when they are imported."""
    folder = tmp_path / "stranger"
    code = f"open({str(tmp_path / 'written.txt')!r}, 'w')"
    for name in ("keras", "numpy", "pip", "multiprocessing"):
        folder.joinpath(name).mkdir(parents=True)
        for file in ("__init__.py", "__main__.py"):
            folder.joinpath(name, file).write_text(code)
    monkeypatch.chdir(folder)
    yield
    assert not tmp_path.joinpath("written.txt").exists()


def test_doctor(current_folder, tmp_path):
    tmp_path.joinpath("keras.py").write_text("class backend:\n    backend = lambda: 'jax'")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-S", "-P", "-m", "keras_bert", "doctor"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert "backend jax" in done.stdout


def test_worker_processes(current_folder):
    assert list(workers.apply(abs, [("a", -1)], workers=1)) == [("a", 1)]


def test_pip(current_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(OSError, match=r"no-such-package.* from PyPI: ERROR"):
        named_source.pip_download("no-such-package", str(tmp_path))
