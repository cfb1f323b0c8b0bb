"""Check a `.keras` file before Keras loads it.

Keras builds the model from the config before it loads the weights. A config that does not match the
weights can ask for any amount of memory, or for millions of layers.
"""

import math
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from keras_bert.checkpoints import canonical
from keras_bert.runtime import reading
from keras_bert.untrusted import containers

_CONFIG, _WEIGHTS = "config.json", "model.weights.h5"
_ENCODER = "keras_bert>BertEncoder"


def check(file: Path) -> tuple[dict[str, Any], int]:
    """Check that a `.keras` file is complete, and that its config matches its weights.

    Return the config of the model, and the number of parameters.
    """
    import h5py

    members = {member.filename: member for member in containers.check_zip(file)}
    for name in (_CONFIG, _WEIGHTS):
        if name not in members:
            raise ValueError(f"{name} is missing")
    with zipfile.ZipFile(file) as archive:
        config = reading.parse_json(archive.read(_CONFIG), _CONFIG)
    with open(file, "rb") as stream:
        section = containers.member_section(stream, members[_WEIGHTS])
        try:
            with h5py.File(section, "r") as opened:
                shapes = containers.check_hdf5(opened, members[_WEIGHTS].file_size)
        except (OSError, RuntimeError, KeyError, TypeError, UnicodeError) as error:
            raise ValueError(f"{_WEIGHTS} is broken: {reading.one_line(error)}") from error
    for item in _objects(config):
        for key, value in item.items():  # Also covers models of other libraries.
            if key.endswith("_layers") and isinstance(value, int) and value > len(shapes):
                raise ValueError(f"{key} is {value}, but the file has only {len(shapes)} weights")
        found = item.get("config")
        if item.get("registered_name") == _ENCODER and isinstance(found, dict):
            canonical.check_sizes(_CONFIG, found, shapes)
    return config, sum(math.prod(shape) for shape in shapes.values())


def _objects(config: Any) -> Iterator[Mapping[str, Any]]:
    """Yield all objects in the JSON of a config."""
    waiting = [config]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield item
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
