"""A saved model answers like the model in another process, or `save` names what gets lost.

The processes have another backend and an empty cache. A process loads all models of a test run.
"""

import functools
import json
import re
import warnings

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import checkpoints, heads
from keras_bert.layers import SentencePooling
from keras_bert.tasks import registry
from tests import tiny
from tests.properties import reload, subjects

FORMATS = ["keras", *checkpoints.WRITABLE]
_GOOGLE = {"hidden_act": "gelu_new", "num_hidden_layers": 1, "initializer_range": 0.5}
# What an error of `save` may name: a field of a model, or the head itself.
_FIELDS = re.compile(
    "activation|multi_label|pooling|layers|prompts|similarity|head|quantized|LoRA|"
    "masked_lm/output_embeddings|max_sequence_length|type_vocab_size"
)


def _encoder(**options):
    encoder = tiny.encoder(**{**_GOOGLE, **options})
    subjects.vary_weights(encoder)
    return encoder


def _head(function, *args, encoder_options=None, **options):
    model = function(_encoder(**(encoder_options or {})), *args, **options)
    subjects.vary_weights(model)
    return model


def _dense(units, **options):
    return keras.layers.Dense(units, **options)


def _with_lora():
    model = _head(heads.classifier, labels=["no", "yes"])
    heads.find_encoder(model).enable_lora(2)
    subjects.vary_weights(model)
    return model


def _frozen():
    model = _head(heads.classifier, labels=["no", "yes"])
    heads.find_encoder(model).get_layer("layer_0").trainable = False
    return model


def _quantized():
    model = _head(heads.classifier, labels=["no", "yes"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras names layers that stay as they are
        model.quantize("int8")
    return model


def _short():
    preprocessor = keras_bert.Preprocessor(
        tiny.PIECES, lowercase=False, sequence_length=8, max_sequence_length=16
    )
    return _encoder(preprocessor=preprocessor)


_CLASSIFIER = functools.partial(_head, heads.classifier, labels=["no", "yes"])
_EMBEDDER = functools.partial(_head, heads.embedder)
DETAILS = {
    "encoder": _encoder,
    "encoder with a pooling": functools.partial(_encoder, pooling="max"),
    "short texts": _short,
    "LoRA": _with_lora,
    "frozen layers": _frozen,
    "int8": _quantized,
    "bfloat16": functools.partial(_CLASSIFIER, encoder_options={"dtype": "bfloat16"}),
    "one segment": functools.partial(_CLASSIFIER, encoder_options={"type_vocab_size": 1}),
    "numbers as labels": functools.partial(_head, heads.classifier, labels=[0, 1]),
    "names of labels as Hugging Face's": functools.partial(
        _head, heads.classifier, labels=["LABEL_0", "LABEL_1"]
    ),
    "dropout": functools.partial(_CLASSIFIER, dropout=0.3),
    "reranker without activation": functools.partial(_head, heads.reranker, activation=None),
    "reranker with tanh": functools.partial(_head, heads.reranker, activation="tanh"),
    "scores of pairs": functools.partial(_head, heads.regressor, pairs=True, activation="sigmoid"),
    "numbers of pairs": functools.partial(_head, heads.regressor, pairs=True),
    "score": functools.partial(_head, heads.regressor, activation="sigmoid"),
    "no answer": functools.partial(_head, heads.span_selector, no_answer=True),
    "own output matrix": functools.partial(_head, heads.masked_lm, tied=False),
    "sparse with prompts": functools.partial(
        _head, heads.sparse_embedder, prompts={"query": "so "}, default_prompt="query"
    ),
    "prompts": functools.partial(
        _EMBEDDER, prompts={"query": "so ", "document": ""}, default_prompt="query"
    ),
    "dot product": functools.partial(_EMBEDDER, normalize=False, similarity="dot"),
    "two poolings": functools.partial(_EMBEDDER, pooling=["cls", "mean"]),
    "pooling of the head": functools.partial(
        _EMBEDDER, pooling="cls", encoder_options={"pooling": "max"}
    ),
} | {f"classifier {mode}": functools.partial(_CLASSIFIER, pooling=mode) for mode in ("mean", "cls")}


def _dense_layers():
    layers = [_dense(6, use_bias=False, activation="tanh"), _dense(4)]
    return _EMBEDDER(layers=layers)


def _layer_norm():
    return _EMBEDDER(layers=[keras.layers.LayerNormalization(epsilon=1e-5), _dense(4)])


DETAILS["layer norm"] = _layer_norm
DETAILS["dense layers"] = _dense_layers
DETAILS |= {
    f"embedder {mode}": functools.partial(_EMBEDDER, pooling=mode) for mode in SentencePooling.MODES
}
TASKS = {
    name: functools.partial(
        subjects.model, name, hidden_act="gelu_new", vocab_size=len(tiny.PIECES) + 6
    )
    for name in subjects.NAMES
}


def _save_all(makers, folder):
    """Save each model in each format. Return {(name, format): (model, its error or warnings)}."""
    saved = {}
    for name, make in makers.items():
        model = make()
        for format in FORMATS:
            path = folder / _path(name, format)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    keras_bert.save(model, path, format=format)
                    error = None
                except ValueError as raised:
                    error = str(raised)
            texts = " ".join(str(warning.message) for warning in caught)
            saved[name, format] = (model, error, texts)
    tasks = {
        _path(name, format): heads.find_task(model)
        for (name, format), (model, error, _) in saved.items()
        if error is None
    }
    (folder / "saved.json").write_text(json.dumps(tasks))
    return saved


def _path(name, format):
    return f"{name}-{format}".replace(" ", "_").replace("'", "")


@pytest.fixture(scope="module")
def check(python, tmp_path_factory):
    """Function that checks one of some models in one format, as another backend loads it."""

    @functools.cache
    def saved(kind):
        folder = tmp_path_factory.mktemp(kind)
        return folder, _save_all({"tasks": TASKS, "details": DETAILS}[kind], folder)

    @functools.cache
    def reloaded(kind, backend):
        folder, _ = saved(kind)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KERAS_BERT_CACHE", str(tmp_path_factory.mktemp("empty")))
            python("-W", "ignore", "-m", "tests.properties.reload", folder, backend=backend)

    def check(kind, name, format, backend):
        folder, models = saved(kind)
        model, error, said = models[name, format]
        if error is not None:
            assert format != "keras", error
            assert _FIELDS.search(error), error
            return
        reloaded(kind, backend)
        path = folder / f"{_path(name, format)}.{backend}"
        result = json.loads(path.with_name(f"{path.name}.json").read_text())
        assert "error" not in result, result["error"]
        _check_description(reload.describe(model), result["description"], format, said)
        again = dict(np.load(path.with_name(f"{path.name}.npz")))
        is_exact = heads.find_encoder(model).compute_dtype == "float32"
        expected = reload.outputs(model)
        assert again.keys() == expected.keys()
        for key, array in expected.items():
            np.testing.assert_allclose(again[key], array, atol=2e-5 if is_exact else 0.1)

    return check


def _check_description(model, again, format, said):
    """Check that all options are the same, except those that `save` named in a warning."""
    if format != "keras":  # the others keep no training state
        del model["trainable"], again["trainable"]
        del model["pooling"], again["pooling"]  # that of an encoder is checked by its vectors
        for key in ("target_mean", "target_scale"):  # they are a part of the weights there
            model.pop(key, None)
    for key, value in model.items():
        assert again[key] == value or f"{key}=" in said or key in ("label_type",) and said, key


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", TASKS)
def test_each_task(check, name, format):
    check("tasks", name, format, "jax")


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", DETAILS)
def test_each_option(check, name, format):
    check("details", name, format, "jax")


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", TASKS)
def test_the_same_backend(check, name, format):
    check("tasks", name, format, "tensorflow")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:1 of 4 texts were truncated")
@pytest.mark.parametrize("name", ["encoder with a pooling", "pooling of the head", "prompts"])
@pytest.mark.parametrize("format", FORMATS)
def test_vectors_of_texts(tmp_path, name, format):
    """The pipeline on the folder embeds as the pipeline on the model."""
    pipeline = keras_bert.pipeline(DETAILS[name]())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pipeline.save(tmp_path / "saved", format=format)
    except ValueError as error:
        assert _FIELDS.search(str(error))
        return
    again = keras_bert.pipeline(tmp_path / "saved")
    texts = ["so good", "", "this film is bad", "good " * 40]
    np.testing.assert_allclose(again.encode(texts), pipeline.encode(texts), atol=1e-5)


def test_every_task_is_here():
    assert set(TASKS) >= {task.name for task in registry.TASKS}
