"""The programs of examples/comparison run. docs/coming-from/comparison.md shows them."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.comparison import files
from tests.conftest import ROOT

PROGRAMS = ROOT / "examples" / "comparison"
# Packages that a peer's program imports.
PACKAGES = {
    "transformers": ("torch", "transformers", "accelerate", "datasets", "sentence_transformers"),
    "keras_hub": ("keras_hub", "pandas"),
}
# What our program prints at the end if it did its task, a regular expression for each task.
SHARE = r"(np\.float32\()?(0\.\d+|1\.0)\)?"
OUTPUTS = {
    "fine_tune": r"accuracy 1\.0",
    "predict": rf"'good', 'score': {SHARE}[\s\S]*'bad', 'score': {SHARE}",
    "plain_fit": r"Epoch 3/3[\s\S]*loss: 0\.\d+",
    "ner": r"'(tag|entity_group)': 'mood'[^}]*'end': 17",
    "question_answering": r"\bbad\b",
    "multi_label": r"'film'[\s\S]*'good'|'good'[\s\S]*'film'",
    "embeddings": r"\(2, 128\)",
    "search": r"(?:^|\n)(\d\.\d+ [a-z !]+\n){5}\Z",  # after Keras' progress bar
    "attention": r"",
    "early_stopping": r"best (epoch|checkpoint) \S*\d",
    "extra_heads": r"\b\d{6}\b",
    "export": r"",
}


def runs(library):
    return [task for task in OUTPUTS if (PROGRAMS / f"{task}_{library}.py").exists()]


@pytest.fixture(scope="session")
def material(tmp_path_factory):
    """Folder with the files that the programs read."""
    folder = tmp_path_factory.mktemp("material")
    files.write(folder)
    return folder


@pytest.fixture
def run(material, tmp_path):
    """Function that runs a program in a folder with these files and checks its result."""
    folder = tmp_path / "here"
    shutil.copytree(material, folder)

    def run(task, library, *options, backend="tensorflow"):
        environment = {"KERAS_BACKEND": backend, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(
            [sys.executable, *options, PROGRAMS / f"{task}_{library}.py"],
            cwd=folder,
            env=os.environ | environment,
            capture_output=True,
            encoding="utf-8",
        )
        assert done.returncode == 0, done.stderr
        if library == "keras_bert":  # what a peer answers after so little training can vary
            assert re.search(OUTPUTS[task], done.stdout), done.stdout
        if task == "attention":
            assert (folder / "attention.png").stat().st_size > 1000
        if task == "export":
            check_export(folder / "served")

    return run


def check_export(folder):
    """Ask the exported model about a string. KerasHub's model needs the ops of tensorflow-text."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401

    version = folder / "1" if (folder / "1").is_dir() else folder
    served = tf.saved_model.load(str(version)).signatures["serving_default"]
    (name,) = served.structured_input_signature[1]
    answer = served(**{name: tf.constant(["bad film"])})
    probabilities = answer.get("probabilities", next(iter(answer.values())))
    assert probabilities.numpy()[0].argmax() == 0


def run_ours(run, task, backend="tensorflow"):
    # Keras 3.15 does not know the copy keyword of NumPy 2.
    ignored = "ignore:__array__ implementation doesn't accept a copy keyword"
    run(task, "keras_bert", "-W", "error", "-W", ignored, backend=backend)


@pytest.mark.slow
@pytest.mark.parametrize("task", runs("keras_bert"))
def test_keras_bert(run, task):
    run_ours(run, task)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", pytest.param("torch", marks=pytest.mark.peers)])
def test_plain_fit_on_other_backends(run, backend):
    pytest.importorskip(backend)
    run_ours(run, "plain_fit", backend)


@pytest.mark.parametrize(
    ("library", "task"),
    [
        *(pytest.param("transformers", x, marks=pytest.mark.peers) for x in runs("transformers")),
        *(pytest.param("keras_hub", x, marks=pytest.mark.documents) for x in runs("keras_hub")),
    ],
)
def test_peers(run, library, task):
    source = (PROGRAMS / f"{task}_{library}.py").read_text(encoding="utf-8")
    needed = [name for name in PACKAGES[library] if re.search(rf"\b{name}\b", source)]
    # transformers' Trainer uses accelerate, which its own package does not require.
    needed += ["accelerate"] * ("Trainer" in source)
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed")
    run(task, library)
