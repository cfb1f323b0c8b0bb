"""Requests that come together are answered together: many texts cost little more than one.

A request goes by its size into one of three lanes, each with a thread of its own, so that a short
text never waits for a long one to be done. While a lane is at work what arrives is gathered, and
the next batch takes as much of it as fits. Requests of one batch are of like length, so padding
is small, and whoever is padded for the sake of others gets it cut off again: an answer is the one
that the request would get alone.
"""

import asyncio
import collections
import concurrent.futures

import numpy as np

MAX_ROWS = 64  # of a batch, as in the batching.config of `production`
_WAIT = 0.001  # seconds for others, of a request that finds its lane idle
# A lane takes requests up to so many bytes, padded, and makes batches up to so many.
_LANES = ((1024, 8192), (32768, 32768), (float("inf"), 65536))
_LIKE = 64  # texts shorter than this are of like length; beyond, within a power of two
# Answers of ours to texts that are longer for longer ones: filled up, and cut in `_cut`, or as
# many as there are choices, on which requests of a batch agree.
_FILLED = (
    {"token", "tag", "score", "start", "end", "count"},
    {"candidates", "scores"},
    {"choice", "probabilities"},
)


class Lanes:
    """Answers requests in batches.

    Args:
        max_waiting: requests that may wait in a lane.

    Example:

    >>> from keras_bert.serving import models, rest
    >>> double = models.Signature(
    ...     {"x": rest.Spec("float32", (None,))}, {"y": rest.Spec("float32", (None,))},
    ...     lambda x: {"y": x * 2})
    >>> async def main():
    ...     lanes = Lanes()
    ...     answers = [lanes.run(double, {"x": np.float32([n])}) for n in range(3)]
    ...     return await asyncio.gather(*answers)
    >>> [answer["y"].tolist() for answer in asyncio.run(main())]
    [[0.0], [2.0], [4.0]]
    """

    def __init__(self, max_waiting=1000):
        self._lanes = [_Lane(limit, max_waiting) for _, limit in _LANES]

    async def run(self, signature, arrays):
        """The answer to a request.

        Args:
            signature: a `models.Signature`.
            arrays: dict of arrays that fit it.

        Returns:
            dict of arrays.

        Raises:
            ConnectionRefusedError: too many requests are waiting.
            Exception: what the signature raised at these arrays.
        """
        request = _Request(signature, arrays, asyncio.get_running_loop().create_future())
        lane = next(lane for lane, (size, _) in enumerate(_LANES) if request.size <= size)
        return await self._lanes[lane].run(request)

    def close(self):
        """Lets the threads end, without waiting for them."""
        for lane in self._lanes:
            lane.threads.shutdown(wait=False, cancel_futures=True)


class _Lane:
    def __init__(self, max_size, max_waiting):
        self.threads = concurrent.futures.ThreadPoolExecutor(1, "lane")
        self._max_size = max_size
        self._max_waiting = max_waiting
        self._waiting: collections.deque[_Request] = collections.deque()
        self._work: asyncio.Task | None = None

    async def run(self, request):
        if len(self._waiting) >= self._max_waiting:
            raise ConnectionRefusedError("too many requests are waiting; try again later")
        self._waiting.append(request)
        if self._work is None:
            self._work = asyncio.create_task(self._drain())
        return await request.future

    async def _drain(self):
        await asyncio.sleep(_WAIT)
        while self._waiting:
            batch = self._take()
            try:
                answers = await asyncio.get_running_loop().run_in_executor(
                    self.threads, _answer, batch, self._max_size
                )
            except RuntimeError as error:  # the lanes were closed
                answers = [error] * len(batch)
            for request, answer in zip(batch, answers, strict=True):
                if request.future.done():  # its client has gone
                    continue
                if isinstance(answer, Exception):
                    request.future.set_exception(answer)
                else:
                    request.future.set_result(answer)
        self._work = None

    def _take(self):
        """The first request, and those behind it that may join."""
        first = self._waiting.popleft()
        batch, rows, row_size = [first], first.rows, first.row_size
        if not first.joins:
            return batch
        others: collections.deque[_Request] = collections.deque()
        while self._waiting:
            request = self._waiting.popleft()
            size = max(row_size, request.row_size)
            total = rows + request.rows
            if request.key == first.key and total <= MAX_ROWS and total * size <= self._max_size:
                batch.append(request)
                rows, row_size = total, size
            else:
                others.append(request)
        self._waiting = others
        return batch


class _Request:
    """A request with what a lane has to know of it."""

    def __init__(self, signature, arrays, future):
        self.signature = signature
        self.arrays = arrays
        self.future = future
        self.joins = _joins(signature)
        self.rows = len(next(iter(arrays.values()))) if self.joins else 1
        self.joins &= all(len(array) == self.rows for array in arrays.values())
        self.row_size = sum(_row_size(array, self.rows) for array in arrays.values())
        self.size = self.rows * self.row_size
        shapes = tuple(array.shape[1:] for array in arrays.values()) if self.joins else None
        self.key = (signature, shapes, max(self.row_size, _LIKE - 1).bit_length())

    def parts(self, max_size):
        """The rows as parts that are not too large, each a dict of arrays."""
        step = max(1, min(MAX_ROWS, max_size // max(1, self.row_size)))
        if not self.joins or self.rows <= step:
            return [self.arrays]
        return [
            {name: array[start : start + step] for name, array in self.arrays.items()}
            for start in range(0, self.rows, step)
        ]


def _row_size(array, rows):
    """Bytes of a row, when each is padded to the longest; an empty text is work as well."""
    if array.dtype == object:
        longest = max(map(len, array.ravel()), default=0)
        return max(1, longest) * max(1, array.size // max(1, rows))
    return max(1, array.nbytes // max(1, rows))


def _joins(signature):
    """Whether rows are answered one by one, and the answer's shape is known for each.

    What a function of strings of somebody else gives in a shape of its own is not: nobody can
    tell there what is padding.
    """
    inputs, outputs = signature.inputs.values(), signature.outputs
    if not inputs or not outputs:
        return False
    if any(not spec.shape or spec.shape[0] is not None for spec in (*inputs, *outputs.values())):
        return False
    return (
        all(spec.dtype != "object" for spec in inputs)  # their shapes are part of the key
        or all(None not in spec.shape[1:] for spec in outputs.values())
        or set(outputs) in _FILLED
    )


def _answer(batch, max_size):
    """The answers of a batch, each a dict of arrays or an exception."""
    if len(batch) > 1:
        try:
            return _together(batch)
        except Exception:  # whose fault it was shows when each runs alone
            pass
    return [_alone(request, max_size) for request in batch]


def _together(batch):
    """One run for all."""
    arrays = {
        name: np.concatenate([request.arrays[name] for request in batch])
        for name in batch[0].arrays
    }
    outputs = _run(batch[0].signature, arrays, sum(request.rows for request in batch))
    ends = np.cumsum([request.rows for request in batch])
    return [
        _cut({name: array[end - request.rows : end] for name, array in outputs.items()})
        for request, end in zip(batch, ends, strict=True)
    ]


def _alone(request, max_size):
    """One request, in as many runs as its size asks for."""
    try:
        parts = request.parts(max_size)
        if len(parts) == 1:
            return request.signature(parts[0])
        answers = [_run(request.signature, part, len(next(iter(part.values())))) for part in parts]
        return {name: _stack([answer[name] for answer in answers]) for name in answers[0]}
    except Exception as error:
        return error


def _run(signature, arrays, rows):
    outputs = signature(arrays)
    for name, array in outputs.items():
        if array.shape[:1] != (rows,):
            raise ValueError(f"output {name!r} of {rows} rows has the shape {array.shape}")
    return outputs


def _cut(outputs):
    """Takes the padding off that the rows of others brought."""
    if set(outputs) == _FILLED[0]:
        length = int(outputs["count"].max(initial=0))
    elif set(outputs) == _FILLED[1]:
        length = int((outputs["candidates"] != b"").any(axis=2).sum(axis=1).max(initial=0))
    else:
        return outputs
    return {n: array if array.ndim == 1 else array[:, :length] for n, array in outputs.items()}


def _stack(arrays):
    """Rows of several runs below each other, each padded to the longest as in one run."""
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
