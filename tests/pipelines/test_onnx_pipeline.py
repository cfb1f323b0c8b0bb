"""Tests of pipelines of ONNX folders. The references are the pipelines of the Keras models."""

import json
import types
from contextlib import nullcontext as nothing

import numpy as np
import onnx
import pandas as pd
import pytest

import keras_bert
from keras_bert import heads
from tests import tiny

TEXTS = ["this film is good!", "so bad", "", "한국어 film", "good " * 50]


def pipelines(model, folder):
    """Return the pipelines of a model and of its ONNX export."""
    path = keras_bert.export(model, folder / model.name, format="onnx")
    return keras_bert.pipeline(model), keras_bert.pipeline(path, batch_size=2)


def assert_equal(found, expected):
    assert [item["label"] for item in found] == [item["label"] for item in expected]
    scores = [[item["score"] for item in items] for items in (found, expected)]
    np.testing.assert_allclose(*scores, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.* were truncated")
def test_classes(tmp_path):
    model = heads.classifier(tiny.encoder(initializer_range=0.3), labels=["a", "b", "c"])
    keras_pipeline, onnx_pipeline = pipelines(model, tmp_path)
    assert_equal(onnx_pipeline(TEXTS), keras_pipeline(TEXTS))
    assert_equal([onnx_pipeline("so good")], [keras_pipeline("so good")])
    assert_equal(onnx_pipeline("so good", top_k=2), keras_pipeline("so good", top_k=2))
    found = onnx_pipeline(iter(TEXTS))
    assert isinstance(found, types.GeneratorType)
    assert_equal(list(found), keras_pipeline(TEXTS))
    assert onnx_pipeline([]) == []
    assert (onnx_pipeline.task, onnx_pipeline.output.labels) == ("classification", ["a", "b", "c"])
    frame = pd.DataFrame({"text": TEXTS})
    assert onnx_pipeline(frame)["label"].tolist() == keras_pipeline(frame)["label"].tolist()


def test_integer_labels_stay_integers(tmp_path):
    onnx_pipeline, keras_pipeline = pipelines(
        heads.classifier(tiny.encoder(), labels=[0, 1]), tmp_path
    )
    assert onnx_pipeline("so good")["label"] in (0, 1)
    assert onnx_pipeline("so good")["label"] == keras_pipeline("so good")["label"]


def test_pairs_and_label_sets(tmp_path):
    encoder = tiny.encoder(initializer_range=0.3)
    model = heads.classifier(encoder, labels=["a", "b"], pairs=True)
    keras_pipeline, onnx_pipeline = pipelines(model, tmp_path)
    pairs = [("so good", "film"), ("bad", "a film !")]
    assert_equal(onnx_pipeline(pairs), keras_pipeline(pairs))
    assert_equal([onnx_pipeline("bad", "film")], [keras_pipeline(("bad", "film"))])
    with pytest.raises(ValueError, match="input 1 must be a pair of texts"):
        onnx_pipeline(["good"])
    sets = heads.classifier(encoder, labels=["a", "b"], multi_label=True, name="sets")
    keras_pipeline, onnx_pipeline = pipelines(sets, tmp_path)
    for text in TEXTS[:4]:
        assert_equal(onnx_pipeline(text), keras_pipeline(text))


@pytest.mark.filterwarnings("ignore:.* were truncated")
def test_numbers_and_embeddings(tmp_path):
    encoder = tiny.encoder(initializer_range=0.3)
    keras_pipeline, onnx_pipeline = pipelines(heads.regressor(encoder), tmp_path)
    found, expected = (
        [item["score"] for item in ask(TEXTS)] for ask in (onnx_pipeline, keras_pipeline)
    )
    np.testing.assert_allclose(found, expected, atol=1e-5)
    with pytest.raises(ValueError, match="top_k is not an option of this task"):
        onnx_pipeline("good", top_k=1)
    keras_pipeline, onnx_pipeline = pipelines(heads.embedder(encoder), tmp_path)
    np.testing.assert_allclose(onnx_pipeline(TEXTS), keras_pipeline(TEXTS), atol=1e-5)
    assert onnx_pipeline("good").shape == (8,) and onnx_pipeline([]).shape == (0, 8)
    options = {"normalize": True, "truncate_dim": 3}
    expected = keras_pipeline.encode(TEXTS, **options)
    np.testing.assert_allclose(onnx_pipeline.encode(TEXTS, **options), expected, atol=1e-5)
    assert onnx_pipeline.similarity(expected, expected).shape == (5, 5)


def test_long_texts_in_windows(tmp_path):
    model = heads.classifier(tiny.encoder(initializer_range=0.3), labels=["a", "b"])
    path = keras_bert.export(model, tmp_path / "a", format="onnx")
    texts = ["good bad " * length for length in (1, 15, 16, 25, 40)]
    found, expected = (
        keras_bert.pipeline(each, long_texts="window")(texts) for each in (path, model)
    )
    assert_equal(found, expected)
    with pytest.raises(ValueError, match="3 of 5 texts have more than 32 tokens"):
        keras_bert.pipeline(path, long_texts="error")(texts)


KOREAN = "so \ud800good 한국어 film\u0301, this!  is 🙂 bad cafe\u0301"


@pytest.mark.parametrize("characters", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "labels", [["O", "B-x", "I-x", "B-y"], pytest.param(["A", "B"], marks=pytest.mark.slow)]
)
def test_tags(labels, characters, tmp_path):
    encoder = tiny.encoder(initializer_range=1.0)
    model = heads.tagger(encoder, labels=labels, characters=characters)
    keras_pipeline, onnx_pipeline = pipelines(model, tmp_path)
    texts = [*TEXTS, KOREAN, " \t", "a film so bad " * 30]
    for options in ({}, {"grouped": False}):
        for found, expected in zip(
            onnx_pipeline(texts, **options), keras_pipeline(texts, **options), strict=True
        ):
            keys = ("text", "tag", "start", "end")
            assert [[e[k] for k in keys] for e in found] == [[e[k] for k in keys] for e in expected]
            scores = [[each["score"] for each in row] for row in (found, expected)]
            np.testing.assert_allclose(*scores, atol=1e-5)


@pytest.mark.parametrize("no_answer", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_questions(no_answer, tmp_path):
    encoder = tiny.encoder(initializer_range=1.0)
    model = heads.span_selector(encoder, no_answer=no_answer)
    keras_pipeline, onnx_pipeline = pipelines(model, tmp_path)
    questions = ["this film?", "so " * 60, "bad"]
    contexts = [KOREAN, "a film so bad ! " * 30, ""]
    rows = list(zip(questions, contexts, strict=True))
    all_options = [{}, {"top_k": 3}, {"max_answer_length": 2}]
    if no_answer:
        all_options.append({"null_threshold": 9.0})
    for options in all_options:
        with pytest.warns(UserWarning, match="were truncated") if not options else nothing():
            found = onnx_pipeline(rows, **options)
        with pytest.warns(UserWarning, match="were truncated") if not options else nothing():
            expected = keras_pipeline(rows, **options)
        for one, other in zip(found, expected, strict=True):
            one, other = ([each] if isinstance(each, dict) else each for each in (one, other))
            for a, b in zip(one, other, strict=True):
                assert a | {"score": 0} == b | {"score": 0}
                assert a["score"] == pytest.approx(b["score"], abs=1e-5)
    answer = onnx_pipeline(question="bad", context=KOREAN)
    assert answer.keys() == {"answer", "start", "end", "score"}


def test_choices(tmp_path):
    model = heads.multiple_choice(tiny.encoder(initializer_range=0.3))
    keras_pipeline, onnx_pipeline = pipelines(model, tmp_path)
    texts, choices = ["so", "this film"], [["good", "bad film !"], ["is", "a", "good " * 9]]
    for found, expected in zip(
        onnx_pipeline(texts, choices=choices), keras_pipeline(texts, choices=choices), strict=True
    ):
        assert found | {"score": 0} == expected | {"score": 0}
        assert found["score"] == pytest.approx(expected["score"], abs=1e-5)


@pytest.mark.parametrize(
    "head", [heads.masked_lm, pytest.param(heads.pretraining, marks=pytest.mark.slow)]
)
def test_masks(head, tmp_path):
    model = head(tiny.encoder(initializer_range=0.3))
    keras_pipeline, onnx_pipeline = pipelines(model, tmp_path)
    texts = ["so [MASK]", "[MASK] film [MASK]!", KOREAN + "[MASK]"]
    for found, expected in zip(onnx_pipeline(texts), keras_pipeline(texts), strict=True):
        found, expected = (sum(each, []) if isinstance(each[0], list) else each
                           for each in (found, expected))  # fmt: skip
        assert [item["token"] for item in found] == [item["token"] for item in expected]
        scores = [[item["score"] for item in items] for items in (found, expected)]
        np.testing.assert_allclose(*scores, atol=1e-5)
    with pytest.raises(ValueError, match=r"at least one \[MASK\]"):
        onnx_pipeline("so good")


def test_repeated_tokens_have_names(tmp_path):
    preprocessor = keras_bert.Preprocessor([*tiny.PIECES, "good", "[MASK]"])
    model = heads.masked_lm(tiny.encoder(preprocessor=preprocessor, vocab_size=20))
    found, expected = (ask("so [MASK]", top_k=None) for ask in pipelines(model, tmp_path))
    assert [item["token"] for item in found] == [item["token"] for item in expected]


def test_labels_with_joiners_and_texts_with_surrogates(tmp_path):
    model = heads.classifier(tiny.encoder(), labels=["a\u200db", "c"])
    keras_pipeline, onnx_pipeline = pipelines(model, tmp_path)
    assert onnx_pipeline.output.labels == ["a\u200db", "c"]
    assert_equal(onnx_pipeline("good", top_k=None), keras_pipeline("good", top_k=None))
    assert_equal([onnx_pipeline("so \ud800good")], [keras_pipeline("so \ud800good")])


def test_a_folder_of_another_format_keeps_its_engine(tmp_path):
    model = heads.classifier(tiny.encoder(), labels=["a", "b"])
    keras_bert.save(model, tmp_path / "both")
    (tmp_path / "both" / "model.onnx").write_bytes(b"")
    assert keras_bert.pipeline(tmp_path / "both").task == "classification"


def test_truncation_is_a_warning(tmp_path):
    _, onnx_pipeline = pipelines(heads.embedder(tiny.encoder()), tmp_path)
    with pytest.warns(UserWarning, match="1 of 5 texts were truncated to 32 tokens"):
        onnx_pipeline(TEXTS)
    onnx_pipeline(TEXTS)  # warned once


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
    ask = keras_bert.pipeline(path)
    for inputs, message in (
        (["good", 3], "text 2 must be a string; received 3"),
        ({"text": "good"}, "a string or a list of strings"),
        (None, "a string or a list of strings"),
    ):
        with pytest.raises(ValueError, match=message):
            ask(inputs)
    for options in ({"top_k": 0}, {"top_k": True}, {"batch_size": 0}):
        with pytest.raises(ValueError, match="must be an integer of at least 1"):
            ask("good", **options)
    vocabulary = (path / "vocab.txt").read_text(encoding="utf-8")
    (path / "vocab.txt").write_text(vocabulary.replace("good\n", "goods\n"), encoding="utf-8")
    with pytest.raises(ValueError, match="must have the tokens of tokenizer.json"):
        keras_bert.pipeline(path)
    (path / "vocab.txt").write_text(vocabulary, encoding="utf-8")
    (path / "labels.txt").write_text("a\n")
    with pytest.raises(ValueError, match="must have 2 lines; it has 1"):
        keras_bert.pipeline(path)
    (path / "labels.txt").write_text("a\nb\x1b[2J\n")
    with pytest.raises(ValueError, match=r"labels.txt: a label must .*\\x1b.* Rename it"):
        keras_bert.pipeline(path)
    for name, message in (
        ("labels.txt", "labels.txt is missing or broken"),
        ("tokenizer.json", "has no tokenizer.json"),
    ):
        (path / name).unlink()
        with pytest.raises(ValueError, match=message):
            keras_bert.pipeline(path)
    (path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="normalizer.*Export the model again"):
        keras_bert.pipeline(path)
    encoder = keras_bert.export(tiny.encoder(), tmp_path / "b", format="onnx")
    with pytest.raises(ValueError, match="has the task 'encoder'. Run it with ONNX Runtime"):
        keras_bert.pipeline(encoder)


def edit_metadata(path, **changes):
    proto = onnx.load(path / "model.onnx")
    metadata = {each.key: each.value for each in proto.metadata_props} | changes
    onnx.helper.set_model_props(proto, {key: value for key, value in metadata.items() if value})
    onnx.save(proto, path / "model.onnx")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": None}, "was not written by keras_bert.export"),
        ({"task": "\x1b[2J"}, "has the task"),
        ({"output": "[]"}, "must hold a JSON object"),
        ({"output": "[" * 100_000}, "nested values"),
        ({"output": '{"labels": ["a", "b"]}'}, "'labels' with the unknown value"),
        ({"output": '{"path": "../x"}'}, "'path' with the unknown value"),
        ({"output": '{"pairs": "yes"}'}, "'pairs' with the unknown value 'yes'"),
        ({"output": '{"prompts": {"a": 3}}'}, "'prompts' with the unknown value"),
        ({"output": '{"long_texts": {}}'}, "'long_texts' with the unknown value"),
        ({"output": '{"default_prompt": "a"}'}, "default_prompt must be one of the prompts"),
        ({"output": '{"similarity": "best"}'}, "'similarity' with the unknown value 'best'"),
    ],
)
def test_wrong_metadata(tmp_path, changes, message):
    model = heads.classifier(tiny.encoder(), labels=["a", "b"])
    path = keras_bert.export(model, tmp_path / "a", format="onnx")
    edit_metadata(path, **changes)
    with pytest.raises(ValueError, match=message) as caught:
        keras_bert.pipeline(path)
    assert str(path) in str(caught.value) and str(caught.value).isprintable()


@pytest.mark.parametrize("length", [None, "128", 10**30, 2, True, -1])
def test_wrong_truncation(tmp_path, length):
    model = heads.classifier(tiny.encoder(), labels=["a", "b"])
    path = keras_bert.export(model, tmp_path / "a", format="onnx")
    tokenizer = json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["truncation"]["max_length"] = length
    (path / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    with pytest.raises(ValueError, match="max_length of its truncation must be 3 to"):
        keras_bert.pipeline(path)


def edit_tokenizer(path, **changes):
    tokenizer = json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer |= changes
    (path / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "////"}}, "Precompiled"),
        ({"normalizer": {"type": "Replace", "pattern": {"Regex": "$"}, "content": "x"}}, "Replace"),
        ({"normalizer": None}, "normalizer must be"),
        ({"normalizer": {"type": "BertNormalizer", "lowercase": 1}}, "normalizer must be"),
        ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a|aa)+$"}}}, "Split"),
        (
            {"post_processor": {"type": "TemplateProcessing", "single": [], "pair": []}},
            "post_processor must be",
        ),
        ({"model": {"type": "BPE", "vocab": {}, "merges": []}}, "model must be WordPiece"),
        ({"model": {"type": "WordPiece", "vocab": {"a": 0}}}, "must have the tokens of"),
        ({"added_tokens": [{"id": 2**32, "content": "a b"}]}, "ids must be 0 to"),
        ({"added_tokens": [{"id": 1, "content": ""}]}, "1 to 200 characters"),
        ({"added_tokens": [3]}, "tokenizer cannot be read"),
        (
            {"added_tokens": [{"id": i, "content": f"{i:0200}"} for i in range(6000)]},
            "at most 1048576 characters",
        ),
    ],
)
def test_a_tokenizer_is_made_of_the_parts_that_export_writes(tmp_path, changes, message):
    path = keras_bert.export(heads.regressor(tiny.encoder()), tmp_path / "a", format="onnx")
    edit_tokenizer(path, **changes)
    with pytest.raises(ValueError, match=message):
        keras_bert.pipeline(path)


def test_a_tokenizer_of_an_earlier_version(tmp_path):
    """Its post-processor has another name, and any word length gives Google's."""
    model = heads.regressor(tiny.encoder(), pairs=True)
    path = keras_bert.export(model, tmp_path / "a", format="onnx")
    pairs = [("good film", "bad " * 20), ("x" * 150, "")]
    expected = keras_bert.pipeline(path)(pairs)
    processor = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
    tokenizer = json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["model"]["max_input_chars_per_word"] = 10**9
    edit_tokenizer(path, post_processor=processor, model=tokenizer["model"])
    assert keras_bert.pipeline(path)(pairs) == expected


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


def test_data_of_another_task(tmp_path):
    model = heads.classifier(tiny.encoder(), labels=["a", "b"])
    for ask in pipelines(model, tmp_path):
        with pytest.raises(ValueError, match="reads single texts; .* has pairs of texts"):
            ask(keras_bert.Examples(["good"], text_pairs=["bad"]))
        for data in (tiny.questions(), tiny.choices(), tiny.tagged()):
            with pytest.raises(ValueError, match="takes Examples; received"):
                ask(data)


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
        with pytest.raises(ValueError, match="is an ONNX folder, which has no Keras model"):
            call()


WORDS = [["so", "good"], ["a", "bad", "film"]]
PAIRS = keras_bert.EmbeddingExamples([("good", "so good"), ("bad", "so bad"), ("film", "this")])
# For each head: the model, and labeled data.
SCORED = {
    "classification": (
        lambda encoder: heads.classifier(encoder, labels=["a", "b"]),
        keras_bert.Examples(TEXTS[:3], labels=["a", "b", "a"]),
    ),
    "multi_label": (
        lambda encoder: heads.classifier(encoder, labels=["a", "b"], multi_label=True),
        keras_bert.Examples(TEXTS[:3], label_sets=[("a",), (), ("a", "b")]),
    ),
    "regression": (
        lambda encoder: heads.regressor(encoder, pairs=True),
        keras_bert.Examples(TEXTS[:3], text_pairs=TEXTS[1:4], scores=[0.0, 1.0, 3.0]),
    ),
    "tagging": (
        lambda encoder: heads.tagger(encoder, labels=["O", "B-x"]),
        keras_bert.TaggedSentences(WORDS, [["O", "B-x"], ["O", "O", "B-x"]]),
    ),
    "question_answering": (
        lambda encoder: heads.span_selector(encoder, no_answer=True),
        keras_bert.Questions(
            ["who?", "what?"], ["so good", "a film"], answers=[[("good", 3)], []]
        ),
    ),
    "multiple_choice": (
        heads.multiple_choice,
        keras_bert.Choices(["so", "a"], [["good", "bad"], ["film", "this"]], labels=[0, 1]),
    ),
    "embedding": (
        lambda encoder: heads.embedder(encoder, prompts={"q": "a "}, default_prompt="q"), PAIRS
    ),
    "with prompts": (heads.embedder, PAIRS.with_prompts("so ", "film ")),
    "retrieval": (
        heads.embedder,
        keras_bert.RetrievalData(
            {"1": "good", "2": "bad"}, {"a": "so good", "b": "so bad"}, {"1": {"a"}, "2": {"b"}}
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SCORED)
def test_scores_equal_those_of_the_keras_model(case, tmp_path):
    build, data = SCORED[case]
    asks = pipelines(build(tiny.encoder(initializer_range=0.5)), tmp_path)
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


def test_scoring_needs_labeled_data_of_the_task(tmp_path):
    model = heads.classifier(tiny.encoder(), labels=["a", "b"])
    asks = pipelines(model, tmp_path)
    examples = keras_bert.Examples
    for data, message in (
        (examples(["good"]), "has no labels to score against"),
        (examples([], labels=[]), "contains no examples"),
        (examples(["good"], text_pairs=["bad"], labels=["a"]), "reads single texts"),
        (examples(["good"], labels=["c"]), "the label 'c' is not one of the model's labels"),
        (examples(["good"], scores=[1.0]), "the model takes labels; received scores"),
        (examples(["good"], label_sets=[("a",)]), "the model takes labels; received label sets"),
        (keras_bert.TaggedSentences(WORDS, WORDS), "takes Examples"),
    ):
        for ask in asks:
            with pytest.raises(ValueError, match=message):
                ask.evaluate(data)
    for ask in asks:
        with pytest.raises(ValueError, match="null_threshold is not an option of the task"):
            ask.evaluate(examples(["good"], labels=["a"]), null_threshold=1.0)


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
