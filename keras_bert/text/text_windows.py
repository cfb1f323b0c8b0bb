"""Windows of texts that are longer than a model's maximum."""

from typing import NamedTuple

import numpy as np


def overlap(size):
    """Return the number of tokens that two windows of `size` tokens share. Takes tensors too."""
    return size // 4


def window_step(size):
    """Return the number of tokens between the starts of two windows."""
    return max(size - overlap(size), 1)


def cut(lengths, capacity, step):
    """Cut texts into windows.

    Args:
        lengths: Number of tokens of each text, int (texts,).
        capacity: Number of tokens that fit into a window: an int, or int (texts,).
        step: Number of tokens between the starts of two windows: an int, or int (texts,).

    Returns:
        For each window, int (windows,): the index of its text, its first token in the text, and the
        end of its tokens. A text has at least one window.

    Example:

    >>> text, start, end = cut(np.array([2, 0, 9]), 4, 3)
    >>> text.tolist(), start.tolist(), end.tolist()
    ([0, 1, 2, 2, 2], [0, 0, 0, 3, 6], [2, 0, 4, 7, 9])
    """
    counts = 1 + -(-np.maximum(lengths - capacity, 0) // step)
    text = np.repeat(np.arange(len(lengths)), counts)
    first_window = np.cumsum(counts) - counts
    index_in_text = np.arange(len(text)) - first_window[text]
    start = index_in_text * np.broadcast_to(step, lengths.shape)[text]
    end = np.minimum(start + np.broadcast_to(capacity, lengths.shape)[text], lengths[text])
    return text, start, end


class Windows(NamedTuple):
    """Ranges of tokens, one per window. Ends are exclusive.

    `start`, `end`: the tokens in the window. `label_start`, `label_end`: the tokens whose words get
    their label from this window. A field is an int, or int (windows,) for several windows.
    """

    start: np.ndarray | int
    end: np.ndarray | int
    label_start: np.ndarray | int
    label_end: np.ndarray | int


def cut_between_words(edges, capacity, stride):
    """Cut one sentence between words; return a list with the `Windows` of each window.

    `edges` has the first token of each word and the end of the sentence, int (words + 1,).
    `capacity` is the number of tokens that fit into a window; no word has more.
    """
    begin, end = int(edges[0]), int(edges[-1])
    if begin == end:
        return []
    if end - begin <= capacity:
        return [Windows(begin, end, begin, end)]
    windows: list[Windows] = []
    label_start = begin
    while True:
        limit = int(edges[np.searchsorted(edges, begin + capacity, side="right") - 1])
        if limit == end:
            return [*windows, Windows(begin, limit, label_start, end)]
        # The next window starts one stride later. If its first new word would not fit, it starts
        # even later.
        needed = edges[np.searchsorted(edges, limit, side="right")] - capacity
        following = max(
            int(edges[np.searchsorted(edges, begin + stride, side="right") - 1]),
            int(edges[np.searchsorted(edges, needed)]),
        )
        # A word belongs to the window in which it has more context. In the overlap, that is the
        # left window for words whose middle is left of the middle of the overlap.
        middles = edges[:-1] + edges[1:]
        border = int(edges[np.searchsorted(middles, limit + following, side="right")])
        windows.append(Windows(begin, limit, label_start, border))
        begin = following
        label_start = border


def max_per_text(text_of, rows):
    """Return the largest of the rows (n,) of each text; `text_of` as in `mean_per_text`."""
    if text_of is None:
        return rows
    return np.maximum.reduceat(rows, np.flatnonzero(np.diff(text_of, prepend=-1)))


def mean_per_text(text_of, rows):
    """Return the mean of the rows (n, ...) of each text.

    `text_of` has the index of the text of each row, int (n,); `None` if each row is a text.
    """
    if text_of is None:
        return rows
    starts = np.flatnonzero(np.diff(text_of, prepend=-1))
    counts = np.diff(starts, append=len(rows))
    return np.add.reduceat(rows, starts, axis=0) / counts.reshape(-1, *[1] * (rows.ndim - 1))
