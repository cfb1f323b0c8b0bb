"""Rows of texts as sequences of token ids, with the targets of embedding losses."""

import typing

import numpy as np

from keras_bert import losses
from keras_bert.data import packing
from keras_bert.tasks.embedding.loss_choice import inner_loss
from keras_bert.text.encoded_texts import Encoded, EncodedTexts

_MOST_TEXTS = 2**24  # Keras converts the numbers of texts to float32


class EncodedRows(Encoded):
    """Tokenized rows of texts.

    Attributes:
        lengths: Length of the longest text of each row, int (n,).
        truncated: Number of truncated texts.
        without_tokens: Number of texts without tokens.
        loss: The Keras loss for the targets.
        texts: The `EncodedTexts` of all rows, one row after the other.
        texts_per_row: Number of texts of a row.
        targets: See `batch`; `None` for data that is only scored.
        gradient_caching: True if the rows of all batches of an optimizer step are compared.
        sets: Indices of the rows of each data set, a list of int arrays, or `None`.
        sampling: A value of `SAMPLINGS`: how the batches of the sets take turns.
    """

    def __init__(self, tokenizer, rows, max_length, examples=None, loss=None, options=None):
        """Without `EmbeddingExamples`, a loss and `EmbeddingOptions`, the rows have no targets."""
        self.max_length = max_length
        self.texts_per_row = len(rows[0])
        self.targets: typing.Any = None
        self.has_targets = examples is not None
        if self.has_targets:
            self.targets = _targets_of(examples)
            self.sampling = options.sampling
            self.gradient_caching = options.gradient_caching
            if examples.set_sizes is not None:
                ends = np.cumsum(examples.set_sizes)
                self.sets = np.split(np.arange(ends[-1]), ends[:-1])
            self.loss = loss
            inner = inner_loss(loss)
            ranks = isinstance(inner, losses.CoSENT)
            self.loss_name = inner.name
            # Without hard negatives, the loss of one row alone is always 0.
            is_ranking = isinstance(inner, losses.MultipleNegativesRanking)
            self.compares_rows = ranks or is_ranking and self.texts_per_row == 2
        texts = [text for row in rows for text in row]
        self.texts = EncodedTexts(tokenizer, [texts], max_length)
        self.lengths = self.texts.lengths.reshape(-1, self.texts_per_row).max(axis=1)
        self.truncated = self.texts.truncated
        (self.without_tokens,) = self.texts.empty

    def share_loss(self, dev):
        """Use this loss for dev data, if its targets are of the same kind."""
        if self.targets is None or dev.targets is None:  # `RetrievalData` has no targets
            return
        kinds = [
            (data.targets.ndim, data.targets.dtype, data.texts_per_row) for data in (self, dev)
        ]
        if kinds[0] == kinds[1]:
            dev.loss = self.loss

    def filler_targets(self, targets):
        ranks = isinstance(inner_loss(self.loss), losses.CoSENT)
        return np.full_like(targets, np.nan) if ranks else targets

    def batch(self, rows, length):
        """Return inputs, a dict of int32 (batch, texts, length), targets and weights (batch,).

        The targets are float32 (batch,) scores, float32 (batch, width) vectors, or int32 (batch,
        texts): the index of each text. Equal texts have equal indices. With classes, a further
        column has the index of the class.
        """
        count = self.texts_per_row
        inputs, _, _ = self.texts.batch(packing.texts_of_rows(rows, count), length)
        inputs = {key: value.reshape(len(rows), count, length) for key, value in inputs.items()}
        if self.targets is None:
            return inputs, None, None
        return inputs, self.targets[rows], np.ones(len(rows), np.float32)


def _targets_of(examples):
    """Return the targets of all rows, see `EncodedRows.batch`."""
    if examples.vectors is not None:
        return examples.vectors
    if examples.scores is not None:
        return np.array(examples.scores, np.float32)
    if examples.document_scores is not None:
        return np.array(examples.document_scores, np.float32)
    texts = dict.fromkeys(text for row in examples.texts for text in row)
    if len(texts) > _MOST_TEXTS:
        raise ValueError(
            f"{examples.source}: must have at most {_MOST_TEXTS} different texts; received "
            f"{len(texts)}. Train on one part after the other"
        )
    index_of_text = {text: index for index, text in enumerate(texts)}
    targets = [[index_of_text[text] for text in row] for row in examples.texts]
    if examples.classes is not None:
        _, index_of_class = np.unique(examples.classes, return_inverse=True)
        targets = np.column_stack([targets, index_of_class])
    return np.array(targets, np.int32)
