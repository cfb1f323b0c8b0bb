"""Worker processes that apply a function to a stream of inputs."""

import collections
import concurrent.futures.process
import multiprocessing
import os
import threading
import typing


def apply(function, inputs, workers):
    """Apply a function to inputs in worker processes.

    Reads only a few inputs ahead, because a slow consumer would otherwise fill the memory.

    Args:
        function: A function that can be pickled, with one argument.
        inputs: An iterable of `(key, argument)`.
        workers: Number of processes.

    Yields:
        Tuples `(key, result)`, in the order of the inputs.

    Raises:
        RuntimeError: If a worker process ended unexpectedly.
    """
    # Spawned processes do not import TensorFlow, and a fork of TensorFlow's threads can hang.
    context = multiprocessing.get_context("spawn")
    pool = concurrent.futures.ProcessPoolExecutor(workers, context, initializer=_exit_with_parent)
    pending: collections.deque[tuple] = collections.deque()
    try:
        for key, argument in inputs:
            pending.append((key, pool.submit(function, argument)))
            if len(pending) > 2 * workers:
                key, future = pending.popleft()
                yield key, future.result()
        while pending:
            key, future = pending.popleft()
            yield key, future.result()
    except concurrent.futures.process.BrokenProcessPool as error:
        raise RuntimeError(
            "a worker process ended unexpectedly; call this function inside "
            "`if __name__ == '__main__':`, or pass workers=1"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _exit_with_parent():
    """Let this worker exit when its parent is killed; it would wait for work forever."""
    parent: typing.Any = multiprocessing.parent_process()

    def wait():
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
