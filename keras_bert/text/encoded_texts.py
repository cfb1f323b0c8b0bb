"""Texts and pairs of texts as sequences of token ids."""

import numpy as np

from keras_bert.text import token_ids
from keras_bert.text.text_windows import cut, window_step


class EncodedTexts:
    """Tokenized texts or pairs, for `data.batching.Batches`. Long sequences are truncated.

    Args:
        tokenizer: A `PythonTokenizer`.
        columns: The texts, a list of strings, and for pairs the second texts.
        max_length: Maximum number of tokens of a sequence.
        targets: One row per text, or `None`.
        weights: Weight of each text in the loss, float32 (n,); `None` means 1.
        in_windows: If `True`, long texts become several sequences instead, overlapping by a
            quarter.

    Attributes:
        lengths: Tokens with special tokens, int (n,).
        truncated: Number of truncated sequences.
        empty: Number of texts without tokens per column.
        without_tokens: The sum of `empty`.
        text_of: With `in_windows`, the index of the text of each sequence, int (n,); else `None`.
    """

    def __init__(
        self, tokenizer, columns, max_length, *, targets=None, weights=None, in_windows=False
    ):
        self.max_length = max_length
        self._special_ids = tokenizer.special_ids
        self.pad_id = tokenizer.special_ids.pad
        self._targets = targets
        self._weights = np.ones(len(columns[0]), np.float32) if weights is None else weights
        self._columns = [token_ids.tokenize(tokenizer, texts) for texts in columns]
        self.empty = [int(np.sum(column.lengths == 0)) for column in self._columns]
        self.without_tokens = sum(self.empty)
        # The first token of each sequence and the end of its tokens, for each column.
        self._starts = [column.splits[:-1] for column in self._columns]
        self._ends = [column.splits[1:] for column in self._columns]
        self.text_of = None
        if in_windows:
            self._split_into_windows()
        sizes = [ends - starts for starts, ends in zip(self._starts, self._ends, strict=True)]
        total = sum(sizes) + 1 + len(sizes)
        self.lengths = np.minimum(total, max_length)
        self.truncated = int(np.sum(total > max_length))

    def _split_into_windows(self):
        (starts,) = self._starts
        (ends,) = self._ends
        size = self.max_length - 2
        self.text_of, start, end = cut(ends - starts, size, window_step(size))
        self._starts = [starts[self.text_of] + start]
        self._ends = [starts[self.text_of] + end]
        # Each text has the same weight in the loss, however long it is.
        self._weights = (self._weights / np.bincount(self.text_of)).astype(np.float32)[self.text_of]
        if self._targets is not None:
            self._targets = self._targets[self.text_of]

    def __len__(self):
        return len(self.lengths)

    def batch(self, rows, length):
        """Return inputs, targets and weights of some rows, padded to `length`.

        The inputs are three int32 arrays (batch, length). Targets (batch, ...) and weights, float32
        (batch,), are `None` without labels.
        """
        columns = [
            [column.ids[start:end] for start, end in zip(starts[rows], ends[rows], strict=True)]
            for column, starts, ends in zip(self._columns, self._starts, self._ends, strict=True)
        ]
        sequences = list(zip(*columns, strict=True))
        inputs = token_ids.pack(sequences, length, self._special_ids)
        if self._targets is None:
            return inputs, None, None
        return inputs, self._targets[rows], self._weights[rows]


class EncodedChoices:
    """Tokenized choices: each one is a pair of its text and a continuation.

    `lengths`: longest sequence of each text, int (n,). `truncated`: number of truncated sequences.
    `without_tokens`: number of texts and continuations without tokens.
    """

    def __init__(self, tokenizer, examples, max_length):
        self.max_length = max_length
        self._count = len(examples.choices[0])
        self._labels = None if examples.labels is None else np.array(examples.labels, np.int32)
        texts = [text for text in examples.texts for _ in range(self._count)]
        choices = [choice for choices in examples.choices for choice in choices]
        self._encoded = EncodedTexts(tokenizer, [texts, choices], max_length)
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
