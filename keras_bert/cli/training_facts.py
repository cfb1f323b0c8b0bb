"""One line of `doctor` about training: the dtype and where compiled programs are kept."""

import keras

from keras_bert.runtime import compilation_cache, distribution


def describe():
    """Return what `dtype="auto"` chooses, and the folder of JAX's compiled programs."""
    return f'dtype="auto" is {distribution.fastest_dtype()}, {_compiled_programs()}'


def _compiled_programs():
    if keras.backend.backend() != "jax":
        return "compiled programs are kept only on JAX"
    import jax

    compilation_cache.enable()
    folder = jax.config.values["jax_compilation_cache_dir"]
    return f"compiled programs in {folder}" if folder else "compiled programs are not kept"
