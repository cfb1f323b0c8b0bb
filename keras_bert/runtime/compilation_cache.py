"""JAX's cache of compiled programs, on disk, so that later processes need not compile them."""

import functools
import os
import sys

import keras

from keras_bert.runtime.files import cache_folder
from keras_bert.runtime.processor import instruction_sets
from keras_bert.runtime.terminal import print_line

DISABLE = "KERAS_BERT_COMPILATION_CACHE"  # the value 0 turns the cache off
_MAX_BYTES = 4 * 2**30  # JAX deletes the programs that were not used for the longest time


@functools.cache
def enable():
    """Let JAX store compiled programs in the cache folder, so that later processes load them.

    A folder that the user has chosen, for example with `JAX_COMPILATION_CACHE_DIR`, is used as it
    is. If the folder cannot be written, programs are compiled as without a cache.
    """
    if keras.backend.backend() != "jax" or os.environ.get(DISABLE) == "0":
        return
    import jax

    if jax.config.values["jax_compilation_cache_dir"]:
        return
    folder = cache_folder() / "jax"
    if jax.default_backend() == "cpu":
        # Machines with other processors may share the folder.
        folder /= "-".join(instruction_sets()) or "cpu"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_writable = os.access(folder, os.W_OK)
    except OSError:
        is_writable = False
    if not is_writable:
        print_line(
            f"compiled programs are not kept: {folder} cannot be written. Set KERAS_BERT_CACHE to "
            "another folder",
            file=sys.stderr,
        )
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_compilation_cache_max_size", _MAX_BYTES)
