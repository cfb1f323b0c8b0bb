"""The source archive and the wheel: their files, and the wheel in an environment of its own."""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile

import pytest

import keras_bert
from tests import tiny
from tests.conftest import ROOT

pytestmark = pytest.mark.slow

DATA = {
    "keras_bert/py.typed",
    "keras_bert/data/samples/support_dev.tsv",
    "keras_bert/data/samples/support_train.tsv",
    "keras_bert/server/page.html",
    "keras_bert/text/agreement.npz",
    "keras_bert/text/unicode_tables.npz",
}
# What a user does. It must run with the installed package alone.
PROGRAM = """
import pathlib, sys
import keras_bert

environment, model, output = map(pathlib.Path, sys.argv[1:])
assert environment in pathlib.Path(keras_bert.__file__).parents, keras_bert.__file__
ask = keras_bert.pipeline(keras_bert.load(model))
assert ask("so good")["label"] in ("good", "bad")
folder = keras_bert.export(ask.model, output)
assert (output / "1" / "saved_model.pb").is_file()
"""


def run(*command, cwd):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """The source archive, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    ignored = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")
    source = shutil.copytree(ROOT, folder / "source", ignore=ignored)
    hook = "import sys; from setuptools import build_meta; build_meta.{}(sys.argv[1])"
    run(sys.executable, "-c", hook.format("build_sdist"), folder, cwd=source)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as file:
        file.extractall(folder, filter="data")
    unpacked = folder / sdist.name.removesuffix(".tar.gz")
    run(sys.executable, "-c", hook.format("build_wheel"), folder, cwd=unpacked)
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def modules():
    return {path.relative_to(ROOT).as_posix() for path in ROOT.glob("keras_bert/**/*.py")}


def test_files(archives):
    sdist, wheel = archives
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
    info = f"keras3_bert-{keras_bert.__version__}.dist-info"
    assert {name for name in names if not name.startswith(f"{info}/")} == modules() | DATA
    assert f"{info}/licenses/LICENSE" in names
    with tarfile.open(sdist) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md", "setup.cfg"} <= names
    assert modules() | DATA <= names
    folders = {name.partition("/")[0] for name in names if "/" in name}
    assert folders == {"keras_bert", "keras3_bert.egg-info"}


def test_twine_accepts_both(archives, tmp_path):
    if importlib.util.find_spec("twine") is None:
        pytest.skip("twine is not installed")
    run(sys.executable, "-m", "twine", "check", "--strict", *archives, cwd=tmp_path)


def test_the_installed_wheel_works_without_the_repository(archives, tmp_path):
    environment = tmp_path / "environment"
    venv.create(environment)
    scripts = environment / ("Scripts" if os.name == "nt" else "bin")
    python = scripts / pathlib.Path(sys.executable).name
    install = (sys.executable, "-m", "pip", "--python", python, "install", "--no-deps")
    run(*install, "--no-index", "--quiet", archives[1], cwd=tmp_path)
    paths = {"base": environment, "platbase": environment}
    packages = pathlib.Path(sysconfig.get_path("purelib", "venv", paths))
    # The dependencies of this environment. Its own .pth files, of an editable installation, are
    # not read there.
    packages.joinpath("dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")

    keras_bert.save(
        keras_bert.heads.classifier(tiny.encoder(), labels=["bad", "good"]), tmp_path / "it"
    )
    program = tiny.write_file(tmp_path / "program.py", PROGRAM)
    # In the folder of the clone, too, the installed package is used.
    for cwd, output in ((tmp_path, "a"), (ROOT, "b")):
        run(python, program, environment, tmp_path / "it", tmp_path / output, cwd=cwd)
    said = run(scripts / "keras-bert", "--version", cwd=tmp_path)
    assert said == f"keras_bert {keras_bert.__version__}\n"
