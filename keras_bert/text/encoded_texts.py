"""Texts and pairs of texts as sequences of token ids."""

import typing

import numpy as np

from keras_bert.text import token_ids
from keras_bert.text.text_windows import cut, overlap

_COUNTS = (
    "truncated", "without_tokens", "words_without_tokens", "cut_words", "cut_questions",
    "cut_answers", "invisible_answers",
)  # fmt: skip


class Encoded:
    """Tokenized sequences of a task's data, for `data.batching.Batches`. Tasks have subclasses.

    Attributes:
        max_length: Tokens of the longest sequence that is allowed.
        lengths: Tokens of each sequence with special tokens, int (n,).
        has_targets: False if the data can be scored, and has no loss.
        truncated: Number of truncated texts.
        without_tokens: Number of texts without tokens.
        words_without_tokens: Number of words without tokens.
        cut_words, cut_questions, cut_answers: Numbers of those that are longer than a window.
        invisible_answers: Number of answers without tokens.
        loss: A Keras loss in place of that of the task; or `None`.
        loss_name: Name of that loss.
        compares_rows: True if the loss of one row alone is always 0.
        texts: The `EncodedTexts` of rows of texts; or `None`.
        texts_per_row: Number of texts of a row; or `None`.
        sets: Indices of the rows of each of several data sets, a list of int arrays; or `None`.
        sampling: How the batches of the sets take turns, see `data.batching.plan_of_sets`.
        gradient_caching: True if the rows of all batches of an optimizer step are compared.
        is_counted: If each sequence counts in the mean of the loss, bool (n,); `None` if all do.
    """

    max_length: int
    lengths: np.ndarray
    has_targets = True
    truncated = 0
    without_tokens = 0
    words_without_tokens = 0
    cut_words = 0
    cut_questions = 0
    cut_answers = 0
    invisible_answers = 0
    loss: typing.Any = None
    loss_name = ""
    compares_rows = False
    texts: typing.Any = None
    texts_per_row: int | None = None
    sets: list[np.ndarray] | None = None
    sampling = "proportional"
    gradient_caching = False
    is_counted: typing.Any = None

    def __len__(self):
        return len(self.lengths)

    def batch(self, rows, length):
        """Return inputs, targets and weights of some rows, padded to `length`.

        The weights of one sequence sum to 1 on average. `class_weight` changes that sum.
        """
        raise NotImplementedError

    def counted_sequences(self, rows) -> int:
        """Return how many of some rows count in the mean of the loss."""
        return len(rows) if self.is_counted is None else int(self.is_counted[rows].sum())

    def stack_outputs(self, outputs, rows, length):
        """Return the outputs of some rows as those of a batch, padded to `length`."""
        return np.stack(outputs)

    def compact(self, output):
        """Return what is kept of the output of a sequence, such as a sparse array."""
        return output

    def filler_targets(self, targets):
        """Return the targets of rows that fill a batch; `targets` are copies of those of a row."""
        return targets

    def at_step(self, batch, step: int, steps: int):
        """Return a batch of a run as it is at one of the steps, counted in batches from 0."""
        return batch

    def share_loss(self, dev: "Encoded"):
        """Use this loss for dev data, if its targets are of the same kind."""

    def counts(self) -> dict[str, int]:
        """Return how much of the data a model does not see or cannot learn from, above 0."""
        return {name: getattr(self, name) for name in _COUNTS if getattr(self, name)}


class EncodedTexts(Encoded):
    """Tokenized texts or pairs, for `data.batching.Batches`. Long sequences are truncated.

    Args:
        tokenizer: A `PythonTokenizer`.
        columns: The texts, a list of strings, and for pairs the second texts.
        max_length: Maximum number of tokens of a sequence.
        targets: One row per text, or `None`.
        weights: Weight of each text in the loss, float32 (n,); `None` means 1.
        in_windows: If `True`, long texts become several sequences instead, overlapping by a
            quarter. For pairs, only the second text is split. A first text that leaves less than
            half of the positions to a long second text is cut; `cut_questions` counts these.

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
        """Split the last column into windows; every window of a pair has the first text.

        For a text of 9 tokens, 4 of which fit into a window, the windows are the tokens 0 to 4, 3
        to 7, and 6 to 9.
        """
        room = self.max_length - 1 - len(self._columns)  # without special tokens
        starts = self._starts.pop()
        ends = self._ends.pop()
        is_pair = bool(self._starts)
        if is_pair:
            self._ends = [self._cut_first_texts(room, ends - starts)]
            room = room - (self._ends[0] - self._starts[0])
        step = np.maximum(room - overlap(room), 1)
        self.text_of, start, end = cut(ends - starts, room, step)
        self._starts = [column[self.text_of] for column in self._starts]
        self._ends = [column[self.text_of] for column in self._ends]
        self._starts.append(starts[self.text_of] + start)
        self._ends.append(starts[self.text_of] + end)
        # Each text has the same weight in the loss, however long it is. The factor of all weights
        # makes their mean 1, because the loss is divided by the number of windows.
        windows_per_text = np.bincount(self.text_of)
        weights = self._weights / windows_per_text * windows_per_text.mean()
        self._weights = weights.astype(np.float32)[self.text_of]
        if self._targets is not None:
            self._targets = self._targets[self.text_of]

    def _cut_first_texts(self, room, second_lengths):
        """Return the ends of the first texts; they leave half of the room to long second texts."""
        (starts,) = self._starts
        (ends,) = self._ends
        most = np.maximum(room // 2, room - second_lengths)
        cut_ends = np.minimum(ends, starts + most)
        self.cut_questions = int(np.sum(cut_ends < ends))
        return cut_ends

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


class EncodedChoices(Encoded):
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
