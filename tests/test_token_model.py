"""Models whose `fit` fails stay usable, and strings in place of token ids are refused."""

import keras
import numpy as np
import pytest

from keras_bert import heads
from keras_bert.data.examples import Examples
from tests import tiny

PROGRAM = """
import keras, numpy as np
from keras_bert import heads
from keras_bert.data.examples import Examples
from tests import tiny

encoder = tiny.encoder()
model = heads.classifier(encoder, 2)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
data = Examples(["good", "bad"] * 4, labels=["a", "b"] * 4).to_dataset(
    encoder.preprocessor, batch_size=2)
inputs = encoder.preprocessor(["good"])

def broken():  # a batch without two of the inputs
    for x, y in data:
        yield {"input_word_ids": x["input_mask"]}, y

class Stop(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        raise KeyboardInterrupt

try:  # the variables of the optimizer exist, and no step is complete
    model.fit(data, shuffle=False, verbose=0, callbacks=[Stop()])
except KeyboardInterrupt:
    pass
model.fit(data, shuffle=False, verbose=0)
for run in range(2):  # also after a training
    before = [keras.ops.convert_to_numpy(weight).copy() for weight in model.weights]
    for call in (
        lambda: model.fit(broken(), steps_per_epoch=4, verbose=0),
        lambda: model.evaluate(broken(), steps=4, verbose=0),
        lambda: model.predict(broken(), steps=4, verbose=0),
    ):
        try:
            call()
        except Exception:
            pass
        else:
            raise AssertionError("it did not fail")
        assert encoder(inputs)["pooled_output"].shape == (1, 8)
        batch, targets = next(iter(data.as_numpy_iterator()))
        assert np.isfinite(model.test_on_batch(batch, targets))
        for weight, old in zip(model.weights, before):
            np.testing.assert_array_equal(keras.ops.convert_to_numpy(weight), old)
    model.fit(data, shuffle=False, verbose=0)
model.predict(data, verbose=0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "tensorflow"])
def test_a_failed_fit_leaves_the_model_usable(python, backend):
    python("-c", PROGRAM, backend=backend)


def test_strings_are_refused():
    model = heads.classifier(tiny.encoder(), 2)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    texts, labels = np.array(["good", "bad"]), np.array([0, 1])
    ids = heads.find_encoder(model).preprocessor(["good", "bad"])
    message = "takes token ids, not strings. Call .*to_dataset"
    for given in (["so good"], "so good", texts, {"text": ["good"]}):
        for call in (model, model.predict, model.evaluate, model.fit):
            with pytest.raises(ValueError, match=r"not strings. Call keras_bert.pipeline\(model"):
                call(given)
        with pytest.raises(ValueError, match=r"Call encoder\(encoder.preprocessor\(texts\)\)"):
            heads.find_encoder(model)(given)
    for call in (
        lambda: model.fit(Examples(["good"], labels=["a"])),
        lambda: model.fit(ids, labels, validation_data=(texts, labels)),
        lambda: model.predict(texts),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("save", [keras.Model.save, keras.saving.save_model])
def test_hdf5_is_refused(tmp_path, save):
    """HDF5 holds no vocabulary, so the model could not be loaded."""
    encoder = tiny.encoder()
    text = keras.Input((), dtype="string")
    strings = keras.Model(text, encoder(encoder.preprocessor(text))["pooled_output"])
    classifier = heads.classifier(encoder, 2)
    for model in (encoder, classifier, strings):
        with pytest.raises(ValueError, match=r"HDF5.* save it as \.keras"):
            save(model, tmp_path / "model.h5")
        save(model, tmp_path / "model.keras")
    (tmp_path / "model.h5").write_text("kept")
    with pytest.raises(ValueError, match="HDF5"):
        classifier.save(tmp_path / "model.h5")
    assert (tmp_path / "model.h5").read_text() == "kept"
