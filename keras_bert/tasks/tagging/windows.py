"""Sentences as windows of token ids, and the tags of their words."""

import itertools
import typing

import numpy as np

from keras_bert.data.packed_layout import within
from keras_bert.data.padding import pad_outputs
from keras_bert.runtime.arguments import as_integer
from keras_bert.tasks.tagging.tag_schemes import OUTSIDE_TAGS, find_scheme
from keras_bert.text import token_ids
from keras_bert.text.encoded_texts import Encoded
from keras_bert.text.text_windows import Windows, cut_between_words, window_step


class EncodedSentences(Encoded):
    """Tokenized sentences in windows of at most `max_length` tokens.

    Windows end between words. Longer words are truncated. A sentence without tokens has no window.

    Args:
        ids: Tokens of all words, int32 (tokens,).
        counts: Number of tokens of each word, int (words,).
        sentences: Words of each sentence, lists.
        special_ids: Ids of [CLS], [SEP] and [PAD].
        max_length: Maximum number of tokens, at least 3.
        stride: Number of tokens between the starts of two windows, by default three quarters of a
            window.
        targets: Label of each word, int32 (words,), or `None`.

    Attributes:
        lengths: Length of each window with its special tokens, int (windows,).
        has_tokens: If each word has tokens, bool (words,).
        words_without_tokens: Number of words without tokens, such as white space. They are not
            used in training.
        cut_words: Number of words that are longer than a window and were truncated.
    """

    def __init__(
        self, ids, counts, sentences, special_ids, max_length, *, stride=None, targets=None
    ):
        self.max_length = as_integer("max_length", max_length, 3)
        capacity = max_length - 2
        stride = window_step(capacity) if stride is None else stride
        if not 1 <= stride <= capacity:
            raise ValueError(
                f"stride must be from 1 to max_length - 2, {capacity}; received {stride}"
            )
        self._special_ids = special_ids
        self.pad_id = special_ids[-1]
        self.has_tokens = counts > 0
        self.words_without_tokens = int((counts == 0).sum())
        self.cut_words = int((counts > capacity).sum())
        self._ids = ids[within(counts) < capacity]
        counts = np.minimum(counts, capacity)
        self._targets = None if targets is None else np.repeat(targets, counts)  # per token
        edges = token_ids.splits_of(counts)  # number of tokens before each word
        self._is_first = np.zeros(len(self._ids), bool)
        self._is_first[edges[:-1][self.has_tokens]] = True
        # A word whose tag is not known has the target -1.
        self._is_target = self._is_first
        if self._targets is not None:
            self._is_target = self._is_first & (self._targets >= 0)
        windows: list[Windows] = []
        end = 0
        for sentence in sentences:
            begin = end
            end += len(sentence)
            windows += cut_between_words(edges[begin : end + 1], capacity, stride)
        columns: typing.Any = Windows(*np.array(windows, np.int64).reshape(-1, 4).T)
        self._windows = columns
        self.lengths = columns.end - columns.start + 2
        words_before = token_ids.splits_of(self._is_target)  # of each token
        labeled_words = words_before[columns.label_end] - words_before[columns.label_start]
        # Words have equal weights, also in batches of short sentences.
        self._weight = np.float32(len(self) / max(labeled_words.sum(), 1))

    def batch(self, rows, length):
        """Return inputs, targets and weights of windows `rows`, padded to `length`.

        Inputs: a dict of three int32 arrays (batch, length). Targets: int32 (batch, length).
        Weights: float32 (batch, length), equal for all words, 0 elsewhere, with sum 1 in an average
        window. Targets and weights are `None` without tags.
        """
        rows = np.asarray(rows, np.int64)
        lengths = self.lengths[rows][:, None]
        windows = Windows(*(column[rows][:, None] for column in self._windows))  # (batch, 1)
        position = np.arange(length)
        token = windows.start + position - 1  # the window follows [CLS]
        inside = (token >= windows.start) & (token < windows.end)  # (batch, length)
        token = np.where(inside, token, 0)
        cls_id, sep_id, pad_id = self._special_ids
        ids = np.where(inside, self._ids[token], np.int32(pad_id))
        ids[:, 0] = cls_id
        ids[position == lengths - 1] = sep_id
        inputs = {
            "input_word_ids": ids,
            "input_mask": (position < lengths).astype(np.int32),
            "input_type_ids": np.zeros_like(ids),
        }
        if self._targets is None:
            return inputs, None, None
        is_labeled = inside & self._is_target[token]
        is_labeled &= (token >= windows.label_start) & (token < windows.label_end)
        targets = np.where(is_labeled, self._targets[token], np.int32(0))
        return inputs, targets, np.where(is_labeled, self._weight, np.float32(0))

    def stack_outputs(self, outputs, rows, length):
        return pad_outputs(outputs, self.lengths[rows], length, value=0)

    def positions(self, row):
        """Return the positions of the words that get their label from a window, int (words,)."""
        window = Windows(*(column[row] for column in self._windows))
        words = np.flatnonzero(self._is_first[window.label_start : window.label_end])
        return words + window.label_start - window.start + 1


def decode(labels, sentences, encoded, probabilities):
    """Return a list of (tag, probability) per sentence, one pair per word.

    `probabilities` has those of each window, (seq, labels). A word without tokens gets the inside
    tag between two words of one entity, else the outside tag (or the first label if there is
    none), with score 0.
    """
    # Windows are in text order, so the rows are in the order of the words that have tokens.
    rows = [np.zeros((0, len(labels)), np.float32)]
    rows += [window[encoded.positions(row)] for row, window in enumerate(probabilities)]
    of_words = np.concatenate(rows)
    scores = np.zeros(len(encoded.has_tokens))
    scores[encoded.has_tokens] = of_words.max(axis=-1)
    tags = np.full(len(encoded.has_tokens), None, object)
    tags[encoded.has_tokens] = np.array(labels, object)[of_words.argmax(axis=-1)]
    answers = []
    end = 0
    for sentence in sentences:
        begin = end
        end += len(sentence)
        filled = _fill_gaps(tags[begin:end].tolist(), labels)
        answers.append(list(zip(filled, scores[begin:end].tolist(), strict=True)))
    return answers


def _fill_gaps(tags, labels):
    """Replace each `None`, the tag of a word without tokens, by a tag as in `decode`."""
    default = next((tag for tag in OUTSIDE_TAGS if tag in labels), labels[0])
    filled = [default, *tags, default]
    known = [index for index, tag in enumerate(filled) if tag is not None]
    for before, after in itertools.pairwise(known):
        if after - before > 1:
            gap = _inside_tag(filled[before], filled[after], labels) or default
            filled[before + 1 : after] = [gap] * (after - before - 1)
    return filled[1:-1]


def _inside_tag(before, after, labels):
    """Return the label between two tags of one entity; `None` if they are of two."""
    scheme = find_scheme(labels)
    if scheme is None:
        return None
    position, type = scheme.split(before)
    position_after, type_after = scheme.split(after)
    if position not in "BI" or position_after not in "IE" or type != type_after:
        return None
    return next((label for label in labels if scheme.split(label) == ("I", type)), None)
