"""Fixtures for the tests of the command line."""

import pytest

import keras_bert
from tests import tiny
from tests.cli.shared import TASKS, TEXTS, run


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder")
    keras_bert.save(tiny.encoder(num_hidden_layers=1), folder)
    return folder


@pytest.fixture
def texts(tmp_path):
    """A file of texts with two labels."""
    file = tmp_path / "a.tsv"
    file.write_text(TEXTS)
    return file


@pytest.fixture(scope="session")
def trained(encoder_folder, tmp_path_factory):
    """A function that gives a folder with a model of the task, fine-tuned once by the command."""
    folders = {}

    def finetune(task):
        if task not in folders:
            name, content, options, *_ = TASKS[task]
            folder = folders[task] = tmp_path_factory.mktemp("trained")
            file = folder / name
            file.write_text(content, encoding="utf-8")
            options = [*options, "--epochs", 1, "--batch-size", 4, "--max-length", 16]
            status = run(
                "finetune", "--model", encoder_folder, "--task", task, "--train", file,
                "--dev", file, "--output", folder / "model", *options,
            )  # fmt: skip
            assert status == 0
        return folders[task]

    return finetune
