"""Training is what it says: the loss that is shown, and the weights of a step."""

import contextlib

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import distribution, heads
from keras_bert.tasks import registry
from tests import tiny
from tests.parameters import needs_tensorflow
from tests.properties import subjects

NAMES = subjects.TRAINED_NAMES
# Losses that compare the rows of a batch depend on the batches.
ALONE = [name for name in NAMES if name not in ("embedding", "sparse_embedding")]
# Of each kind of loss one task: classes, words, windows, rows of a batch, lists. JAX, which splits
# the arrays of any loss alike, compiles for seconds.
NAMES_ON_DEVICES = {
    "tensorflow": ["classification", "tagging", "question_answering", "embedding", "reranking"],
    "jax": ["classification", "embedding"],
}
OPTIONS = {
    # The regularization rises during the training.
    "sparse_embedding": {"document_regularizer_weight": 0.0, "query_regularizer_weight": 0.0},
    # Only the loss of single documents is also a loss of the dev data.
    "reranking": {"loss": "binary_cross_entropy"},
}
SETTINGS = [
    {"batch_size": 4, "gradient_accumulation_steps": 2},
    {"batch_size": 16},
    {"batch_size": 3, "seed": 1, "fixed_length": True, "max_length": 16},
]


def model_of(name):
    return subjects.model(name, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def train(name, data, rate=0.0, **options):
    """Train a model for an epoch; return the change of its weights and the metrics."""
    model = model_of(name)
    before = weights_of(model)
    model, metrics = keras_bert.finetune(
        model,
        data,
        epochs=1,
        optimizer=keras.optimizers.SGD(rate),
        show_progress=False,
        **{**OPTIONS.get(name, {}), **options},
    )
    return weights_of(model) - before, metrics


def weights_of(model):
    weights = [keras.ops.convert_to_numpy(weight) for weight in model.trainable_variables]
    return np.concatenate([weight.ravel() for weight in weights])


def loss_of(name, data, **options):
    """Return the training loss at the rate 0, which must be the dev loss."""
    _, metrics = train(name, data, dev=data, **options)
    assert metrics["dev_loss"] > 0.01
    assert metrics["train_loss"] == pytest.approx(metrics["dev_loss"], rel=2e-5)
    return metrics["train_loss"]


def equal_steps(step, expected):
    assert np.abs(expected).max() > 1e-4
    np.testing.assert_allclose(step, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.filterwarnings("ignore:'bert_encoder' has no pooling")
@pytest.mark.parametrize("name", NAMES)
def test_the_training_loss_is_the_dev_loss(name):
    with tiny.eagerly():
        loss_of(name, subjects.data(name)[:11], **SETTINGS[0])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:'bert_encoder' has no pooling")
@pytest.mark.parametrize("name", NAMES)
def test_the_loss_does_not_depend_on_the_batches(name):
    data = subjects.data(name)[:11]
    is_traced = name == NAMES[0]  # tracing takes longer than the training, and differs in no task
    with contextlib.nullcontext() if is_traced else tiny.eagerly():
        losses = [loss_of(name, data, **settings) for settings in SETTINGS]
    if name in ALONE:
        assert losses == pytest.approx([losses[0]] * len(losses), rel=2e-5)


@needs_tensorflow
@pytest.mark.parametrize("name", [name for name in ALONE if name != "reranking"])
def test_the_loss_of_keras_is_that_of_finetune(name):
    """With Keras' own losses, whatever the padding and the batch size."""
    data = lost_answers() if name == "question_answering" else subjects.data(name)[:11]
    model = model_of(name)
    fitted = heads.without_padding(model) if name == "question_answering" else model
    with tiny.eagerly():
        expected = loss_of(name, data)
        options = registry.by_name(name).compile_options(heads.find_output(model), None)
        fitted.compile(**options)
        for batch_size, pad in ((2, "batch"), (5, 24), (32, 32)):
            batches = data.to_dataset(model, batch_size, pad=pad)
            loss = fitted.evaluate(batches, verbose=0, return_dict=True)["loss"]
            assert loss == pytest.approx(expected, rel=2e-5)


@pytest.mark.parametrize("name", ALONE)
def test_accumulated_batches_are_one_batch(name):
    data = subjects.data(name)[:7]
    options = {"class_weight": {"good": 5.0}} if name == "classification" else {}
    with tiny.eagerly():
        one_batch, _ = train(name, data, 1.0, batch_size=32, **options)
        # The last batch is smaller than the others. The documents of a reranker are 16 rows.
        options["batch_size"] = 5 if name == "reranking" else 2
        accumulated, _ = train(name, data, 1.0, gradient_accumulation_steps=4, **options)
    equal_steps(accumulated, one_batch)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:'bert_encoder' has no pooling")
def test_cached_batches_are_one_batch():
    data = subjects.data("embedding")[:8]
    one_batch, _ = train("embedding", data, 1.0, batch_size=8)
    options = {"batch_size": 2, "gradient_accumulation_steps": 4, "gradient_caching": True}
    cached, _ = train("embedding", data, 1.0, **options)
    equal_steps(cached, one_batch)


@pytest.mark.parametrize("batch_size", [1, pytest.param(32, marks=pytest.mark.slow)])
def test_class_weights_are_amounts(batch_size):
    data = subjects.data("classification")
    good, bad = data[::2], data[1::2]
    assert set(good.labels) == {"good"}
    assert set(bad.labels) == {"bad"}
    with tiny.eagerly():
        loss_of_good = loss_of("classification", good[:1])
        loss_of_bad = loss_of("classification", bad[:1])
        options = {"batch_size": batch_size, "class_weight": {"good": 5.0}}
        rows = keras_bert.Examples(
            [good.texts[0], *[bad.texts[0]] * 4], labels=["good", *["bad"] * 4]
        )
        _, metrics = train("classification", rows, **options)
        step, _ = train("classification", good[:1], 1.0)
        step_of_weight, _ = train("classification", good[:1], 1.0, **options)
    expected = (5 * loss_of_good + 4 * loss_of_bad) / 5
    assert metrics["train_loss"] == pytest.approx(expected, rel=2e-5)
    equal_steps(step_of_weight, 5 * step)


def test_long_texts_count_as_one_text():
    long, short = "this film is so good! " * 3, "so bad"
    options = {"long_texts": "window", "max_length": 8, "batch_size": 2}
    with tiny.eagerly():
        losses = [
            loss_of("regression", keras_bert.Examples(texts, scores=[2.0] * len(texts)), **options)
            for texts in ([long], [short], [long, short])
        ]
    assert losses[2] == pytest.approx(np.mean(losses[:2]), rel=2e-5)


def lost_answers():
    """Return questions, of which the answer to the second one has no tokens."""
    data = subjects.data("question_answering")
    return keras_bert.Questions(
        [data.questions[0]] * 3,
        [data.contexts[0], "so bad \u200b so", "a film"],
        [data.answers[0], [("\u200b", 7)], []],
    )


def test_lost_answers_do_not_count():
    """A window whose answer cannot be found is left out."""
    lost = lost_answers()
    kept = keras_bert.Questions(lost.questions[::2], lost.contexts[::2], lost.answers[::2])
    with tiny.eagerly():
        losses = [loss_of("question_answering", rows, batch_size=2) for rows in (lost, kept)]
    assert losses[0] == pytest.approx(losses[1], rel=2e-5)


def check_devices():
    """Compare the losses on two devices with the dev loss on them."""
    backend = keras.backend.backend()
    is_tensorflow = backend == "tensorflow"
    run = tiny.eagerly() if is_tensorflow else contextlib.nullcontext()
    with distribution.scope("mirrored" if is_tensorflow else "auto"), run:
        assert distribution.devices() == 2
        for name in NAMES_ON_DEVICES[backend]:
            loss_of(name, subjects.data(name)[:11], batch_size=8)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_the_losses_on_two_devices(python, backend):
    program = (
        "import os, warnings\n"
        "warnings.filterwarnings('ignore', \"'bert_encoder' has no pooling\")\n"
        "os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=2'\n"
        f"import {backend} as backend\n"
        "if backend.__name__ == 'tensorflow':\n"
        "    cpus = backend.config.list_physical_devices('CPU')\n"
        "    two = [backend.config.LogicalDeviceConfiguration()] * 2\n"
        "    backend.config.set_logical_device_configuration(cpus[0], two)\n"
        "from tests.properties.test_training import check_devices\n"
        "check_devices()\n"
    )
    python("-c", program, backend=backend)
