"""Load an untrusted `.keras` file."""

import math
import re
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import keras

from keras_bert import keras_private
from keras_bert.hub import keras_config
from keras_bert.hub.keras_config import Refused
from keras_bert.runtime import budget, reading
from keras_bert.runtime.escaping import shown
from keras_bert.untrusted import containers
from keras_bert.untrusted.errors import invalid

_CONFIG = "config.json"
_WEIGHTS = "model.weights.h5"
_ASSETS = "assets"
_OPTIMIZER = "optimizer/"
# The vocabulary of a `Preprocessor`. No other listed object has assets.
_VOCABULARY = re.compile(r"assets/([\w-]+/){1,20}vocab\.txt", re.ASCII)
_WEIGHTS_PER_HIDDEN_LAYER = 12


def load(file: Path) -> keras.Model:
    """Load a `.keras` file that has only the layers in `keras_config`.

    Raise `Refused` for any other object, and another `ValueError` for a damaged file.
    """
    with tempfile.TemporaryDirectory(prefix="keras_bert-") as temporary:
        folder = Path(temporary)
        with containers.open_zip(file) as archive:
            config = _read_config(archive)
            _unpack(archive, folder)
        datasets = _check_weights(folder / _WEIGHTS)
        weights_size = _WeightsSize((folder / _WEIGHTS).stat().st_size)
        with keras_private.variables_of_zeros(weights_size.add):
            model = keras_config.build(config, len(datasets) // _WEIGHTS_PER_HIDDEN_LAYER)
        _check_dtypes(datasets, model.variables)
        paths = keras_private.load_state(model, folder / _WEIGHTS, folder / _ASSETS)
        _check_all_read(datasets, paths)
        return model


def check(file: Path) -> str | None:
    """Check a `.keras` file that was just written.

    Returns:
        What `load` refuses in its config, or `None`.

    Raises:
        OSError: If a byte of the file is wrong.
    """
    with zipfile.ZipFile(file) as archive:
        damaged = archive.testzip()
        if damaged is not None:
            raise OSError(f"{damaged} was not written as a whole. Check the disk, and save again")
        config = _read_config(archive)
    try:
        with keras_private.variables_without_values(lambda variable: None):
            keras_config.build(config, max_hidden_layers=sys.maxsize)
    except Refused as error:
        return str(error)
    return None


def _read_config(archive: zipfile.ZipFile) -> dict[str, Any]:
    names = archive.namelist()
    if _CONFIG not in names or _WEIGHTS not in names:
        raise ValueError(f"{_CONFIG} or {_WEIGHTS} is missing")
    return reading.parse_json(containers.read_member(archive, _CONFIG), _CONFIG)


def _unpack(archive: zipfile.ZipFile, folder: Path) -> None:
    """Unpack the weights and the vocabularies. Other members are not read."""
    vocabularies = [name for name in archive.namelist() if _VOCABULARY.fullmatch(name)]
    budget.check(len(vocabularies), "vocabularies", budget.MAX_LAYERS)
    archive.extractall(folder, [_WEIGHTS, *vocabularies])


def _check_weights(file: Path) -> dict[str, containers.Dataset]:
    """Return the descriptions of the weights, which must be complete."""
    import h5py

    try:
        with h5py.File(file, "r") as opened:
            return containers.check_hdf5(opened, file.stat().st_size)
    except Exception as error:  # h5py raises many types
        raise invalid(_WEIGHTS, "must be a complete HDF5 file", error) from error


class _WeightsSize:
    """Limits the bytes of a model's variables to a multiple of the size of its weights file."""

    def __init__(self, stored_bytes: int) -> None:
        self._stored_bytes = stored_bytes
        self._declared_bytes = 0

    def add(self, variable: keras.Variable) -> None:
        self._declared_bytes += math.prod(variable.shape) * _item_bytes(variable.dtype)
        unit = "bytes of weights in its config"
        budget.check_growth(self._declared_bytes, unit, self._stored_bytes)


def _item_bytes(dtype: str) -> int:
    """Return the bytes of a number, which the name of its dtype states in bits."""
    bits = re.search(r"\d+", dtype)
    return max(1, int(bits[0]) // 8) if bits else 1


def _check_dtypes(datasets: dict[str, containers.Dataset], variables: list[keras.Variable]) -> None:
    """Check that no number changes when Keras converts it to the dtype of its variable.

    The file does not say which variable a dataset belongs to, so all variables of its shape count.
    """
    dtypes_of_shape: dict[tuple[int, ...], set[str]] = {}
    for variable in variables:
        dtypes = dtypes_of_shape.setdefault(tuple(variable.shape), set())
        dtypes.add(_class_of_dtype(variable.dtype))
    for name, dataset in _of_layers(datasets).items():
        dtypes = dtypes_of_shape.get(dataset.shape, set())
        if dtypes and _class_of_dtype(dataset.dtype) not in dtypes:
            needed = " or ".join(sorted(dtypes))
            raise ValueError(f"{shown(name)} must be {needed}; it has the dtype {dataset.dtype}")


def _check_all_read(datasets: dict[str, containers.Dataset], paths: set[str]) -> None:
    """Check that the model has a layer for all weights of the file."""
    for name in _of_layers(datasets):
        if name.rpartition("/vars/")[0] not in paths:
            raise ValueError(f"its config has no layer for the weights {shown(name)}")


def _of_layers(datasets: dict[str, containers.Dataset]) -> dict[str, containers.Dataset]:
    """Return the datasets that `load` reads: it does not read the optimizer."""
    return {name: item for name, item in datasets.items() if not name.startswith(_OPTIMIZER)}


def _class_of_dtype(dtype: str) -> str:
    """Return "float" for all floats, and the number of bits for integers."""
    if "float" in dtype:
        return "float"
    return f"{8 * _item_bytes(dtype)}-bit integers"
