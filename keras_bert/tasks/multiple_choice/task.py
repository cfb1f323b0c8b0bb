"""Multiple choice: the best of several continuations of a text, as in SWAG.

Source: section 4.4 of the BERT paper.
"""

import keras
import numpy as np
import scipy.special

from keras_bert.data.batching import REDUCTION
from keras_bert.model_structure import find_encoder
from keras_bert.tasks.multiple_choice.head import multiple_choice
from keras_bert.text.encoded_texts import EncodedChoices

HEADS = ("multiple_choice",)
MAX_LENGTH = 128


def build(encoder, train):
    """Build a model of `heads.multiple_choice` for `Choices` with labels."""
    if train.labels is None:
        raise ValueError(f"found no labels in {train.source}; give choices with labels")
    return multiple_choice(encoder)


def compile_options(model):
    """Return loss and metrics of a model as arguments of `keras.Model.compile`."""
    return {
        "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=REDUCTION),
        "weighted_metrics": [keras.metrics.SparseCategoricalAccuracy("accuracy")],
    }


def encode(model, examples, max_length):
    """Encode `Choices`, truncated to `max_length`, as `EncodedChoices`."""
    tokenizer = find_encoder(model).preprocessor.python_tokenizer
    return EncodedChoices(tokenizer, examples, max_length)


def decode(model, examples, encoded, outputs):
    """Return the probabilities of the choices from their logits: an array (choices,) per text."""
    return [scipy.special.softmax(np.asarray(logits, np.float32)) for logits in outputs]


def score(output, examples, answers):
    """Return `accuracy`, and `majority`, the accuracy of always giving the most frequent label."""
    chosen = np.array([row.argmax() for row in answers])
    return {
        "accuracy": float(np.mean(chosen == examples.labels)),
        "majority": float(np.bincount(examples.labels).max() / len(examples)),
    }


def metric_names(output, examples):
    """Return the names of the metrics of `score`, without `majority`."""
    return ("accuracy",)


def records(model, examples, answers, probabilities=False):
    """Yield the answers as dicts: `choice`, the index of the best choice, its `score` and `text`.

    With `probabilities`, `scores` is a list with the probability of every choice.
    """
    for row, choices in zip(answers, examples.choices, strict=True):
        best = int(row.argmax())
        record = {"choice": best, "score": float(row[best])}
        if probabilities:
            record["scores"] = row.tolist()
        yield {**record, "text": choices[best]}
