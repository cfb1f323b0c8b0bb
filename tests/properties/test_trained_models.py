"""What `finetune` returns, what its callbacks saved, and what `evaluate` says are one model.

Each task trains once. The data are also the dev data.
"""

import functools
import importlib

import keras
import numpy as np
import pytest
from scipy import sparse

import keras_bert
from keras_bert import heads
from keras_bert.tasks.keras_predictor import KerasPredictor
from tests import tiny
from tests.parameters import fast
from tests.properties import subjects

# Other data of a task, which have another loss or other metrics.
OTHER_DATA = {
    "embedding, scores": lambda: keras_bert.EmbeddingExamples(
        [
            ("so good", "good!"),
            ("bad", "so bad"),
            ("film", "is this"),
            ("good", "bad film"),
            ("films", "a film"),
            ("this", "this is"),
            ("is so", "good film"),
            ("a", "bad bad"),
        ],
        scores=[1, 1, 0, 0] * 2,
    ),
    "reranking, pairs": lambda: keras_bert.RankingExamples(
        [f"{text} film" for text in ("good", "bad", "so", "this")] * 4,
        [["film"], ["good"], ["bad!"], ["so"]] * 4,
        [[1], [0], [0], [1]] * 4,
    ),
}
CASES = [*subjects.TRAINED_NAMES, *OTHER_DATA]
FAST = ("classification", "embedding", "reranking, pairs")
each_case = pytest.mark.parametrize(
    "case", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
EPOCHS = 2


class Traces:
    """Counts the functions that TensorFlow traces."""

    def __init__(self):
        self.count = 0
        module = importlib.import_module("tensorflow.python.framework.func_graph")
        trace = module.func_graph_from_py_func

        def counted(*arguments, **options):
            self.count += 1
            return trace(*arguments, **options)

        module.func_graph_from_py_func = counted

    def of(self, function, *arguments):
        """Call a function, and return the number of functions that it traced."""
        before = self.count
        function(*arguments)
        return self.count - before


@functools.cache
def traces():
    return Traces()


class Watch(keras.callbacks.Callback):
    """Records the model, its answers at the end of each epoch, and the traces of each score."""

    def __init__(self, data):
        super().__init__()
        self.data = data
        self.answers = []
        self.traces = []

    def on_train_begin(self, logs=None):
        self.seen = self.model

    def on_test_begin(self, logs=None):
        self.before = traces().count

    def on_test_end(self, logs=None):
        self.traces.append(traces().count - self.before)

    def on_epoch_end(self, epoch, logs=None):
        assert self.model.optimizer is not None
        self.answers.append(answers(self.model, self.data))


class Run:
    """A fine-tuning run of a case, with the files of `ModelCheckpoint`."""

    def __init__(self, case, folder):
        name = case.partition(",")[0]
        self.folder = folder
        self.data = OTHER_DATA[case]() if case in OTHER_DATA else subjects.data(name)
        self.watch = Watch(self.data)
        model = subjects.model(name)
        frozen = heads.find_encoder(model).get_layer("embeddings")
        frozen.trainable = False
        before = bits(frozen)
        checkpoints = [
            keras.callbacks.ModelCheckpoint(folder / "{epoch}.keras"),
            keras.callbacks.ModelCheckpoint(folder / "{epoch}.weights.h5", save_weights_only=True),
        ]
        self.model, self.metrics = keras_bert.finetune(
            model, self.data, self.data, epochs=EPOCHS, learning_rate=1e-3,
            callbacks=[self.watch, *checkpoints], show_progress=False,
        )  # fmt: skip
        assert bits(frozen) == before
        self.name = name


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Function that returns the `Run` of a case, always the same one."""
    return functools.cache(lambda case: Run(case, tmp_path_factory.mktemp("run")))


def answers(model, data):
    """Return all numbers and texts of the answers of a pipeline, in their order."""
    return list(_leaves(keras_bert.pipeline(model).answers(data)))


def _leaves(value):
    if sparse.issparse(value):
        value = value.toarray()
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, np.ndarray):
        yield from value.ravel().tolist()
    else:
        yield value


def assert_same(values, expected):
    assert len(values) == len(expected)
    for value, other in zip(values, expected, strict=True):
        if isinstance(other, float):
            assert value == pytest.approx(other, abs=1e-5)
        else:
            assert value == other


@each_case
def test_callbacks_see_the_model_that_is_returned(case, run):
    trained = run(case)
    assert trained.watch.seen is trained.model
    best = trained.metrics["best_epoch"]
    assert_same(trained.watch.answers[best - 1], answers(trained.model, trained.data))


@each_case
def test_a_checkpoint_answers_like_the_model(case, run):
    trained = run(case)
    expected = answers(trained.model, trained.data)
    best = trained.metrics["best_epoch"]
    loaded = keras_bert.load(trained.folder / f"{best}.keras")
    assert_same(answers(loaded, trained.data), expected)
    copy = subjects.model(trained.name)
    heads.find_encoder(copy).preprocessor.max_sequence_length = 32
    copy.load_weights(trained.folder / f"{best}.weights.h5")
    assert_same(answers(copy, trained.data), expected)


@each_case
def test_metrics_are_those_of_evaluate(case, run):
    trained = run(case)
    metrics = keras_bert.evaluate(trained.model, trained.data)
    assert metrics == pytest.approx({name: trained.metrics[name] for name in metrics}, abs=1e-5)
    scores = keras_bert.pipeline(trained.model).evaluate(trained.data)
    assert metrics == pytest.approx({name: scores[name] for name in metrics}, abs=1e-5)


def with_lora(model):
    heads.find_encoder(model).enable_lora(2)
    return []  # LoRA freezes the other weights


# Way to freeze a part -> a task, and a function that returns the layers to freeze.
FROZEN = {
    "embeddings": ("tagging", lambda model: [heads.find_encoder(model).get_layer("embeddings")]),
    "layer": ("pair", lambda model: [heads.find_encoder(model).get_layer("layer_0")]),
    "part of a layer": (
        "question_answering",
        lambda model: [heads.find_encoder(model).get_layer("layer_1").attention],
    ),
    "encoder": ("regression", lambda model: [heads.find_encoder(model)]),
    "pooler": ("multi_label", lambda model: [heads.find_encoder(model).get_layer("pooler")]),
    "head": ("classification", lambda model: [model.get_layer("logits")]),
    "layer of the head": ("embedding", lambda model: [model.get_layer("first")]),
    "masked LM": ("sparse_embedding", lambda model: [model.get_layer("masked_lm")]),
    "LoRA": ("multiple_choice", with_lora),
    "LoRA and layer": (
        "reranking",
        lambda model: [*with_lora(model), heads.find_encoder(model).get_layer("layer_0")],
    ),
    "contrastive": ("classification", lambda encoder: [encoder.get_layer("layer_0")]),
}


def to_freeze(way, name):
    """Return a model; for contrastive training an encoder, which gets a new head."""
    if way == "contrastive":
        return tiny.encoder(pooling="mean", num_hidden_layers=2)
    if way == "layer of the head":
        layers = [keras.layers.Dense(4, name="first"), keras.layers.Dense(3, name="second")]
        return heads.embedder(tiny.encoder(num_hidden_layers=2), layers=layers)
    return subjects.model(name, num_hidden_layers=2)


def bits(model):
    """Return the bytes of the frozen weights and those of the others, by path."""
    frozen = {}
    trained = {}
    for weight in model.weights:
        if "seed" not in weight.path:
            of_kind = trained if weight.trainable else frozen
            of_kind[weight.path] = keras.ops.convert_to_numpy(weight).tobytes()
    return frozen, trained


@pytest.mark.parametrize("way", fast(FROZEN, "layer of the head", "LoRA and layer"))
def test_frozen_weights_keep_their_bits(way, tmp_path, eager):
    name, layers_of = FROZEN[way]
    model = to_freeze(way, name)
    for layer in layers_of(model):
        layer.trainable = False
    data = subjects.data(name)[:8]
    options = {"epochs": 1, "learning_rate": 0.1, "show_progress": False}
    frozen, _ = bits(model)
    assert frozen
    trained, metrics = keras_bert.finetune(model, data, **options)
    assert metrics["recipe"].get("contrastive", False) == (way == "contrastive")
    after, others = bits(trained)
    assert after == frozen
    keras_bert.save(trained, tmp_path / "a.keras")
    loaded = keras_bert.load(tmp_path / "a.keras")
    in_file = bits(loaded)
    assert [weights.keys() for weights in in_file] == [frozen.keys(), others.keys()]
    changed = {path for path in frozen if in_file[0][path] != frozen[path]}
    if "LoRA" in way:  # a file has the kernels with the LoRA matrices added
        assert all("kernel" in path for path in changed)
    else:
        assert in_file == (frozen, others)
    again, _ = keras_bert.finetune(loaded, data, **options)
    after, trained_again = bits(again)
    assert after == in_file[0]
    assert trained_again != in_file[1]


@each_case
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="counts TensorFlow's traces")
def test_nothing_is_traced_twice(case, run):
    trained = run(case)
    assert trained.watch.traces[1:] == [0] * (EPOCHS - 1)  # scores after the first one
    model, data = trained.model, trained.data
    keras_bert.evaluate(model, data)
    part = data[:3]  # batches of another shape
    assert traces().of(keras_bert.evaluate, model, data) == 0
    assert traces().of(keras_bert.evaluate, model, part) == 0
    assert traces().of(answers, model, data) == 0
    assert traces().of(KerasPredictor(model).answers, part) == 0


@pytest.mark.slow
def test_checkpoints_in_a_new_process(run, python):
    script = """
import pathlib
from tests.properties import test_trained_models as tests
for case, folder in {runs}.items():
    data = tests.OTHER_DATA[case]() if case in tests.OTHER_DATA else tests.subjects.data(case)
    print(tests.answers(pathlib.Path(folder), data))
"""
    runs = {case: run(case) for case in CASES}
    files = {
        case: str(trained.folder / f"{trained.metrics['best_epoch']}.keras")
        for case, trained in runs.items()
    }
    output = python("-c", script.format(runs=files))
    lines = [line for line in output.splitlines() if line.startswith("[")]
    for trained, line in zip(runs.values(), lines, strict=True):
        assert_same(eval(line, {"nan": float("nan")}), answers(trained.model, trained.data))
