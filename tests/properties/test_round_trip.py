"""A saved model answers like the model in another process, or `save` names what gets lost.

The processes have another backend and an empty cache. A process loads all models of a test run.
"""

import dataclasses
import functools
import json
import re
import warnings

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import checkpoints, heads
from keras_bert.checkpoints.added_tokens import AddedToken
from keras_bert.hub import conversion
from keras_bert.layers import SentencePooling
from keras_bert.tasks import registry
from tests import tiny
from tests.properties import formats, reload, subjects

FORMATS = ["keras", *checkpoints.WRITABLE]
_GOOGLE = {"hidden_act": "gelu_new", "num_hidden_layers": 1, "initializer_range": 0.5}


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
    model = _CLASSIFIER(encoder_options={"dtype": "bfloat16"})
    heads.find_encoder(model).get_layer("layer_0").trainable = False
    return model


def _quantized():
    model = _head(heads.classifier, labels=["no", "yes"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras names layers that stay as they are
        model.quantize("int8")
    return model


def _with_tokenizer(vocabulary=tiny.PIECES, **options):
    """Return an encoder with a pooling, whose tokenizer has options."""
    options = {"sequence_length": 8, "max_sequence_length": 32, **options}
    preprocessor = keras_bert.Preprocessor(vocabulary, **options)
    return _encoder(preprocessor=preprocessor, vocab_size=len(vocabulary), pooling="mean")


def _with_dense_layers():
    layers = [_dense(6, use_bias=False, activation="tanh"), _dense(4)]
    return _EMBEDDER(layers=layers, similarity="manhattan")


def _with_layer_norm():
    layers = [keras.layers.LayerNormalization(epsilon=1e-5), _dense(4)]
    return _EMBEDDER(layers=layers, pooling=["cls", "mean"])


_CLASSIFIER = functools.partial(_head, heads.classifier, labels=["no", "yes"])
_EMBEDDER = functools.partial(_head, heads.embedder)
DETAILS = {
    "encoder": _encoder,
    "encoder with a pooling": functools.partial(_encoder, pooling="max"),
    "short texts": functools.partial(_with_tokenizer, lowercase=False, max_sequence_length=16),
    "accents": functools.partial(_with_tokenizer, lowercase=False, strip_accents=True),
    "Chinese words": functools.partial(_with_tokenizer, split_cjk=False),
    "added tokens": functools.partial(
        _with_tokenizer, [*tiny.PIECES, "<x>"], added_tokens=[AddedToken("<x>", lstrip=True)]
    ),
    "epsilon": functools.partial(_encoder, layer_norm_eps=1e-5, pooling="mean"),
    "gelu": functools.partial(_encoder, hidden_act="gelu", pooling="mean"),
    "LoRA": _with_lora,
    "frozen layers in bfloat16": _frozen,
    "int8": _quantized,
    "one segment": functools.partial(_CLASSIFIER, encoder_options={"type_vocab_size": 1}),
    "pooler with ReLU": functools.partial(_CLASSIFIER, encoder_options={"pooler_act": "relu"}),
    "numbers as labels": functools.partial(_CLASSIFIER, labels=[0, 1], dropout=0.3),
    "names of labels as Hugging Face's": functools.partial(
        _CLASSIFIER, labels=["LABEL_0", "LABEL_1"]
    ),
    "pooling of a classifier": functools.partial(_CLASSIFIER, pooling="mean"),
    "reranker without activation": functools.partial(_head, heads.reranker, activation=None),
    "reranker with tanh": functools.partial(_head, heads.reranker, activation="tanh"),
    "reranker with softplus": functools.partial(_head, heads.reranker, activation="softplus"),
    "scores of pairs": functools.partial(_head, heads.regressor, pairs=True, activation="sigmoid"),
    "numbers of pairs": functools.partial(_head, heads.regressor, pairs=True),
    "score": functools.partial(_head, heads.regressor, activation="sigmoid"),
    "narrow embeddings": functools.partial(
        _head, heads.masked_lm, encoder_options={"embedding_size": 4}
    ),
    "own output matrix": functools.partial(_head, heads.masked_lm, tied=False),
    "sparse with prompts": functools.partial(
        _head, heads.sparse_embedder, prompts={"query": "so "}, default_prompt="query"
    ),
    "prompts": functools.partial(
        _EMBEDDER, prompts={"query": "so ", "document": ""}, default_prompt="query"
    ),
    "dot product": functools.partial(_EMBEDDER, normalize=False, similarity="dot"),
    "dot product and gelu": functools.partial(
        _EMBEDDER, normalize=False, similarity="dot", encoder_options={"hidden_act": "gelu"}
    ),
    "pooling of the head": functools.partial(
        _EMBEDDER, pooling="cls", encoder_options={"pooling": "max"}
    ),
    "poolings of the head": functools.partial(
        _EMBEDDER, pooling=["cls", "max"], encoder_options={"pooling": "max"}
    ),
    "pooling of the encoder of a masked LM": functools.partial(
        _head, heads.masked_lm, encoder_options={"pooling": "max"}
    ),
    "dense layers": _with_dense_layers,
    "layer norm": _with_layer_norm,
} | {
    f"embedder {mode}": functools.partial(_EMBEDDER, pooling=mode)
    for mode in SentencePooling.MODES
    if mode != "mean"  # the embedder of `TASKS`
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
            texts = [str(warning.message) for warning in caught]
            said = " ".join(text for text in texts if "does not keep" in text).split(". Set")[0]
            saved[name, format] = (model, error, said)
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
        limits = formats.limits(model, format)
        assert (error is not None) == bool(limits), error or limits
        if error is not None:
            assert any(words in error for words in limits), error
            advised = re.findall("format='(\\w+)'", error)
            assert not any(models[name, other][1] for other in advised), error
            return
        reloaded(kind, backend)
        path = folder / f"{_path(name, format)}.{backend}"
        result = json.loads(path.with_name(f"{path.name}.json").read_text())
        assert "error" not in result, result["error"]
        _check_description(model, result["description"], format, said)
        again = dict(np.load(path.with_name(f"{path.name}.npz")))
        is_exact = heads.find_encoder(model).compute_dtype == "float32"
        expected = reload.outputs(model)
        assert again.keys() == expected.keys()
        for key, array in expected.items():
            np.testing.assert_allclose(again[key], array, atol=2e-5 if is_exact else 0.1)

    return check


def _check_description(model, again, format, said):
    """Check that the options are the same, but those that the format loses with a warning."""
    lost = {*re.findall(r"\w+(?==(?!\[\.))", said)}
    assert lost == formats.lost_options(model, format), said
    model = reload.describe(model)
    if format != "keras":  # the others keep no training state
        del model["trainable"], again["trainable"]
        if model.get("task") == "embedding" and model["pooling"] is None:
            del model["pooling"], again["pooling"]  # the encoder gets that of its embedder
        for key in ("target_mean", "target_scale"):  # they are a part of the weights there
            model.pop(key, None)
    for key, value in model.items():
        assert again[key] == value or key in lost, key


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", TASKS)
def test_each_task(check, name, format):
    check("tasks", name, format, "jax")


@pytest.mark.parametrize("name", [*TASKS, *DETAILS])
def test_a_spec_describes_the_model(name):
    """JSON holds the spec of a model, and the model that is built from it has the same spec."""
    spec = conversion.spec_of((TASKS | DETAILS)[name]())
    assert conversion.spec_of(conversion.build(spec)) == spec
    json.dumps(dataclasses.asdict(spec))


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", DETAILS)
def test_each_option(check, name, format):
    check("details", name, format, "jax")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:1 of 4 texts were truncated")
@pytest.mark.parametrize("name", ["encoder with a pooling", "pooling of the head", "prompts"])
@pytest.mark.parametrize("format", FORMATS)
def test_vectors_of_texts(tmp_path, name, format):
    """The pipeline on the folder embeds as the pipeline on the model."""
    pipeline = keras_bert.pipeline(DETAILS[name]())
    if formats.limits(pipeline.predictor.model, format):
        pytest.skip("the format does not hold the model")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipeline.save(tmp_path / "saved", format=format)
    again = keras_bert.pipeline(tmp_path / "saved")
    texts = ["so good", "", "this film is bad", "good " * 40]
    np.testing.assert_allclose(again.encode(texts), pipeline.encode(texts), atol=1e-5)


def test_every_task_is_here():
    assert set(TASKS) >= {task.name for task in registry.TASKS}
