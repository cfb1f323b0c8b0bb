"""Tests of pipelines of ONNX and OpenVINO folders.

The references are the pipelines of the Keras models.
"""

import concurrent.futures
import json
import pickle
import shutil

import numpy as np
import pytest

import keras_bert
from keras_bert import heads
from tests import contract, tiny
from tests.checkpoints.huggingface_files import edit_json
from tests.parameters import fast
from tests.properties import subjects

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


def test_neither_keras_nor_tensorflow_is_imported(tmp_path, python):
    model = heads.classifier(tiny.encoder(), labels=["a", "b"])
    path = keras_bert.export(model, tmp_path / "a", format="onnx")
    program = (
        "import sys, keras_bert; answer = keras_bert.pipeline(sys.argv[1])('good'); "
        "assert answer['label'] in 'ab'; "
        "assert not {'keras', 'tensorflow', 'jax', 'torch'} & sys.modules.keys()"
    )
    python("-c", program, path)


def labels(*values, **options):
    """Return an edit that writes `id2label` and options of keras_bert.json."""

    def edit(folder):
        edit_json(folder / "config.json", id2label=dict(enumerate(values)))
        edit_json(folder / "keras_bert.json", **options)

    return edit


def rename_token(folder):
    vocabulary = (folder / "vocab.txt").read_text(encoding="utf-8")
    (folder / "vocab.txt").write_text(vocabulary.replace("good\n", "goods\n"), encoding="utf-8")


def add_token(folder):
    """Add a token to all files that have the vocabulary; the graph has no embedding for it."""
    with (folder / "vocab.txt").open("a", encoding="utf-8") as file:
        file.write("word\n")
    model = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    model["vocab"]["word"] = len(model["vocab"])
    edit_json(folder / "tokenizer.json", model=model)


def take_other_graph(folder):
    """Exchange the graph for that of another model."""
    model = heads.classifier(tiny.encoder(), labels=["a", "b"])
    other = keras_bert.export(model, folder.parent / "other", format="onnx")
    shutil.copy(other / "onnx/model.onnx", folder / "onnx/model.onnx")


BROKEN = {
    "other tokens": (rename_token, "must have the tokens of tokenizer.json"),
    "a token more": (add_token, "tokenizer.json has changed since the export"),
    "other graph": (take_other_graph, "model.onnx has changed since the export"),
    "no graph": (
        lambda folder: (folder / "onnx/model.onnx").unlink(),
        "an export without its graph.* export the model again",
    ),
    "few labels": (labels("a"), "must have 2 labels; it has 1"),
    "equal labels": (labels("a", "a"), "two labels of id2label are equal"),
    "labels of another type": (labels("a", 2), "id2label has 2, which is not a string"),
    "no integers": (labels("a", "b", label_type="int"), "label_type is 'int', but the labels"),
    "escapes": (labels("a", "b\x1b[2J"), r"config.json: a label must .*\\x1b.* Rename it"),
    "a hole": (
        lambda folder: edit_json(folder / "config.json", id2label={"0": "a", "2": "b"}),
        "id2label must be an object with the keys 0, 1",
    ),
    "no config": (lambda folder: (folder / "config.json").unlink(), "config.json"),
    "no tokenizer": (
        lambda folder: (folder / "tokenizer.json").unlink(),
        "truncation.*Export the model again",
    ),
    "empty tokenizer": (
        lambda folder: (folder / "tokenizer.json").write_text("{}"),
        "truncation.*Export the model again",
    ),
    "long texts": (
        lambda folder: edit_json(
            folder / "tokenizer.json", truncation={"max_length": 64, "stride": 0}
        ),
        "max_length of its truncation is 64, but the model .* has 32 positions",
    ),
    "other task": (
        lambda folder: edit_json(folder / "keras_bert.json", task="tagging"),
        "logits must have 3 axes; it has 2",
    ),
}


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    model = heads.classifier(tiny.encoder(initializer_range=0.5), labels=["a", "b"])
    return keras_bert.export(model, tmp_path_factory.mktemp("classes") / "a", format="onnx")


@pytest.mark.parametrize("name", BROKEN)
def test_broken_folders(classes, name, tmp_path):
    edit, message = BROKEN[name]
    folder = shutil.copytree(classes, tmp_path / "broken")
    edit(folder)
    with pytest.raises((OSError, ValueError), match=message):
        keras_bert.pipeline(folder)


def test_an_encoder_has_no_pipeline(tmp_path):
    encoder = keras_bert.export(tiny.encoder(), tmp_path / "b", format="onnx")
    with pytest.raises(ValueError, match=r"has the task 'encoder'. Export .*heads\.embedder"):
        keras_bert.pipeline(encoder)


def test_a_copied_pipeline_computes_the_same(classes):
    ask = keras_bert.pipeline(classes)
    assert pickle.loads(pickle.dumps(ask))(TEXTS[:3]) == ask(TEXTS[:3])
    with pytest.raises(ValueError, match="an ONNX folder is computed in float32"):
        keras_bert.pipeline(classes, precision="bfloat16")


def test_a_graph_that_returns_nan(tmp_path):
    onnx = pytest.importorskip("onnx")
    model = heads.classifier(tiny.encoder(), labels=["a", "b"])
    folder = keras_bert.export(model, tmp_path / "a", format="onnx")
    graph = onnx.load(folder / "onnx/model.onnx")
    weight = graph.graph.initializer[0]
    array = np.full_like(onnx.numpy_helper.to_array(weight), np.nan)
    weight.CopyFrom(onnx.numpy_helper.from_array(array, weight.name))
    onnx.save(graph, folder / "onnx/model.onnx")
    edit_json(folder / "keras_bert.json", graph_sha256=None)
    with pytest.raises(ValueError, match="returned NaN. Export the model again"):
        keras_bert.pipeline(folder)(TEXTS)
    model.get_layer("logits").bias.assign([np.nan, 0.0])
    with pytest.raises(ValueError, match="its weight .*logits.* holds NaN or infinity"):
        keras_bert.export(model, tmp_path / "b", format="onnx")
    assert not (tmp_path / "b").exists()


@pytest.mark.filterwarnings("ignore:.* were truncated")
@pytest.mark.parametrize("format", ["onnx", "openvino"])
def test_several_threads(format, tmp_path):
    pytest.importorskip("onnxruntime" if format == "onnx" else "openvino")
    _, embed = pipelines(tiny.embedder("mean", []), tmp_path, format)
    inputs = [["so good"], ["bad film"], TEXTS * 20, TEXTS[::-1] * 9]
    expected = [embed(texts) for texts in inputs]

    def run(call):
        return embed(inputs[call % 4], show_progress=False)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for call, vectors in enumerate(pool.map(run, range(80))):
            np.testing.assert_allclose(vectors, expected[call % 4], atol=1e-5)


def test_openvino_in_a_forked_process(tmp_path):
    pytest.importorskip("openvino")
    _, embed = pipelines(tiny.embedder("mean", []), tmp_path, "openvino")
    session = embed.engine.session
    session._process += 1  # as in another process
    with pytest.raises(ValueError, match="does not work in a forked process"):
        embed("so good")


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
def test_wrong_descriptions(classes, tmp_path, changes, message):
    path = shutil.copytree(classes, tmp_path / "a")
    file = path / "keras_bert.json"
    if isinstance(changes, dict):
        edit_json(file, **changes)
    else:
        file.write_text(changes, encoding="utf-8")
    with pytest.raises(ValueError, match=message) as caught:
        keras_bert.pipeline(path)
    assert str(path) in str(caught.value) and str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "////"}}, "Precompiled"),
        ({"normalizer": {"type": "BertNormalizer", "lowercase": 1}}, "normalizer must be"),
        ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a|aa)+$"}}}, "Split"),
        (
            {"model": {"type": "BPE", "vocab": {}, "merges": []}},
            "WordPiece' in the model",
        ),
        ({"model": {"type": "WordPiece", "vocab": {"a": 0}}}, "must have the tokens of"),
        ({"added_tokens": [{"id": 2**32, "content": "a b"}]}, "ids must be 0 to"),
        ({"added_tokens": [{"id": 1, "content": ""}]}, "1 to 1024 characters"),
        ({"added_tokens": [3]}, "tokenizer cannot be read"),
        *(
            ({"truncation": {"direction": "Right", "max_length": length}}, "must be 3 to")
            for length in ("128", 10**30, 2, True)
        ),
    ],
)
def test_a_tokenizer_is_made_of_the_parts_that_export_writes(classes, tmp_path, changes, message):
    path = shutil.copytree(classes, tmp_path / "a")
    edit_json(path / "tokenizer.json", **changes)
    with pytest.raises(ValueError, match=message):
        keras_bert.pipeline(path)


def test_texts_of_a_model_that_refuses_long_ones(tmp_path):
    model = heads.classifier(tiny.encoder(), labels=["a", "b"])
    heads.find_output(model).long_texts = "error"
    for ask in pipelines(model, tmp_path):
        with pytest.raises(ValueError, match="have more than 32 tokens"):
            ask("good " * 60)


def test_what_needs_the_keras_model(classes, tmp_path):
    ask = keras_bert.pipeline(classes)
    for call in (
        lambda: ask.model, lambda: ask.export(tmp_path / "b"), lambda: ask.save(tmp_path / "b"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="is an export, which has no Keras model"):
            call()


WORDS = [["so", "good"], ["a", "bad", "film"]]


@pytest.mark.parametrize("name", subjects.TRAINED_NAMES)
def test_scores_equal_those_of_the_keras_model(name, tmp_path):
    asks = pipelines(subjects.model(name), tmp_path)
    assert_equal_scores(asks, subjects.data(name))
    if asks[0].task not in ("embedding", "sparse_embedding"):
        mistakes = [ask.errors(subjects.data(name), 99) for ask in asks]
        assert_close(*([row["score"] for row in rows] for rows in mistakes))


def assert_equal_scores(asks, data):
    expected, found = (ask.evaluate(data) for ask in asks)
    assert found.pop("report", {}) == expected.pop("report", {})
    if "spearman" in expected:  # equal texts have equal scores only up to rounding
        assert found.pop("spearman") == pytest.approx(expected.pop("spearman"), abs=0.01)
    assert found == pytest.approx(expected, abs=1e-5)


def test_scores_of_embedders_with_prompts_and_of_searches(tmp_path):
    asks = pipelines(HEADS["prompts"](tiny.encoder(initializer_range=0.5)), tmp_path)
    pairs = keras_bert.EmbeddingExamples([("good", "so good"), ("bad", "so bad"), ("a", "this")])
    searches = keras_bert.RetrievalData(
        {"1": "good", "2": "bad"}, {"a": "so good", "b": "so bad"}, {"1": {"a"}, "2": {"b"}}
    )
    for data in (pairs, pairs.with_prompts("so ", "film "), searches):
        assert_equal_scores(asks, data)


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
