"""The error of a device with too little memory says which batch fits."""

import numpy as np
import pytest

import keras_bert
from keras_bert.training import device_memory, engine
from tests import tiny


@pytest.mark.parametrize(
    ("memory", "batches"), [(None, 2), (1e9, 2), (2e6, 8)], ids=["unknown", "large", "small"]
)
def test_a_batch_that_fits(monkeypatch, memory, batches):
    encoder = tiny.encoder()
    monkeypatch.setattr(device_memory, "_memory_of_device", lambda: memory)
    monkeypatch.setattr(device_memory, "bytes_of_step", lambda *args: 12e6)
    with (
        pytest.raises(device_memory.OutOfMemory, match=f"{256 // batches} x 128") as raised,
        device_memory.explain_out_of_memory(encoder, (256, 128)),
    ):
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.")
    assert raised.value.batches == batches
    assert f"gradient_accumulation_steps by {batches}" in str(raised.value)


def test_other_errors_stay_as_they_are():
    with (
        pytest.raises(RuntimeError, match="broken"),
        device_memory.explain_out_of_memory(tiny.encoder(), (2, 8)),
    ):
        raise RuntimeError("broken")


def test_the_estimate_grows_with_batch_and_length():
    encoder = tiny.encoder()
    weights = 16 * encoder.count_params()
    short = device_memory.bytes_of_step(encoder, 8, 16) - weights
    assert device_memory.bytes_of_step(encoder, 16, 16) - weights == 2 * short
    assert device_memory.bytes_of_step(encoder, 8, 32) - weights > 2 * short
    half = device_memory.bytes_of_step(tiny.encoder(dtype="mixed_bfloat16"), 8, 16) - weights
    assert half == short / 2


def test_fine_tuning_that_does_not_fit(monkeypatch):
    def fit(*args, **options):
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory")

    monkeypatch.setattr(engine.keras.Model, "fit", fit)
    with pytest.raises(ValueError, match="too little memory for a batch of"):
        keras_bert.finetune(tiny.encoder(), tiny.examples(), show_progress=False)
    assert np.isfinite(tiny.encoder().get_weights()[0]).all()
