"""The source archive and the wheel: their files, and the wheel in an environment of its own."""

import contextlib
import importlib.metadata
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
import keras_bert.hub.resolve
from tests import tiny
from tests.conftest import ROOT

pytestmark = pytest.mark.slow

DATA = {
    "keras_bert/py.typed",
    "keras_bert/data/samples/support_dev.tsv",
    "keras_bert/data/samples/support_train.tsv",
    "keras_bert/exporting/templates/batching.config",
    "keras_bert/exporting/templates/card.md",
    "keras_bert/exporting/templates/compose.yaml",
    "keras_bert/exporting/templates/graph_usage.md",
    "keras_bert/exporting/templates/meanings.json",
    "keras_bert/exporting/templates/models.config",
    "keras_bert/exporting/templates/saved_model_usage.md",
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
    venv.create(tmp_path / "environment")
    with skip_without_package_index():
        python = install(tmp_path / "environment", "twine")
    run(python, "-m", "twine", "check", "--strict", *archives, cwd=tmp_path)


# A program for each extra. `make test-older` tests `beam` and `garden`.
START = """
import sys
import keras_bert
model, output = sys.argv[1:]
ask = keras_bert.pipeline(keras_bert.load(model))
assert ask("so good")["label"] in ("good", "bad")
"""
EXTRA_PROGRAMS = {
    "fast": """
from keras_bert.text.fast_tokenizer import tokenize_function
tokenizer = keras_bert.heads.find_encoder(ask.model).preprocessor.tokenizer
assert tokenize_function(tokenizer) != tokenizer.tokenize
""",
    "serve": """
from keras_bert.server import app, models
keras_bert.export(ask.model, output)
served = [models.load(folder, number, True, name) for name, number, folder in models.find(output)]
assert app.make(served)
""",
    "onnx": """
folder = keras_bert.export(ask.model, output, format="onnx")
assert keras_bert.pipeline(folder)("so good")["label"] == ask("so good")["label"]
""",
    "openvino": """
folder = keras_bert.export(ask.model, output, format="openvino")
assert keras_bert.pipeline(folder)("so good")["label"] == ask("so good")["label"]
""",
    "litert": """
import os
from ai_edge_litert.interpreter import Interpreter
folder = keras_bert.export(ask.model, output, format="litert")
assert Interpreter(os.path.join(folder, "litert/model.tflite")).get_signature_list()
""",
    "search": """
import bm25s, faiss
vectors = keras_bert.pipeline(ask.model, task="embedding").encode(["so good", "bad film"])
index = faiss.IndexFlatIP(vectors.shape[1])
index.add(vectors)
assert index.search(vectors, 1)[1].ravel().tolist() == [0, 1]
""",
    "pretraining": """
from keras_bert.pretraining import vocabulary
assert len(vocabulary.train(["so good"] * 9, 12)) == 12
import zstandard
""",
    "interop": """
import keras_hub
from keras_bert.hub import conversion
encoder = conversion.from_keras_hub(keras_hub.models.BertBackbone(12, 1, 2, 8, 16))
assert encoder.bert_config["hidden_size"] == 8
""",
}


def scripts(environment):
    return environment / ("Scripts" if os.name == "nt" else "bin")


def packages(environment):
    paths = {"base": environment, "platbase": environment}
    return pathlib.Path(sysconfig.get_path("purelib", "venv", paths))


def install(environment, package):
    """Install a package and its dependencies in an environment."""
    python = scripts(environment) / "python"
    command = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet")
    constraints = ("-c", ROOT / "constraints.txt")
    run(*command, "--disable-pip-version-check", *constraints, package, cwd=environment)
    return python


@contextlib.contextmanager
def skip_without_package_index():
    """Skip the test if `install` fails without a network."""
    try:
        yield
    except AssertionError as error:
        if "Could not find a version" in str(error) or "Connection" in str(error):
            pytest.skip("the package index cannot be reached")
        raise


@pytest.fixture(scope="module")
def base(archives, tmp_path_factory):
    """A folder with an environment, in which the wheel is installed, and a saved model."""
    folder = tmp_path_factory.mktemp("base")
    venv.create(folder / "environment")
    with skip_without_package_index():
        install(folder / "environment", f"keras3-bert[tensorflow] @ {archives[1].as_uri()}")
    model = keras_bert.heads.classifier(tiny.encoder(), labels=["bad", "good"])
    keras_bert.save(model, folder / "model")
    return folder


def test_the_installed_wheel_works_without_the_repository(base, tmp_path):
    environment = base / "environment"
    program = tiny.write_file(tmp_path / "program.py", PROGRAM)
    # In the folder of the clone, too, the installed package is used.
    for cwd, output in ((tmp_path, "a"), (ROOT, "b")):
        python = scripts(environment) / "python"
        run(python, program, environment, base / "model", tmp_path / output, cwd=cwd)
    said = run(scripts(environment) / "keras-bert", "--version", cwd=tmp_path)
    assert said == f"keras_bert {keras_bert.__version__}\n"


def test_every_extra_has_a_program():
    extras = set(importlib.metadata.metadata("keras3-bert").get_all("Provides-Extra"))
    backends = {"tensorflow", "jax", "torch"}  # `make test-no-tensorflow` tests the others
    assert extras - backends - {"beam", "garden", "dev", "docs"} == set(EXTRA_PROGRAMS)


@pytest.mark.parametrize("extra", EXTRA_PROGRAMS)
def test_each_extra_alone(archives, base, tmp_path, extra):
    environment = tmp_path / "environment"
    venv.create(environment)
    dependencies = f"{packages(base / 'environment')}\n"
    (packages(environment) / "dependencies.pth").write_text(dependencies)
    python = install(environment, f"keras3-bert[{extra}] @ {archives[1].as_uri()}")
    program = tiny.write_file(tmp_path / "program.py", START + EXTRA_PROGRAMS[extra])
    run(python, program, base / "model", tmp_path / "output", cwd=tmp_path)
