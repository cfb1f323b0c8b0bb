"""Pretraining batches, generated from records during training.

Within a window of several shards, documents become pairs, pairs become rows (one pair or several
packed pairs each), and rows become batches. A batch depends only on the seed, the epoch and its
position in the epoch, so a resumed run gets the same batches.
"""

import dataclasses
import math

import keras
import numpy as np

from keras_bert.pretraining import packing, pairs
from keras_bert.pretraining.hash_random import key_of
from keras_bert.pretraining.masking import Masker


@dataclasses.dataclass(frozen=True, order=True)
class StreamPosition:
    """A position in a stream: the next row is `row` of window `window` of epoch `epoch`."""

    epoch: int = 0
    window: int = 0
    row: int = 0


class Stream:
    r"""Batches of masked pairs from records.

    A batch is a tuple `(inputs, targets, weights)` for `heads.pretraining`. Inputs are int32:
    `input_word_ids`, `input_mask`, `input_type_ids` (batch, seq) and `masked_lm_positions` (batch,
    predictions). Targets: `masked_lm` (batch, predictions) and `next_sentence` (batch,), 1 if the
    second text is from another document. Weights are float32, 0 for unused predictions.

    Packed batches are for `packed_heads.packed_pretraining`: `text_ids` (batch, seq) replaces
    `input_mask`, `position_ids` (batch, seq) and `cls_positions` (batch, texts) are added, and
    the targets and weights of `next_sentence` are (batch, texts).

    Args:
        records: A `records.Records`.
        batch_size: Rows per batch, the sum over all workers.
        sequence_length: Positions per row.
        split: `"train"` or `"eval"`.
        max_predictions: Maximum number of masked tokens per pair. Default: `masked_share` times the
            length.
        masked_share: Share of the tokens to mask.
        whole_words: If `True`, mask all tokens of a word or none.
        short_share: Share of the pairs with a random shorter length.
        next_sentence: If `False`, use single texts instead of pairs.
        packed: If `True`, pack several pairs into a row.
        seed: Seed of pairs, masks and order.
        shards_in_memory: Shards per window. Second texts are drawn from the same window.
        worker: `(index, count)` of this worker. It gets its share of the rows of each batch.

    Attributes:
        rows: Rows per batch of this worker.
        texts_in_row, predictions_in_row: Maximum number of texts and of masked tokens per row.

    Raises:
        ValueError: If an argument is invalid or the split has no documents.

    Example:

    >>> import pathlib, tempfile
    >>> from keras_bert import Preprocessor
    >>> from keras_bert.pretraining import records
    >>> tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "."]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     text, made = pathlib.Path(folder, "corpus.txt"), pathlib.Path(folder, "records")
    ...     _ = text.write_text("A b. B a. A c.\n\nB b. C b. C a.\n")
    ...     _ = records.build([text], made, Preprocessor(tokens), workers=1)
    ...     position, batch = next(Stream(records.Records(made), 2, 16).batches())
    >>> inputs, targets, weights = batch
    >>> inputs["input_word_ids"].shape, targets["masked_lm"].shape
    ((2, 16), (2, 3))
    """

    def __init__(
        self,
        records,
        batch_size,
        sequence_length,
        *,
        split="train",
        max_predictions=None,
        masked_share=0.15,
        whole_words=False,
        short_share=0.1,
        next_sentence=True,
        packed=False,
        seed=0,
        shards_in_memory=8,
        worker=(0, 1),
    ):
        _check(batch_size, sequence_length, short_share, shards_in_memory, worker)
        if max_predictions is None:
            max_predictions = math.ceil(masked_share * sequence_length)
        self.records = records
        self.batch_size = batch_size
        self.sequence_length = sequence_length
        self.packed = packed
        self.rows = batch_size // worker[1]
        self._shards = records.shards(split)
        if not self._shards:
            raise ValueError(f"{records.folder} contains no documents of the split {split!r:.80}")
        vocabulary = records.preprocessor().vocabulary
        self._masker = Masker(vocabulary, max_predictions, masked_share, whole_words)
        ids = {token: index for index, token in enumerate(vocabulary)}
        self._pad, self._cls, self._sep = (ids[token] for token in ("[PAD]", "[CLS]", "[SEP]"))
        self._next_sentence = next_sentence
        self._short_share = short_share
        self._seed = seed
        self._is_training = split == "train"
        self._window_count = -(-len(self._shards) // shards_in_memory)
        self._worker = worker
        self._cached: tuple = None, None  # (epoch, number) of a window, and the window
        # Enough for rows of typical pairs. Rows of only the shortest pairs are rare.
        self.texts_in_row = max(4, sequence_length // 16) if packed else 1
        self.predictions_in_row = max_predictions
        if packed:
            # The number of masked tokens is rounded per text, and it is at least one.
            above = max(0.5, 1 - masked_share * (5 if next_sentence else 3))
            self.predictions_in_row = math.ceil(
                masked_share * sequence_length + above * self.texts_in_row
            )

    def example(self):
        """Return a batch with no rows, which shows shapes and types."""
        # Use the cached window: reading another one costs more than a hundred batches.
        window = self._cached[1]
        return self._rows(self._cached_window(0, 0) if window is None else window, 0, 0)

    def batches(self, position=None, epochs=None):
        """Generate batches.

        Args:
            position: A `StreamPosition` to begin with. Default: the beginning.
            epochs: Number of epochs. The last batch may be smaller; with several workers a smaller
                batch is dropped. `None`: no end.

        Yields:
            Tuples `(position after the batch, batch)`.
        """
        position = position or StreamPosition()
        size = self.batch_size
        index, workers = self._worker
        mine = slice(index * size // workers, (index + 1) * size // workers)
        waiting, rows = [], 0
        while epochs is None or position.epoch < epochs:
            window = self._cached_window(position.epoch, position.window)
            while position.row < len(window):
                taken = min(size - rows, len(window) - position.row)
                waiting.append((window, position.row, position.row + taken))
                rows += taken
                position = dataclasses.replace(position, row=position.row + taken)
                if rows == size:
                    yield position, self._batch(waiting, mine)
                    waiting, rows = [], 0
            position = StreamPosition(position.epoch, position.window + 1)
            if position.window == self._window_count:
                position = StreamPosition(position.epoch + 1)
        if rows and workers == 1:
            yield position, self._batch(waiting, slice(0, rows))

    def _cached_window(self, epoch, number):
        # Consecutive calls of `batches` often begin in the same window.
        if self._cached[0] != (epoch, number):
            self._cached = (epoch, number), self._window(epoch, number)
        return self._cached[1]

    def _window(self, epoch, number):
        """Read the documents of a window and plan its rows."""
        order = range(len(self._shards))
        if self._is_training:
            order = sorted(order, key=lambda shard: key_of(self._seed, epoch, shard))
        names = [self._shards[at] for at in np.array_split(order, self._window_count)[number]]
        documents = self.records.read(names)
        key = key_of(self._seed, epoch, number)
        drawn = pairs.draw(
            documents,
            self.sequence_length,
            key,
            short_share=self._short_share,
            next_sentence=self._next_sentence,
        )
        if not self.packed:
            return _Window(documents, drawn, key, np.arange(len(drawn)), np.ones(len(drawn), int))
        rows = packing.plan(drawn.lengths, self.sequence_length, self.texts_in_row)
        rows.sort(key=lambda row: key_of(key, row[0]))  # `plan` sorts by length
        return _Window(
            documents, drawn, key, np.concatenate(rows), np.array([len(row) for row in rows])
        )

    def _batch(self, waiting, mine):
        """Return this worker's rows of a batch; `waiting` lists (window, first, last)."""
        parts, start = [], 0
        for window, first, last in waiting:
            cut = slice(max(mine.start - start, 0), max(mine.stop - start, 0))
            rows = range(first, last)[cut]
            start += last - first
            if len(rows):
                parts.append(self._rows(window, rows.start, rows.stop))
        return keras.tree.map_structure(lambda *arrays: np.concatenate(arrays), *parts)

    def _rows(self, window, first, last):
        """Return a batch of the rows of a window from `first` to `last`, without `last`."""
        limits = window.row_starts[[first, last]]
        numbers = window.order[limits[0] : limits[1]]
        ids, type_ids, lengths = self._lay_out(window, numbers)
        masked, positions, labels, counts = self._masker.mask(ids, lengths, window.key, numbers)
        is_random = window.pairs.is_random[numbers].astype(np.int32)
        seq = self.sequence_length
        if not self.packed:
            inputs = {
                "input_word_ids": masked,
                "input_mask": (np.arange(seq) < lengths[:, None]).astype(np.int32),
                "input_type_ids": type_ids,
                "masked_lm_positions": positions,
            }
            filled = np.arange(positions.shape[1]) < counts[:, None]
            targets = {"masked_lm": labels, "next_sentence": is_random}
            weights = {
                "masked_lm": filled.astype(np.float32),
                "next_sentence": np.ones(len(ids), np.float32),
            }
        else:
            packed = packing.pack(
                {
                    "input_word_ids": masked,
                    "input_type_ids": type_ids,
                    "lengths": lengths,
                    "positions": positions,
                    "labels": labels,
                    "counts": counts,
                    "is_random": is_random,
                },
                np.diff(window.row_starts[first : last + 1]),
                seq,
                self.texts_in_row,
                self.predictions_in_row,
                self._pad,
            )
            targets = {
                "masked_lm": packed.pop("masked_lm_labels"),
                "next_sentence": packed.pop("is_random"),
            }
            weights = {
                "masked_lm": packed.pop("masked_lm_weights"),
                "next_sentence": packed.pop("is_random_weights"),
            }
            inputs = packed
        if not self._next_sentence:
            targets.pop("next_sentence")
            weights.pop("next_sentence")
            inputs.pop("cls_positions", None)
        return inputs, targets, weights

    def _lay_out(self, window, numbers):
        """Join the texts of pairs: ids and type ids int32 (pairs, seq), lengths (pairs,)."""
        drawn, seq = window.pairs, self.sequence_length
        first, second = drawn.first[numbers], drawn.second[numbers]
        first_length = np.diff(first)  # (pairs, 1)
        lengths = drawn.lengths[numbers]
        position = np.arange(seq)
        in_second = position > first_length + 1  # (pairs, seq)
        source = np.where(
            in_second, second[:, :1] + position - first_length - 2, first[:, :1] + position - 1
        )
        end = lengths[:, None] - 1
        is_text = (position > 0) & (position != first_length + 1) & (position < end)
        ids = window.documents.pieces[np.where(is_text, source, 0)].astype(np.int32)
        ids = np.where(is_text, ids, self._sep)
        ids[:, 0] = self._cls
        ids[position > end] = self._pad
        return ids, (in_second & (position <= end)).astype(np.int32), lengths


def _check(batch_size, sequence_length, short_share, shards_in_memory, worker):
    """Raise an error for an argument of `Stream` that is out of range."""
    if not 0 <= worker[0] < worker[1]:
        raise ValueError(f"worker must be (index, count) with index < count; received {worker}")
    if shards_in_memory < 1:
        raise ValueError(f"shards_in_memory must be at least 1; received {shards_in_memory}")
    if not 0 <= short_share <= 1:
        raise ValueError(f"short_share must be within 0 and 1; received {short_share}")
    if sequence_length < pairs.SHORTEST:
        raise ValueError(
            f"sequence_length must be at least {pairs.SHORTEST}; received {sequence_length}"
        )
    if batch_size < 1 or batch_size % worker[1]:
        raise ValueError(
            f"batch_size must be a multiple of the {worker[1]} workers; received {batch_size}"
        )


class _Window:
    """Documents in memory, and rows of their pairs."""

    def __init__(self, documents, drawn, key, order, sizes):
        self.documents, self.pairs, self.key = documents, drawn, key
        self.order = order  # pair indices, grouped by row
        self.row_starts = np.concatenate([[0], np.cumsum(sizes)])

    def __len__(self):
        return len(self.row_starts) - 1
