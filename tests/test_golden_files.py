"""Files that earlier versions wrote, see tests/golden/make_saved.py, still load and run."""

import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

import keras_bert
from keras_bert import heads
from keras_bert.pretraining import records
from tests import pretraining_runs, tiny
from tests.golden import make_saved
from tests.training import test_run_state as finetuning_runs

SAVED = pathlib.Path(__file__).parent / "golden" / "saved"


def unpack(name, folder):
    shutil.unpack_archive(SAVED / f"{name}.zip", folder)
    return folder


@pytest.mark.parametrize("task", make_saved.HEADS)
def test_a_saved_model_loads(task):
    model = keras_bert.load(SAVED / f"{task}.keras")
    assert heads.find_task(model) == task
    expected = np.load(SAVED / "expected.npz")
    found = make_saved.outputs(model, heads.find_encoder(model))
    assert len(found) == sum(name.startswith(f"{task}/") for name in expected)
    for number, value in enumerate(found):
        np.testing.assert_allclose(value, expected[f"{task}/{number}"], rtol=1e-5, atol=1e-6)


def test_a_saved_hub_layer_loads():
    model = keras_bert.load(SAVED / "hub_layer.keras", trusted=True)
    np.testing.assert_array_equal(model(np.ones((1, 3), "float32")), [[2.0] * 3])


def test_an_export_answers(tmp_path):
    loaded = tf.saved_model.load(str(unpack("export", tmp_path) / "1"))
    answers = loaded.signatures["serving_default"](text=tf.constant(make_saved.TEXTS))
    expected = np.load(SAVED / "expected.npz")["classifier/0"]
    np.testing.assert_allclose(answers["probabilities"], tf.nn.softmax(expected), atol=1e-6)


def test_a_finetuning_run_resumes(tmp_path):
    with tiny.eagerly():
        counter = finetuning_runs.KillAt()
        run = finetuning_runs.finetune(unpack("finetuning", tmp_path), counter)
        whole = finetuning_runs.finetune()
    assert counter.seen == 5 + 5  # its state was written at the end of the first of three epochs
    for resumed, other in zip(run[0].weights, whole[0].weights, strict=True):
        np.testing.assert_allclose(resumed, other, atol=1e-4)


def test_a_pretraining_run_resumes(tmp_path):
    folder = unpack("pretraining", tmp_path)
    made = records.Records(folder / "records")
    model, history = pretraining_runs.pretrain(made, folder / "run")
    assert [line["step"] for line in history] == [2, 4, 6]
    expected = np.load(SAVED / "expected.npz")
    for number, value in enumerate(pretraining_runs.weights(model)):
        np.testing.assert_allclose(value, expected[f"pretrained/{number}"], rtol=1e-3, atol=1e-4)
