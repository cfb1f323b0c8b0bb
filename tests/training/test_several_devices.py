"""Fine-tuning on several devices equals fine-tuning on one device, also after a kill.

The runs use SGD. Adam divides by the size of a gradient, so it amplifies the rounding errors of
gradients that should be zero.
"""

import pathlib

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import EmbeddingExamples, distribution, heads, losses
from keras_bert.training import callbacks
from tests import tiny
from tests.tasks.embedding import test_embedding

DEVICES = {"jax": 8, "tensorflow": 2}
TOLERANCE = 1e-5  # of losses and weights after two epochs


# Data, the batch size, and other options. The batches are large enough to be packed on eight
# devices. tests/properties/test_training.py has the losses of all tasks.
RUNS = {
    # On TensorFlow, the last batch has 13 texts, which two devices cannot share.
    "texts": (tiny.examples((tiny.ROWS * 2)[:45]), 16, {"class_weight": {"good": 5.0}}),
    # A scale of 1, since the default of 20 multiplies the rounding errors: the runs would differ
    # by 1e-5, not 6e-8. The 22 rows become batches of 8, 7 and 7 rows.
    "pairs": (
        EmbeddingExamples(test_embedding.rows(22, negatives=1)), 8,
        {"loss": losses.MultipleNegativesRanking(scale=1.0)},
    ),
    "scored": (
        EmbeddingExamples(test_embedding.rows(22), scores=np.linspace(0, 1, 22)), 8,
        {"loss": losses.CoSENT(scale=1.0), "matryoshka_dims": [8, 4]},
    ),
}  # fmt: skip


class Kill(keras.callbacks.Callback):
    """Fail after the fifth batch, in the second epoch."""

    def __init__(self):
        super().__init__()
        self.batches = 0

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1
        if self.batches == 5:
            raise RuntimeError("killed")


def train(kind, strategy, dropout, **options):
    """Return the losses of both epochs and the weights of a run."""
    backend = keras.backend.backend()
    data, batch_size, options_of_kind = RUNS[kind]
    with distribution.scope(strategy):
        assert distribution.replicas() == (1 if strategy == "one-device" else DEVICES[backend])
        bert = tiny.encoder(
            initializer_range=0.25, hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout, pooling=None if kind == "texts" else "mean",
        )  # fmt: skip
        model, metrics = keras_bert.finetune(
            bert,
            data,
            data,
            metric="dev_loss",  # it falls in each epoch
            epochs=2,
            batch_size=batch_size,
            max_length=32,
            # TensorFlow packs texts on one device only, and a run keeps its batches.
            fixed_length=backend == "tensorflow",
            optimizer=keras.optimizers.SGD(0.1),
            show_progress=False,
            **options_of_kind,
            **options,
        )
        values = [record[name] for record in metrics["history"] for name in ("loss", "dev_loss")]
        return [np.array(values), *model.get_weights()]


def check_equal(run, expected):
    for found, other in zip(run, expected, strict=True):
        np.testing.assert_allclose(found, other, atol=TOLERANCE)


def check(kind, folder):
    """Compare runs on one device, on several, and runs that move from one to the other."""
    strategies = ("one-device", "mirrored")
    one, several = (train(kind, strategy, dropout=0.0) for strategy in strategies)
    assert len(set(one[0])) == len(one[0])  # it learns
    check_equal(several, one)
    callbacks._SAVE_SECONDS = 0  # save the state after each batch
    # On TensorFlow, the masks of dropout depend on the number of replicas.
    dropout = 0.1 if keras.backend.backend() == "jax" else 0.0
    for before, after in (strategies, strategies[::-1]):
        expected = train(kind, before, dropout)
        options = {"dropout": dropout, "folder": pathlib.Path(folder, before)}
        with pytest.raises(RuntimeError, match="killed"):
            train(kind, before, callbacks=[Kill()], **options)
        check_equal(train(kind, after, **options), expected)


def check_model_of_another_scope():
    """Check that a model on one device is not trained on several, nor the reverse."""
    examples = keras_bert.Examples(["so good", "bad"], labels=["good", "bad"])
    model, _ = keras_bert.finetune(tiny.encoder(), examples, epochs=1, show_progress=False)
    with distribution.scope("mirrored"):
        message = "the model was created outside of this distribution.scope"
        with pytest.raises(ValueError, match=message):
            keras_bert.finetune(model, examples, epochs=1, show_progress=False)
        encoder = heads.find_encoder(model)  # it is copied
        model, _ = keras_bert.finetune(encoder, examples, epochs=1, show_progress=False)
        keras_bert.finetune(model, examples, epochs=1, show_progress=False)
    with pytest.raises(ValueError, match="created in a distribution.scope of several devices"):
        keras_bert.finetune(model, examples, epochs=1, show_progress=False)
    assert keras_bert.pipeline(model)("so good")["label"] in ("good", "bad")
    encoder = heads.find_encoder(model)  # it is copied
    model, _ = keras_bert.finetune(encoder, examples, epochs=1, show_progress=False)
    keras_bert.finetune(model, examples, epochs=1, show_progress=False)


# The arguments are a module, a function and its arguments.
SEVERAL_DEVICES = """
import importlib
import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
if os.environ["KERAS_BACKEND"] == "tensorflow":
    import tensorflow as tf

    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    # The collective operations of two strategies in one process would have the same keys.
    strategy = tf.distribute.MirroredStrategy()
    tf.distribute.MirroredStrategy = lambda devices: strategy
module = importlib.import_module(sys.argv[1])
getattr(module, sys.argv[2])(*sys.argv[3:])
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.parametrize("backend", DEVICES)
def test_several_devices_equal_one_device(kind, backend, python, tmp_path):
    python("-c", SEVERAL_DEVICES, __name__, "check", kind, tmp_path, backend=backend)


@pytest.mark.slow
@pytest.mark.parametrize("backend", DEVICES)
def test_a_model_of_another_scope_raises(backend, python):
    python("-c", SEVERAL_DEVICES, __name__, "check_model_of_another_scope", backend=backend)
