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


@pytest.mark.parametrize("backend", ["jax", "tensorflow"])
def test_a_failed_fit_leaves_the_model_usable(python, backend):
    python("-c", PROGRAM, backend=backend)


def test_strings_are_refused():
    model = heads.classifier(tiny.encoder(), 2)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    texts, labels = np.array(["good", "bad"]), np.array([0, 1])
    ids = heads.find_encoder(model).preprocessor(["good", "bad"])
    message = "takes token ids, not strings. Call .*to_dataset"
    for call in (
        lambda: model.fit(Examples(["good"], labels=["a"])),
        lambda: model.fit(ids, labels, validation_data=(texts, labels)),
        lambda: model.train_on_batch(texts, labels),
        lambda: model.test_on_batch(texts, labels),
        lambda: model.predict_on_batch(texts),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    pandas = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match=message):
        model.fit(pandas.DataFrame({"text": texts}), labels)
