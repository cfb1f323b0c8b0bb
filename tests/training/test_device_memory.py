"""The error of a device with too little memory says which batch fits."""

import keras
import pytest

import keras_bert
from keras_bert.runtime import distribution, memory
from keras_bert.runtime.memory import OutOfMemory
from keras_bert.tasks import keras_predictor
from keras_bert.training import device_memory, head_initialization
from keras_bert.training.device_memory import advice_for_training
from tests import tiny


class XlaRuntimeError(RuntimeError):
    """Has the name of JAX's class."""


class ResourceExhaustedError(Exception):
    """Has the name of TensorFlow's class."""


def fail(*args, **options):
    raise XlaRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.")


@pytest.mark.parametrize(
    ("rows_of_memory", "advice"),
    [
        (None, "steps=2 and, in finetune, batch_size=128"),
        (1000, "steps=2 and, in finetune, batch_size=128"),
        (40, "steps=8 and, in finetune, batch_size=32"),
        (0.5, "and for one sequence; load the encoder with rematerialize=True, or use a smaller"),
    ],
)
def test_a_batch_that_fits(monkeypatch, rows_of_memory, advice):
    encoder = tiny.encoder()
    memory = None
    if rows_of_memory is not None:
        activations = rows_of_memory * device_memory.bytes_of_activations(encoder, 128)
        memory = 16 * encoder.count_params() + activations
    monkeypatch.setattr(device_memory, "_memory_of_device", lambda: memory)
    text = advice_for_training(encoder, (256, 128), 256, 1)
    assert "256 x 128 positions" in text
    assert advice in text
    # 32 texts with 4 choices
    assert "128 x 128 positions" in advice_for_training(encoder, (32, 4, 128), 32, 1)


@pytest.mark.parametrize(
    ("rows", "batch_size", "accumulated", "advice"),
    [
        (3, 24, 1, "gradient_accumulation_steps=2 and, in finetune, batch_size=12"),
        (1, 32, 2, "gradient_accumulation_steps=4 and, in finetune, batch_size=16"),
        (7, 7, 1, "gradient_accumulation_steps=7 and, in finetune, batch_size=1"),
        (1, 1, 1, "and for one sequence"),
    ],
)
def test_the_advice_names_the_batch_size_of_the_user(rows, batch_size, accumulated, advice):
    text = advice_for_training(tiny.encoder(), (rows, 16), batch_size, accumulated)
    assert advice in text


def test_only_measures_that_help_are_named(monkeypatch):
    advice = advice_for_training(tiny.encoder(rematerialize=True), (256, 128), 256, 1)
    assert "LoRA" in advice and "rematerialize" not in advice
    advice = advice_for_training(tiny.encoder(trainable=False), (256, 128), 256, 1)
    assert "LoRA" not in advice and "rematerialize" not in advice

    def forbid(batches):
        raise ValueError("Keras cannot accumulate")

    monkeypatch.setattr(distribution, "check_accumulation", forbid)
    advice = advice_for_training(tiny.encoder(), (256, 128), 256, 1)
    assert "use batch_size=128" in advice and "accumulation" not in advice


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (XlaRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying"), True),
        (XlaRuntimeError("INTERNAL: Failed to allocate 8 bytes"), True),
        (ResourceExhaustedError("OOM when allocating tensor with shape[9]"), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (MemoryError(), True),
        (ValueError("RESOURCE_EXHAUSTED: out of memory"), False),  # of a callback
        (ResourceExhaustedError("RESOURCE_EXHAUSTED: quota exceeded"), False),
        (ResourceExhaustedError("No space left on device"), False),
    ],
)
def test_errors_of_backends(error, expected):
    assert memory.is_out_of_memory(error) == expected


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (XlaRuntimeError("RESOURCE_EXHAUSTED: Out of memory"), "in finetune, batch_size=16"),
        (OutOfMemory("use a smaller batch_size"), "^use a smaller batch_size"),  # of a score
    ],
)
def test_fine_tuning_that_does_not_fit(monkeypatch, error, advice):
    def fit(*args, **options):
        raise error

    monkeypatch.setattr(keras.Model, "fit", fit)
    with pytest.raises(OutOfMemory, match=advice):
        keras_bert.finetune(tiny.encoder(), tiny.examples(), show_progress=False)


def test_a_head_that_cannot_be_initialized(monkeypatch):
    monkeypatch.setattr(head_initialization, "forward_pass", lambda model: fail)
    monkeypatch.setattr(fail, "compiles", False, raising=False)
    with pytest.raises(OutOfMemory, match="batches of 8; use a smaller batch_size"):
        keras_bert.finetune(tiny.encoder(), tiny.tagged(), batch_size=8, show_progress=False)


@pytest.mark.parametrize("batch_size", [1, 2])
def test_predictions_that_do_not_fit(monkeypatch, batch_size):
    monkeypatch.setattr(keras_predictor.SortedBatches, "__getitem__", fail)
    model = keras_bert.heads.classifier(tiny.encoder(), labels=["good", "bad"])
    remedy = "a smaller batch_size" if batch_size > 1 else "a smaller max_length"
    with pytest.raises(OutOfMemory, match=remedy):
        keras_bert.evaluate(model, tiny.examples(), batch_size=batch_size)
