"""Nothing that is only about the head keeps the encoder from loading, in every writable format.

A folder whose head is damaged or unknown gives its encoder, with one warning. It is refused if the
head is asked for. What may be a part of the encoder is always refused.
"""

import itertools
import json
import warnings

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import checkpoints, heads
from keras_bert.checkpoints import huggingface, name_tables
from keras_bert.hub import conversion
from keras_bert.layers import SentencePooling
from tests import tiny
from tests.properties import reload, subjects

FORMATS = list(checkpoints.WRITABLE)
_LEFT_OUT = "only the encoder is loaded, its head is left out: "
# The head's files: of KerasHub, of the modules of sentence-transformers, and their settings.
_HEAD_FILES = ("task.*", "*_*/*", "config_sentence_transformers.json")


@pytest.fixture(scope="module")
def original():
    """Return a model with a head for each format; the heads have the same encoder."""
    encoder = tiny.encoder(hidden_act="gelu_new", num_hidden_layers=1, initializer_range=0.5)
    classifier = heads.classifier(encoder, labels=["no", "yes"], dropout=0.3)
    embedder = heads.embedder(encoder, layers=[keras.layers.Dense(4)], prompts={"query": "so "})
    subjects.vary_weights(embedder)
    return {
        format: embedder if format == "sentence_transformers" else classifier for format in FORMATS
    }


def _write(model, format, path, monkeypatch, damage=lambda tensors: tensors):
    """Write a folder whose tensors `damage` has changed, by their names in the format."""
    to_source = name_tables.to_source
    with monkeypatch.context() as patch:
        patch.setattr(name_tables, "to_source", lambda *a, **k: damage(to_source(*a, **k)))
        path.mkdir()
        checkpoints.FORMATS[format].write(conversion.to_checkpoint(model), path)
    return path


def _check_left_out(model, path, pooling=None):
    with pytest.warns(UserWarning, match=_LEFT_OUT) as caught:
        encoder = keras_bert.load(path)
    assert len({str(warning.message) for warning in caught}) == 1
    _check_equal(model, encoder)
    assert encoder.pooling == pooling
    with pytest.raises(ValueError, match="load without task gives the encoder alone"):
        keras_bert.load(path, task="auto")
    with pytest.warns(UserWarning, match=_LEFT_OUT):
        keras_bert.load(path, task="tagging", fresh_head=True, labels=["O", "X"])


def _check_equal(model, encoder):
    expected = reload.outputs(heads.find_encoder(model))
    for name, array in reload.outputs(encoder).items():
        np.testing.assert_array_equal(array, expected[name])


def _source(format, name):
    """Return the name in a format of a tensor with a canonical name."""
    tables = {**checkpoints.FORMATS, "sentence_transformers": checkpoints.FORMATS["huggingface"]}
    return tables[format].TABLE[name].sources[0].format(i=0)


_DAMAGES = {
    "more": lambda tensors, name: tensors | {f"{name}_2": np.zeros(3, np.float32)},
    "renamed": lambda tensors, name: tensors | {f"{name}_2": tensors.pop(name)},
    "missing": lambda tensors, name: {key: tensors[key] for key in tensors if key != name},
    "longer": lambda tensors, name: tensors | {name: np.zeros(7, np.float32)},
}


def _stated_pooling(path):
    """Return the pooling of the models of `original`, if a file of the folder states it."""
    try:
        return "mean" if json.loads((path / "1_Pooling/config.json").read_bytes()) else None
    except (OSError, ValueError):
        return None


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("damage", _DAMAGES)
def test_tensors_of_a_head(original, monkeypatch, tmp_path, format, damage):
    if format == "sentence_transformers" and damage != "more":
        return  # its head's tensors are in files of their own
    model = original[format]
    name = _source(format, "classifier/bias")
    change = _DAMAGES[damage]
    path = _write(model, format, tmp_path / "a", monkeypatch, lambda t: change(dict(t), name))
    _check_left_out(model, path, _stated_pooling(path))


@pytest.mark.parametrize("format", FORMATS)
def test_files_of_a_head(original, monkeypatch, tmp_path, format):
    model = original[format]
    path = _write(model, format, tmp_path / "a", monkeypatch)
    files = [file for pattern in _HEAD_FILES for file in path.glob(pattern)]
    assert bool(files) == (format in ("keras_hub", "sentence_transformers"))
    for file in files:
        content = file.read_bytes()
        for damaged in (b"", content[: len(content) // 2], b"\x00" + content):
            file.write_bytes(damaged)
            _check_left_out(model, path, _stated_pooling(path))
        file.write_bytes(content)


def _settings_of_head(path):
    """Yield the JSON files of a folder, and the dict in them that has settings of the head."""
    for pattern in ("config.json", *_HEAD_FILES):
        for file in [file for file in path.glob(pattern) if file.suffix == ".json"]:
            content = json.loads(file.read_text())
            yield file, content, content.get("config", content)


@pytest.mark.parametrize("format", FORMATS[1:])  # Google's folder says nothing about its head
def test_values_of_a_head(original, monkeypatch, tmp_path, format):
    """Other values in the head's files never change the encoder; they may change the head."""
    path = _write(original[format], format, tmp_path / "a", monkeypatch)
    expected = checkpoints.read(path)
    for file, content, settings in _settings_of_head(path):
        is_only_of_head = file.parent != path or file.name != "config.json"
        keys = [key for key in settings if is_only_of_head or key in huggingface.SILENT_KEYS]
        for key, value in itertools.product(keys, (None, -1, "unknown", [], {"a": 1})):
            before = settings[key]
            settings[key] = value
            file.write_text(json.dumps(content))
            settings[key] = before
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = checkpoints.read(path, needs_head=False)
            assert found.spec.encoder == expected.spec.encoder
            assert found.spec.tokenizer == expected.spec.tokenizer
            assert found.spec.pooling in (None, *SentencePooling.MODES)
        file.write_text(json.dumps(content))


def test_a_pooling_that_leaves_out_prompts(original, monkeypatch, tmp_path):
    """An encoder has no prompts, so it can have the pooling."""
    format = "sentence_transformers"
    path = _write(original[format], format, tmp_path / "a", monkeypatch)
    file = path / "1_Pooling/config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"include_prompt": False}))
    _check_left_out(original[format], path, "mean")


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("ending", ["_lora_A", ".SCB", ".adapter", "_scale"])
def test_what_may_be_a_part_of_the_encoder(original, monkeypatch, tmp_path, format, ending):
    name = _source(format, "layer_{i}/output/kernel")
    more = {f"{name}{ending}": np.ones(3, np.float32)}
    path = _write(original[format], format, tmp_path / "a", monkeypatch, lambda t: t | more)
    with pytest.raises(ValueError, match=r"unknown \(1\).*output") as caught:
        keras_bert.load(path)
    assert "ignore" not in str(caught.value)
