"""The signatures of sparse embedders."""

import tensorflow as tf

from keras_bert.tasks.inputs import prompt_of
from keras_bert.tasks.text_serving import of_texts


def sparse_embedder(predict, output, preprocessor, max_sequence_length):
    """Make the signatures of `heads.sparse_embedder`.

    Inputs of `serving_default`:
        text: string (batch,); the model's default prompt comes before it
    Outputs:
        ids: int32 (batch, terms), the ids of the terms in the vocabulary, the largest weight first
        weights: float32 (batch, terms); ids and weights are 0 after the last term of a text
    """
    return of_texts(
        output,
        preprocessor,
        max_sequence_length,
        predict,
        answer=_terms,
        prompt=prompt_of(output),
    )


def _terms(vectors):
    """Return the ids and the weights of the terms; `vectors` are float32 (batch, vocab)."""
    counts = tf.math.count_nonzero(vectors, axis=1, dtype=tf.int32)
    most = tf.reduce_max(tf.concat([counts, [0]], axis=0))
    weights, ids = tf.math.top_k(vectors, most)
    return {"ids": tf.where(weights > 0, ids, 0), "weights": weights}
