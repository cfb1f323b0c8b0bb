"""Start processes of Python that import nothing from the current folder."""

import contextlib
import os
from collections.abc import Iterator

_SAFE_PATH = "PYTHONSAFEPATH"  # as `python -P`, also for the processes of `multiprocessing`


@contextlib.contextmanager
def safe_path() -> Iterator[None]:
    """Context manager: Python processes started in the block do not import from the current folder.

    Otherwise `python -c`, `python -m` and the workers of `multiprocessing` first search the current
    folder for the modules that they import. It may hold the files of a stranger.
    """
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = before
