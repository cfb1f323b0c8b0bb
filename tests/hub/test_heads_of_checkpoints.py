"""Encoders and heads of checkpoints as people have them, with expected numbers from NumPy."""

import json
import warnings

import keras
import numpy as np
import pytest
import scipy.special

import keras_bert
from keras_bert import checkpoints, heads
from tests import contract, tiny
from tests.checkpoints import numpy_bert
from tests.checkpoints.huggingface_files import (
    IDS,
    INPUTS,
    SIZES,
    VOCABULARY,
    H,
    V,
    encoder_tensors,
    fill,
    make_folder,
    pretraining_tensors,
    write_json,
)
from tests.parameters import slow

SPAN = {"qa_outputs.weight": (2, H), "qa_outputs.bias": (2,)}


def classifier(classes):
    return fill({"classifier.weight": (classes, H), "classifier.bias": (classes,)})


def masked_lm():
    return {name: array for name, array in pretraining_tensors().items() if "relation" not in name}


@pytest.mark.parametrize(
    ("kind", "head"),
    [
        ("BertForMaskedLM", masked_lm()),
        ("BertForTokenClassification", classifier(3)),
        ("BertForQuestionAnswering", fill(SPAN)),
    ],
)
def test_the_encoder_of_a_checkpoint_without_a_pooler(tmp_path, kind, head):
    tensors = encoder_tensors(pooler=False)
    make_folder(tmp_path, tensors | head, VOCABULARY, architectures=[kind])
    bert = keras_bert.load(tmp_path)
    expected = numpy_bert.encode(tensors, SIZES, IDS)
    np.testing.assert_allclose(bert(INPUTS)["sequence_output"], expected, atol=2e-5)
    assert 0.005 < np.std(bert.get_layer("pooler").dense.kernel) < 0.05
    heads.tagger(bert, 3)  # reads no pooler: no warning
    with pytest.warns(UserWarning, match="reads the pooler, which has random weights"):
        heads.classifier(bert, 2)
    heads.classifier(bert, 2)  # said once


def test_a_fresh_pooler_is_said_after_a_copy_and_a_reload(tmp_path):
    make_folder(tmp_path / "hf", encoder_tensors(pooler=False) | masked_lm(), VOCABULARY)
    bert = keras_bert.load(tmp_path / "hf")
    keras_bert.save(bert.with_options(hidden_dropout_prob=0.0).keep_layers([0]), tmp_path / "mine")
    again = keras_bert.load(tmp_path / "mine")
    with pytest.warns(UserWarning, match="reads the pooler"):
        heads.next_sentence(again)
    with pytest.warns(UserWarning, match="reads the pooler"):
        keras_bert.load(tmp_path / "hf", task="regression", fresh_head=True)
    heads.classifier(bert, 2, pooling="mean")
    with pytest.raises(ValueError, match="missing .*pooler/dense/kernel"):
        keras_bert.load(tmp_path / "hf", task="next_sentence")


def _with_fresh_pooler(tmp_path):
    config = {"hidden_act": "gelu_new", "layer_norm_eps": 1e-12}
    make_folder(tmp_path / "hf", encoder_tensors(pooler=False), VOCABULARY, **config)
    return keras_bert.load(tmp_path / "hf", pooling="mean")


@pytest.mark.filterwarnings("ignore:the format .* does not keep")
@pytest.mark.parametrize("format", checkpoints.WRITABLE)
@pytest.mark.parametrize("head", [None, "embedder"])
def test_a_fresh_pooler_is_not_saved(tmp_path, format, head):
    bert = _with_fresh_pooler(tmp_path)
    with pytest.warns(UserWarning, match="reads the pooler"):
        heads.classifier(bert, 2, pooling="pooler")  # not trained
    model = heads.embedder(bert) if head and format != "google" else bert
    if format == "keras_hub":  # has no model without a pooler
        with pytest.warns(UserWarning, match="pooler is saved with random weights"):
            keras_bert.save(model, tmp_path / "a", format=format)
        return
    keras_bert.save(model, tmp_path / "a", format=format)
    assert "pooler" not in checkpoints.read(tmp_path / "a").groups
    assert keras_bert.load(tmp_path / "a").fresh_pooler


@pytest.mark.filterwarnings("ignore:the format .* does not keep")
@pytest.mark.parametrize("format", ["keras", *checkpoints.WRITABLE])
@pytest.mark.parametrize("has_lora", [False, True])
def test_a_pooler_that_a_head_of_the_user_trained_is_saved(tmp_path, format, has_lora):
    bert = _with_fresh_pooler(tmp_path)
    if has_lora:
        bert.enable_lora(2)
    model = keras.Model(bert.input, keras.layers.Dense(1)(bert(bert.input)["pooled_output"]))
    model.compile("sgd", "mse", run_eagerly=True)
    model.fit(INPUTS, np.ones(len(IDS)), verbose=0)
    keras_bert.save(bert, tmp_path / "a", format=format)
    again = keras_bert.load(tmp_path / "a")
    assert not again.fresh_pooler
    pooled = [np.asarray(encoder(INPUTS)["pooled_output"]) for encoder in (bert, again)]
    np.testing.assert_allclose(*pooled, atol=2e-5)


def test_an_export_says_that_the_pooler_is_fresh(tmp_path):
    make_folder(tmp_path / "hf", encoder_tensors(pooler=False), VOCABULARY)
    bert = keras_bert.load(tmp_path / "hf")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        keras_bert.export(bert, tmp_path / "onnx", format="onnx")
    assert any("pooled_output of this export" in str(each.message) for each in caught)


@pytest.mark.parametrize(
    ("head", "pooler", "tasks", "architectures"),
    [
        (classifier(3), True, ["classification", "tagging"], None),
        (classifier(3), False, ["tagging"], None),
        (classifier(3), False, ["tagging"], ["MyClassifier"]),
        (classifier(1), True, ["multiple_choice", "regression", "reranking"], None),
        (fill(SPAN), False, ["question_answering"], None),
        (fill(SPAN), False, ["question_answering"], ["BertModel"]),
        (masked_lm(), False, ["masked_tokens"], None),
    ],
)
def test_a_head_that_the_config_does_not_name_is_said(tmp_path, head, pooler, tasks, architectures):
    config = {} if architectures is None else {"architectures": architectures}
    make_folder(tmp_path, encoder_tensors(pooler=pooler) | head, VOCABULARY, **config)
    known = " or ".join(f"task='{task}'" for task in tasks)
    with pytest.warns(UserWarning, match=f"only the encoder is used. .*pass {known}$"):
        keras_bert.load(tmp_path, task="auto")
    keras_bert.load(tmp_path)  # asks for the encoder: no warning
    for task in tasks:
        assert heads.find_task(keras_bert.load(tmp_path, task=task)) == task


# Masked language models


@pytest.fixture
def untied(tmp_path):
    tensors = encoder_tensors(pooler=False) | masked_lm()
    shapes = {"cls.predictions.decoder.weight": (V, H), "cls.predictions.decoder.bias": (V,)}
    decoder = {name: -array for name, array in fill(shapes).items()}
    options = {"architectures": ["BertForMaskedLM"], "tie_word_embeddings": False}
    make_folder(tmp_path / "hf", tensors | decoder, VOCABULARY, **options)
    sequence = numpy_bert.encode(tensors, SIZES, IDS)
    return tmp_path, tensors, sequence, decoder


def with_positions(length=5):
    return INPUTS | {"masked_lm_positions": np.tile(np.arange(length), (2, 1))}


def test_a_decoder_that_is_not_tied(untied):
    path, tensors, sequence, decoder = untied
    matrix, bias = decoder.values()
    expected = numpy_bert.predict_tokens(tensors, SIZES, sequence, matrix, bias)
    assert keras_bert.load(path / "hf").count_params()
    model = keras_bert.load(path / "hf", task="auto")
    np.testing.assert_allclose(model(with_positions()), expected, atol=1e-4)
    keras_bert.save(model, path / "keras")
    keras_bert.save(model, path / "again", format="huggingface")
    for name in ("keras", "again"):
        again = keras_bert.load(path / name, task="masked_tokens")
        np.testing.assert_allclose(again(with_positions()), expected, atol=1e-4)
    model = keras_bert.load(path / "hf", task="auto", hidden_act="relu")
    with pytest.raises(ValueError, match="unsupported .*masked_lm/output_embeddings"):
        keras_bert.save(model, path / "google", format="google")


def test_a_saved_decoder_that_is_not_tied_takes_options(untied):
    path, *_ = untied
    model = keras_bert.load(path / "hf", task="auto")
    keras_bert.save(model, path / "keras")
    again = keras_bert.load(path / "keras", hidden_act="relu")
    np.testing.assert_array_equal(
        again.get_layer("masked_lm").output_embeddings,
        model.get_layer("masked_lm").output_embeddings,
    )


def test_untied_decoders_are_exported(untied):
    import tensorflow as tf

    from keras_bert.tasks import inference_graph

    path, *_ = untied
    model = keras_bert.load(path / "hf", task="auto")
    expected = np.asarray(model(with_positions()))
    keras_bert.export(model, path / "onnx", format="onnx")  # it compares the outputs
    forward = inference_graph.forward_function(model, frozen=True)
    inputs = {name: tf.constant(array, tf.int32) for name, array in with_positions().items()}
    np.testing.assert_allclose(forward(inputs), expected, atol=1e-4)


def test_a_decoder_that_is_not_tied_and_missing(untied):
    path, tensors, *_ = untied
    make_folder(path / "hf", tensors, VOCABULARY, tie_word_embeddings=False)
    assert keras_bert.load(path / "hf").count_params()
    with pytest.raises(ValueError, match="output_embeddings is missing. Pass tied=True .*encoder"):
        keras_bert.load(path / "hf", task="masked_tokens")
    assert keras_bert.load(path / "hf", task="masked_tokens", tied=True).count_params()


def test_an_error_lists_five_names_and_a_pattern(tmp_path):
    extra = fill({f"cls.chain.{index}.weight": (1,) for index in range(9)})
    make_folder(tmp_path, encoder_tensors() | pretraining_tensors() | extra, VOCABULARY)
    with pytest.raises(ValueError, match=r"ignore=\['cls.chain.\*'\].*unknown \(9\)") as caught:
        keras_bert.load(tmp_path, task="masked_tokens")
    assert str(caught.value).count("cls.chain.") == 1 + 5
    assert keras_bert.load(tmp_path, ignore=["cls.chain.*"]).count_params()
    make_folder(tmp_path, fill({"a.b": (20,), "c": (1,)}))
    with pytest.raises(ValueError, match=r"missing \(37\): bert\..*, \.\.\."):
        keras_bert.load(tmp_path)


@pytest.mark.peers
@pytest.mark.parametrize("tied", [True, False])
def test_masked_language_models_are_those_of_transformers(tmp_path, tied):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(**SIZES, tie_word_embeddings=tied)
    peer = transformers.BertForMaskedLM(config).eval()
    for name, parameter in peer.named_parameters():
        torch.nn.init.normal_(parameter, float("LayerNorm.weight" in name), 0.3)
    peer.save_pretrained(tmp_path / "theirs")
    model = keras_bert.load(tmp_path / "theirs", task="auto")
    keras_bert.save(model, tmp_path / "ours", format="huggingface")
    again = transformers.BertForMaskedLM.from_pretrained(tmp_path / "ours").eval()
    inputs = {"input_ids": torch.tensor(IDS), "attention_mask": torch.ones(IDS.shape)}
    with torch.no_grad():
        expected = peer(**inputs).logits.numpy()
        np.testing.assert_allclose(again(**inputs).logits.numpy(), expected, atol=1e-5)
    np.testing.assert_allclose(model(with_positions()), expected, atol=1e-4)


# Cross-encoders and pairs

SEQUENCE_CLASSIFICATION = {"architectures": ["BertForSequenceClassification"]}
PAIR = ("a b", "c d")


def make_classifier(path, classes=1, **config):
    tensors = encoder_tensors() | classifier(classes)
    make_folder(path, tensors, VOCABULARY, **SEQUENCE_CLASSIFICATION, **config)
    return tensors


def logits_of_pair(tensors, **config):
    ids = np.array([[2, 5, 6, 3, 7, 8, 3]])  # [CLS] a b [SEP] c d [SEP]
    types = np.array([[0, 0, 0, 0, 1, 1, 1]])
    sequence = numpy_bert.encode(tensors, {**SIZES, **config}, ids, types)
    return numpy_bert.classify(tensors, sequence)[0]


SIGMOID = "torch.nn.modules.activation.Sigmoid"
IDENTITY = "torch.nn.modules.linear.Identity"


@pytest.mark.parametrize(
    ("config", "function"),
    [
        ({"sentence_transformers": {"activation_fn": SIGMOID}}, scipy.special.expit),
        ({"sbert_ce_default_activation_function": IDENTITY}, np.asarray),
        slow({"sentence_transformers": {"activation_fn": IDENTITY}}, np.asarray),
        slow({"sentence_transformers": {"version": "4.1.0"}}, scipy.special.expit),
        slow({"sbert_ce_default_activation_function": "torch.nn.Tanh"}, np.tanh),
        slow({"sbert_ce_default_activation_function": None}, scipy.special.expit),
    ],
)
def test_scores_of_a_cross_encoder(untraced, tmp_path, config, function):
    expected = function(logits_of_pair(make_classifier(tmp_path / "hf", **config)))[0]
    score = keras_bert.pipeline(tmp_path / "hf")
    assert score(PAIR)["score"] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("place", "settings", "function"),
    [("", {}, scipy.special.expit), slow("0_Transformer", {"activation_fn": IDENTITY}, np.asarray)],
)
def test_a_cross_encoder_with_one_module(untraced, tmp_path, place, settings, function):
    (tmp_path / place).mkdir(exist_ok=True)
    tensors = make_classifier(tmp_path / place)
    type = "sentence_transformers.base.modules.transformer.Transformer"
    write_json(tmp_path / "modules.json", [{"idx": 0, "name": "0", "path": place, "type": type}])
    if settings:
        write_json(tmp_path / "config_sentence_transformers.json", settings)
    expected = function(logits_of_pair(tensors))[0]
    assert keras_bert.pipeline(tmp_path)(PAIR)["score"] == pytest.approx(expected, abs=1e-5)
    assert keras_bert.load(tmp_path).count_params()


def test_copies_of_a_cross_encoder_have_its_activation(tmp_path):
    make_classifier(tmp_path / "hf", sentence_transformers={"activation_fn": SIGMOID})
    score = keras_bert.pipeline(tmp_path / "hf")
    score.export(tmp_path / "onnx", format="onnx")
    score.save(tmp_path / "again", format="huggingface")
    score.save(tmp_path / "mine")
    for name in ("onnx", "again", "mine"):
        again = keras_bert.pipeline(tmp_path / name)
        assert again(PAIR)["score"] == pytest.approx(score(PAIR)["score"], abs=1e-5)
    with pytest.raises(ValueError, match="google: hidden_act must be"):
        score.save(tmp_path / "google", format="google")
    model = heads.regressor(heads.find_encoder(score.model), pairs=True, activation="elu")
    with pytest.raises(ValueError, match="activation of a head must be one of"):
        keras_bert.save(model, tmp_path / "elu", format="huggingface")


@pytest.mark.peers
@pytest.mark.parametrize("activation", [None, "Sigmoid", "Identity", "Tanh"])
def test_scores_are_those_of_sentence_transformers(tmp_path, activation):
    torch = pytest.importorskip("torch")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    make_classifier(tmp_path / "hf", id2label={"0": "LABEL_0"})
    function = None if activation is None else getattr(torch.nn, activation)()
    peer = sentence_transformers.CrossEncoder(str(tmp_path / "hf"), activation_fn=function)
    peer.save_pretrained(str(tmp_path / "theirs"))
    score = keras_bert.pipeline(tmp_path / "theirs")
    score.save(tmp_path / "ours", format="huggingface")
    again = sentence_transformers.CrossEncoder(str(tmp_path / "ours"))
    (expected,) = peer.predict([PAIR])
    assert score(PAIR)["score"] == pytest.approx(expected, abs=1e-5)
    assert again.predict([PAIR])[0] == pytest.approx(expected, abs=1e-5)


ACTIVATIONS = ("sigmoid", None)


def heads_with_scores():
    """Yield heads whose scores need a function of the logits, or none."""
    encoder = tiny.encoder(num_hidden_layers=1, initializer_range=0.5)
    for activation in ACTIVATIONS:
        yield heads.reranker(encoder, activation=activation)
        yield heads.regressor(encoder, pairs=True, activation=activation)
    yield heads.classifier(encoder, labels=["a", "b"], multi_label=True)
    yield heads.classifier(encoder, labels=["a", "b"], pairs=True)


def test_problem_types_choose_the_function_of_a_head(tmp_path):
    found = []
    for index, model in enumerate(heads_with_scores()):
        keras_bert.save(model, tmp_path / str(index), format="huggingface")
        config = json.loads((tmp_path / str(index) / "config.json").read_text())
        found.append(config["problem_type"])
        keys = config.get("sentence_transformers", {}).get("activation_fn")
        assert keys == config.get("sbert_ce_default_activation_function")
    multi, single = "multi_label_classification", "single_label_classification"
    assert found == [None, None, "regression", "regression", multi, single]


@pytest.mark.peers
def test_scores_are_those_of_a_pipeline_of_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    for index, model in enumerate(heads_with_scores()):
        keras_bert.save(model, tmp_path / str(index), format="huggingface")
        peer = transformers.pipeline("text-classification", str(tmp_path / str(index)))
        pair = {"text": "so good", "text_pair": "bad film"}
        expected = sorted(each["score"] for each in peer([pair], top_k=None)[0])
        inputs = heads.find_encoder(model).preprocessor(["so good"], ["bad film"])
        output = np.asarray(model(inputs))[0]
        if model.name == "classifier":
            is_multi = heads.find_output(model).multi_label
            output = scipy.special.expit(output) if is_multi else scipy.special.softmax(output)
        np.testing.assert_allclose(sorted(output), expected, atol=1e-5)


SOFTMAX = "torch.nn.modules.activation.Softmax"


@pytest.mark.parametrize(
    ("activation", "function"), [(SIGMOID, scipy.special.expit), (SOFTMAX, scipy.special.softmax)]
)
def test_classes_of_a_cross_encoder(untraced, tmp_path, activation, function):
    tensors = make_classifier(tmp_path, 3, sentence_transformers={"activation_fn": activation})
    found = keras_bert.pipeline(tmp_path)(PAIR, top_k=None)
    scores = {each["label"]: each["score"] for each in found}
    expected = function(logits_of_pair(tensors))
    np.testing.assert_allclose([scores[str(index)] for index in range(3)], expected, atol=1e-5)


@pytest.mark.parametrize(("classes", "name"), [(1, "os.system"), (3, "torch.nn.Tanh")])
def test_other_activations_do_not_block_the_encoder(tmp_path, classes, name):
    make_classifier(tmp_path, classes, sentence_transformers={"activation_fn": name})
    assert keras_bert.load(tmp_path).count_params()
    with pytest.raises(ValueError, match="activation_fn of a .* must be"):
        keras_bert.load(tmp_path, task="auto")


def test_classes_of_one_name_need_other_names(tmp_path):
    make_classifier(tmp_path, 3, id2label={"0": "neg", "1": "neg", "2": "pos"})
    assert keras_bert.load(tmp_path).count_params()
    with pytest.raises(ValueError, match=r"labels must be unique; received \['neg', 'neg'"):
        keras_bert.load(tmp_path, task="auto")
    model = keras_bert.load(tmp_path, task="classification", labels=["bad", "poor", "good"])
    assert heads.find_output(model).labels == ["bad", "poor", "good"]


def test_a_regression_of_several_numbers_gives_its_encoder(tmp_path):
    make_classifier(tmp_path, 2, problem_type="regression")
    with pytest.warns(UserWarning, match="a regression must have one output, received 2"):
        assert keras_bert.load(tmp_path).count_params()
    with pytest.raises(ValueError, match="a regression must have one output, received 2"):
        keras_bert.load(tmp_path, task="auto")


def test_the_dropout_of_a_classifier(tmp_path):
    make_classifier(tmp_path / "hf", 2, classifier_dropout=0.3)
    model = keras_bert.load(tmp_path / "hf", task="auto")
    keras_bert.save(model, tmp_path / "again", format="huggingface")
    models = [
        model,
        keras_bert.load(tmp_path / "again", task="auto"),
        keras_bert.load(tmp_path / "hf", task="tagging", fresh_head=True, labels=["O", "B"]),
    ]
    assert [each.get_layer("dropout").rate for each in models] == [0.3, 0.3, 0.3]
    model = keras_bert.load(tmp_path / "hf", task="auto", dropout=0.2)
    assert model.get_layer("dropout").rate == 0.2
    make_classifier(tmp_path / "hf", 2, classifier_dropout=1.5)
    with pytest.raises(ValueError, match="classifier_dropout must be .* received 1.5"):
        keras_bert.load(tmp_path / "hf", task="auto")


def test_a_model_of_entailment_reads_pairs(untraced, tmp_path):
    labels = {"0": "contradiction", "1": "entailment", "2": "neutral"}
    tensors = make_classifier(tmp_path, 3, id2label=labels)
    probabilities = scipy.special.softmax(logits_of_pair(tensors))
    answer = keras_bert.pipeline(tmp_path)(PAIR)
    assert answer["label"] == labels[str(probabilities.argmax())]
    assert answer["score"] == pytest.approx(probabilities.max(), abs=1e-5)
    single = keras_bert.load(tmp_path, task="auto", pairs=False)
    with pytest.warns(UserWarning, match="two texts .*pairs=True"):
        assert len(keras_bert.pipeline(single)(PAIR)) == 2


# One segment


def test_an_encoder_with_one_segment_reads_single_texts(untraced, tmp_path):
    tensors = encoder_tensors() | classifier(2)
    name = "bert.embeddings.token_type_embeddings.weight"
    tensors[name] = tensors[name][:1]
    config = {"type_vocab_size": 1, **SEQUENCE_CLASSIFICATION}
    make_folder(tmp_path, tensors, VOCABULARY, **config)
    bert = keras_bert.load(tmp_path)
    expected = numpy_bert.encode(tensors, SIZES, IDS)
    np.testing.assert_allclose(bert(INPUTS)["sequence_output"], expected, atol=2e-5)
    assert keras_bert.pipeline(tmp_path)("a b")["label"] in ("0", "1")
    with pytest.raises(ValueError, match="type_vocab_size=1, so it reads single texts"):
        bert(bert.preprocessor(["a"], ["b"]))
    with pytest.raises(ValueError, match=f"{tmp_path}: .*pairs .*type_vocab_size of at least 2"):
        keras_bert.load(tmp_path, task="classification", pairs=True)
    for head in ("next_sentence", "question_answering", "multiple_choice", "pretraining"):
        with pytest.raises(ValueError, match="type_vocab_size of at least 2; received 1"):
            contract.OF_TASKS[head](bert)


# Unanswerable questions


def test_null_threshold_needs_no_answer(untraced, tmp_path):
    tensors = encoder_tensors(pooler=False) | fill(SPAN)
    config = {"architectures": ["BertForQuestionAnswering"]}
    make_folder(tmp_path, tensors, VOCABULARY, **config)
    question = {"question": "a", "context": "b c d"}
    answer = keras_bert.pipeline(tmp_path)
    assert answer(**question)["answer"]
    with pytest.raises(ValueError, match="To use null_threshold, .*no_answer=True"):
        answer(**question, null_threshold=-1e9)
    data = keras_bert.Questions(["a"], ["b c d"], [[]])
    with pytest.raises(ValueError, match="To use null_threshold, .*no_answer=True"):
        answer.evaluate(data, null_threshold=-1e9)
    model = keras_bert.load(tmp_path, task="question_answering", no_answer=True)
    answer = keras_bert.pipeline(model)
    assert answer(**question, null_threshold=-1e9)["answer"] == ""


def test_options_of_a_head_that_a_format_does_not_keep_are_said(tmp_path):
    encoder = tiny.encoder(num_hidden_layers=1)
    models = {
        "no_answer=True": heads.span_selector(encoder, no_answer=True),
        "characters=True": heads.tagger(encoder, labels=["O", "X"], characters=True),
        "int": heads.classifier(encoder, labels=[0, 1]),
    }
    options = {"no_answer=True": {"no_answer": True}, "characters=True": {"characters": True}}
    for number, (lost, model) in enumerate(models.items()):
        with pytest.warns(UserWarning, match=f"does not keep .*{lost}.*format='keras'"):
            keras_bert.save(model, tmp_path / str(number), format="huggingface")
        again = keras_bert.load(
            tmp_path / str(number),
            task=heads.find_task(model),
            **options.get(lost, {"labels": [0, 1]}),
        )
        output = heads.find_output(model).get_config()
        assert heads.find_output(again).get_config() == output
    keras_bert.save(heads.span_selector(encoder), tmp_path / "plain", format="huggingface")
