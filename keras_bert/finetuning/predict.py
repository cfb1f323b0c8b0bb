"""Answers of a fine-tuned classifier."""

import keras
import numpy as np

from keras_bert import heads
from keras_bert.finetuning.batches import Batches, TokenizedTexts
from keras_bert.finetuning.data import Examples


def probabilities(model, examples, *, batch_size=32, max_length=None, on_batch=None):
    """Class probabilities of texts.

    Args:
        model: from `heads.classifier`, its encoder with a preprocessor.
        examples: `Examples`; their labels do not matter.
        batch_size: texts a batch.
        max_length: positions at which texts are cut; default: the preprocessor's
            `max_sequence_length`.
        on_batch: called after each batch with the number of texts in it.

    Returns:
        float32 (n, classes), in the order of the examples.

    Raises:
        ValueError: the model has no vocabulary, or reads pairs and there are none (or the
            other way round).
    """
    encoder = heads.find_encoder(model)
    if encoder.preprocessor is None:
        raise ValueError(f"the encoder of {model.name!r} has no preprocessor to read text with")
    output = heads.find_output(model)
    if output is None or output.task != "classifier":
        raise ValueError(
            f"{model.name!r} must be a classifier of keras_bert.heads; an encoder has to be "
            "fine-tuned first"
        )
    if output.pairs != (examples.text_pairs is not None):
        wants, has = ("pairs of texts", "single texts")[:: 1 if output.pairs else -1]
        raise ValueError(f"{model.name!r} reads {wants}; {examples.source} has {has}")
    longest = encoder.get_config()["max_position_embeddings"]
    limit = min(max_length or encoder.preprocessor.max_sequence_length, longest)
    texts = TokenizedTexts(encoder.preprocessor, examples, limit)
    compiled = keras.backend.backend() == "jax"
    batches = Batches(texts, None, batch_size, fixed_lengths=compiled)
    result = np.zeros((len(texts), len(output.labels)), np.float32)
    for index, rows in enumerate(batches.batches):
        logits = model.predict_on_batch(batches[index][0])[: len(rows)]
        result[rows] = _softmax(keras.ops.convert_to_numpy(logits))
        if on_batch:
            on_batch(len(rows))
    return result


def classify(model, texts, text_pairs=None, **options):
    """Labels of texts.

    Args:
        model: from `heads.classifier`, its encoder with a preprocessor.
        texts: list of strings.
        text_pairs: list of as many, for a model of pairs.
        **options: of `probabilities`.

    Returns:
        A list of (label, score), the score a probability.

    Raises:
        ValueError: as for `probabilities`.
    """
    examples = Examples(texts, text_pairs, source="the call")
    if not len(examples):
        return []
    rows = probabilities(model, examples, **options)
    labels = heads.find_output(model).labels
    return [(labels[row.argmax()], float(row.max())) for row in rows]


def _softmax(logits):
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)
