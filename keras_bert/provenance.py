"""Source, license and metrics of a model's weights, for its model card."""

import hashlib
import json
import math
import pathlib
import zipfile

from keras_bert.runtime import reading
from keras_bert.runtime.arguments import TEXT_ROLES
from keras_bert.runtime.files import atomic_write
from keras_bert.untrusted import containers, links

METRICS_FILE = "metrics.json"
MODEL_FILE = "model.keras"  # the model in a folder that `save` wrote


_UNKNOWN = (None, None, None)  # name for the card, license of the weights, name for `load`


def remember_source(model, name, license, loaded):
    """Keep the name and the license of a loaded model on its encoder, in memory only.

    `loaded` is the name or the path that was given to `load`.
    """
    _holder(model)._card_source = (name, license, loaded)


def name_of_source(model):
    """Return the name or the path from which a model was loaded, or `None`."""
    return getattr(_holder(model), "_card_source", _UNKNOWN)[2]


def remember_metrics(model, metrics):
    """Keep the metrics of a model on it, in memory only, with a digest of its current weights."""
    model._card_metrics = (digest_of_weights(model), dict(metrics))


def known_columns(model):
    """Return the columns that a model was trained on, or {}, as in its metrics."""
    _, metrics = getattr(model, "_card_metrics", (None, None))
    return (metrics or {}).get("columns") or {}


def columns_of_texts(columns):
    """Return {input: column} of the texts in the columns of metrics, which a stranger may write."""
    if not isinstance(columns, dict):
        return {}
    names = {role: columns.get(role) for role in TEXT_ROLES}
    return {role: name for role, name in names.items() if isinstance(name, (str, int))}


def remember_run(model, start, train, dev, metrics):
    """Keep the metrics of a run, its data files and the source of `start`, the untrained model."""
    source = getattr(_holder(start), "_card_source", _UNKNOWN)
    _holder(model)._card_source = source
    names = {"model": source[0], "train": _names_of_files(train), "dev": _names_of_files(dev)}
    names = {key: value for key, value in names.items() if value}
    remember_metrics(model, {**names, **metrics})


def known_metrics_and_license(model):
    """Return the metrics and the license that are known for a model; `None` for each unknown one.

    The metrics are unknown if the weights have changed since.
    """
    digest, metrics = getattr(model, "_card_metrics", (None, None))
    if metrics is not None and digest != digest_of_weights(model):
        metrics = None
    _, license, _ = getattr(_holder(model), "_card_source", _UNKNOWN)
    return metrics, license


def _holder(model):
    """Return the encoder of a model, or the model itself if it does not have exactly one."""
    from keras_bert.model_structure import find_encoder  # imports Keras

    try:
        return find_encoder(model)
    except ValueError:
        return model


def digest_of_weights(model):
    """Return a hash of a model's weights, 16 hexadecimal digits."""
    import keras

    digest = hashlib.sha256()
    for weight in model.weights:
        digest.update(keras.ops.convert_to_numpy(weight).tobytes())
    return digest.hexdigest()[:16]


def _names_of_files(data):
    """Return the names of the files that data was read from, without their folders.

    Sources such as "the examples" and "the table" are no files.
    """
    sources = () if data is None else data.sources
    return ", ".join(
        pathlib.Path(source).name for source in sources if not source.startswith("the ")
    )


def read_metrics(path):
    """Return the metrics of a saved model, or {} if there are none or they cannot be read.

    `path` is a folder with `metrics.json`, or a `.keras` file that has it as a member or beside it.
    """
    path = pathlib.Path(path)
    if path.name == MODEL_FILE and (metrics := read_metrics(path.parent)):
        return metrics
    try:
        if path.is_file():
            with containers.open_zip(path) as archive:
                content = containers.read_member(archive, METRICS_FILE)
        else:
            links.check_file(path / METRICS_FILE)
            content = reading.read_bytes(path / METRICS_FILE)
        return reading.parse_json(content, path)
    except (OSError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile):
        return {}


def write_metrics(folder, metrics):
    """Write `metrics.json` atomically. NaN and infinity become `null`."""
    with atomic_write(pathlib.Path(folder, METRICS_FILE)) as temporary:
        temporary.write_text(_to_json(metrics), encoding="utf-8")


def add_metrics(file, metrics):
    """Add `metrics.json` to a `.keras` file, which is a zip file."""
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(zipfile.ZipInfo(METRICS_FILE), _to_json(metrics))


def _to_json(metrics):
    return json.dumps(_finite(metrics), indent=2, ensure_ascii=False) + "\n"


def _finite(value):
    """Replace NaN and infinity, which JSON does not have, by `None`."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
