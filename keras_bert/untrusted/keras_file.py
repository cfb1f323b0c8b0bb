"""Check an untrusted `.keras` file, and unpack what Keras may read of it."""

import concurrent.futures
import contextlib
import copy
import json
import math
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras

from keras_bert import keras_internals
from keras_bert.runtime import reading
from keras_bert.untrusted import containers, keras_config

_CONFIG = "config.json"
_METADATA = "metadata.json"
_WEIGHTS = "model.weights.h5"
# The vocabulary of a `Preprocessor`. No other listed object has assets.
_VOCABULARY = re.compile(r"assets/([\w-]+/){1,20}vocab\.txt", re.ASCII)
_BLOCK_BYTES = 2**20
_WEIGHTS_PER_HIDDEN_LAYER = 12
_MAX_CONFIG = 2**24  # bytes
_MAX_VOCABULARIES = 100
# Bytes of a model's variables per byte of its weights file, and for variables without weights.
_MAX_BYTES_PER_BYTE = 2
_MAX_EXTRA_BYTES = 2**16
# `Orthogonal` decomposes its matrix. At this width, 1 GB of weights takes about 10 s.
_MAX_ORTHOGONAL_WIDTH = 2048


@contextlib.contextmanager
def unpacked(file: Path) -> Iterator[Path]:
    """Yield a temporary folder that `keras.saving.load_model` can read.

    It has the weights, the vocabularies and a config with listed objects only. Raise `Refused` or
    another `ValueError` for a file that is damaged or has anything else.
    """
    with tempfile.TemporaryDirectory(prefix="keras_bert-") as temporary:
        folder = Path(temporary)
        config = keras_config.rewrite(_read_config(file))
        # Keras reads assets only from a folder with at least four entries.
        (folder / _METADATA).write_text("{}", encoding="utf-8")
        (folder / _CONFIG).write_text(json.dumps(config), encoding="utf-8")
        _unpack(file, folder)
        _check_weights(folder / _WEIGHTS, config)
        _check_variables(config, (folder / _WEIGHTS).stat().st_size)
        yield folder


def contains_code(file: Path) -> bool:
    """Return True if `unpacked` refuses the config of a `.keras` file."""
    try:
        keras_config.rewrite(_read_config(file))
    except ValueError:
        return True
    return False


def _read_config(file: Path) -> dict[str, Any]:
    names = {member.filename: member for member in containers.check_zip(file)}
    for name in (_CONFIG, _WEIGHTS):
        if name not in names:
            raise ValueError(f"{name} is missing")
    if names[_CONFIG].file_size > _MAX_CONFIG:
        raise ValueError(f"{_CONFIG} has more than {_MAX_CONFIG} bytes")
    with zipfile.ZipFile(file) as archive:
        return reading.parse_json(archive.read(_CONFIG), _CONFIG)


def _unpack(file: Path, folder: Path) -> None:
    """Unpack the weights and the vocabularies. Other members are not read."""
    with zipfile.ZipFile(file) as archive:
        names = [name for name in archive.namelist() if _VOCABULARY.fullmatch(name)]
        if len(names) > _MAX_VOCABULARIES:
            raise ValueError(f"it has {len(names)} vocabularies")
        for name in (_WEIGHTS, *names):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(name) as packed, open(target, "wb") as unpacked_file:
                shutil.copyfileobj(packed, unpacked_file, _BLOCK_BYTES)


def _check_weights(file: Path, config: dict[str, Any]) -> None:
    """Check that the weights are in the file and that no encoder has more layers than weights."""
    import h5py

    try:
        with h5py.File(file, "r") as opened:
            shapes = containers.check_hdf5(opened, file.stat().st_size)
    except (OSError, RuntimeError, KeyError, TypeError, UnicodeError) as error:
        raise ValueError(f"{_WEIGHTS} is broken: {reading.one_line(error)}") from error
    layers = keras_config.count_encoder_layers(config)
    if _WEIGHTS_PER_HIDDEN_LAYER * layers > len(shapes):
        raise ValueError(
            f"num_hidden_layers is {layers}, but the file has only {len(shapes)} weights"
        )


def _check_variables(config: dict[str, Any], stored_bytes: int) -> None:
    """Check that Keras creates the variables of a config in time and memory that fit its file.

    The model is built once without memory for its variables. This runs in its own thread because
    Keras stores uninitialized variables per thread.
    """
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        variables = thread.submit(_uninitialized_variables, config).result()
    size = sum(math.prod(variable.shape) * _item_bytes(variable.dtype) for variable in variables)
    if size > _MAX_BYTES_PER_BYTE * stored_bytes + _MAX_EXTRA_BYTES:
        raise ValueError(
            f"the config declares {size:.3g} bytes of weights, but the file has {stored_bytes:.3g}"
        )
    for variable in variables:
        initializer = keras_internals.pending_initializer(variable)
        if not isinstance(initializer, keras.initializers.Orthogonal):
            continue
        width = min(variable.shape[-1], math.prod(variable.shape[:-1]))
        if width > _MAX_ORTHOGONAL_WIDTH:
            raise ValueError(
                f"{variable.path} has the initializer Orthogonal for a matrix of width {width}; "
                f"at most {_MAX_ORTHOGONAL_WIDTH} is allowed"
            )


def _uninitialized_variables(config: dict[str, Any]) -> list[keras.Variable]:
    with keras.StatelessScope(initialize_variables=False):
        model = keras.saving.deserialize_keras_object(copy.deepcopy(config))
    variables: list[keras.Variable] = model.variables
    return variables


def _item_bytes(dtype: str) -> int:
    bits = re.search(r"\d+", dtype)
    return max(1, int(bits[0]) // 8) if bits else 1
