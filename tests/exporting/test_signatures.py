"""Tests of exported heads: their answers are those of `keras_bert.tasks`."""

import functools
import sys

import numpy as np
import pytest
import tensorflow as tf

import keras_bert
from keras_bert import heads
from keras_bert.data.examples import Examples
from keras_bert.tasks import registry
from keras_bert.tasks.keras_predictor import KerasPredictor
from keras_bert.tasks.masked_tokens import serving as masked_serving
from keras_bert.tasks.multiple_choice import serving as multiple_choice_serving
from keras_bert.tasks.question_answering.data import Questions
from keras_bert.text import windows_graph as windows
from tests import contract, tiny
from tests import served as saved_models
from tests.parameters import fast, slow

TEXTS = ["this film is good!", "", "good bad " * 40, "한국어 film so bad", "\x00"]
TAGS = ["O", "B-x", "I-x"]
HEADS = {
    **contract.OF_TASKS,
    "classification": lambda encoder: heads.classifier(
        encoder, labels=["a", "b"], multi_label=True
    ),
    "regression": lambda encoder: heads.regressor(encoder, pairs=True),
    "tagging": lambda encoder: heads.tagger(encoder, labels=TAGS),
    "tagger of characters": lambda encoder: heads.tagger(encoder, labels=TAGS, characters=True),
}
del HEADS["pretraining"]  # its encoder is exported
# One with two inputs, and two that read long texts in windows.
HEADS_BY_SPEED = fast(HEADS, "next_sentence", "tagging", "question_answering")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Function that maps the name of a head to (model, exported `serving_default`)."""
    made = {}

    def get(name):
        if name not in made:
            # Large weights, so that texts get different answers.
            model = HEADS[name](tiny.encoder(initializer_range=0.5))
            version = keras_bert.export(model, tmp_path_factory.mktemp("models") / name)
            loaded = tf.saved_model.load(str(version))
            made[name] = model, loaded.signatures["serving_default"], version, loaded
        return made[name][:2]

    get.versions = lambda: {name: item[2] for name, item in made.items()}
    get.loaded = lambda name: made[name][3]
    return get


def ask(signature, **texts):
    answer = signature(**{k: tf.constant(v, tf.string) for k, v in texts.items()})
    return {k: v.numpy() for k, v in answer.items()}


def decoded(array):
    return [item.decode() for item in array.ravel()]


@pytest.mark.slow
def test_multi_label_classifier(served):
    model, signature = served("classification")
    answer = ask(signature, text=TEXTS)
    expected = KerasPredictor(model).answers(Examples(TEXTS))
    np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-5)
    np.testing.assert_array_equal(answer["chosen"], expected >= 0.5)


def assert_tags_are_those_of_the_pipeline(signature, texts, expected):
    answer = ask(signature, text=texts)
    assert answer["count"].tolist() == [len(words) for words in expected]
    for row, (text, words) in enumerate(zip(texts, expected, strict=True)):
        found = {
            name: value[row, : len(words)] for name, value in answer.items() if name != "count"
        }
        assert decoded(found["token"]) == [word["text"] for word in words]
        assert decoded(found["tag"]) == [word["tag"] for word in words]
        for name in ("start", "end"):
            characters = [len(text.encode()[:offset].decode()) for offset in found[name]]
            assert characters == [word[name] for word in words]
        scores = [word["score"] for word in words]
        np.testing.assert_allclose(found["score"], scores, atol=1e-5)


@pytest.mark.parametrize(("length", "characters"), [(8, False), slow(3, False), slow(12, True)])
def test_long_texts_have_the_tags_of_the_pipeline(tmp_path, length, characters):
    rng = np.random.default_rng(length)
    # Words of one to four tokens, unknown words, and words that are longer than a window.
    words = ["good", "films", "badlys", "alylys", "한국", "모름", "bad" + "ly" * 20]
    weights = [0.3, 0.2, 0.15, 0.1, 0.1, 0.1, 0.05]
    sizes = [*range(16), 100, 0, 400, 1]
    texts = [" ".join(rng.choice(words, size, p=weights)) for size in sizes]
    texts += ["", "   ", words[-1], "한국어 영화 " * 9, "good! " * 30]
    encoder = tiny.encoder(initializer_range=0.5)
    encoder.preprocessor = encoder.preprocessor.with_options(max_sequence_length=length)
    model = heads.tagger(encoder, labels=TAGS, characters=characters)
    expected = keras_bert.pipeline(model)(texts, grouped=False)
    loaded = tf.saved_model.load(str(keras_bert.export(model, tmp_path / "model")))
    signature = loaded.signatures["serving_default"]
    assert_tags_are_those_of_the_pipeline(signature, texts, expected)
    for text, words in zip(texts[-8:], expected[-8:], strict=True):
        assert_tags_are_those_of_the_pipeline(signature, [text], [words])


@pytest.mark.slow
@pytest.mark.parametrize(("length", "no_answer"), [(14, True), (8, False), (160, True)])
def test_answers_from_windows_match_python(tmp_path, length, no_answer):
    encoder = tiny.encoder(initializer_range=1.0, max_position_embeddings=length)
    encoder.preprocessor.max_sequence_length = length
    model = heads.span_selector(encoder, no_answer=no_answer)
    loaded = tf.saved_model.load(str(keras_bert.export(model, tmp_path)))
    rng = np.random.default_rng(length)
    words = ["good", "bad", "film", "so", "this", "한국어", "goodly", "a"]
    asked = [" ".join(rng.choice(words, size)) for size in (1, 2, 3, 1, 70, 5, 0, 1)]
    contexts = [" ".join(rng.choice(words, size)) for size in (3, 40, 90, 250, 120, 9, 1, 0)]
    answer = ask(loaded.signatures["serving_default"], question=asked, context=contexts)
    expected = KerasPredictor(model).answers(Questions(asked, contexts))
    assert decoded(answer["answer"]) == [item["text"] for item in expected]
    for row, context in enumerate(contexts):
        start, end = answer["start"][row], answer["end"][row]
        assert context.encode()[start:end] == answer["answer"][row]
        assert context.encode()[:start].decode() == context[: expected[row]["start"]]
    np.testing.assert_allclose(answer["score"], [item["score"] for item in expected], atol=1e-5)


def test_exports_with_several_outputs_cannot_be_called(served):
    served("next_sentence")
    assert not callable(served.loaded("next_sentence"))


@pytest.mark.slow
def test_masked_tokens_are_predicted(served):
    model, signature = served("masked_tokens")
    texts = ["this [MASK] is good", "[MASK][MASK]!"]
    answer = ask(signature, text=[*texts, "no mask", ""])
    assert answer["candidates"].shape == (4, 2, 5)
    first, second = keras_bert.pipeline(model)(texts)
    for row, masked in enumerate([[first], second]):
        for index, candidates in enumerate(masked):
            tokens = [each["token"] for each in candidates]
            assert decoded(answer["candidates"][row, index]) == tokens
            scores = [each["score"] for each in candidates]
            np.testing.assert_allclose(answer["scores"][row, index], scores, atol=1e-5)
    assert decoded(answer["candidates"][0, 1]) == [""] * 5
    assert decoded(answer["candidates"][2:]) == [""] * 20


@pytest.mark.parametrize("head", HEADS_BY_SPEED)
def test_empty_batch(served, head):
    _, signature = served(head)
    specs = signature.structured_input_signature[1]
    texts = {name: tf.zeros([0, 2][: len(spec.shape)], tf.string) for name, spec in specs.items()}
    assert all(value.shape[0] == 0 for value in signature(**texts).values())


@pytest.mark.parametrize("head", HEADS_BY_SPEED)
def test_graphs_use_only_core_ops(served, head):
    """Every TensorFlow from 2.16 has these ops."""
    served(head)
    ops, foreign = saved_models.foreign_ops(served.versions()[head])
    assert not foreign
    assert len(ops) > 30  # the graph was read


@pytest.mark.slow
@pytest.mark.parametrize(
    "head", ["classification", "tagging", "question_answering", "masked_tokens"]
)
def test_c_library_gives_the_same_answers(served, head):
    """As in a server: the C library without Python TensorFlow and tensorflow-text."""
    _, signature = served(head)
    request = {
        "classification": {"text": TEXTS},
        "tagging": {"text": TEXTS},
        "question_answering": {"question": ["is good?"] * len(TEXTS), "context": TEXTS},
        "masked_tokens": {"text": ["this [MASK] is good", "no mask", "[MASK][MASK]!"]},
    }[head]
    version = served.versions()[head]
    found = saved_models.by_c_api(saved_models.LIBRARIES, version, request)
    assert found["foreign"] == []
    for name, value in ask(signature, **request).items():
        if value.dtype == object:
            assert np.array(found[name]).ravel().tolist() == decoded(value)
        else:
            np.testing.assert_allclose(found[name], value, atol=1e-5)


@pytest.mark.slow
def test_chunks_give_the_same_answers_as_one_batch(served, monkeypatch):
    """The windows of a long text run in chunks, which bounds the memory."""
    rng = np.random.default_rng(0)
    long = " ".join(rng.choice(tiny.PIECES[5:9], 2000))
    requests = {
        "tagging": {"text": [long, "so good"]},
        "question_answering": {"question": ["is good?", "so"], "context": ["a film", long]},
    }
    for head, request in requests.items():
        model, signature = served(head)
        in_chunks = ask(signature, **request)
        monkeypatch.setattr(windows, "_CHUNK", 10**6)
        preprocessor = heads.find_encoder(model).preprocessor
        output = heads.find_output(model)
        at_once, _, _ = registry.by_name(head).signatures(model, output, preprocessor, 32)
        monkeypatch.undo()
        for name, value in at_once(*map(tf.constant, request.values())).items():
            if value.dtype == tf.string:
                assert value.numpy().tolist() == in_chunks[name].tolist()
            else:
                np.testing.assert_allclose(value, in_chunks[name], atol=1e-5)


def test_choices_run_in_chunks(monkeypatch):
    """A short request can have many choices, and each needs a copy of its text."""
    monkeypatch.setattr(windows, "_CHUNK", 4)
    model = heads.multiple_choice(tiny.encoder(num_hidden_layers=1))
    ran = []

    def call(inputs):
        ran.append(inputs["input_word_ids"].shape[0])
        return model(inputs, training=False)

    preprocessor = heads.find_encoder(model).preprocessor
    texts, _, _ = multiple_choice_serving.multiple_choice(
        call, heads.find_output(model), preprocessor, 32
    )
    texts(tf.constant(["so", "good"]), tf.fill([2, 5], "film"))
    assert ran == [4, 4, 2]


@pytest.mark.parametrize("head", HEADS_BY_SPEED)
def test_wrong_shapes_are_errors(served, head):
    """TensorFlow Serving does not check the rank of a request."""
    _, signature = served(head)
    specs = signature.structured_input_signature[1]
    shapes = {name: [2, 3][: len(spec.shape)] for name, spec in specs.items()}
    assert signature(**{name: tf.fill(shape, "so") for name, shape in shapes.items()})
    wrong = [{**shapes, name: shape} for name in shapes for shape in ([], [2, 2, 2])]
    if len(shapes) > 1:
        for rows in (0, 1, 3):
            wrong += [{**shapes, name: [rows, *shape[1:]]} for name, shape in shapes.items()]
    for request in wrong:
        with pytest.raises(tf.errors.InvalidArgumentError, match="(?i)shape|same first dimension"):
            signature(**{name: tf.fill(shape, "so") for name, shape in request.items()})


def test_positions_must_lie_within_their_row():
    """Otherwise a request could read the logits of another request in the batch."""
    model = HEADS["masked_tokens"](tiny.encoder(initializer_range=0.5))
    output, preprocessor = heads.find_output(model), heads.find_encoder(model).preprocessor
    _, _, ids = masked_serving.masked_lm(model, output, preprocessor, 32)
    inputs = {name: tf.ones([2, 3], tf.int32) for name in model.input}
    assert ids({**inputs, "masked_lm_positions": tf.constant([[2], [0]])})["logits"].shape[0] == 2
    for position in (-1, 3):
        with pytest.raises(tf.errors.InvalidArgumentError, match="must lie within the row"):
            ids({**inputs, "masked_lm_positions": tf.constant([[position], [0]])})


def test_masked_tokens_of_many_texts_are_predicted_in_chunks(monkeypatch):
    """The logits over the vocabulary take far more memory than the texts."""
    model = HEADS["masked_tokens"](tiny.encoder(initializer_range=0.5))
    output, preprocessor = heads.find_output(model), heads.find_encoder(model).preprocessor
    given = tf.constant(["good [MASK] [MASK]", "", "[MASK]", "bad"])
    make = functools.partial(masked_serving.masked_lm, model, output, preprocessor, 32)
    at_once = make()[0](given)
    rows = []
    monkeypatch.setattr(masked_serving, "_MAX_LOGITS", 2 * model.output_shape[-1])
    call = type(model).__call__

    def counted(self, inputs, **options):
        rows.append(inputs["input_mask"].shape[0])
        return call(self, inputs, **options)

    monkeypatch.setattr(type(model), "__call__", counted)
    texts, _, ids = make()
    in_chunks = texts(given)
    assert set(rows) <= {1, None} and rows
    assert (at_once["candidates"].numpy() == in_chunks["candidates"].numpy()).all()
    np.testing.assert_allclose(at_once["scores"], in_chunks["scores"], atol=1e-6)
    inputs = {name: tf.ones([2, 3], tf.int32) for name in model.input}
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 2 in a request"):
        ids({**inputs, "masked_lm_positions": tf.constant([[1, 1], [1, 1]])})


def test_long_text_is_not_copied_for_each_word(served):
    resource = pytest.importorskip("resource")  # not on Windows
    unit = 1 if sys.platform == "darwin" else 1024
    _, signature = served("tagging")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer = ask(signature, text=["good bad " * 15_000])  # 135 kB, 30,000 words
    assert answer["count"].tolist() == [30_000]
    assert decoded(answer["token"][0, -2:]) == ["good", "bad"]
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * unit < 2**30
