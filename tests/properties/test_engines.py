"""Every engine answers odd texts as the Keras model does, for every head and kind of export."""

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import heads
from keras_bert.exporting import graph_folder
from keras_bert.exporting.export import FORMATS
from keras_bert.exporting.graph_engine import GraphEngine
from keras_bert.exporting.graph_folder import GraphFile
from keras_bert.model_structure import find_output
from keras_bert.tasks import registry
from tests import tiny
from tests.parameters import fast
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


# Of each variant: a function of the name of a task that builds a model, and the tasks it is for.
VARIANTS = {
    "plain": (subjects.model, subjects.NAMES),
    "padded vocabulary": (
        lambda name: subjects.model(name, vocab_size=len(tiny.PIECES) + 6), subjects.NAMES
    ),
    "relu": (
        lambda name: subjects.model(name, hidden_act="relu", max_position_embeddings=40),
        subjects.NAMES,
    ),
    "bfloat16": (lambda name: subjects.model(name, dtype="mixed_bfloat16"), subjects.NAMES),
    "one segment": (lambda name: subjects.model(name, type_vocab_size=1), ["embedding", "tagging"]),
    "no bias": (no_bias, ["embedding"]),
}  # fmt: skip
TOLERANCE = 1e-4
TOLERANCE_OF_BFLOAT16 = 0.1
# A LiteRT file or SavedModel is opened otherwise than by `keras_bert.pipeline`.
GRAPHS = list(graph_folder.GRAPH_FILES)


def rows_for(task, output):
    """Return odd inputs of the pipeline of a task, also pairs with an empty side."""
    texts = subjects.ODD_TEXTS
    columns = task.inputs_of(output)
    if task.name in ("masked_tokens", "pretraining"):
        return [f"{text} [MASK] good" for text in texts]
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
            built[name, variant] = VARIANTS[variant][0](name)
        return built[name, variant]

    return get


def answers(pipe):
    """Return the numbers of the answers to each row, or the error for the rows."""
    task = pipe.engine.task
    options = {"top_k": None} if task.name == "classification" else {}
    rows = rows_for(task, pipe.output)
    try:
        results = pipe(rows, show_progress=False, **options)
    except ValueError as error:
        return str(error).replace(pipe.engine.name, "the model")
    if hasattr(results, "toarray"):
        results = results.toarray()
    return [sorted(numbers(result)) for result in results]


def numbers(result):
    """Yield the scores in a result of a pipeline, or in the outputs of a signature."""
    if isinstance(result, dict):
        yield from numbers([result[name] for name in ("score", "start", "end") if name in result])
    elif isinstance(result, (list, np.ndarray)):
        for item in result:
            yield from numbers(item)
    elif isinstance(result, (float, int, np.floating)):
        yield float(result)


def check(actual, expected, tolerance=TOLERANCE):
    if isinstance(expected, str) or isinstance(actual, str):
        assert actual == expected
        return
    assert len(actual) == len(expected)
    for text, row, wanted in zip(subjects.ODD_TEXTS * 2, actual, expected, strict=False):
        assert len(row) == len(wanted), repr(text)
        np.testing.assert_allclose(row, wanted, atol=tolerance, rtol=tolerance, err_msg=repr(text))


def tolerance_of(variant):
    return TOLERANCE_OF_BFLOAT16 if variant == "bfloat16" else TOLERANCE


@pytest.mark.parametrize("format", GRAPHS)
@pytest.mark.parametrize(
    "case",
    fast(
        [f"{name}, {variant}" for variant, (_, names) in VARIANTS.items() for name in names],
        *(f"{name}, padded vocabulary" for name in subjects.TRAINED_NAMES),
        "embedding, no bias", "masked_tokens, padded vocabulary", "embedding, one segment",
    ),
)  # fmt: skip
def test_graphs_answer_as_the_keras_model(case, format, models, tmp_path):
    pytest.importorskip("openvino" if format == "openvino" else "onnxruntime")
    name, variant = case.split(", ")
    model = models(name, variant)
    folder = keras_bert.export(model, tmp_path / "a", format=format)
    expected = answers(keras_bert.pipeline(model))
    check(answers(keras_bert.pipeline(folder)), expected, tolerance_of(variant))
    if format == "openvino":
        in_bfloat16 = answers(keras_bert.pipeline(folder, precision="bfloat16"))
        assert len(in_bfloat16) == len(expected)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow's converter")
@pytest.mark.parametrize("name", fast(subjects.TRAINED_NAMES, "multi_label"))
def test_litert_answers_as_the_keras_model(name, models, tmp_path):
    pytest.importorskip("ai_edge_litert")
    model = models(name, "padded vocabulary")
    folder = keras_bert.export(model, tmp_path / "a", format="litert")
    engine = GraphEngine(GraphFile(folder / "litert/model.tflite", folder))
    check(answers(engine.task.pipeline(engine)), answers(keras_bert.pipeline(model)))


# Outputs of a signature that the result of a pipeline has, too, the first that there is.
SERVED = ("probabilities", "scores", "score", "embedding", "weights")


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="SavedModels")
@pytest.mark.parametrize(
    "name", fast(subjects.TRAINED_NAMES, "pair", "sparse_embedding", "question_answering")
)
def test_saved_models_answer_as_the_keras_model(name, models, tmp_path):
    import tensorflow as tf

    model = models(name, "padded vocabulary")
    version = keras_bert.export(model, tmp_path / "a")
    task = registry.find(model)
    rows = rows_for(task, find_output(model))
    names = task.inputs_of(find_output(model))
    columns = zip(*rows, strict=True) if len(names) > 1 else [rows]
    # The loaded object must outlive its signature.
    loaded = tf.saved_model.load(str(version))
    inputs = {name: tf.constant(list(column)) for name, column in zip(names, columns, strict=True)}
    outputs = loaded.signatures["serving_default"](**inputs)
    output = next(outputs[name].numpy() for name in SERVED if name in outputs)
    expected = keras_bert.pipeline(model)(
        rows, show_progress=False, **({"top_k": None} if "probabilities" in outputs else {})
    )
    if name == "sparse_embedding":
        expected = expected.toarray()
    for text, row, result in zip(rows, output, expected, strict=True):
        np.testing.assert_allclose(
            without_zeros(numbers(row)), without_zeros(scores(result)), atol=1e-4, err_msg=str(text)
        )


def scores(result):
    """Return the scores in a result, without the places in the text."""
    if isinstance(result, dict):
        return [result["score"]]
    if isinstance(result, list):
        return [score for item in result for score in scores(item)]
    return np.ravel(result)


def without_zeros(values):
    """Return the numbers that are not padding, sorted."""
    return sorted(float(value) for value in np.ravel(list(values)) if abs(value) > 1e-6)


def test_every_format_is_in_this_file():
    assert {*GRAPHS, "litert", "saved_model"} == set(FORMATS)


def test_a_graph_that_computes_something_else_is_not_written(models, tmp_path, monkeypatch):
    monkeypatch.setattr("keras_bert.exporting.onnx_graph.Graph.unit_length", lambda graph, x: x)
    with pytest.raises(ValueError, match="computes something else"):
        keras_bert.export(models("embedding", "plain"), tmp_path / "a", format="onnx")
    assert list(tmp_path.iterdir()) == []
