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
# Parameters of a model per number in its file. Quantized kernels pack two into one number.
_MAX_PARAMETERS_PER_NUMBER = 2
_MAX_EXTRA_PARAMETERS = 1000


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
        stored = _check_weights(folder / _WEIGHTS, config)
        _check_parameters(config, stored)
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


def _check_weights(file: Path, config: dict[str, Any]) -> int:
    """Check that the weights are in the file and that no encoder has more layers than weights.

    Return the number of values.
    """
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
    return sum(math.prod(shape) for shape in shapes.values())


def _check_parameters(config: dict[str, Any], stored: int) -> None:
    """Check that the model of a config has about as many parameters as its file.

    The model is built once without memory for its variables. This runs in its own thread because
    Keras stores uninitialized variables per thread.
    """

    def count() -> int:
        with keras.StatelessScope(initialize_variables=False):
            model = keras.saving.deserialize_keras_object(copy.deepcopy(config))
        return sum(math.prod(variable.shape) for variable in model.variables)

    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        parameters = thread.submit(count).result()
    if parameters > _MAX_PARAMETERS_PER_NUMBER * stored + _MAX_EXTRA_PARAMETERS:
        raise ValueError(
            f"the config declares {parameters:.3g} parameters, but the file has {stored:.3g}"
        )
