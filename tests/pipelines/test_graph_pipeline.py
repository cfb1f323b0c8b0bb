"""Tests of pipelines of ONNX and OpenVINO folders.

The references are the pipelines of the Keras models.
"""

import json
import pathlib
import shutil

import numpy as np
import pytest

import keras_bert
from keras_bert import heads
from tests import contract, tiny
from tests.parameters import fast

TEXTS = ["this film is good!", "so bad", "", "한국어 film", "good " * 50]


def pipelines(model, folder, format="onnx"):
    """Return the pipelines of a model and of its export."""
    path = keras_bert.export(model, folder / model.name, format=format)
    return keras_bert.pipeline(model), keras_bert.pipeline(path, batch_size=2)


def assert_close(found, expected):
    """Check that two results are equal, their numbers to 5 decimals."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            assert_close(found[key], expected[key])
    elif isinstance(expected, (list, np.ndarray)):
        assert len(found) == len(expected)
        for pair in zip(found, expected, strict=True):
            assert_close(*pair)
    elif isinstance(expected, (float, np.floating)):
        assert found == pytest.approx(expected, abs=1e-5)
    else:
        assert found == expected


KOREAN = "so \ud800good 한국어 film\u0301, this!  is 🙂 bad cafe\u0301"
TAGGED = [*TEXTS, KOREAN, " \t", "a film so bad " * 30]
QUESTIONS = [("this film?", KOREAN), ("so " * 60, "a film so bad ! " * 30), ("bad", "")]
HEADS = {
    **contract.HEADS,
    "pairs": lambda encoder: heads.classifier(encoder, labels=["a", "b"], pairs=True),
    "label sets": lambda encoder: heads.classifier(encoder, labels=["a", "b"], multi_label=True),
    "prompts": lambda encoder: heads.embedder(encoder, prompts={"q": "a "}, default_prompt="q"),
    "characters": lambda encoder: heads.tagger(encoder, labels=["A", "B"], characters=True),
    "answers": heads.span_selector,
    "entities": lambda encoder: heads.tagger(encoder, labels=["O", "B-x", "I-x", "B-y"]),
}
CHOICES = [("so", ["good", "bad film !"]), ("this film", ["is", "a", "good " * 9])]
# For each head, inputs and the options of several calls.
CALLS = {
    "classification": (TEXTS, [{}, {"top_k": 2}]),
    "pairs": ([("so good", "film"), ("bad", "a film !")], [{}]),
    "label sets": (TEXTS, [{}]),
    "regression": (TEXTS, [{}]),
    "embedding": (TEXTS, [{}, {"normalize": True, "truncate_dim": 3}]),
    "entities": (TAGGED, [{}, {"grouped": False}]),
    "characters": (TAGGED, [{}]),
    "answers": (QUESTIONS, [{}, {"top_k": 3}, {"max_answer_length": 2}]),
    "question_answering": (QUESTIONS, [{}, {"top_k": 3}, {"null_threshold": 9.0}]),
    "multiple_choice": (CHOICES, [{}]),
    "masked_tokens": (["so [MASK]", "[MASK] film [MASK]!", KOREAN + "[MASK]"], [{}]),
    "pretraining": (["so [MASK]", "[MASK] film [MASK]!"], [{}]),
}
FAST = {*CALLS} - {"label sets", "characters", "answers", "pretraining"}


@pytest.mark.filterwarnings("ignore:.* were truncated")
@pytest.mark.parametrize("head", fast(CALLS, *FAST))
def test_results_equal_those_of_the_keras_model(head, tmp_path):
    check_results(head, tmp_path, "onnx")


@pytest.mark.filterwarnings("ignore:.* were truncated")
@pytest.mark.parametrize("head", CALLS)
def test_results_of_openvino_equal_those_of_the_keras_model(head, tmp_path):
    pytest.importorskip("openvino")
    check_results(head, tmp_path, "openvino")


def check_results(head, tmp_path, format):
    inputs, calls = CALLS[head]
    model = HEADS[head](tiny.encoder(initializer_range=0.5))
    keras_pipeline, graph_pipeline = pipelines(model, tmp_path, format)
    for options in calls:
        expected = keras_pipeline(inputs, **options)
        assert_close(graph_pipeline(inputs, **options), expected)
        assert_close(graph_pipeline(inputs[0], **options), expected[0])
        assert_close(list(graph_pipeline(iter(inputs), **options)), list(expected))
    assert len(graph_pipeline([])) == 0


OLD = pathlib.Path(__file__).parents[1] / "golden" / "onnx_before_2026_12"


@pytest.mark.parametrize("task", ["classification", "masked_tokens", "question_answering"])
def test_folders_of_older_versions(task):
    saved = json.loads((OLD / "answers.json").read_text(encoding="utf-8"))[task]
    inputs = [tuple(row) if isinstance(row, list) else row for row in saved["inputs"]]
    assert_close(keras_bert.pipeline(OLD / task)(inputs), saved["results"])
    with pytest.raises(ValueError, match=r"is an export.* keras_bert\.pipeline"):
        keras_bert.load(OLD / task)


def test_engines(tmp_path):
    model = heads.classifier(tiny.encoder(initializer_range=0.5), labels=["a", "b"])
    path = keras_bert.export(model, tmp_path / "a", format="onnx")
    expected = keras_bert.pipeline(model)("so good")
    assert_close(keras_bert.pipeline(path, engine="onnx")("so good"), expected)
    with pytest.raises(ValueError, match="no graph of the engine 'openvino'.*format='openvino'"):
        keras_bert.pipeline(path, engine="openvino")
    with pytest.raises(ValueError, match="engine must be one of None, keras, onnx, openvino"):
        keras_bert.pipeline(path, engine="torch")
    with pytest.raises(ValueError, match="engine='onnx' needs the path of a folder"):
        keras_bert.pipeline(model, engine="onnx")
    # With the weights of Hugging Face beside it, the folder is that of a Keras model, too.
    other = heads.classifier(tiny.encoder(initializer_range=0.5), labels=["a", "b"])
    keras_bert.save(other, tmp_path / "b", format="huggingface")
    shutil.copy(tmp_path / "b" / "model.safetensors", path)
    assert_close(keras_bert.pipeline(path)("so good"), keras_bert.pipeline(other)("so good"))
    assert_close(keras_bert.pipeline(path, engine="onnx")("so good"), expected)
    loaded = keras_bert.load(path, task="auto")
    assert_close(keras_bert.pipeline(loaded)("bad"), keras_bert.pipeline(other)("bad"))


def test_wrong_inputs_and_options(tmp_path):
    model = heads.masked_lm(tiny.encoder())
    ask = keras_bert.pipeline(keras_bert.export(model, tmp_path / "a", format="onnx"))
    with pytest.raises(ValueError, match=r"at least one \[MASK\]"):
        ask("so good")
    with pytest.raises(ValueError, match="grouped is not an option of this task"):
        ask("so [MASK]", grouped=True)


def test_long_texts_in_windows(tmp_path):
    model = heads.classifier(tiny.encoder(initializer_range=0.3), labels=["a", "b"])
    path = keras_bert.export(model, tmp_path / "a", format="onnx")
    texts = ["good bad " * length for length in (1, 15, 16, 25, 40)]
    assert_close(*(keras_bert.pipeline(each, long_texts="window")(texts) for each in (path, model)))
    with pytest.raises(ValueError, match="3 of 5 texts have more than 32 tokens"):
        keras_bert.pipeline(path, long_texts="error")(texts)


def test_repeated_tokens_have_names(tmp_path):
    preprocessor = keras_bert.Preprocessor([*tiny.PIECES, "good", "[MASK]"])
    model = heads.masked_lm(tiny.encoder(preprocessor=preprocessor, vocab_size=20))
    found, expected = (ask("so [MASK]", top_k=None) for ask in pipelines(model, tmp_path))
    assert [item["token"] for item in found] == [item["token"] for item in expected]


def test_labels_with_joiners_and_texts_with_surrogates(tmp_path):
    model = heads.classifier(tiny.encoder(), labels=["a\u200db", "c"])
    keras_pipeline, onnx_pipeline = pipelines(model, tmp_path)
    assert onnx_pipeline.output.labels == ["a\u200db", "c"]
    assert_close(onnx_pipeline("good", top_k=None), keras_pipeline("good", top_k=None))
    assert_close(onnx_pipeline("so \ud800good"), keras_pipeline("so \ud800good"))


def test_a_folder_of_another_format_keeps_its_engine(tmp_path):
    model = heads.classifier(tiny.encoder(), labels=["a", "b"])
    keras_bert.save(model, tmp_path / "both")
    (tmp_path / "both" / "model.onnx").write_bytes(b"")
    assert keras_bert.pipeline(tmp_path / "both").task == "classification"


def test_neither_keras_nor_tensorflow_is_imported(tmp_path, python):
    model = heads.classifier(tiny.encoder(), labels=["a", "b"])
    path = keras_bert.export(model, tmp_path / "a", format="onnx")
    program = (
        "import sys, keras_bert; answer = keras_bert.pipeline(sys.argv[1])('good'); "
        "assert answer['label'] in 'ab'; "
        "assert not {'keras', 'tensorflow', 'jax', 'torch'} & sys.modules.keys()"
    )
    python("-c", program, path)


def test_broken_folders(tmp_path):
    model = heads.classifier(tiny.encoder(), labels=["a", "b"])
    path = keras_bert.export(model, tmp_path / "a", format="onnx")
    with pytest.raises(ValueError, match="precision cannot be changed for an ONNX folder"):
        keras_bert.pipeline(path, precision="bfloat16")
    vocabulary = (path / "vocab.txt").read_text(encoding="utf-8")
    (path / "vocab.txt").write_text(vocabulary.replace("good\n", "goods\n"), encoding="utf-8")
    with pytest.raises(ValueError, match="must have the tokens of tokenizer.json"):
        keras_bert.pipeline(path)
    (path / "vocab.txt").write_text(vocabulary, encoding="utf-8")
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    for names, message in (
        ({"0": "a"}, "must have 2 labels; it has 1"),
        ({"0": "a", "1": "b\x1b[2J"}, r"config.json: a label must .*\\x1b.* Rename it"),
    ):
        (path / "config.json").write_text(json.dumps({**config, "id2label": names}))
        with pytest.raises(ValueError, match=message):
            keras_bert.pipeline(path)
    (path / "config.json").unlink()
    with pytest.raises((OSError, ValueError), match="config.json"):
        keras_bert.pipeline(path)
    (path / "config.json").write_text(json.dumps(config))
    (path / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match="normalizer.*Export the model again"):
        keras_bert.pipeline(path)
    (path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="normalizer.*Export the model again"):
        keras_bert.pipeline(path)
    encoder = keras_bert.export(tiny.encoder(), tmp_path / "b", format="onnx")
    with pytest.raises(ValueError, match="has the task 'encoder'. Run it with ONNX Runtime"):
        keras_bert.pipeline(encoder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": None}, "was not written by keras_bert.export"),
        ({"task": "\x1b[2J"}, "has the task"),
        ("[]", "must hold a JSON object"),
        ("[" * 100_000, "nested values"),
        ({"path": "../x"}, "'path' has the unknown value"),
        ({"pairs": "yes"}, "'pairs' has the unknown value 'yes'"),
        ({"prompts": {"a": 3}}, "'prompts' has the unknown value"),
        ({"long_texts": {}}, "'long_texts' has the unknown value"),
        ({"default_prompt": "a"}, "default_prompt must be one of the prompts"),
        ({"task": "regression"}, "has no output score"),
    ],
)
def test_wrong_descriptions(tmp_path, changes, message):
    model = heads.classifier(tiny.encoder(), labels=["a", "b"])
    path = keras_bert.export(model, tmp_path / "a", format="onnx")
    file = path / "keras_bert.json"
    if isinstance(changes, dict):
        changes = json.dumps(json.loads(file.read_text(encoding="utf-8")) | changes)
    file.write_text(changes, encoding="utf-8")
    with pytest.raises(ValueError, match=message) as caught:
        keras_bert.pipeline(path)
    assert str(path) in str(caught.value) and str(caught.value).isprintable()


def edit_tokenizer(path, **changes):
    tokenizer = json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer |= changes
    (path / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "////"}}, "Precompiled"),
        ({"normalizer": {"type": "BertNormalizer", "lowercase": 1}}, "normalizer must be"),
        ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a|aa)+$"}}}, "Split"),
        ({"model": {"type": "BPE", "vocab": {}, "merges": []}}, "model must be WordPiece"),
        ({"model": {"type": "WordPiece", "vocab": {"a": 0}}}, "must have the tokens of"),
        ({"added_tokens": [{"id": 2**32, "content": "a b"}]}, "ids must be 0 to"),
        ({"added_tokens": [{"id": 1, "content": ""}]}, "1 to 200 characters"),
        ({"added_tokens": [3]}, "tokenizer cannot be read"),
        *(
            ({"truncation": {"direction": "Right", "max_length": length}}, "must be 3 to")
            for length in ("128", 10**30, 2, True)
        ),
    ],
)
def test_a_tokenizer_is_made_of_the_parts_that_export_writes(tmp_path, changes, message):
    path = keras_bert.export(heads.regressor(tiny.encoder()), tmp_path / "a", format="onnx")
    edit_tokenizer(path, **changes)
    with pytest.raises(ValueError, match=message):
        keras_bert.pipeline(path)


def test_a_model_that_fails(tmp_path):
    """ONNX Runtime refuses ids without an embedding."""
    model = heads.classifier(tiny.encoder(), labels=["a", "b"])
    path = keras_bert.export(model, tmp_path / "a", format="onnx")
    with (path / "vocab.txt").open("a", encoding="utf-8") as file:
        file.write("word\n")
    tokenizer = json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["model"]["vocab"]["word"] = len(tokenizer["model"]["vocab"])
    edit_tokenizer(path, model=tokenizer["model"])
    ask = keras_bert.pipeline(path)
    with pytest.raises(ValueError, match=r"model\.onnx failed: .*Export the model again"):
        ask("word")


def test_texts_of_a_model_that_refuses_long_ones(tmp_path):
    model = heads.classifier(tiny.encoder(), labels=["a", "b"])
    heads.find_output(model).long_texts = "error"
    for ask in pipelines(model, tmp_path):
        with pytest.raises(ValueError, match="have more than 32 tokens"):
            ask("good " * 60)


def test_what_needs_the_keras_model(tmp_path):
    model = heads.classifier(tiny.encoder(), labels=["a", "b"])
    ask = keras_bert.pipeline(keras_bert.export(model, tmp_path / "a", format="onnx"))
    for call in (
        lambda: ask.model, lambda: ask.export(tmp_path / "b"), lambda: ask.save(tmp_path / "b"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="is an export, which has no Keras model"):
            call()


WORDS = [["so", "good"], ["a", "bad", "film"]]
TAGS = [contract.LABELS[:2], contract.LABELS]
PAIRS = keras_bert.EmbeddingExamples([("good", "so good"), ("bad", "so bad"), ("film", "this")])
# Heads, and labeled data.
SCORED = [
    ("classification", keras_bert.Examples(TEXTS[:3], labels=contract.LABELS)),
    ("label sets", keras_bert.Examples(TEXTS[:3], label_sets=[("a",), (), ("a", "b")])),
    (
        "regression",
        keras_bert.Examples(TEXTS[:3], scores=[0.0, 1.0, 3.0]),
    ),
    ("tagging", keras_bert.TaggedSentences(WORDS, TAGS)),
    (
        "question_answering",
        keras_bert.Questions(["who?", "what?"], ["so good", "a film"], answers=[[("good", 3)], []]),
    ),
    (
        "multiple_choice",
        keras_bert.Choices(["so", "a"], [["good", "bad"], ["film", "this"]], labels=[0, 1]),
    ),
    ("prompts", PAIRS),
    ("embedding", PAIRS.with_prompts("so ", "film ")),
    (
        "embedding",
        keras_bert.RetrievalData(
            {"1": "good", "2": "bad"}, {"a": "so good", "b": "so bad"}, {"1": {"a"}, "2": {"b"}}
        ),
    ),
]


@pytest.mark.parametrize(("head", "data"), SCORED)
def test_scores_equal_those_of_the_keras_model(head, data, tmp_path):
    asks = pipelines(HEADS[head](tiny.encoder(initializer_range=0.5)), tmp_path)
    expected, found = (ask.evaluate(data) for ask in asks)
    assert list(found) == list(expected)
    rows = expected.pop("report", {}), found.pop("report", {})
    assert rows[0] == rows[1]
    assert found == pytest.approx(expected, abs=1e-5)
    if asks[0].task != "embedding":
        mistakes = [ask.errors(data) for ask in asks]
        assert len(mistakes[0]) == len(mistakes[1])
        for one, other in zip(*mistakes, strict=True):
            assert one["score"] == pytest.approx(other["score"], abs=1e-5)
            assert one | {"score": 0} == other | {"score": 0}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (keras_bert.Examples(["good"]), "has no labels to score against"),
        (keras_bert.Examples([], labels=[]), "contains no examples"),
        (keras_bert.Examples(["a"], text_pairs=["b"], labels=["a"]), "reads single texts"),
        (keras_bert.Examples(["good"], labels=["c"]), "the label 'c' is not one of the model's"),
        (keras_bert.Examples(["good"], scores=[1.0]), "the model takes labels; received scores"),
        (keras_bert.TaggedSentences(WORDS, WORDS), "takes Examples"),
    ],
)
def test_scoring_needs_labeled_data_of_the_task(tmp_path, data, message):
    for ask in pipelines(heads.classifier(tiny.encoder(), labels=["a", "b"]), tmp_path):
        with pytest.raises(ValueError, match=message):
            ask.evaluate(data)


def test_scoring_with_unknown_tags_or_vectors_of_another_width(tmp_path):
    encoder = tiny.encoder()
    tagged = keras_bert.TaggedSentences(WORDS, [["O", "B-x"], ["O", "O", "B-y"]])
    for ask in pipelines(heads.tagger(encoder, labels=["O", "B-x"]), tmp_path):
        with pytest.raises(ValueError, match="sentence 2: the tag 'B-y' is not one of the model's"):
            ask.evaluate(tagged)
    vectors = keras_bert.EmbeddingExamples([("good",)], vectors=np.ones([1, 3], np.float32))
    for ask in pipelines(heads.embedder(encoder), tmp_path):
        with pytest.raises(ValueError, match="has vectors of the width 3"):
            ask.evaluate(vectors)
