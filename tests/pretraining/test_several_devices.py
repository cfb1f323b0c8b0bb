"""Pretraining on several devices equals pretraining on one device, also after a kill."""

import pathlib

import keras
import numpy as np
import pytest

from keras_bert import distribution
from keras_bert.pretraining.records import Records
from keras_bert.pretraining.train import Phase
from tests import pretraining_runs as runs
from tests.training.test_several_devices import SEVERAL_DEVICES

DEVICES = {"jax": 8, "tensorflow": 2}
TOLERANCE = 1e-4  # of losses and weights after six steps


def train(records, folder, strategy, packed):
    """Return the losses and the weights of a run, or of the rest of it."""
    backend = keras.backend.backend()
    # The number of TensorFlow's replicas changes the masks of dropout.
    options = runs.STILL if backend == "tensorflow" else {}
    phases = [Phase(6, 16, 8)]
    with distribution.scope(strategy):
        assert distribution.replicas() == (1 if strategy == "one-device" else DEVICES[backend])
        model, history = runs.pretrain(
            Records(records),
            folder,
            runs.encoder(**options),
            phases=phases,
            packed=packed,
            learning_rate=1e-3,
            keep=6,
        )
        losses = [line[name] for line in history for name in ("loss", "eval_loss")]
        return [np.array(losses), *runs.weights(model)]


def check_equal(run, expected):
    for found, other in zip(run, expected, strict=True):
        np.testing.assert_allclose(found, other, atol=TOLERANCE)


def check(records, folder, packed):
    """Compare runs on one device, on several, and runs that move from one to the other."""
    moves = (("one-device", "mirrored"), ("mirrored", "one-device"))
    runs_of = {
        before: train(records, pathlib.Path(folder, before), before, packed == "packed")
        for before, _ in moves
    }
    check_equal(runs_of["mirrored"], runs_of["one-device"])
    for before, after in moves:
        run_folder = pathlib.Path(folder, before)
        _, *later = sorted((run_folder / "checkpoints").glob("step-*.npz"))
        assert len(later) == 2
        for file in later:  # as if the run was killed after its first checkpoint
            file.unlink()
        check_equal(train(records, run_folder, after, packed == "packed"), runs_of[before])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "packed"), [("jax", "single"), ("jax", "packed"), ("tensorflow", "single")]
)
def test_several_devices_equal_one_device(backend, packed, python, tmp_path):
    made = runs.records(tmp_path)
    arguments = (made.folder, tmp_path / "runs", packed)
    python("-c", SEVERAL_DEVICES, __name__, "check", *arguments, backend=backend)
