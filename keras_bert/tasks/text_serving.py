"""Signatures of exported models, and those of models with one answer per text or pair."""

import typing

import tensorflow as tf

from keras_bert.text import windows_graph


class Signatures(typing.NamedTuple):
    """The signatures of a model.

    from_strings: function of strings that returns the outputs of `serving_default`, a dict
    input_signature: list of the `tf.TensorSpec`s of those strings
    from_ids: function of the dict of the model's inputs that returns the outputs of `ids`
    """

    from_strings: typing.Callable
    input_signature: list
    from_ids: typing.Callable


def of_texts(
    output,
    preprocessor,
    max_sequence_length,
    predict,
    answer,
    prompt="",
    names=("text", "text_pair"),
):
    """Return `Signatures` of a model with one answer for each text or pair of texts.

    `predict` computes float32 (batch, n) from the inputs of the model, and `answer` the outputs of
    the signature from them. If the model reads long texts in windows, their predictions are
    averaged. `prompt` is a text that comes before each text, and `names` are those of the inputs.
    """
    spec = tf.TensorSpec(output.output.shape, tf.float32)

    def rows(inputs):
        by_length = windows_graph.map_by_length(
            lambda chunk: {"rows": predict(chunk)}, inputs, {"rows": spec}
        )
        return by_length["rows"]

    tokenize = preprocessor.tokenizer.tokenize

    def pack(*tokens):
        return preprocessor.pack(
            *tokens, sequence_length=None, max_sequence_length=max_sequence_length
        )

    def from_windows(text):
        split = windows_graph.split_texts(tokenize(text), max_sequence_length)
        return answer(tf.math.segment_mean(rows(pack(split.tokens)), split.row))

    def from_strings(*texts):
        if prompt:
            texts = [tf.strings.join([prompt, text]) for text in texts]
        return answer(rows(pack(*map(tokenize, texts))))

    return Signatures(
        from_windows if output.long_texts == "window" else from_strings,
        [strings(name) for name in (names if output.pairs else names[:1])],
        lambda inputs: answer(rows(inputs)),
    )


def strings(name):
    """Return the spec of an input of strings (batch,)."""
    return tf.TensorSpec([None], tf.string, name=name)
