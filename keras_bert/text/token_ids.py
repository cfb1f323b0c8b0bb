"""Token ids of texts in NumPy, and sequences of them: [CLS] text [SEP] second text [SEP]."""

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from keras_bert.text.python_tokenizer import PythonTokenizer


class TokenIds(NamedTuple):
    """Token ids of several texts, one after the other.

    Attributes:
        ids: int32 (tokens,).
        splits: Text `i` has the ids `ids[splits[i] : splits[i + 1]]`; int (texts + 1,).

    Example:

    >>> from_lists([[7, 8], [], [9]]).splits.tolist()
    [0, 2, 2, 3]
    """

    ids: np.ndarray
    splits: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each text, int (texts,)."""
        return np.diff(self.splits)


def from_lists(rows: Sequence[Sequence[int]]) -> TokenIds:
    """Return the `TokenIds` of a list of ids per text."""
    splits = splits_of([len(row) for row in rows])
    ids = np.fromiter(itertools.chain.from_iterable(rows), np.int32, splits[-1])
    return TokenIds(ids, splits)


def tokenize(tokenizer: PythonTokenizer, texts: Iterable[str]) -> TokenIds:
    """Tokenize texts without [CLS] and [SEP]."""
    return from_lists(tokenizer.tokenize(texts))


def splits_of(sizes: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return the start of each of several consecutive parts, and the end of the last one."""
    return np.concatenate([[0], np.cumsum(sizes, dtype=int)])


def kept_lengths(lengths, limit, minimum=min, maximum=max):
    """Return how many tokens of one or two texts fit into a sequence of at most `limit` tokens.

    Google removes one token at a time from the longer text, on a tie from the second. In effect,
    both texts may keep half of the tokens, and a short text leaves its unused half to the other.
    `limit` includes [CLS] and [SEP]. For tensors, give the functions of TensorFlow.

    Example:

    >>> kept_lengths([9], 8), kept_lengths([9, 9], 8), kept_lengths([1, 9], 8)
    ([6], [3, 2], [1, 4])
    """
    budget = limit - 1 - len(lengths)
    if len(lengths) == 1:
        return [minimum(lengths[0], budget)]
    first, second = lengths
    return [
        minimum(first, maximum(budget - second, budget - budget // 2)),
        minimum(second, maximum(budget - first, budget // 2)),
    ]


def pack(
    sequences: Sequence[Sequence[np.ndarray]], length: int, special_ids: Sequence[int]
) -> dict[str, np.ndarray]:
    """Truncate texts, add [CLS] and [SEP], and pad.

    Args:
        sequences: For each sequence the ids of one or two texts.
        length: Length of the result.
        special_ids: Ids of [CLS], [SEP] and [PAD].

    Returns:
        A dict of `input_word_ids`, `input_mask` and `input_type_ids`, int32 (sequences, length).

    Example:

    >>> packed = pack([([7, 8], [9])], 7, (1, 2, 0))
    >>> [array.tolist() for array in packed.values()]
    [[[1, 7, 8, 2, 9, 2, 0]], [[1, 1, 1, 1, 1, 1, 0]], [[0, 0, 0, 0, 1, 1, 0]]]
    """
    cls_id, sep_id, pad_id = special_ids
    shape = (len(sequences), length)
    word_ids = np.full(shape, pad_id, np.int32)
    mask = np.zeros(shape, np.int32)
    type_ids = np.zeros(shape, np.int32)
    word_ids[:, 0] = cls_id
    for row, texts in enumerate(sequences):
        start = 1
        sizes = kept_lengths([len(ids) for ids in texts], length)
        for type_id, (ids, size) in enumerate(zip(texts, sizes, strict=True)):
            end = start + size
            word_ids[row, start:end] = ids[:size]
            word_ids[row, end] = sep_id
            type_ids[row, start : end + 1] = type_id
            start = end + 1
        mask[row, :start] = 1
    return {"input_word_ids": word_ids, "input_mask": mask, "input_type_ids": type_ids}
