"""JAX's cache of compiled programs, on disk, so that later processes need not compile them."""

import functools
import os
import sys
import time

import keras

from keras_bert.runtime.files import cache_folder, make_cache, unwritable_cache
from keras_bert.runtime.processor import instruction_sets
from keras_bert.runtime.terminal import print_line

DISABLE = "KERAS_BERT_COMPILATION_CACHE"  # the value 0 turns the cache off
_MAX_BYTES = 4 * 2**30  # JAX deletes the programs that were not used for the longest time
_WRITE_SECONDS = 120  # JAX writes a program in less, also on a slow disk
_MAX_SIZE = "jax_compilation_cache_max_size"


@functools.cache
def enable():
    """Let JAX store compiled programs in the cache folder, so that later processes load them.

    A folder or a size that the user has chosen, for example with `JAX_COMPILATION_CACHE_DIR`, is
    used as it is. If the folder cannot be used, programs are compiled as without a cache.
    """
    if keras.backend.backend() != "jax" or os.environ.get(DISABLE) == "0":
        return
    import jax

    if jax.config.values["jax_compilation_cache_dir"]:
        return
    max_size = jax.config.values[_MAX_SIZE]
    if max_size == -1 and _MAX_SIZE.upper() not in os.environ:
        max_size = _MAX_BYTES
    try:
        folder = _private_folder(is_cpu=jax.default_backend() == "cpu")
        if max_size != -1:  # without a limit, JAX writes no `KEY-atime`
            _delete_incomplete(folder)
    except (OSError, RuntimeError) as error:
        print_line(f"compiled programs are not kept: {error}", file=sys.stderr)
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update(_MAX_SIZE, max_size)


def _private_folder(is_cpu):
    """Return the folder of the programs for this processor; only this user can write to it."""
    folder = cache_folder() / "jax"  # a RuntimeError if the user has no home folder
    if is_cpu:
        # Machines with other processors may share the folder.
        folder /= "-".join(instruction_sets()) or "cpu"
    make_cache(folder, by_root=False)
    if not os.access(folder, os.W_OK):
        raise unwritable_cache(folder, "read-only")
    return folder


def _delete_incomplete(folder):
    """Delete files from a process that was killed or had no space: JAX's cache fails with them.

    JAX writes `KEY-cache` with the program, then `KEY-atime` with the time of its last use. Another
    process may be writing a file of the last minutes, so such files are kept.
    """
    first_new = time.time() - _WRITE_SECONDS
    for key in {path.name.rpartition("-")[0] for path in folder.glob("*-*")}:
        files = [folder / f"{key}-cache", folder / f"{key}-atime"]
        statuses = [_status(file) for file in files]
        is_complete = all(status is not None and status.st_size for status in statuses)
        is_new = any(status is not None and status.st_mtime > first_new for status in statuses)
        if not is_complete and not is_new:
            for file in files:
                file.unlink(missing_ok=True)


def _status(file):
    """Return the result of `os.stat`; `None` without the file, which JAX may delete at any time."""
    try:
        return file.stat()
    except FileNotFoundError:
        return None
