"""SavedModels to serve in tests: plain ones, made in a moment, and exported heads."""

import tensorflow as tf

import keras_bert
from keras_bert import heads
from tests import tiny

HEADS = {
    "classifier": lambda encoder: heads.classifier(encoder, labels=["bad", "good", "좋음"]),
    "pairs": lambda encoder: heads.regressor(encoder, pairs=True),
    "sets": lambda encoder: heads.classifier(encoder, labels=["a", "b"], multi_label=True),
    "tagger": lambda encoder: heads.tagger(encoder, labels=["B-work", "I-work", "B-mood"]),
    "reader": heads.span_selector,
    "blanks": heads.masked_lm,
    "vectors": heads.embedder,
    "choices": heads.multiple_choice,
}


def head(name, folder):
    """Exports a head on a tiny encoder, whose weights are so large that texts differ."""
    encoder = tiny.encoder(initializer_range=1.0, num_hidden_layers=1)
    keras_bert.export(HEADS[name](encoder), folder)
    return folder


def times(folder, factor):
    """Writes a version that multiplies: `x`, floats (rows,), to `y`."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def serve(x):
        return {"y": x * module.factor}

    module = tf.Module()
    module.factor = tf.Variable(factor)
    return save(module, folder, serve)


def save(module, folder, serve):
    """Writes a SavedModel with one signature."""
    tf.saved_model.save(module, str(folder), signatures={"serving_default": serve})
    return folder


def function(call, *inputs):
    """A version's function of strings or floats, each a name or a `tf.TensorSpec`."""
    specs = [
        item if isinstance(item, tf.TensorSpec) else tf.TensorSpec([None], tf.string, name=item)
        for item in inputs
    ]
    return tf.function(call, input_signature=specs, autograph=False)
