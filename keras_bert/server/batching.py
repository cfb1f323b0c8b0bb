"""Dynamic batching: requests that arrive together run through the model together.

Each model has a queue with a thread. Requests that arrive while the thread is busy form its next
batch. A request gets the same outputs as it would alone: the padding that batching adds is removed.
"""

import asyncio
import concurrent.futures
import contextlib
import dataclasses

import numpy as np

from keras_bert.server import models
from keras_bert.tasks import registry

MAX_ROWS = 64  # per batch, as in the batching.config that `export` writes
_MAX_BYTES = 2**16  # per batch, after padding
_BATCH_DELAY = 0.001  # seconds that an idle queue waits for more requests
# Rows under this many bytes share batches. Longer rows share batches within a power of two.
_SHORT_ROW = 64

Arrays = dict[str, np.ndarray]


class QueueFullError(Exception):
    """Too many requests are waiting."""


class BatchQueue:
    """Runs the requests of a model in batches. At most `max_waiting` parts of requests wait."""

    def __init__(self, max_waiting: int = 1000) -> None:
        self._executor = concurrent.futures.ThreadPoolExecutor(1, "batch")
        self._max_waiting = max_waiting
        self._waiting: list[_Part] = []
        self._worker: asyncio.Task | None = None

    async def run(self, signature: models.Signature, arrays: Arrays) -> Arrays:
        """Run arrays through a signature. A large request runs in several parts.

        Raises `QueueFullError` if too many requests are waiting, and any exception of the
        signature.
        """
        if len(self._waiting) >= self._max_waiting:
            raise QueueFullError(f"{len(self._waiting)} requests are waiting. Try again later.")
        parts = _split(signature, arrays)
        self._waiting += parts
        if self._worker is None:
            self._worker = asyncio.create_task(self._run_batches())
        results = await asyncio.gather(*(part.future for part in parts))
        return results[0] if len(results) == 1 else _concatenate(results)

    def close(self) -> None:
        """Stop the thread without waiting for it."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _run_batches(self):
        """Run batches until the queue is empty."""
        await asyncio.sleep(_BATCH_DELAY)
        while self._waiting:
            batch = self._next_batch()
            try:
                results = await asyncio.get_running_loop().run_in_executor(
                    self._executor, _run_batch, batch
                )
            except RuntimeError as error:  # the queue was closed
                results = [error] * len(batch)
            for part, result in zip(batch, results, strict=True):
                if part.future.done():  # the client disconnected
                    continue
                if isinstance(result, Exception):
                    part.future.set_exception(result)
                else:
                    part.future.set_result(result)
        self._worker = None

    def _next_batch(self):
        """Remove and return the first part and the later parts that fit its batch."""
        first, *others = self._waiting
        batch = [first]
        remaining = []
        rows = first.rows
        row_size = first.row_size
        for part in others:
            total = rows + part.rows
            size = max(row_size, part.row_size)
            fits = total <= MAX_ROWS and total * size <= _MAX_BYTES
            if fits and first.batch_key is not None and part.batch_key == first.batch_key:
                batch.append(part)
                rows = total
                row_size = size
            else:
                remaining.append(part)
        self._waiting = remaining
        return batch


@dataclasses.dataclass(eq=False)
class _Part:
    """Rows of a request that run in one batch. Parts with the same key can share a batch."""

    signature: models.Signature
    arrays: Arrays
    rows: int = 1
    row_size: int = 1
    batch_key: tuple | None = None
    future: asyncio.Future = dataclasses.field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


def _split(signature, arrays):
    """Return a list of parts, each of the size of a batch where possible."""
    if not _has_independent_rows(signature, arrays):
        return [_Part(signature, arrays)]
    rows = len(next(iter(arrays.values())))
    row_size = max(1, sum(_row_size(array, rows) for array in arrays.values()))
    shapes = tuple(array.shape[1:] for array in arrays.values())
    batch_key = (signature, shapes, max(row_size, _SHORT_ROW - 1).bit_length())
    step = max(1, min(MAX_ROWS, _MAX_BYTES // row_size))
    parts = []
    for start in range(0, max(1, rows), step):
        part = {name: array[start : start + step] for name, array in arrays.items()}
        parts.append(_Part(signature, part, min(step, rows - start), row_size, batch_key))
    return parts


def _row_size(array, rows):
    """Return the bytes per row after padding. An empty text counts as one byte."""
    if array.dtype == object:
        longest = max(map(len, array.ravel()), default=0)
        return max(1, longest) * max(1, array.size // max(1, rows))
    return array.nbytes // max(1, rows)


def _has_independent_rows(signature, arrays):
    """Return True if rows can run with other rows, and padding can be removed afterwards."""
    inputs = signature.inputs.values()
    outputs = signature.outputs.values()
    if not inputs or not outputs:
        return False
    if any(not spec.shape.rank or spec.shape[0] is not None for spec in (*inputs, *outputs)):
        return False
    if len({len(array) for array in arrays.values()}) > 1:
        return False
    return (
        all(spec.dtype != "string" for spec in inputs)  # the batch key holds their shapes
        or all(spec.shape[1:].is_fully_defined() for spec in outputs)
        or _task_of_outputs(signature.outputs) is not None
    )


def _task_of_outputs(names):
    """Return the task whose exports have these outputs of variable size, or `None`."""
    for task in registry.TASKS:
        if task.variable_outputs and task.variable_outputs <= set(names):
            return task
    return None


def _run_batch(batch):
    """Return a dict of arrays or an exception per part."""
    if len(batch) > 1:
        # After an error, run each part alone to find the one that fails.
        with contextlib.suppress(Exception):
            return _run_together(batch)
    return [_run_alone(part) for part in batch]


def _run_together(batch):
    signature = batch[0].signature
    arrays = {
        name: np.concatenate([part.arrays[name] for part in batch]) for name in batch[0].arrays
    }
    outputs = signature(arrays)
    ends = np.cumsum([part.rows for part in batch])
    if any(len(array) != ends[-1] for array in outputs.values()):
        raise ValueError("an output does not have one entry per row")
    return [
        _remove_padding({name: array[end - part.rows : end] for name, array in outputs.items()})
        for part, end in zip(batch, ends, strict=True)
    ]


def _run_alone(part):
    try:
        return part.signature(part.arrays)
    except Exception as error:
        return error


def _remove_padding(outputs):
    """Remove the padding that longer texts of the same batch caused."""
    task = _task_of_outputs(outputs)
    length = None if task is None else task.length_of_rows(outputs)
    if length is None:
        return outputs
    return {
        name: array if array.ndim == 1 else array[:, :length] for name, array in outputs.items()
    }


def _concatenate(results):
    """Concatenate the outputs of parts, and pad their other dimensions to the longest."""
    outputs = {}
    for name, first in results[0].items():
        shape = np.max([result[name].shape[1:] for result in results], axis=0)
        fill = b"" if first.dtype == object else 0
        padded = []
        for result in results:
            missing = [(0, size) for size in shape - result[name].shape[1:]]
            padded.append(np.pad(result[name], [(0, 0), *missing], constant_values=fill))
        outputs[name] = np.concatenate(padded)
    return outputs
