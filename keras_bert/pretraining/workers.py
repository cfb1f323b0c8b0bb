"""Worker processes that apply a function to a stream of inputs."""

import collections
import concurrent.futures.process
import multiprocessing
import os
import threading
import typing

from keras_bert.runtime.processes import safe_path


def apply(function, inputs, workers):
    """Yield (key, function(argument)) for inputs (key, argument), in order, by worker processes.

    One worker is this process. The function must be picklable. Reads only a few inputs ahead,
    because a slow consumer would otherwise fill the memory. A worker that ended unexpectedly is a
    `RuntimeError`.
    """
    if workers == 1:
        for key, argument in inputs:
            yield key, function(argument)
        return
    # Spawned processes do not import TensorFlow, and a fork of TensorFlow's threads can hang.
    context = multiprocessing.get_context("spawn")
    with safe_path():  # the first semaphore starts a process
        pool = concurrent.futures.ProcessPoolExecutor(
            workers, context, initializer=_exit_with_parent
        )
    pending: collections.deque[tuple] = collections.deque()
    try:
        for key, argument in inputs:
            with safe_path():  # `submit` starts the workers
                future = pool.submit(function, argument)
            pending.append((key, future))
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
    """Make this worker exit when its parent is killed; otherwise it would wait forever."""
    parent: typing.Any = multiprocessing.parent_process()

    def wait():
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
