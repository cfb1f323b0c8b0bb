"""Batches of sequences of similar length, which contain little padding.

Encoded sequences are objects such as `text.encoded_texts.EncodedTexts`, with these attributes:

    lengths              length of each sequence, int (n,)
    max_length           maximum length of a sequence
    batch(rows, length)  (inputs, targets, weights) of the sequences with the indices `rows`: arrays
                         or dicts of arrays; targets and weights are `None` without labels
    filler_targets(targets)  the targets of rows of weight 0; `targets` are copies of a row's
    counted_sequences(rows)  how many of the sequences count in the mean of the loss

The loss of some sequences is the sum of (weight * loss) over their targets, divided by the number
of sequences that count. A weight does not change the divisor. Padding has weight 0.
"""

import collections
import functools
import itertools
import math

import keras
import numpy as np

from keras_bert.runtime.arguments import as_integer

# Lengths that batches are padded to for compiled steps. Each length costs a compilation.
LENGTHS = (
    16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192
)  # fmt: skip
_FEW_ROWS = 32  # compiled batches have 1 row, or at least this number or the batch size
_POOL = 50  # batches whose sequences are sorted by length together


class Batches:
    """The batches of one epoch, each padded to its longest sequence.

    `seed`, such as (seed, epoch), sets the order. `lengths` limits the shapes of compiled steps: a
    batch is padded to the next of these increasing lengths, at most to `max_length`, and filled
    with rows of weight 0 to `batch_size`. Each batch is also filled to a multiple of `devices`, the
    number of devices that share it.

    rows: indices of the sequences of each batch, list of int arrays
    sizes: number of rows of each batch, with those of weight 0
    """

    def __init__(self, encoded, batch_size, seed, lengths=None, devices=1):
        self._encoded = encoded
        self._lengths = lengths
        sizes = encoded.lengths
        if lengths is not None:
            # Sequences that are padded to the same length stay in random order. Otherwise a batch
            # could hold, for example, the windows of one paragraph, whose lengths are similar.
            sizes = np.searchsorted(lengths, sizes)
        self.rows = plan_of_sets(
            encoded, seed, lambda rows, seed: _plan(sizes[rows], batch_size, seed)
        )
        self.sizes = [
            next_multiple(len(rows) if lengths is None else batch_size, devices)
            for rows in self.rows
        ]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        """Return (inputs,), or (inputs, targets, weights) if there are labels."""
        rows = self.rows[index]
        inputs, targets, weights = self._encoded.batch(rows, self._padded(self.longest(index)))
        missing = self.sizes[index] - len(rows)
        if targets is None:
            return (_fill(inputs, missing),)
        return fill((inputs, targets, weights), missing, self._encoded.filler_targets)

    def longest(self, index):
        """Return the length of the longest sequence of a batch."""
        return int(self._encoded.lengths[self.rows[index]].max())

    def _padded(self, length):
        """Return the length that a batch is padded to."""
        if self._lengths is None:
            return length
        return compiled_length(length, self._encoded.max_length, self._lengths)


class SortedBatches(Batches):
    """The batches of sequences without an order, the longest first.

    A batch has `batch_size` rows, and more as long as it has at most `positions` positions with its
    padding. For compiled steps, few sequences get a smaller `batch_size`, see `rows_of_program`.
    `chosen` are the indices of the sequences; `None` means all. The others are as in `Batches`.
    """

    def __init__(self, encoded, batch_size, lengths=None, positions=0, chosen=None, devices=1):
        self._encoded = encoded
        self._lengths = lengths
        batch_size = as_integer("batch_size", batch_size, 1)
        chosen = np.arange(len(encoded.lengths)) if chosen is None else chosen
        order = chosen[np.argsort(-encoded.lengths[chosen], kind="stable")]
        if lengths is not None:
            batch_size = rows_of_program(len(order), batch_size)
        self.rows, self.sizes = [], []
        start = 0
        while start < len(order):
            size = max(batch_size, positions // self._padded(int(encoded.lengths[order[start]])))
            self.rows.append(order[start : start + size])
            size_of_batch = len(self.rows[-1]) if lengths is None else size
            self.sizes.append(next_multiple(size_of_batch, devices))
            start += size


def as_sums(losses):
    """Return copies of losses, a loss or a dict of losses, that sum over the targets."""
    return keras.tree.map_structure(_as_sum, losses)


def _as_sum(loss):
    # `from_config` and `copy.copy` use the config, which can lack arguments of a loss of the user.
    copied = object.__new__(type(loss))
    copied.__dict__.update(loss.__dict__)
    copied.reduction = "sum"
    return copied


def mean_loss(losses, factors, encoded, outputs, rows_per_batch):
    """Return the mean loss of outputs over the sequences that count.

    Args:
        losses: The loss, or a dict of losses by output.
        factors: The factor of the loss, or a dict of those of each output.
        encoded: Encoded sequences with targets.
        outputs: The outputs for each sequence, a list.
        rows_per_batch: Indices of the sequences of each batch. A loss may compare them.
    """
    losses = as_sums(losses)
    total = 0.0
    count = 0
    for rows in rows_per_batch:
        length = int(encoded.lengths[rows].max())
        _, targets, weights = encoded.batch(rows, length)
        stacked = encoded.stack_outputs([outputs[row] for row in rows], rows, length)
        parts = keras.tree.map_structure(
            lambda loss, factor, *arrays: factor * float(loss(*arrays)),
            losses, factors, targets, stacked, weights,
        )  # fmt: skip
        total += sum(keras.tree.flatten(parts))
        count += encoded.counted_sequences(rows)
    return total / max(count, 1)


def compiled_length(length, maximum, lengths=LENGTHS):
    """Return the next of some increasing lengths, at most `maximum`.

    Example:

    >>> compiled_length(33, 512), compiled_length(33, 40), compiled_length(3000, 4096)
    (48, 40, 3072)
    """
    return min(_next_length(length, lengths), maximum)


def rows_of_program(count, batch_size):
    """Return how many rows a compiled batch has if there are `count` sequences in all.

    There are few such numbers, since each one costs a compilation: 1, 32, 64, 128, ..., and
    `batch_size`, the maximum.

    Example:

    >>> [rows_of_program(count, batch_size=100) for count in (1, 2, 33, 1000)]
    [1, 32, 64, 100]
    """
    if count == 1:
        return 1
    power_of_two = 2 ** (count - 1).bit_length()
    return min(batch_size, max(_FEW_ROWS, power_of_two))


def next_multiple(number, divisor):
    """Return the smallest multiple of `divisor` that is at least `number`.

    Example:

    >>> next_multiple(12, 8), next_multiple(16, 8)
    (16, 16)
    """
    return -(-number // divisor) * divisor


def fill(batch, missing, filler_targets):
    """Append `missing` rows of weight 0 to a batch: (inputs, targets, weights).

    They are copies of the first row. `filler_targets` is a function of the copies of its targets.
    """
    inputs, targets, weights = batch
    targets = _fill(targets, missing, filler_targets)
    weights = _fill(
        weights, missing, lambda copies: keras.tree.map_structure(np.zeros_like, copies)
    )
    return _fill(inputs, missing), targets, weights


def _next_length(length, lengths):
    return next((size for size in lengths if size >= length), length)


def plan_of_sets(encoded, seed, plan):
    """Return the indices of the sequences of each batch, so that a batch is of one data set.

    `encoded` has `sets`, the indices of the sequences of each set or `None`, and `sampling`:
    "proportional" (all batches of all sets in random order) or "round_robin" (one batch of each set
    in turn, until a set ends). `plan` is a function from sequences and a seed to batches of
    indices into these sequences.
    """
    sets = encoded.sets
    if sets is None:
        return plan(slice(None), seed)
    plans = [
        [rows[chosen] for chosen in plan(rows, (*seed, number))] for number, rows in enumerate(sets)
    ]
    if encoded.sampling == "round_robin":
        return [chosen for turn in zip(*plans, strict=False) for chosen in turn]
    batches = list(itertools.chain(*plans))
    return [batches[index] for index in np.random.default_rng(seed).permutation(len(batches))]


def choose_compiled_lengths(needed, cost, share):
    """Choose some of `LENGTHS` to compile steps for; `None` if it is faster not to compile.

    `needed` holds the length of the longest sequence of each batch of a run. `cost` is the time to
    compile for one length, in positions of a batch computed without compiling. `share` is the time
    of a compiled step relative to a step that is not compiled, 0 to 1.
    """
    lengths, time = _cheapest_lengths(needed, cost / share, len(LENGTHS))
    return lengths if share * time < sum(needed) else None


def choose_lengths(needed, cost, most, compiled=(), limit=None):
    """Choose the lengths that batches are padded to, where all steps are compiled.

    `needed` and `cost` are as in `choose_compiled_lengths`. There are at most `most` lengths, with
    those that are already `compiled`. If there are `most` and all are too short, `limit` is added.

    Example:

    >>> choose_lengths([20] * 1000 + [100] * 1000, cost=1000, most=3)
    (24, 128)
    >>> choose_lengths([20], cost=1000, most=3, compiled=(64, 128))
    (64, 128)
    """
    lengths, _ = _cheapest_lengths(needed, cost, most, compiled)
    return lengths if max(needed) <= lengths[-1] else (*lengths, limit)


def _cheapest_lengths(needed, cost, most, compiled=()):
    """Return increasing lengths, with those that are `compiled`, and the time of the run."""
    counts = collections.Counter(_next_length(length, LENGTHS) for length in needed)
    candidates = sorted({*counts, *compiled})

    @functools.cache
    def cheapest(start, new):
        """Return the time and lengths for `candidates[start:]`, with at most `new` new lengths."""
        if start == len(candidates):
            return 0, ()
        best, chosen = math.inf, ()
        batches = 0
        for index in range(start, len(candidates)):  # the first length that is chosen
            length = candidates[index]
            batches += counts[length]
            is_new = length not in compiled
            if new or not is_new:
                time, longer = cheapest(index + 1, new - is_new)
                time += batches * length + (cost if is_new else 0)
                if time < best:
                    best, chosen = time, (length, *longer)
            if not is_new:
                break
        return best, chosen

    best, chosen = cheapest(0, max(0, most - len(compiled)))
    return (tuple(compiled) if best == math.inf else chosen), best


def _fill(arrays, missing, change=None):
    """Append `missing` copies of the first row, or what `change` returns for the copies."""
    if not missing:
        return arrays
    copies = keras.tree.map_structure(lambda array: np.repeat(array[:1], missing, axis=0), arrays)
    if change is not None:
        copies = change(copies)
    return keras.tree.map_structure(lambda *arrays: np.concatenate(arrays), arrays, copies)


def _plan(lengths, batch_size, seed):
    """Return the indices of the sequences of each batch, a list of int arrays."""
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(lengths))
    batches = []
    for start in range(0, len(order), _POOL * batch_size):
        pool = order[start : start + _POOL * batch_size]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        batches += [pool[first : first + batch_size] for first in range(0, len(pool), batch_size)]
    return [batches[index] for index in generator.permutation(len(batches))]
