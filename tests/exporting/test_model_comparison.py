"""Tests of the comparison of an export with its model."""

import re
import types

import keras
import numpy as np
import pytest
import scipy.sparse

import keras_bert
from keras_bert import heads
from keras_bert.exporting import model_comparison
from keras_bert.tasks.keras_predictor import KerasPredictor
from tests import tiny
from tests.properties import subjects


@pytest.mark.parametrize(
    ("expected", "actual", "options", "error"),
    [
        ([0.0, 1.0], [0.0, 1.0001], {}, None),
        ([0.0, 1.0], [0.0, 1.01], {}, "difference of x is 0.01"),
        ([0.0, 1.0], [0.0, np.nan], {}, "difference of x is nan"),
        ([np.inf, 1.0], [1.0, 1.0], {}, None),
        ([[1.0, 2.0]], [[1.0, 2.0, 0.0]], {}, None),
        ([[1.0, 2.0]], [[1.0, 3.0]], {"mask": np.array([[1, 0]])}, None),
        ([b"a"], [b"b"], {}, None),
        ([1, 2], [1, 3], {}, None),
        ([1, 2], [1, 3], {"tolerance": 0}, "difference of x is 1"),
    ],
)
def test_equality(expected, actual, options, error):
    model = tiny.encoder(num_hidden_layers=1)
    found = model_comparison.Sample(
        {}, lambda _: {"x": np.array(actual)}, lambda _: {"x": np.array(expected)}, **options
    )
    if error is None:
        model_comparison.check(found, model)
        return
    with pytest.raises(ValueError, match=f"something else than '{model.name}'.*{error}"):
        model_comparison.check(found, model)


def test_eight_bits_must_be_numbers():
    found = model_comparison.Sample({}, lambda inputs: {"x": np.array([np.nan])}, None)
    with pytest.raises(ValueError, match="int8 computes NaN or infinity for x"):
        model_comparison.check(found, tiny.encoder(num_hidden_layers=1))


def test_differences_of_results():
    rows = [{"label": "a", "score": 0.5}, [1.0, "b"]]
    others = [{"label": "a", "score": 0.75}, [1.5, "c"]]
    assert model_comparison.differences(rows[0], others[0]) == (0.25, True)
    assert model_comparison.differences(rows, others) == (0.5, False)
    assert model_comparison.differences(np.ones(2), np.zeros(2)) == (1.0, None)
    vectors = scipy.sparse.csr_array([[0.0, 2.0]])
    assert model_comparison.differences(vectors, vectors * 0.5) == (1.0, None)
    assert np.isnan(model_comparison.differences([np.nan, 1.0], [1.0, 1.0])[0])


class Broken(KerasPredictor):
    """A predictor whose outputs are those of the model, times -1."""

    def outputs(self, encoded, **options):
        return [-output for output in super().outputs(encoded, **options)]


@pytest.mark.filterwarnings("ignore:__array__ implementation")
@pytest.mark.parametrize("is_labeled", [False, True])
def test_a_warning_if_answers_change(is_labeled):
    model = heads.classifier(tiny.encoder(initializer_range=0.5), labels=["bad", "good"])
    texts = ["good", "bad", "so", "film"]
    labels = [row["label"] for row in keras_bert.predict(model, texts)] if is_labeled else None
    dev = keras_bert.Examples(texts, labels=labels)
    message = "loses 100.0 points of accuracy" if is_labeled else "changes 100.0% of the answers"
    with pytest.warns(UserWarning, match=f"the examples: int8 {message}"):
        agreement = model_comparison.on_dev(Broken(model), KerasPredictor(model), dev, "int8")
    assert (agreement.examples, agreement.equal) == (4, 0)
    assert (agreement.metric, agreement.float32_score) == (
        ("accuracy", 1) if is_labeled else (None, 0)
    )
    assert re.search(r"on 4 examples, 0.00% .* of the time of float32", str(agreement))


def quantized_job(model, dev, **options):
    return types.SimpleNamespace(
        dev=dev, task=keras_bert.pipeline(model).predictor.task, output=heads.find_output(model),
        has_pipeline=True, **{"quantize": "int8", "precision": None, **options},
    )  # fmt: skip


@pytest.mark.parametrize("name", subjects.TRAINED_NAMES)
def test_data_of_each_task(name):
    model = subjects.model(name)
    model_comparison.check_dev(quantized_job(model, subjects.data(name)))
    for data in ("dev.tsv", ["a"], {"text": ["a"]}):
        with pytest.raises(ValueError, match=r"dev takes .*Read files and tables with"):
            model_comparison.check_dev(quantized_job(model, data))


def test_data_that_cannot_be_compared():
    model = heads.classifier(tiny.encoder(), labels=["bad", "good"])
    cases = {
        "the label '1' is not one of the model's l": keras_bert.Examples(["a"], labels=["1"]),
        "contains no examples": keras_bert.Examples([]),
    }
    for message, data in cases.items():
        with pytest.raises(ValueError, match=message):
            model_comparison.check_dev(quantized_job(model, data))
    with pytest.raises(ValueError, match='dev needs quantize="int8" or precision="bfloat16"'):
        model_comparison.check_dev(quantized_job(model, keras_bert.Examples(["a"]), quantize=None))


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="SavedModels")
def test_an_export_that_computes_something_else_is_not_written(tmp_path, monkeypatch):
    """The property of the engines holds the same for graphs."""
    from keras_bert.tasks import inference_graph

    model = heads.classifier(tiny.encoder(initializer_range=0.5), 2)
    activate = inference_graph._activate
    monkeypatch.setattr(inference_graph, "_activate", lambda layer, x: -activate(layer, x))
    with pytest.raises(ValueError, match="computes something else"):
        keras_bert.export(model, tmp_path / "a")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
