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
from keras_bert.layers import SentencePooling
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
QUESTIONS = [("this film?", KOREAN), ("so " * 60, "a film so bad ! " * 30), ("bad", "")]
# For each head, inputs and the options of several calls. tests/properties/test_engines.py has the
# answers of all heads to odd texts.
CALLS = {
    "classification": (TEXTS, [{"top_k": 2}]),
    "embedding": (TEXTS, [{"normalize": True, "truncate_dim": 3}]),
    "characters": ([*TEXTS, KOREAN], [{}, {"grouped": False}]),
    "question_answering": (
        QUESTIONS, [{"top_k": 3}, {"max_answer_length": 2}, {"null_threshold": 9.0}]
    ),
    "masked_tokens": (["so [MASK]", "[MASK] film [MASK]!"], [{"top_k": 2}]),
}  # fmt: skip
HEADS = {
    **contract.HEADS,
    "characters": lambda encoder: heads.tagger(encoder, labels=["A", "B"], characters=True),
}


@pytest.mark.filterwarnings("ignore:.* were truncated")
@pytest.mark.parametrize("format", ["onnx", "openvino"])
@pytest.mark.parametrize("head", CALLS)
def test_options_act_as_on_the_keras_model(head, format, tmp_path):
    pytest.importorskip("onnxruntime" if format == "onnx" else "openvino")
    inputs, calls = CALLS[head]
    model = HEADS[head](tiny.encoder(initializer_range=0.5))
    keras_pipeline, graph_pipeline = pipelines(model, tmp_path, format)
    for options in calls:
        expected = keras_pipeline(inputs, **options)
        assert_close(graph_pipeline(inputs, **options), expected)
        assert_close(graph_pipeline(inputs[0], **options), expected[0])
        assert_close(list(graph_pipeline(iter(inputs), **options)), list(expected))
    assert len(graph_pipeline([])) == 0


@pytest.fixture(scope="module")
def classifier():
    return heads.classifier(tiny.encoder(initializer_range=0.5), labels=["a", "b"])


@pytest.fixture(scope="module")
def classes(classifier, tmp_path_factory):
    """The ONNX folder of the classifier, which no test changes."""
    return keras_bert.export(classifier, tmp_path_factory.mktemp("classes") / "a", format="onnx")


def test_engines(classifier, classes, tmp_path):
    expected = keras_bert.pipeline(classifier)("so good")
    assert_close(keras_bert.pipeline(classes, engine="onnx")("so good"), expected)
    with pytest.raises(ValueError, match="no graph of the engine 'openvino'.*format='openvino'"):
        keras_bert.pipeline(classes, engine="openvino")
    with pytest.raises(ValueError, match="engine must be one of None, keras, onnx, openvino"):
        keras_bert.pipeline(classes, engine="torch")
    with pytest.raises(ValueError, match="engine='onnx' needs the path of a folder"):
        keras_bert.pipeline(classifier, engine="onnx")
    # With the weights of Hugging Face beside it, the folder is that of a Keras model, too.
    other = heads.classifier(tiny.encoder(initializer_range=0.9), labels=["a", "b"])
    path = shutil.copytree(classes, tmp_path / "a")
    keras_bert.save(other, tmp_path / "b", format="huggingface")
    shutil.copy(tmp_path / "b" / "model.safetensors", path)
    assert_close(keras_bert.pipeline(path)("so good"), keras_bert.pipeline(other)("so good"))
    assert_close(keras_bert.pipeline(path, engine="onnx")("so good"), expected)
    loaded = keras_bert.load(path, task="auto")
    assert_close(keras_bert.pipeline(loaded)("bad"), keras_bert.pipeline(other)("bad"))


def test_long_texts(classifier, classes, tmp_path):
    texts = ["good bad " * length for length in (1, 15, 16, 25, 40)]
    asks = [keras_bert.pipeline(each, long_texts="window") for each in (classes, classifier)]
    assert_close(*(ask(texts) for ask in asks))
    # An export keeps the option of its model.
    model = heads.classifier(tiny.encoder(), labels=["a", "b"])
    heads.find_output(model).long_texts = "error"
    refusing = keras_bert.export(model, tmp_path / "a", format="onnx")
    for path, options in ((classes, {"long_texts": "error"}), (refusing, {})):
        with pytest.raises(ValueError, match="3 of 5 texts have more than 32 tokens"):
            keras_bert.pipeline(path, **options)(texts)


def test_repeated_tokens_have_names(tmp_path):
    preprocessor = keras_bert.Preprocessor([*tiny.PIECES, "good", "[MASK]"])
    model = heads.masked_lm(tiny.encoder(preprocessor=preprocessor, vocab_size=20))
    found, expected = (ask("so [MASK]", top_k=None) for ask in pipelines(model, tmp_path))
    assert [item["token"] for item in found] == [item["token"] for item in expected]


def test_labels_with_joiners(tmp_path):
    model = heads.classifier(tiny.encoder(), labels=["a\u200db", "c"])
    keras_pipeline, onnx_pipeline = pipelines(model, tmp_path)
    assert_close(onnx_pipeline("good", top_k=None), keras_pipeline("good", top_k=None))


def test_neither_keras_nor_tensorflow_is_imported(classes, python):
    program = (
        "import sys, keras_bert; answer = keras_bert.pipeline(sys.argv[1])('good'); "
        "assert answer['label'] in 'ab'; "
        "assert not {'keras', 'tensorflow', 'jax', 'torch'} & sys.modules.keys()"
    )
    python("-c", program, classes)


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


def write(name, content):
    return lambda folder: (folder / name).write_text(content, encoding="utf-8")


def delete(name):
    return lambda folder: (folder / name).unlink()


def edit(name, **values):
    return lambda folder: edit_json(folder / name, **values)


def labels(*values):
    return edit("config.json", id2label=dict(enumerate(values)))


def integers(folder):
    labels("a", "b")(folder)
    edit("keras_bert.json", label_type="int")(folder)


CONFIG, DESCRIPTION, TOKENIZER = "config.json", "keras_bert.json", "tokenizer.json"
BPE = {"type": "BPE", "vocab": {}, "merges": []}
WORDPIECE = {"type": "WordPiece", "vocab": {"a": 0}}
CHARSMAP = {"type": "Precompiled", "precompiled_charsmap": "////"}
SPLIT = {"type": "Split", "pattern": {"Regex": "(a|aa)+$"}}
TRUNCATION = {"direction": "Right", "stride": 0}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (rename_token, "must have the tokens of tokenizer.json"),
        (add_token, "tokenizer.json has changed since the export"),
        (take_other_graph, "model.onnx has changed since the export"),
        (delete("onnx/model.onnx"), "an export without its graph.* export the model again"),
        (labels("a"), "must have 2 labels; it has 1"),
        (labels("a", "a"), "two labels of id2label are equal"),
        (labels("a", 2), "id2label has 2, which is not a string"),
        (labels("a", "b\x1b[2J"), r"config.json: a label must .*\\x1b.* Rename it"),
        (edit(CONFIG, id2label={"0": "a", "2": "b"}), "must be an object with the keys 0, 1"),
        (integers, "label_type is 'int', but the labels"),
        (delete(CONFIG), "config.json"),
        (edit(DESCRIPTION, task="tagging"), "logits must have 3 axes; it has 2"),
        (edit(DESCRIPTION, task="regression"), "has no output score"),
        (edit(DESCRIPTION, task=None), "was not written by keras_bert.export"),
        (edit(DESCRIPTION, task="\x1b[2J"), "has the task"),
        (edit(DESCRIPTION, path="../x"), "'path' has the unknown value"),
        (edit(DESCRIPTION, pairs="yes"), "'pairs' has the unknown value 'yes'"),
        (edit(DESCRIPTION, prompts={"a": 3}), "prompts must be a dict"),
        (edit(DESCRIPTION, long_texts={}), "'long_texts' has the unknown value"),
        (edit(DESCRIPTION, default_prompt="a"), "default_prompt must be one of the prompts"),
        (write(DESCRIPTION, "[]"), "must hold a JSON object"),
        (write(DESCRIPTION, "[" * 100_000), "nested values"),
        (delete(TOKENIZER), "truncation.*Export the model again"),
        (write(TOKENIZER, "{}"), "truncation.*Export the model again"),
        (edit(TOKENIZER, normalizer=CHARSMAP), "Precompiled"),
        (edit(TOKENIZER, normalizer={"type": "BertNormalizer", "lowercase": 1}), "must be"),
        (edit(TOKENIZER, pre_tokenizer=SPLIT), "Split"),
        (edit(TOKENIZER, model=BPE), "WordPiece' in the model"),
        (edit(TOKENIZER, model=WORDPIECE), "must have the tokens of"),
        (edit(TOKENIZER, added_tokens=[{"id": 2**32, "content": "a b"}]), "ids must be 0 to"),
        (edit(TOKENIZER, added_tokens=[{"id": 1, "content": ""}]), "1 to 1024 characters"),
        (edit(TOKENIZER, added_tokens=[3]), "tokenizer cannot be read"),
        (edit(TOKENIZER, truncation={**TRUNCATION, "max_length": 64}), "has 32 positions"),
        (edit(TOKENIZER, truncation={**TRUNCATION, "max_length": "128"}), "must be 3 to"),
        (edit(TOKENIZER, truncation={**TRUNCATION, "max_length": 10**30}), "must be 3 to"),
        (edit(TOKENIZER, truncation={**TRUNCATION, "max_length": 2}), "must be 3 to"),
    ],
)
def test_broken_folders(classes, tmp_path, damage, message):
    folder = shutil.copytree(classes, tmp_path / "broken")
    damage(folder)
    with pytest.raises((OSError, ValueError), match=message) as caught:
        keras_bert.pipeline(folder)
    assert str(caught.value).isprintable()


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
    session = embed.predictor.session
    session._process += 1  # as in another process
    with pytest.raises(ValueError, match="does not work in a forked process"):
        embed("so good")


def test_what_needs_the_keras_model(classes, tmp_path):
    ask = keras_bert.pipeline(classes)
    for call in (
        lambda: ask.model, lambda: ask.export(tmp_path / "b"), lambda: ask.save(tmp_path / "b"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="is an export, which has no Keras model"):
            call()


@pytest.mark.parametrize(
    "name", fast(subjects.TRAINED_NAMES, "classification", "question_answering", "reranking")
)
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
    encoder = tiny.encoder(initializer_range=0.5)
    model = heads.embedder(encoder, prompts={"q": "a "}, default_prompt="q")
    asks = pipelines(model, tmp_path)
    pairs = keras_bert.EmbeddingExamples([("good", "so good"), ("bad", "so bad"), ("a", "this")])
    searches = keras_bert.RetrievalData(
        {"1": "good", "2": "bad"}, {"a": "so good", "b": "so bad"}, {"1": {"a"}, "2": {"b"}}
    )
    for data in (pairs, pairs.with_prompts("so ", "film "), searches):
        assert_equal_scores(asks, data)
    vectors = keras_bert.EmbeddingExamples([("good",)], vectors=np.ones([1, 3], np.float32))
    for ask in asks:
        with pytest.raises(ValueError, match="has vectors of the width 3"):
            ask.evaluate(vectors)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (keras_bert.Examples(["good"]), "has no labels to score against"),
        (keras_bert.Examples(["good"], labels=["c"]), "the label 'c' is not one of the model's"),
        (keras_bert.TaggedSentences([["so"]], [["O"]]), "takes Examples"),
    ],
)
def test_scoring_needs_labeled_data_of_the_task(classes, data, message):
    with pytest.raises(ValueError, match=message):
        keras_bert.pipeline(classes).evaluate(data)


def as_foreign(folder, file="model.onnx", **config):
    """Make the ONNX folder of an export that of another library, which writes fewer outputs."""
    onnx = pytest.importorskip("onnx")
    (folder / "keras_bert.json").unlink()
    content = onnx.load(folder / "onnx/model.onnx")
    (folder / "onnx/model.onnx").unlink()
    for output in list(content.graph.output):
        if output.name in ("score", "sentence_embedding"):
            content.graph.output.remove(output)
    onnx.save(content, folder / file)
    edit_json(folder / "config.json", **config)
    return folder


PAIRS = [("so", "good"), ("a film", "bad")]
FOREIGN = {
    "model.onnx": (HEADS["classification"], {}, TEXTS),
    "onnx/model.onnx": (heads.regressor, {}, TEXTS),
    "onnx/model_quantized.onnx": (heads.classifier, {"labels": ["a"], "multi_label": True}, TEXTS),
    "onnx/model_fp16.onnx": (heads.regressor, {"pairs": True, "activation": "sigmoid"}, PAIRS),
    "model_optimized.onnx": (HEADS["tagging"], {}, TEXTS),
    "onnx/model_optimized.onnx": (heads.span_selector, {}, QUESTIONS[:1]),
    "other.onnx": (heads.multiple_choice, {}, [("so", ["good", "bad"])]),
    "onnx/other.onnx": (heads.masked_lm, {}, ["so [MASK]"]),
}


@pytest.mark.filterwarnings("ignore:.* were truncated")
@pytest.mark.parametrize("file", FOREIGN)
def test_graphs_of_other_libraries(file, tmp_path):
    head, options, inputs = FOREIGN[file]
    model = head(tiny.encoder(initializer_range=0.5), **options)
    folder = as_foreign(keras_bert.export(model, tmp_path / "a", format="onnx"), file)
    for refusing in (keras_bert.load, keras_bert.pipeline):
        with pytest.raises(ValueError, match="is a graph.*trusted=True"):
            refusing(folder)
    expected = keras_bert.pipeline(model)(inputs)
    assert_close(keras_bert.pipeline(folder, trusted=True)(inputs), expected)


def test_vectors_of_other_libraries(tmp_path):
    model = tiny.embedder(list(SentencePooling.MODES), [None], prompts={"a": "so "})
    folder = as_foreign(keras_bert.export(model, tmp_path / "a", format="onnx"))
    expected = keras_bert.pipeline(model)(TEXTS[:3], prompt="a")
    assert_close(keras_bert.pipeline(folder, trusted=True)(TEXTS[:3], prompt="a"), expected)
    with pytest.raises(ValueError, match="has the pooling .*received 'cls'"):
        keras_bert.pipeline(folder, trusted=True, pooling="cls")
    encoder = tiny.encoder(initializer_range=0.5)
    folder = as_foreign(keras_bert.export(encoder, tmp_path / "b", format="onnx"))
    for pooling in ("mean", "cls"):
        found = keras_bert.pipeline(folder, trusted=True, pooling=pooling)("so good")
        assert_close(found, keras_bert.pipeline(encoder, pooling=pooling)("so good"))
    with pytest.warns(UserWarning, match="has no pooling; the mean over the tokens"):
        keras_bert.pipeline(folder, trusted=True)


def leave_width_open(folder, name):
    """Make the size of the last axis of an output unknown until the graph runs."""
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    content = onnx.load(folder / "model.onnx")
    [output] = (output for output in content.graph.output if output.name == name)
    [node] = (node for node in content.graph.node if name in node.output)
    sizes = output.type.tensor_type.shape.dim
    width = sizes[-1].dim_value
    node.output[list(node.output).index(name)] = "values"
    condition = helper.make_tensor("all", onnx.TensorProto.BOOL, [width], [True] * width)
    content.graph.initializer.append(condition)
    content.graph.node.append(helper.make_node("Compress", ["values", "all"], [name], axis=-1))
    sizes[-1].dim_param = "width"
    onnx.save(content, folder / "model.onnx")


@pytest.mark.parametrize(
    ("head", "output", "config"),
    [
        (lambda encoder: heads.classifier(encoder, 3), "logits", {"problem_type": None}),
        (lambda encoder: heads.classifier(encoder, labels=["a", "b"]), "logits", {}),
        (HEADS["tagging"], "logits", {}),
        (heads.embedder, "last_hidden_state", {}),
        (lambda encoder: encoder, "last_hidden_state", {}),
    ],
)
@pytest.mark.filterwarnings("ignore:.* were truncated|.* has no pooling")
def test_graphs_that_do_not_state_a_width(head, output, config, tmp_path):
    model = head(tiny.encoder(initializer_range=0.5))
    folder = as_foreign(keras_bert.export(model, tmp_path / "a", format="onnx"), **config)
    leave_width_open(folder, output)
    expected = keras_bert.pipeline(model)
    pipe = keras_bert.pipeline(folder, trusted=True)
    assert_close(pipe(TEXTS), expected(TEXTS))
    assert pipe.predictor.task_model.width == expected.predictor.task_model.width


def test_advice_fits_the_graph(classes, tmp_path):
    folder = shutil.copytree(classes, tmp_path / "a")
    (folder / "onnx/model.onnx").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"Export the model again"):
        keras_bert.pipeline(folder)
    folder = as_foreign(shutil.copytree(classes, tmp_path / "b"))
    (folder / "model.onnx").write_bytes(b"x")
    with pytest.raises(ValueError, match="Download it again, or run it with the library"):
        keras_bert.pipeline(folder, trusted=True)


def test_tasks_that_the_files_of_other_libraries_do_not_state(tmp_path):
    encoder = tiny.encoder(initializer_range=0.5)
    model = heads.classifier(encoder, labels=["a", "b"], pairs=True)
    folder = keras_bert.export(model, tmp_path / "a", format="onnx")
    as_foreign(folder, architectures=None)
    found = keras_bert.pipeline(folder, task="pair", trusted=True)(PAIRS)
    assert_close(found, keras_bert.pipeline(model)(PAIRS))
    model = heads.regressor(encoder)
    folder = keras_bert.export(model, tmp_path / "b", format="onnx")
    other = {"model_type": "mobilebert", "architectures": ["MobileBertForSequenceClassification"]}
    as_foreign(folder, **other)
    assert keras_bert.pipeline(folder, task="reranking", trusted=True).rank("so", ["good"])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "gpt2", "max_position_embeddings": None}, "'gpt2' .* is a decoder"),
        ({"model_type": "vit", "vocab_size": None}, "model_type must be one of bert.*received"),
        ({"architectures": ["T5ForConditionalGeneration"], "model_type": "t5"}, "is not a BERT"),
    ],
)
def test_no_trust_is_asked_for_graphs_that_are_no_encoder(classes, tmp_path, config, message):
    folder = as_foreign(shutil.copytree(classes, tmp_path / "a"), **config)
    for options in ({}, {"trusted": True}):
        for call in (keras_bert.load, keras_bert.pipeline):
            with pytest.raises(ValueError, match=f"config.json: .*{message}.*transformers"):
                call(folder, **options)


TANH = "torch.nn.modules.activation.Tanh"


def replace(name, operation, other):
    """Return a function that computes `name` from the input `other`, or the output from `name`."""

    def damage(folder):
        onnx = pytest.importorskip("onnx")
        content = onnx.load(folder / "model.onnx")
        if operation == "Identity":
            [output] = (output for output in content.graph.output if output.name == name)
            output.name = other
            content.graph.node.append(onnx.helper.make_node(operation, [name], [other]))
        else:
            [value] = (value for value in content.graph.input if value.name == name)
            content.graph.input.remove(value)
            content.graph.node.insert(0, onnx.helper.make_node(operation, [other], [name]))
        onnx.save(content, folder / "model.onnx")

    return damage


@pytest.mark.filterwarnings("ignore:.* were truncated")
def test_ids_of_32_bits(classes, classifier, tmp_path):
    onnx = pytest.importorskip("onnx")
    folder = as_foreign(shutil.copytree(classes, tmp_path / "a"))
    content = onnx.load(folder / "model.onnx")
    for value in content.graph.input:
        value.type.tensor_type.elem_type = onnx.TensorProto.INT32
        for node in content.graph.node:
            names = [f"{name}_64" if name == value.name else name for name in node.input]
            node.input[:] = names
        cast = onnx.helper.make_node(
            "Cast", [value.name], [f"{value.name}_64"], to=onnx.TensorProto.INT64
        )
        content.graph.node.insert(0, cast)
    onnx.save(content, folder / "model.onnx")
    assert_close(
        keras_bert.pipeline(folder, trusted=True)(TEXTS), keras_bert.pipeline(classifier)(TEXTS)
    )


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (edit(CONFIG, vocab_size=None), "config.json: vocab_size must be a number"),
        (edit(CONFIG, architectures=None), "architectures must name .* task='classification'"),
        (edit(CONFIG, architectures=["BertModel"]), "architectures must name .* task='class"),
        (replace("logits", "Identity", "output_0"), "must have the output logits; .*output_0"),
        (replace("attention_mask", "Sign", "input_ids"), "must have the input attention_mask"),
        (edit(CONFIG, sentence_transformers={"activation_fn": TANH}), "the activation of .*tanh"),
        (
            edit(CONFIG, id2label={"0": "entailment", "1": "no"}, type_vocab_size=1),
            "has one segment",
        ),
        (edit(CONFIG, architectures=["BertForTokenClassification"]), "logits must have 3 axes"),
        (edit(TOKENIZER, model=BPE), "WordPiece' in the model"),
        (delete("config.json"), "has no config.json. Copy"),
        (lambda path: [delete(name)(path) for name in ("vocab.txt", TOKENIZER)], "no tokenizer"),
        (write("model.onnx", "x"), "model.onnx cannot be read"),
    ],
)
def test_broken_folders_of_other_libraries(classes, tmp_path, damage, message):
    folder = as_foreign(shutil.copytree(classes, tmp_path / "broken"))
    damage(folder)
    with pytest.raises(ValueError, match=message):
        keras_bert.pipeline(folder, trusted=True)
