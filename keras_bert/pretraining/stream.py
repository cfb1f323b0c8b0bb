"""Pretraining batches, generated from records during training.

Within a window of several shards, documents become pairs, pairs become rows (one pair or several
packed pairs each), and rows become batches. A batch depends only on the seed, the epoch and its
position in the epoch, so a resumed run gets the same batches.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator

import keras
import numpy as np

from keras_bert.pretraining import packed_pairs, pairs
from keras_bert.pretraining.hash_random import key_of
from keras_bert.pretraining.masking import Masker
from keras_bert.pretraining.records import Documents, Records
from keras_bert.runtime.escaping import shown
from keras_bert.text import token_ids


@dataclasses.dataclass(frozen=True, order=True)
class StreamPosition:
    """A position in a stream: the next row is `row` of window `window` of epoch `epoch`."""

    epoch: int = 0
    window: int = 0
    row: int = 0


@dataclasses.dataclass
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

    records: Records
    batch_size: int
    sequence_length: int
    _: dataclasses.KW_ONLY
    split: str = "train"
    max_predictions: int | None = None
    masked_share: float = 0.15
    whole_words: bool = False
    short_share: float = 0.1
    next_sentence: bool = True
    packed: bool = False
    seed: int = 0
    shards_in_memory: int = 8
    worker: tuple[int, int] = (0, 1)

    def __post_init__(self):
        _, workers = self.worker
        if self.batch_size < 1 or self.batch_size % workers:
            raise ValueError(
                f"batch_size must be a multiple of the {workers} workers; received "
                f"{self.batch_size}"
            )
        self.rows = self.batch_size // workers
        self._shards = self.records.shards(self.split)
        if not self._shards:
            raise ValueError(
                f"{self.records.folder} contains no documents of the split {shown(self.split)}"
            )
        self._window_count = math.ceil(len(self._shards) / self.shards_in_memory)
        # Calls of `batches` often begin in the last window.
        self._window = functools.lru_cache(1)(self._read_window)
        if self.max_predictions is None:
            self.max_predictions = math.ceil(self.masked_share * self.sequence_length)
        preprocessor = self.records.preprocessor()
        self._masker = Masker(
            preprocessor.vocabulary, self.max_predictions, self.masked_share, self.whole_words
        )
        self._special_ids = preprocessor.python_tokenizer.special_ids
        self.texts_in_row = 1
        self.predictions_in_row = self.max_predictions
        if self.packed:
            # Enough for rows of typical pairs. Rows of only the shortest pairs are rare.
            self.texts_in_row = max(4, self.sequence_length // 16)
            # The number of masked tokens is rounded per text, and it is at least one.
            above = max(0.5, 1 - self.masked_share * (5 if self.next_sentence else 3))
            self.predictions_in_row = math.ceil(
                self.masked_share * self.sequence_length + above * self.texts_in_row
            )

    def example(self):
        """Return a batch with no rows, which shows shapes and types."""
        nothing = np.zeros(0, np.int64)
        spans = np.zeros((0, 2), np.int64)
        no_pairs = pairs.Pairs(spans, spans, nothing, special=0)
        documents = Documents(nothing, nothing, nothing)
        return self._rows(_Window(documents, no_pairs, 0, nothing, np.zeros(1, np.int64)), 0, 0)

    def batches(
        self, position: StreamPosition | None = None, epochs: int | None = None
    ) -> Iterator[tuple]:
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
        index, workers = self.worker
        own_rows = slice(index * size // workers, (index + 1) * size // workers)
        rows: list[tuple] = []  # of the current batch: (window, row)
        empty_windows = 0  # since the last row
        while epochs is None or position.epoch < epochs:
            window = self._window(position.epoch, position.window)
            empty_windows = 0 if len(window) else empty_windows + 1
            if empty_windows > self._window_count:
                raise ValueError(f"{self.records.folder}: no document has enough sentences")
            for row in range(position.row, len(window)):
                rows.append((window, row))
                if len(rows) == size:
                    position = dataclasses.replace(position, row=row + 1)
                    yield position, self._batch(rows[own_rows])
                    rows = []
            position = StreamPosition(position.epoch, position.window + 1)
            if position.window == self._window_count:
                position = StreamPosition(position.epoch + 1)
        if rows and workers == 1:
            yield position, self._batch(rows)

    def _read_window(self, epoch, index):
        """Read the documents of a window and plan its rows."""
        order = range(len(self._shards))
        if self.split == "train":
            order = sorted(order, key=lambda shard: key_of(self.seed, epoch, shard))
        names = [self._shards[at] for at in np.array_split(order, self._window_count)[index]]
        documents = self.records.read(names)
        key = key_of(self.seed, epoch, index)
        drawn = pairs.draw(
            documents,
            self.sequence_length,
            key,
            short_share=self.short_share,
            next_sentence=self.next_sentence,
        )
        if not self.packed:
            return _Window(documents, drawn, key, np.arange(len(drawn)), np.arange(len(drawn) + 1))
        rows = packed_pairs.plan(drawn.lengths, self.sequence_length, self.texts_in_row)
        rows.sort(key=lambda row: key_of(key, row[0]))  # `plan` sorts by length
        row_starts = token_ids.splits_of([len(row) for row in rows])
        return _Window(documents, drawn, key, np.concatenate(rows), row_starts)

    def _batch(self, rows):
        """Return a batch of consecutive rows, a list of (window, row)."""
        parts = []
        for _, rows_of_window in itertools.groupby(rows, key=lambda item: id(item[0])):
            windows, indices = zip(*rows_of_window, strict=True)
            parts.append(self._rows(windows[0], indices[0], indices[-1] + 1))
        return keras.tree.map_structure(lambda *arrays: np.concatenate(arrays), *parts)

    def _rows(self, window, first, end):
        """Return a batch of the rows of a window from `first` to `end`, without `end`."""
        row_starts = window.row_starts[first : end + 1]
        masked = self._masked_pairs(window, window.order[row_starts[0] : row_starts[-1]])
        if self.packed:
            batch = packed_pairs.pack(
                masked,
                np.diff(row_starts),
                self.sequence_length,
                self.texts_in_row,
                self.predictions_in_row,
                self._special_ids.pad,
            )
        else:
            batch = packed_pairs.one_per_row(masked)
        inputs, targets, weights = batch
        if not self.next_sentence:
            targets.pop("next_sentence")
            weights.pop("next_sentence")
            inputs.pop("cls_positions", None)
        return inputs, targets, weights

    def _masked_pairs(self, window, indices):
        """Return the `MaskedPairs` of the pairs with some indices."""
        texts = [window.pairs.first[indices]]
        if self.next_sentence:
            texts.append(window.pairs.second[indices])
        pieces = window.documents.pieces
        columns = [[pieces[start:end] for start, end in spans.tolist()] for spans in texts]
        sequences = list(zip(*columns, strict=True))
        packed = token_ids.pack(sequences, self.sequence_length, self._special_ids)
        lengths = window.pairs.lengths[indices]
        word_ids, positions, labels, counts = self._masker.mask(
            packed["input_word_ids"], lengths, window.key, indices
        )
        return packed_pairs.MaskedPairs(
            word_ids=word_ids,
            type_ids=packed["input_type_ids"],
            lengths=lengths,
            positions=positions,
            labels=labels,
            counts=counts,
            is_random=window.pairs.is_random[indices].astype(np.int32),
        )


@dataclasses.dataclass(frozen=True)
class _Window:
    """Documents in memory, and rows of their pairs.

    `order` has the indices of the pairs, row by row. `row_starts`, (rows + 1,), has the first place
    of each row in `order`, and the end.
    """

    documents: Documents
    pairs: pairs.Pairs
    key: int
    order: np.ndarray
    row_starts: np.ndarray

    def __len__(self):
        return len(self.row_starts) - 1
