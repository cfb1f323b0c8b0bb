"""The error of a device with too little memory says which batch fits."""

import pytest

import keras_bert
from keras_bert.training import device_memory, engine
from keras_bert.training.device_memory import OutOfMemory, explain_out_of_memory
from tests import tiny


def run_out_of_memory(encoder, shape):
    with explain_out_of_memory(encoder, shape):
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.")


@pytest.mark.parametrize(
    ("rows_of_memory", "advice"),
    [
        (None, "about 128 x 128 fit.*by 2 "),
        (1000, "about 128 x 128 fit.*by 2 "),
        (40, "about 32 x 128 fit.*by 8 "),
        (0.5, "and for 1 x 128; load the encoder with rematerialize=True"),
    ],
)
def test_a_batch_that_fits(monkeypatch, rows_of_memory, advice):
    encoder = tiny.encoder()
    memory = None
    if rows_of_memory is not None:
        activations = rows_of_memory * device_memory.bytes_of_activations(encoder, 128)
        memory = 16 * encoder.count_params() + activations
    monkeypatch.setattr(device_memory, "_memory_of_device", lambda: memory)
    with pytest.raises(OutOfMemory, match=f"256 x 128 positions.*{advice}"):
        run_out_of_memory(encoder, (256, 128))
    with pytest.raises(OutOfMemory, match="128 x 128 positions"):  # 32 texts with 4 choices
        run_out_of_memory(encoder, (32, 4, 128))


def test_an_encoder_that_rematerializes_gets_other_advice():
    with pytest.raises(OutOfMemory, match="LoRA"):
        run_out_of_memory(tiny.encoder(rematerialize=True), (256, 128))


def test_other_errors_stay_as_they_are():
    with (
        pytest.raises(RuntimeError, match="broken"),
        explain_out_of_memory(tiny.encoder(), (2, 8)),
    ):
        raise RuntimeError("broken")


def test_the_estimate_depends_on_length_and_dtype():
    encoder = tiny.encoder()
    short = device_memory.bytes_of_activations(encoder, 16)
    assert device_memory.bytes_of_activations(encoder, 32) > 2 * short
    half = tiny.encoder(dtype="mixed_bfloat16")
    assert device_memory.bytes_of_activations(half, 16) == short / 2


def test_fine_tuning_that_does_not_fit(monkeypatch):
    def fit(*args, **options):
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory")

    monkeypatch.setattr(engine.keras.Model, "fit", fit)
    with pytest.raises(ValueError, match="too little memory for a batch of"):
        keras_bert.finetune(tiny.encoder(), tiny.examples(), show_progress=False)
