"""Attack: runs that succeed but produce a wrong model."""

import json

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import optimizers
from keras_bert.hub import resolve
from keras_bert.pretraining import recipe
from keras_bert.server import rest
from keras_bert.tasks.embedding import nearest
from keras_bert.tasks.question_answering.windows import AnswerOptions
from keras_bert.training import run_state
from tests import tiny
from tests.training import test_run_state as runs


@pytest.fixture(scope="module", autouse=True)
def quick():
    with tiny.eagerly():
        yield


def weights(model):
    return [keras.ops.convert_to_numpy(weight) for weight in model.weights]


def killed(folder, batches=12):
    """Create the folder of a run that was killed in its third epoch."""
    with pytest.raises(runs.Killed):
        runs.finetune(folder, runs.KillAt(batches))
    assert (folder / run_state.STATE_FILE).is_file()


# Run folders


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_bfloat16", "mixed_float16"])
def test_best_epoch_with_other_dtypes(tmp_path, dtype):
    """Runs with a folder, without a folder, and resumed runs give bit-identical weights."""
    expected, metrics = runs.finetune(dtype=dtype)
    found, again = runs.finetune(tmp_path / "run", dtype=dtype)
    assert again["best_epoch"] == metrics["best_epoch"]
    with pytest.raises(runs.Killed):
        runs.finetune(tmp_path / "killed", runs.KillAt(12), dtype=dtype)
    resumed, _ = runs.finetune(tmp_path / "killed", dtype=dtype)
    for a, b, c in zip(weights(expected), weights(found), weights(resumed), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)


# Numbers


def test_numpy_numbers(tmp_path):
    options = {
        "epochs": np.int64(2),
        "batch_size": np.int32(4),
        "learning_rate": np.float32(1e-2),
        "warmup": np.float64(0.1),
        "max_length": np.int64(16),
        "patience": np.int64(2),
        "seed": np.int64(3),
        "class_weight": {"good": np.float32(1.0), "bad": np.float64(2.0)},
    }
    _, metrics = runs.finetune(tmp_path, **options)
    json.dumps(metrics)  # written by the command line
    assert metrics["recipe"]["epochs"] == 2 and type(metrics["recipe"]["seed"]) is int


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("learning_rate", -1),
        ("learning_rate", float("nan")),
        ("epochs", 2.5),
        ("batch_size", "8"),
        ("max_length", 100.7),
        ("warmup", 1.5),
    ],
)
def test_impossible_numbers(option, value):
    with pytest.raises(
        ValueError, match=f"{option.replace('_', '.')} must be .*received {value!r}"
    ):
        runs.finetune(**{option: value})


# Options


def test_user_exclusions_from_weight_decay():
    for make in (optimizers.AdamW, optimizers.Lamb):
        excluded, other = keras.layers.Dense(2), keras.layers.Dense(2)
        for layer in (excluded, other):
            layer.build((None, 3))
        variables = excluded.trainable_variables + other.trainable_variables
        before = [layer.get_weights()[0] for layer in (excluded, other)]
        optimizer = make(learning_rate=0.1, weight_decay=0.5)
        optimizer.exclude_from_weight_decay(var_list=[excluded.kernel])
        optimizer.build(variables)
        optimizer.apply([keras.ops.zeros_like(variable) for variable in variables])
        np.testing.assert_array_equal(excluded.kernel, before[0])
        assert np.abs(other.get_weights()[0] - before[1]).max() > 0


@pytest.fixture
def saved(tmp_path):
    encoder = tiny.encoder(num_hidden_layers=1, rematerialize=True)
    encoder.preprocessor.sequence_length = 16
    keras_bert.save(encoder, tmp_path / "saved")
    return tmp_path / "saved"


def test_load_options_override_saved_options(saved):
    assert keras_bert.load(saved).preprocessor.sequence_length == 16
    assert keras_bert.load(saved).rematerialize
    assert keras_bert.load(saved, sequence_length=None).preprocessor.sequence_length is None
    assert keras_bert.load(saved, sequence_length=np.int64(8)).preprocessor.sequence_length == 8
    assert not keras_bert.load(saved, rematerialize=False).rematerialize


@pytest.mark.parametrize("length", [100.7, 2, "128", True, -1])
def test_invalid_sequence_length(saved, tmp_path, length):
    keras_bert.save(tiny.encoder(num_hidden_layers=1), tmp_path / "theirs", format="huggingface")
    for folder in (saved, tmp_path / "theirs"):
        with pytest.raises(ValueError, match="sequence_length must be an integer of at least"):
            keras_bert.load(folder, sequence_length=length)
    with pytest.raises(ValueError, match="sequence_length must be an integer of at least"):
        keras_bert.load(saved).preprocessor.sequence_length = length


def test_a_sequence_length_above_the_maximum(saved, tmp_path):
    keras_bert.save(tiny.encoder(num_hidden_layers=1), tmp_path / "theirs", format="huggingface")
    assert keras_bert.load(tmp_path / "theirs").preprocessor.sequence_length == 32
    for folder in (saved, tmp_path / "theirs"):
        assert keras_bert.load(folder, sequence_length=32).preprocessor.sequence_length == 32
        with pytest.raises(ValueError, match="at most 32, the maximum of the model; received 33"):
            keras_bert.load(folder, sequence_length=33)


@pytest.mark.parametrize(("name", "expected"), [("base", "gelu"), ("tiny", "gelu_new")])
def test_a_name_has_one_activation_for_all_sources(tmp_path, monkeypatch, name, expected):
    """Both sources say "gelu" for all of Google's models; the name determines the function."""
    encoder = tiny.encoder(num_hidden_layers=1, hidden_act="gelu_new")
    for source, format in (("hub", "huggingface"), ("google", "google")):
        folder = tmp_path / source
        keras_bert.save(encoder, folder, format=format)
        file = next(f for f in folder.glob("*config.json") if "tokenizer" not in f.name)
        file.write_text(file.read_text().replace('"gelu_new"', '"gelu"'))
        monkeypatch.setattr(resolve, "find", lambda name, folder=folder: folder)
        assert keras_bert.load(name).bert_config["hidden_act"] == expected
        converted = keras_bert.convert(name, tmp_path / f"{source}.keras", format="keras")
        assert converted.spec.encoder["hidden_act"] == expected
        assert keras_bert.load(name, hidden_act="relu").bert_config["hidden_act"] == "relu"


# Calls that once gave a wrong result or an untrained model without a word.


def learn(**options):
    return keras_bert.finetune(tiny.learner(), tiny.examples(), show_progress=False, **options)


def early_stopping(**options):
    dev = tiny.examples()
    callback = keras.callbacks.EarlyStopping("val_accuracy", restore_best_weights=True, **options)
    return learn(dev=dev, callbacks=[callback])


def read_question(folder, **changes):
    answers = [{"text": "Ada", "answer_start": 7}]
    question = {"question": "who", "id": "1", "answers": answers} | changes
    paragraphs = [{"context": "it was Ada", "qas": [question]}]
    file = folder / "questions.json"
    file.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), encoding="utf-8")
    return keras_bert.read(file, "question_answering")


TEXTS = keras_bert.Examples(["good", "bad"], labels=["y", "x"])
PAIRS = [("good", "bad"), ("so", "film"), ("a", "is")]
SWAP = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tiny.encoder().preprocessor(np.array(["a", "b"]), np.array(["c"])), "same shape"),
        (lambda: learn(on_end="x"), "on_end must be a function"),
        (lambda: learn(dev=tiny.examples(), patience=0), "patience must be"),
        (lambda: learn(callbacks=[SWAP]), "does not average weights"),
        (lambda: learn(class_weight={"good": 0, "bad": 0}), "class_weight must be above 0"),
        (lambda: early_stopping(mode="min"), "needs mode='max'"),
        (lambda: early_stopping(start_from_epoch=2), "start_from_epoch=0"),
        (lambda: keras_bert.RetrievalData({"q": "x"}, {"1": "a"}, {"q": "1"}), "must be a list"),
        (lambda: nearest.similarity_of_pairs([[1.0, 0]], [[1.0, 0], [0, 1]]), "same shape"),
        (lambda: keras_bert.EmbeddingExamples(PAIRS, set_sizes=(1,)), "must sum to the 3 rows"),
        (lambda: recipe.Recipe(recipe.two_phases(10), masked_share=0), "masked_share must be"),
        (lambda: recipe.Phase(10, max_predictions=0), "max_predictions must be"),
        (lambda: AnswerOptions(null_threshold=float("nan")), "null_threshold must be a number"),
        (lambda: rest.parse(b'{"instances": [1e999]}'), "too large"),
    ],
)
def test_an_error_in_place_of_a_wrong_result(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    "changes",
    [
        {"is_impossible": "false"},
        {"answers": ""},
        {"answers": {"text": "", "answer_start": ""}},
    ],
)
def test_a_broken_answer_is_not_no_answer(tmp_path, changes):
    with pytest.raises(ValueError, match="needs 'answers'|is_impossible must be"):
        read_question(tmp_path, **changes)


def test_columns_and_label_sets_of_a_file(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text('t,l\nx,"[""a"", ""b\\/c"", ""\\ud83d\\ude00""]"\ny,"[""a""]"\n')
    examples = keras_bert.read(file, "multi_label", text="t", label="l")
    assert examples.label_sets == [("a", "b/c", "\U0001f600"), ("a",)]
    with pytest.raises(ValueError, match="must differ"):
        keras_bert.read(file, text="t", label="t")


def test_labels_of_a_dataset_are_unique():
    with pytest.raises(ValueError, match="labels must be unique"):
        TEXTS.to_dataset(tiny.encoder().preprocessor, labels=["x", "y", "x"])
