"""Make the files in tests/golden/saved, which later versions must still load.

    python -m tests.golden.make_saved FOLDER

The files in the repository were made by version 0.1 before its modules were moved (commit
2076b55). `tests/test_golden_files.py` loads them. Do not make them again: they stand for the files
that users have.
"""

import contextlib
import json
import pathlib
import shutil
import sys
import tempfile

import keras
import numpy as np
import tensorflow as tf

import keras_bert
from keras_bert import heads
from tests import pretraining_runs, tiny
from tests.training import test_run_state as finetuning_runs

TEXTS = ["this film is good!", "so bad", "한국어"]
HEADS = {
    "classifier": {"labels": ["bad", "good"]},
    "regressor": {},
    "tagger": {"labels": ["O", "B-work", "I-work"]},
    "span_selector": {},
    "multiple_choice": {},
    "embedder": {},
    "masked_lm": {},
    "pretraining": {},
}


def outputs(model, encoder):
    """All outputs of a model for `TEXTS`, as arrays in the order of Keras' tree."""
    inputs = encoder.preprocessor(TEXTS)
    if heads.find_task(model) == "multiple_choice":
        inputs = {name: tf.stack([value, value[::-1]], axis=1) for name, value in inputs.items()}
    if heads.find_task(model) in ("masked_lm", "pretraining"):
        inputs["masked_lm_positions"] = tf.constant([[1, 2]] * len(TEXTS))
    return [keras.ops.convert_to_numpy(value) for value in keras.tree.flatten(model(inputs))]


def main(folder):
    folder = pathlib.Path(folder)
    expected = {}
    for task, options in HEADS.items():
        encoder = tiny.encoder(num_hidden_layers=1)
        model = getattr(heads, task)(encoder, **options)
        keras_bert.save(model, folder / f"{task}.keras")
        for number, value in enumerate(outputs(model, encoder)):
            expected[f"{task}/{number}"] = value
    module = tf.Module()
    module.scale = tf.Variable(2.0)
    module.__call__ = tf.function(
        lambda x: module.scale * x, input_signature=[tf.TensorSpec([None, 3])]
    )
    with tempfile.TemporaryDirectory() as temporary:
        tf.saved_model.save(module, temporary)
        x = keras.Input((3,))
        layer = keras_bert.HubLayer(temporary, trusted=True)
        keras_bert.save(keras.Model(x, layer(x)), folder / "hub_layer.keras")
    with tempfile.TemporaryDirectory() as temporary:
        # An exported classifier, for the server and for TensorFlow alone.
        model = keras_bert.load(folder / "classifier.keras")
        keras_bert.export(model, f"{temporary}/classifier")
        _archive(folder / "export.zip", f"{temporary}/classifier")
        # The state of a run that was killed in its second epoch.
        run = pathlib.Path(temporary, "run")
        with contextlib.suppress(finetuning_runs.Killed), tiny.eagerly():
            finetuning_runs.finetune(run, finetuning_runs.KillAt(7))
        _archive(folder / "finetuning.zip", run)
        # Records, and a pretraining run over them that was killed before its last checkpoint.
        made = pathlib.Path(temporary, "pretraining")
        made.mkdir()
        model, _ = pretraining_runs.pretrain(pretraining_runs.records(made), made / "run")
        for number, value in enumerate(pretraining_runs.weights(model)):
            expected[f"pretrained/{number}"] = value
        max((made / "run" / "checkpoints").iterdir()).unlink()
        _archive(folder / "pretraining.zip", made)
    np.savez_compressed(folder / "expected.npz", **expected)
    versions = {"keras": keras.__version__, "tensorflow": tf.__version__}
    (folder / "versions.json").write_text(json.dumps(versions, indent=2) + "\n")


def _archive(file, folder):
    shutil.make_archive(str(file.with_suffix("")), "zip", folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
