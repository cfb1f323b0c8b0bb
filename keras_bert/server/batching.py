"""Dynamic batching: requests that arrive together run through the model together.

Three queues by request size, each with a thread: a short text never waits for a long one. Requests
that arrive while a thread is busy form its next batch. A request gets the same outputs as it would
alone: the padding that batching adds is removed.
"""

import asyncio
import collections
import concurrent.futures

import numpy as np

MAX_ROWS = 64  # per batch, as in the batching.config that `export` writes
_BATCH_DELAY = 0.001  # seconds that an idle queue waits for more requests
# Per queue: the largest request and the largest batch, in bytes after padding.
_SIZE_LIMITS = ((1024, 8192), (32768, 32768), (float("inf"), 65536))
# Rows under this many bytes share batches. Longer rows share batches within a power of two.
_SHORT_ROW = 64
_TAGGER = {"token", "tag", "score", "start", "end", "count"}
_MASKED_LM = {"candidates", "scores"}
_MULTIPLE_CHOICE = {"choice", "probabilities"}
# Outputs whose size depends on the inputs. `_remove_padding` knows the first two. The last depends
# on the number of choices, which is the same for all requests of a batch.
_VARIABLE_SIZE = (_TAGGER, _MASKED_LM, _MULTIPLE_CHOICE)


class QueueFullError(Exception):
    """Too many requests are waiting."""


class BatchScheduler:
    """Runs requests in batches. Each queue holds at most `max_waiting` requests."""

    def __init__(self, max_waiting=1000):
        self._queues = [_Queue(max_batch, max_waiting) for _, max_batch in _SIZE_LIMITS]

    async def run(self, signature, arrays):
        """Run a dict of arrays through a `models.Signature` and return a dict of arrays.

        Raises `QueueFullError` if too many requests are waiting, and any exception of the
        signature.
        """
        request = _Request(signature, arrays, asyncio.get_running_loop().create_future())
        index = next(i for i, (max_size, _) in enumerate(_SIZE_LIMITS) if request.size <= max_size)
        return await self._queues[index].run(request)

    def close(self):
        """Stop the threads without waiting for them."""
        for queue in self._queues:
            queue.executor.shutdown(wait=False, cancel_futures=True)


class _Queue:
    """Waiting requests of similar size, and the thread that runs them."""

    def __init__(self, max_batch_size, max_waiting):
        self.executor = concurrent.futures.ThreadPoolExecutor(1, "batch")
        self._max_batch_size = max_batch_size
        self._max_waiting = max_waiting
        self._waiting: collections.deque[_Request] = collections.deque()
        self._worker: asyncio.Task | None = None

    async def run(self, request):
        if len(self._waiting) >= self._max_waiting:
            raise QueueFullError(f"{len(self._waiting)} requests are waiting. Try again later.")
        self._waiting.append(request)
        if self._worker is None:
            self._worker = asyncio.create_task(self._run_batches())
        return await request.future

    async def _run_batches(self):
        """Run batches until the queue is empty."""
        await asyncio.sleep(_BATCH_DELAY)
        while self._waiting:
            batch = self._next_batch()
            try:
                results = await asyncio.get_running_loop().run_in_executor(
                    self.executor, _run_batch, batch, self._max_batch_size
                )
            except RuntimeError as error:  # the scheduler was closed
                results = [error] * len(batch)
            for request, result in zip(batch, results, strict=True):
                if request.future.done():  # the client disconnected
                    continue
                if isinstance(result, Exception):
                    request.future.set_exception(result)
                else:
                    request.future.set_result(result)
        self._worker = None

    def _next_batch(self):
        """Remove and return the first request and the later requests that fit its batch."""
        first = self._waiting.popleft()
        batch, rows, row_size = [first], first.rows, first.row_size
        if not first.can_batch:
            return batch
        remaining: collections.deque[_Request] = collections.deque()
        while self._waiting:
            request = self._waiting.popleft()
            size = max(row_size, request.row_size)
            total = rows + request.rows
            fits = total <= MAX_ROWS and total * size <= self._max_batch_size
            if fits and request.batch_key == first.batch_key:
                batch.append(request)
                rows, row_size = total, size
            else:
                remaining.append(request)
        self._waiting = remaining
        return batch


class _Request:
    """A request, its size, and the key that it shares with requests of the same batch."""

    def __init__(self, signature, arrays, future):
        self.signature = signature
        self.arrays = arrays
        self.future = future
        self.can_batch = _can_batch(signature)
        self.rows = len(next(iter(arrays.values()))) if self.can_batch else 1
        self.can_batch &= all(len(array) == self.rows for array in arrays.values())
        self.row_size = sum(_row_size(array, self.rows) for array in arrays.values())
        self.size = self.rows * self.row_size
        shapes = tuple(array.shape[1:] for array in arrays.values()) if self.can_batch else None
        self.batch_key = (signature, shapes, max(self.row_size, _SHORT_ROW - 1).bit_length())

    def split(self, max_size):
        """Return a list of dicts of arrays, each with at most `max_size` bytes where possible."""
        step = max(1, min(MAX_ROWS, max_size // max(1, self.row_size)))
        if not self.can_batch or self.rows <= step:
            return [self.arrays]
        return [
            {name: array[start : start + step] for name, array in self.arrays.items()}
            for start in range(0, self.rows, step)
        ]


def _row_size(array, rows):
    """Return the bytes per row after padding. An empty text counts as one byte."""
    if array.dtype == object:
        longest = max(map(len, array.ravel()), default=0)
        return max(1, longest) * max(1, array.size // max(1, rows))
    return max(1, array.nbytes // max(1, rows))


def _can_batch(signature):
    """Return True if rows are independent and padding can be removed from the outputs."""
    inputs, outputs = signature.inputs.values(), signature.outputs
    if not inputs or not outputs:
        return False
    if any(not spec.shape or spec.shape[0] is not None for spec in (*inputs, *outputs.values())):
        return False
    return (
        all(spec.dtype != "object" for spec in inputs)  # the batch key holds their shapes
        or all(None not in spec.shape[1:] for spec in outputs.values())
        or any(set(outputs) >= names for names in _VARIABLE_SIZE)
    )


def _run_batch(batch, max_size):
    """Return a dict of arrays or an exception per request."""
    if len(batch) > 1:
        try:
            return _run_together(batch)
        except Exception:  # run each request alone to find the one that fails
            pass
    return [_run_alone(request, max_size) for request in batch]


def _run_together(batch):
    arrays = {
        name: np.concatenate([request.arrays[name] for request in batch])
        for name in batch[0].arrays
    }
    outputs = _call(batch[0].signature, arrays, sum(request.rows for request in batch))
    ends = np.cumsum([request.rows for request in batch])
    return [
        _remove_padding({name: array[end - request.rows : end] for name, array in outputs.items()})
        for request, end in zip(batch, ends, strict=True)
    ]


def _run_alone(request, max_size):
    """Run one request, in several calls if it is large. Return its exception if one fails."""
    try:
        parts = request.split(max_size)
        if len(parts) == 1:
            return request.signature(parts[0])
        results = [_call(request.signature, part, len(next(iter(part.values())))) for part in parts]
        return {name: _concatenate([result[name] for result in results]) for name in results[0]}
    except Exception as error:
        return error


def _call(signature, arrays, rows):
    """Call a signature and check that each output has one entry per row."""
    outputs = signature(arrays)
    for name, array in outputs.items():
        if array.shape[:1] != (rows,):
            raise ValueError(
                f"Output {name!r} has shape {array.shape} for {rows} rows. Its first dimension "
                f"must be {rows}."
            )
    return outputs


def _remove_padding(outputs):
    """Remove the padding that longer requests of the same batch caused."""
    if set(outputs) >= _TAGGER:
        length = int(outputs["count"].max(initial=0))
    elif set(outputs) >= _MASKED_LM:
        length = int((outputs["candidates"] != b"").any(axis=2).sum(axis=1).max(initial=0))
    else:
        return outputs
    return {n: array if array.ndim == 1 else array[:, :length] for n, array in outputs.items()}


def _concatenate(arrays):
    """Concatenate arrays along the rows and pad their other dimensions to the longest."""
    shape = np.max([array.shape[1:] for array in arrays], axis=0)
    padded = [
        np.pad(
            array,
            [(0, 0), *((0, to - size) for to, size in zip(shape, array.shape[1:], strict=True))],
            constant_values=b"" if array.dtype == object else 0,
        )
        for array in arrays
    ]
    return np.concatenate(padded)
