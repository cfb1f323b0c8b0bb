"""Every engine answers odd texts as the Keras model does, for every head and kind of export."""

import warnings

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import heads
from keras_bert.exporting import graph_folder
from keras_bert.exporting.export import FORMATS
from keras_bert.exporting.graph_folder import GraphFile
from keras_bert.exporting.graph_predictor import GraphPredictor
from keras_bert.model_structure import find_output
from keras_bert.tasks import registry
from tests import tiny
from tests.parameters import fast, slow
from tests.properties import subjects

pytestmark = [
    pytest.mark.filterwarnings("ignore:.* of .* texts were truncated"),
    pytest.mark.filterwarnings("ignore:__array__ implementation"),
]


def no_bias(name):
    """Return an embedder with prompts and Dense layers, of which one has no bias."""
    layers = [
        keras.layers.Dense(6, activation="tanh", use_bias=False, name="first"),
        keras.layers.Dense(4, name="second"),
    ]
    built = heads.embedder(
        tiny.encoder(num_hidden_layers=1, initializer_range=0.5),
        pooling=["mean", "max"],
        layers=layers,
        prompts={"query": "so good: "},
        default_prompt="query",
    )
    subjects.vary_weights(built)
    return built


def with_options(name):
    """Return a model with options of which each changes the graph: only some tasks read pairs."""
    activations = ("gelu", "relu", "gelu_new")
    widths = (None, 4, 12)  # of the embeddings
    number = subjects.NAMES.index(name)
    return subjects.model(
        name,
        vocab_size=len(tiny.PIECES) + 6,
        max_position_embeddings=40,
        hidden_act=activations[number % len(activations)],
        embedding_size=widths[number % len(widths)],
        type_vocab_size=1 if name in ("embedding", "sparse_embedding", "tagging") else 2,
    )


def wide(name):
    """Return a model whose matrices have enough columns for int8."""
    return subjects.model(name, hidden_size=64, intermediate_size=64, initializer_range=0.1)


def in_bfloat16(name):
    return subjects.model(name, dtype="mixed_bfloat16")


# Of each variant: a function of the name of a task that builds a model.
VARIANTS = {"options": with_options, "bfloat16": in_bfloat16, "wide": wide, "no bias": no_bias}
CASES = [
    *((name, "options") for name in subjects.NAMES),
    *(slow(name, "bfloat16") for name in subjects.NAMES),
    ("embedding", "no bias"),
]
TOLERANCE = 1e-4
# In lower precision: the root mean square of the errors, relative to that of the scores.
TOLERANCE_OF_BFLOAT16 = 0.05
TOLERANCE_OF_INT8 = 0.2
# A LiteRT file or SavedModel is opened otherwise than by `keras_bert.pipeline`.
GRAPHS = list(graph_folder.GRAPH_FILES)


def rows_for(task, output):
    """Return odd inputs of the pipeline of a task, also pairs with an empty side."""
    texts = subjects.ODD_TEXTS
    columns = task.inputs_of(output)
    if task.name in ("masked_tokens", "pretraining"):
        # A longer text is refused: its [MASK] could be lost.
        return [f"{text[:20]} [MASK] good" for text in texts]
    if len(columns) == 1:
        return texts
    others = [*texts[3:], *texts[:3]]
    if columns[0] == "question":  # an empty question is refused before any engine
        return [(text, other) for text, other in zip(texts, others, strict=True) if text.strip()]
    if columns[-1] == "choices":
        return [(text, [other, "so good"]) for text, other in zip(texts, others, strict=True)]
    return [*zip(texts, others, strict=True), ("good", ""), ("", "good"), ("", "")]


@pytest.fixture(scope="module")
def models():
    """Function that builds each model once, and the answers of its pipeline."""
    built = {}

    def get(name, variant):
        if (name, variant) not in built:
            built[name, variant] = VARIANTS[variant](name)
        return built[name, variant]

    return get


def answers(pipe, grouped=True):
    """Return the answers to each row, or the error for the rows."""
    task = pipe.predictor.task
    options = {"top_k": None} if task.name == "classification" else {}
    if task.name == "tagging":
        options = {"grouped": grouped}
    try:
        results = pipe(rows_for(task, pipe.output), show_progress=False, **options)
    except ValueError as error:
        return str(error).replace(pipe.predictor.name, "the model")
    return results.toarray() if hasattr(results, "toarray") else results


def numbers(result):
    """Yield the scores in a result of a pipeline, or in the outputs of a signature."""
    if isinstance(result, dict):
        yield from numbers(result.get("score", []))
    elif isinstance(result, (list, np.ndarray)):
        for item in result:
            yield from numbers(item)
    elif isinstance(result, (float, int, np.floating)):
        yield float(result)


def check(actual, expected, text=""):
    """Compare answers: words, labels and positions are equal, and scores within the tolerance."""
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys(), text
        for key, value in expected.items():
            check(actual[key], value, text)
    elif isinstance(expected, list):
        assert len(actual) == len(expected), text
        texts = subjects.ODD_TEXTS * 2 if text == "" else [text] * len(expected)
        for item, value, of_item in zip(in_order(actual), in_order(expected), texts, strict=False):
            check(item, value, repr(of_item))
    elif isinstance(expected, (float, np.ndarray)):
        np.testing.assert_allclose(actual, expected, atol=TOLERANCE, rtol=TOLERANCE, err_msg=text)
    else:
        assert actual == expected, text


def in_order(results):
    """Sort results by label: the order of two with nearly equal scores is not defined."""
    has_labels = all(isinstance(result, dict) and "label" in result for result in results)
    return sorted(results, key=lambda result: str(result["label"])) if has_labels else results


def check_scores(pipe, expected_pipe, tolerance):
    """Compare scores in lower precision, in which the best label or span may be another one."""
    actual, expected = (
        [sorted(numbers(result)) for result in answers(each, grouped=False)]
        for each in (pipe, expected_pipe)
    )
    assert [len(row) for row in actual] == [len(row) for row in expected]
    expected = np.concatenate(expected)
    actual = np.concatenate(actual)
    error = np.sqrt(np.mean((actual - expected) ** 2) / np.mean(expected**2))
    assert error < tolerance


def exported(model, path, format, **options):
    with warnings.catch_warnings():
        # A model of random weights is inaccurate in int8.
        warnings.filterwarnings("ignore", "the examples: |.*dev")
        return keras_bert.export(model, path, format=format, **options)


def check_graph(name, variant, format, models, folder):
    model = models(name, variant)
    expected = keras_bert.pipeline(model)
    folder = keras_bert.export(model, folder, format=format)
    if variant == "bfloat16":
        check_scores(keras_bert.pipeline(folder), expected, TOLERANCE_OF_BFLOAT16)
    else:
        check(answers(keras_bert.pipeline(folder)), answers(expected))
    return folder


@pytest.mark.parametrize(("name", "variant"), CASES)
def test_onnx_answers_as_the_keras_model(name, variant, models, tmp_path):
    pytest.importorskip("onnxruntime")
    check_graph(name, variant, "onnx", models, tmp_path / "a")


@pytest.mark.parametrize(("name", "variant"), CASES)
def test_openvino_answers_as_the_keras_model(name, variant, models, tmp_path):
    """`make test-older` runs this test."""
    pytest.importorskip("openvino")
    folder = check_graph(name, variant, "openvino", models, tmp_path / "a")
    pipe = keras_bert.pipeline(folder, precision="bfloat16")
    check_scores(pipe, keras_bert.pipeline(models(name, variant)), TOLERANCE_OF_BFLOAT16)


@pytest.mark.parametrize("format", GRAPHS)
@pytest.mark.parametrize("name", fast(subjects.TRAINED_NAMES, "multi_label"))
def test_graphs_in_int8(name, format, models, tmp_path):
    """`make test-older` runs this test for OpenVINO."""
    pytest.importorskip("nncf" if format == "openvino" else "onnxruntime")
    model = models(name, "wide")
    dev = {"dev": subjects.data(name)} if format == "openvino" else {}
    folder = exported(model, tmp_path / "a", format, quantize="int8", **dev)
    check_scores(keras_bert.pipeline(folder), keras_bert.pipeline(model), TOLERANCE_OF_INT8)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow's converter")
@pytest.mark.parametrize("quantize", [None, "int8"])
@pytest.mark.parametrize("name", fast(subjects.TRAINED_NAMES, "multi_label"))
def test_litert_answers_as_the_keras_model(name, quantize, models, tmp_path):
    pytest.importorskip("ai_edge_litert")
    model = models(name, "wide" if quantize else "options")
    folder = exported(model, tmp_path / "a", "litert", quantize=quantize)
    file = "model_int8.tflite" if quantize else "model.tflite"
    engine = GraphPredictor.open(GraphFile(folder / "litert" / file, folder))
    pipe = engine.task.pipeline(engine)
    if quantize is None:
        check(answers(pipe), answers(keras_bert.pipeline(model)))
    else:
        check_scores(pipe, keras_bert.pipeline(model), TOLERANCE_OF_INT8)


def as_answer(row, expected, labels, text):
    """Return a row of the outputs of a signature in the form of the pipeline's answer."""
    if "embedding" in row:
        return row["embedding"]
    if "weights" in row:
        is_weight = row["weights"] > 0
        weights = np.zeros_like(expected)
        weights[row["ids"][is_weight]] = row["weights"][is_weight]
        return weights
    if "probabilities" in row and labels:
        pairs = zip(labels, row["probabilities"].tolist(), strict=True)
        return [{"label": label, "score": score} for label, score in pairs]
    if "probabilities" in row:  # a result has the probability of the best choice
        row["score"] = row["probabilities"].max()
    if "count" in row:  # of words
        row["text"] = row["token"]
        return [
            {key: value_of(key, row[key][index], text) for key in expected[0]}
            for index in range(row["count"])
        ]
    return {key: value_of(key, row[key], text) for key in expected}


def value_of(key, value, text):
    """Return a value as a pipeline does: positions count characters instead of bytes."""
    if isinstance(value, bytes):
        return value.decode()
    if key in ("start", "end"):
        return len(text.encode()[:value].decode())
    return value.item()


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="SavedModels")
@pytest.mark.parametrize(
    "name", fast(subjects.TRAINED_NAMES, "pair", "sparse_embedding", "question_answering")
)
def test_saved_models_answer_as_the_keras_model(name, models, tmp_path):
    import tensorflow as tf

    model = models(name, "options")
    version = keras_bert.export(model, tmp_path / "a")
    task = registry.find(model)
    rows = rows_for(task, find_output(model))
    names = task.inputs_of(find_output(model))
    columns = zip(*rows, strict=True) if len(names) > 1 else [rows]
    # The loaded object must outlive its signature.
    loaded = tf.saved_model.load(str(version))
    inputs = {name: tf.constant(list(column)) for name, column in zip(names, columns, strict=True)}
    outputs = loaded.signatures["serving_default"](**inputs)
    options = {"top_k": None} if task.name == "classification" else {}
    if task.name == "tagging":
        options = {"grouped": False}
    expected = keras_bert.pipeline(model)(rows, show_progress=False, **options)
    if name == "sparse_embedding":
        expected = expected.toarray()
    for index, (text, result) in enumerate(zip(rows, expected, strict=True)):
        if name == "multiple_choice":
            del result["text"]
        row = {key: tensor.numpy()[index] for key, tensor in outputs.items()}
        searched = text if isinstance(text, str) else text[-1]
        answer = as_answer(row, result, find_output(model).labels, searched)
        check(answer, result, repr(text))


def test_every_format_is_in_this_file():
    assert {*GRAPHS, "litert", "saved_model"} == set(FORMATS)


def test_a_graph_that_computes_something_else_is_not_written(models, tmp_path, monkeypatch):
    monkeypatch.setattr("keras_bert.exporting.onnx_graph.Graph.unit_length", lambda graph, x: x)
    with pytest.raises(ValueError, match="computes something else"):
        keras_bert.export(models("embedding", "options"), tmp_path / "a", format="onnx")
    assert list(tmp_path.iterdir()) == []
