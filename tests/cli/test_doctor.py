"""`doctor` reports packages that are missing or broken, and does not fail."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import types

import pytest

import keras_bert
from keras_bert.cli import doctor
from keras_bert.hub import cache
from tests.cli.shared import run
from tests.conftest import ROOT


def ask(*options, **environment):
    """Return the lines of the command in a new process, {name: value}."""
    done = subprocess.run(
        [sys.executable, *options, "-m", "keras_bert", "doctor"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return dict(re.split(r" {2,}", line, maxsplit=1) for line in done.stdout.splitlines())


@pytest.mark.slow
def test_without_any_package(tmp_path):
    lines = ask("-S", PYTHONPATH=str(ROOT), KERAS_BERT_CACHE=str(tmp_path / "none"))
    assert lines["keras_bert"].startswith(keras_bert.__version__)
    assert lines["python"].startswith(sys.version.split()[0])
    for name in doctor._PACKAGES:
        assert lines[name] == "not installed"
    assert lines["attention"]
    assert f"{os.cpu_count()} CPUs" in lines["processor"]
    assert lines["cache"].startswith(f"{tmp_path / 'none'}, 0.0 GB, ")


def test_broken_packages_are_lines(tmp_path):
    def write(name, text):
        tmp_path.joinpath(name).write_text(text)

    write("keras.py", "__version__ = '3.99'\nclass backend:\n    backend = lambda: 'jax'")
    reason = "raise ImportError('Traceback:\\nImportError: no libcudart\\nSee the guide')"
    write("tensorflow.py", reason)
    write("tensorflow_text.py", "import sys; sys.exit(3)")
    write("jax.py", "import os; os.abort()")
    write("numpy.py", "")
    write("onnxruntime.py", "print('\\033[2J'); __version__ = '\\033[2J'\nno_such_name")
    lines = ask("-S", PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))
    assert lines["keras"] == "3.99 backend jax"
    assert lines["tensorflow"] == "ERROR: ImportError: no libcudart"
    assert lines["tensorflow-text"] == "ERROR: exit status 3"
    assert lines["jax"] == "ERROR: the import ended with SIGABRT"
    assert lines["torch"] == "not installed"
    assert lines["numpy"] == "unknown version"
    assert lines["onnxruntime"] == "ERROR: NameError: name 'no_such_name' is not defined"


def test_a_missing_backend_is_advice(tmp_path):
    reason = "raise ModuleNotFoundError('No module', name='torch')"
    tmp_path.joinpath("keras.py").write_text(reason)
    lines = ask("-S", PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))
    for name in ("keras", "attention", "training"):
        assert "Keras needs torch; run: pip install" in lines[name]


@pytest.mark.slow
def test_installed_packages():
    lines = ask()
    assert lines["training"].startswith('dtype="auto" is ')
    for name, backend in (("keras", "backend tensorflow"), ("tensorflow", "CPU:0")):
        assert lines[name].startswith(importlib.metadata.version(name)) and backend in lines[name]
    assert lines["numpy"] == importlib.metadata.version("numpy")


CLONE = ROOT.as_posix()


@pytest.fixture
def no_imports(monkeypatch):
    monkeypatch.setattr(doctor, "_PACKAGES", {})
    monkeypatch.setattr(doctor, "_FACTS", {})


def test_missing_packages(no_imports, monkeypatch, capsys):
    requirements = [
        "keras<3.17,>=3.15",
        "no-such-requirement",
        'pytest-none; extra == "dev"',
        'no-such-text!=2.21.0,>=2.20.1; platform_system != "Windows" and extra == "fast"',
        "pytest; extra == 'serve'",
        "no-such.a; extra == 'serve'",
        "no-such-b>=2; extra == 'serve'",
    ]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: requirements)
    assert run("doctor") == 0
    lines = re.findall(r"(?:extra|required) .*", capsys.readouterr().out)
    assert lines == [
        f"required           needs no-such-requirement: pip install -e {CLONE}",
        f"extra fast         needs no-such-text: pip install -e '{CLONE}[fast]'",
        f"extra serve        needs no-such.a, no-such-b: pip install -e '{CLONE}[serve]'",
    ]


def test_the_cache(no_imports, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("KERAS_BERT_CACHE", str(tmp_path))
    tmp_path.joinpath("model").mkdir()
    with open(tmp_path / "model" / "weights", "wb") as file:
        file.truncate(2_500_000_000)
    tmp_path.joinpath("dangling").symlink_to(tmp_path / "none")
    usage = types.SimpleNamespace(free=3_210_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    assert run("doctor") == 0
    line = f"{cache.cache_folder()}, 2.5 GB, 3.2 GB free\n"
    assert line in capsys.readouterr().out


def test_an_import_that_hangs(monkeypatch, tmp_path):
    tmp_path.joinpath("slow_package.py").write_text("import time; time.sleep(100)")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(doctor, "_TIMEOUT", 0.5)
    said = doctor._describe(("slow_package", ""))
    assert said == "ERROR: the import took more than 0.5 seconds"
