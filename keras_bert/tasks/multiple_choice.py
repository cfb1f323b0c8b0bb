"""Multiple choice: the best of several continuations of a text, as in SWAG.

Source: section 4.4 of the BERT paper.
"""

import keras
import numpy as np
import scipy.special

from keras_bert import heads
from keras_bert.data.batching import REDUCTION
from keras_bert.data.examples import Examples
from keras_bert.tasks.classification import EncodedTexts

HEADS = ("multiple_choice",)
MAX_LENGTH = 128


def build(encoder, train):
    """Build a model of `heads.multiple_choice` for `Choices` with labels."""
    if train.labels is None:
        raise ValueError(f"found no labels in {train.source}; give choices with labels")
    return heads.multiple_choice(encoder)


def compile_options(model):
    """Return loss and metrics of a model as arguments of `keras.Model.compile`."""
    return {
        "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=REDUCTION),
        "weighted_metrics": [keras.metrics.SparseCategoricalAccuracy("accuracy")],
    }


class EncodedChoices:
    """Tokenized choices: each one is a pair of its text and a continuation.

    `lengths`: longest sequence of each text, int (n,). `truncated`: number of truncated sequences.
    `without_tokens`: number of texts and continuations without tokens.
    """

    def __init__(self, preprocessor, examples, max_length):
        self.max_length = max_length
        self._count = len(examples.choices[0])
        self._labels = None if examples.labels is None else np.array(examples.labels, np.int32)
        texts = [text for text in examples.texts for _ in range(self._count)]
        choices = [choice for choices in examples.choices for choice in choices]
        self._encoded = EncodedTexts(preprocessor, Examples(texts, text_pairs=choices), max_length)
        self.lengths = self._encoded.lengths.reshape(-1, self._count).max(axis=1)
        self.truncated = self._encoded.truncated
        texts, continuations = self._encoded.empty  # a text counts once per continuation
        self.without_tokens = texts // self._count + continuations

    def __len__(self):
        return len(self.lengths)

    def batch(self, rows, length):
        """Return inputs, a dict of int32 (batch, choices, length), targets and weights (batch,)."""
        rows = np.asarray(rows)
        flat = (rows[:, None] * self._count + np.arange(self._count)).ravel()
        inputs, _, _ = self._encoded.batch(flat, length)
        inputs = {
            key: value.reshape(len(rows), self._count, length) for key, value in inputs.items()
        }
        if self._labels is None:
            return inputs, None, None
        return inputs, self._labels[rows], np.ones(len(rows), np.float32)


def encode(model, examples, max_length):
    """Encode `Choices`, truncated to `max_length`, as `EncodedChoices`."""
    return EncodedChoices(heads.find_encoder(model).preprocessor, examples, max_length)


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
