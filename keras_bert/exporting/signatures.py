"""Signatures of exported heads, as TensorFlow functions.

Each function makes the signatures `serving_default`, which takes strings, and `ids`, which takes
the model's inputs: `input_word_ids`, `input_mask`, `input_type_ids`, int32 (batch, seq). `ids` has
the outputs of `serving_default` unless a docstring lists others. `output` is the `heads.TaskOutput`
of the model, `max_sequence_length` is in tokens, and `predict` computes the outputs of the model
from its inputs.

Signatures cannot return ragged tensors, so rows are padded with "" and 0, to the longest text of
the batch. Long texts of a tagger, long contexts of questions, and texts of a model with
`long_texts="window"` are split into overlapping windows; other texts are truncated.

A new output needs a description in `model_card.py`. If its size depends on the inputs, add it to
`server/batching.py`.
"""

import tensorflow as tf

from keras_bert.tasks.classification.serving import classifier, regressor
from keras_bert.tasks.embedding.serving import embedder
from keras_bert.tasks.masked_tokens.serving import masked_lm
from keras_bert.tasks.multiple_choice.serving import multiple_choice
from keras_bert.tasks.question_answering.serving import span_selector
from keras_bert.tasks.tagging.serving import tagger

HEADS = {
    "classification": classifier,
    "next_sentence": classifier,
    "regression": regressor,
    "embedding": embedder,
    "multiple_choice": multiple_choice,
    "tagging": tagger,
    "question_answering": span_selector,
    "masked_tokens": masked_lm,
}


def check_shapes(function, input_signature):
    """Make a function of strings check the shapes of its inputs when its graph runs.

    TensorFlow Serving accepts tensors of any shape, and some graphs would return wrong answers. A
    wrong rank, or different batch sizes, raise `tf.errors.InvalidArgumentError`.
    """
    names = " and ".join(spec.name for spec in input_signature)

    def checked(*values):
        values = [
            tf.ensure_shape(value, spec.shape)
            for value, spec in zip(values, input_signature, strict=True)
        ]
        sizes = [tf.shape(value)[0] for value in values]
        message = f"{names} must have the same first dimension; received"
        checks = [
            tf.debugging.Assert(tf.equal(sizes[0], other), [message, sizes]) for other in sizes[1:]
        ]
        with tf.control_dependencies(checks):
            return function(*map(tf.identity, values))

    return checked
