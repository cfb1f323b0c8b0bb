"""Tests of `keras_bert.heads`: all backends, outputs, and use in other Keras models."""

import keras
import numpy as np
import pytest

from keras_bert import heads, layers, optimizers, packed_heads
from tests import contract, tiny


@pytest.fixture
def encoder():
    return contract.build("encoder")


@pytest.mark.slow
@pytest.mark.parametrize("head", contract.HEADS)
def test_contract(check_contract, backend, head):
    check_contract(head, backend)


def test_a_classifier_is_a_functional_model_with_labels(encoder):
    model = heads.classifier(encoder, 2)
    assert isinstance(model, type(keras.Model(encoder.input, encoder.output)))
    assert heads.find_encoder(model) is encoder
    output = heads.find_output(model)
    assert (output.task, output.labels) == ("classification", ["0", "1"])
    shared = {id(v) for v in encoder.trainable_variables}
    own = [v.path for v in model.trainable_variables if id(v) not in shared]
    assert own == ["logits/kernel", "logits/bias"]
    model = heads.classifier(encoder, labels=["no", "yes", 3])
    assert heads.find_output(model).labels == ["no", "yes", "3"]
    model = heads.classifier(encoder, labels=["toxic"], multi_label=True)
    assert model.output_shape == (None, 1) and heads.find_output(model).multi_label


@pytest.mark.parametrize(
    ("combine", "expected"),
    [
        ("concat", lambda a, b: np.concatenate([a, b], -1)),
        ("sum", lambda a, b: a + b),
        ("mean", lambda a, b: (a + b) / 2),
        ("weighted_sum", lambda a, b: (a + b) / 2),  # initial weights
    ],
)
def test_features(encoder, combine, expected):
    model = heads.features(encoder, (0, -1), combine)
    outputs = [x.numpy() for x in encoder(contract.batch())["encoder_outputs"]]
    np.testing.assert_allclose(model(contract.batch()), expected(*outputs), atol=1e-6)
    assert encoder.trainable and encoder.trainable_variables  # the model has a copy
    assert not heads.find_encoder(model).trainable
    assert len(model.trainable_variables) == 2 * (combine == "weighted_sum")
    # The default is all layers, if there are at most four.
    assert heads.features(encoder).output_shape[-1] == outputs[0].shape[-1] * len(outputs)
    # Dropout is off in training too.
    found = model(contract.batch(), training=True)
    np.testing.assert_allclose(found, expected(*outputs), atol=1e-6)


@pytest.mark.slow
def test_features_of_a_quantized_encoder():
    encoder = contract.quantize(contract.build("encoder"))
    expected = encoder(contract.batch())["sequence_output"]
    np.testing.assert_allclose(heads.features(encoder, -1)(contract.batch()), expected, atol=1e-5)


@pytest.mark.parametrize("given, expected", [(None, 0.2), (0.0, 0.0), (0.7, 0.7)])
def test_default_dropout_is_that_of_the_encoder(encoder, given, expected):
    assert heads.classifier(encoder, 2, dropout=given).get_layer("dropout").rate == expected


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda e: heads.classifier(e), "at least 2 classes; received 0"),
        (lambda e: heads.classifier(e, 3, labels=["a", "b"]), "needs 3 classes; received 2"),
        (lambda e: heads.classifier(e, labels=[1, "1"]), "must be unique"),
        (lambda e: heads.tagger(e, 1), "a tagger needs at least 2 classes; received 1"),
        (lambda e: heads.tagger(e, labels=["O", ""]), "not empty; received ''"),
        (lambda e: heads.classifier(e, labels=["a\tb", "c"]), r"received 'a\\tb'"),
        (lambda e: heads.classifier(e, multi_label=True), "at least 1 classes; received 0"),
        (lambda e: heads.embedder(e, pooling="sum"), "one of mean, cls, max, .*; received 'sum'"),
        (lambda e: heads.classifier(e, 3, pooling="men"), "one of mean, cls, max, .*'men'"),
        (lambda e: tiny.encoder(pooling="men"), "pooling must be one of mean, cls, max"),
        (lambda e: heads.features(e, combine="max"), "one of concat, sum, .*; received 'max'"),
    ],
)
def test_errors(encoder, build, message):
    with pytest.raises(ValueError, match=message):
        build(encoder)


@pytest.mark.parametrize("head", [*contract.OF_TASKS.values(), heads.features])
def test_a_head_needs_an_encoder(encoder, head):
    options = {"num_classes": 2} if head is heads.classifier else {}
    options = {"num_tags": 2} if head is heads.tagger else options
    for model in (heads.classifier(encoder, 2), keras.Sequential([keras.layers.Dense(2)])):
        with pytest.raises(ValueError, match="must be a BertEncoder; received .*find_encoder"):
            head(model, **options)
    with pytest.raises(ValueError, match="must be a BertEncoder; received 'base'. Load one with"):
        head("base", **options)


def test_with_text_refuses_what_it_would_drop():
    prompted = heads.embedder(tiny.encoder(), prompts={"query": "so: "}, default_prompt="query")
    windowed = heads.classifier(tiny.encoder(), 2)
    windowed.layers[-1].long_texts = "window"
    for model in (prompted, windowed):
        with pytest.raises(ValueError, match="adds no prompt and reads no windows"):
            heads.with_text(model)


@pytest.mark.parametrize(
    "function", [heads.find_encoder, heads.find_output, heads.find_task, heads.with_text]
)
def test_functions_of_models_need_a_model(function):
    with pytest.raises(ValueError, match="must be a keras.Model; received 'base'. Load a name"):
        function("base")


def test_an_output_needs_as_many_labels_as_logits():
    output = heads.TaskOutput("classification", labels=["a", "b"])
    with pytest.raises(ValueError, match="received 2 labels for 3 logits"):
        output(np.ones((1, 3)))


def test_find_encoder_errors(encoder):
    nothing = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    with pytest.raises(ValueError, match="has 0"):
        heads.find_encoder(nothing)
    other = contract.build("encoder", name="other")
    a, b = encoder(encoder.input), other(encoder.input)
    both = keras.Model(encoder.input, [a["pooled_output"], b["pooled_output"]])
    with pytest.raises(ValueError, match="has 2"):
        heads.find_encoder(both)


# --- Tied weights of the masked LM


def embeddings(model):
    return heads.find_encoder(model).get_layer("embeddings").word_embeddings


def assert_tied(model):
    """Check that changing the embedding of an absent token changes only its logit."""
    inputs = contract.batch(subject="masked_tokens")
    inputs["input_word_ids"] = np.minimum(inputs["input_word_ids"], 30)
    before = model(inputs).numpy()
    table = embeddings(model).embeddings
    changed = table.numpy()
    changed[35, 0] += 1.0
    table.assign(changed)
    moved = abs(model(inputs).numpy() - before).max((0, 1)) > 1e-4
    assert np.flatnonzero(moved).tolist() == [35]
    assert sum(tuple(variable.shape) == tuple(table.shape) for variable in model.variables) == 1


@pytest.mark.parametrize("copy", ["same", "file", "from_config"])
def test_masked_lm_weights_are_tied_also_in_copies(encoder, tmp_path, copy):
    model = heads.masked_lm(encoder)
    if copy == "same":
        assert_tied(model)
        return
    if copy == "file":
        model.save(tmp_path / "model.keras")
        other = keras.saving.load_model(tmp_path / "model.keras")
    else:
        other = type(model).from_config(model.get_config())
        other.set_weights(model.get_weights())
    inputs = contract.batch(subject="masked_tokens")
    np.testing.assert_allclose(other(inputs), model(inputs), atol=1e-5)
    assert embeddings(other) is not embeddings(model)
    assert_tied(other)


def test_input_and_output_tokens_have_gradients(eager):
    model = heads.masked_lm(contract.build("encoder", num_hidden_layers=1))
    before = embeddings(model).embeddings.numpy()
    inputs = contract.batch(subject="masked_tokens")
    inputs["input_word_ids"] = np.minimum(inputs["input_word_ids"], 20)
    model.compile(
        optimizers.adamw(0.1, total_steps=2),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    model.train_on_batch(inputs, np.full((3, 2), 35))
    changed = (embeddings(model).embeddings.numpy() != before).any(-1)
    assert changed[35] and changed[inputs["input_word_ids"][0]].all()


def test_lora_on_the_embedding_changes_the_logits(encoder):
    model = heads.masked_lm(encoder)
    inputs = contract.batch(subject="masked_tokens")
    before = model(inputs).numpy()
    layer = embeddings(model)
    layer.enable_lora(2)
    np.testing.assert_allclose(model(inputs), before, atol=1e-5)
    rng = np.random.default_rng(0)
    layer.lora_embeddings_b.assign(rng.normal(size=layer.lora_embeddings_b.shape))
    with_lora = model(inputs).numpy()
    assert abs(with_lora - before).max() > 0.1
    merged = heads.masked_lm(contract.build("encoder"))
    layer_weights = layer.embeddings.numpy()  # with LoRA added
    rest = [w for w in model.get_weights() if w.shape != layer_weights.shape and 2 not in w.shape]
    merged.set_weights([layer_weights, *rest])
    np.testing.assert_allclose(merged(inputs), with_lora, atol=1e-4)


# --- Pooling


# --- Packed sequences


def test_pooling_of_a_classifier():
    """The pooling of the encoder is the default, and is saved with it."""
    encoder = tiny.encoder(pooling="mean")
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(encoder))
    assert again.pooling == encoder.with_options().pooling == "mean"
    inputs = encoder.preprocessor(["so good", "this film"])
    vectors = {
        mode: heads.embedder(encoder, pooling=mode, normalize=False)(inputs).numpy()
        for mode in ("mean", "max", "cls")
    }
    vectors["pooler"] = encoder(inputs)["pooled_output"].numpy()
    for pooling in (None, *vectors):
        for model in (
            heads.classifier(encoder, 3, pooling=pooling),
            heads.regressor(encoder, pooling=pooling),
        ):
            kernel, bias = model.get_layer("logits").get_weights()
            expected = vectors[pooling or "mean"] @ kernel + bias
            np.testing.assert_allclose(model(inputs), expected, atol=1e-5)


# --- Packed sequences


def packed_batch(task="pretraining"):
    """Return pairs one per row, the same pairs packed, and the place of each pair."""
    random = np.random.default_rng(0)
    lengths, length, predictions = [5, 7, 3, 8, 4, 6], 12, 2
    ids = random.integers(1, contract.CONFIG["vocab_size"], (6, length))
    real = np.arange(length) < np.array(lengths)[:, None]
    plain = {
        "input_word_ids": np.where(real, ids, 0).astype(np.int32),
        "input_mask": real.astype(np.int32),
        "input_type_ids": np.where(real, random.integers(0, 2, ids.shape), 0).astype(np.int32),
        "masked_lm_positions": np.array([[1, n - 1] for n in lengths], np.int32),
    }
    rows, places = [[1, 0], [3, 4], [5, 2]], {}
    keys = ["input_word_ids", "input_type_ids", "position_ids", "text_ids"]
    packed = {key: np.zeros((3, length), np.int32) for key in keys}
    packed["masked_lm_positions"] = np.zeros((3, 3 * predictions), np.int32)
    packed["cls_positions"] = np.zeros((3, 3), np.int32)
    for row, pairs in enumerate(rows):
        start = 0
        for number, pair in enumerate(pairs):
            here = np.s_[row, start : start + lengths[pair]]
            for key in keys[:2]:
                packed[key][here] = plain[key][pair, : lengths[pair]]
            packed["position_ids"][here] = np.arange(lengths[pair])
            packed["text_ids"][here] = number + 1
            packed["cls_positions"][row, number] = start
            slots = slice(number * predictions, (number + 1) * predictions)
            packed["masked_lm_positions"][row, slots] = plain["masked_lm_positions"][pair] + start
            places[pair] = row, number, slots
            start += lengths[pair]
    if task == "masked_tokens":
        del packed["cls_positions"]
    return plain, packed, places


def test_the_last_layer_of_a_packed_classifier_computes_only_cls_positions(monkeypatch):
    shapes = []
    compute = layers.TransformerBlock._compute

    def spy(*args):
        outputs = compute(*args)
        shapes.append(tuple(outputs.shape))
        return outputs

    _, inputs, _ = packed_batch("pretraining")
    del inputs["masked_lm_positions"]
    model = packed_heads.packed(heads.classifier(contract.build("encoder"), 2))
    monkeypatch.setattr(layers.TransformerBlock, "_compute", spy)
    assert tuple(model(inputs).shape) == (3, 3, 2)
    rows, length = inputs["input_word_ids"].shape
    *others, last = shapes
    assert {shape[:2] for shape in others} == {(rows, length)} and last[:2] == (3, 3)


def check_packed():
    """Check that a packed pair has the logits of a row of its own, whatever the other pairs."""
    for task in ("pretraining", "masked_tokens"):
        model = contract.build(task)
        view = packed_heads.packed_pretraining(model)
        plain, packed, places = packed_batch(task)
        changed = {key: x.copy() for key, x in packed.items()}
        row, number, _ = places[3]
        at = packed["text_ids"][row] == number + 1
        changed["input_word_ids"][row, at] = 1 + packed["input_word_ids"][row, at] % 20
        # The content of padding has no effect either.
        changed["input_word_ids"][packed["text_ids"] == 0] = 9
        expected, found, after = (
            contract.run(*call) for call in ((model, plain), (view, packed), (view, changed))
        )
        for pair, (row, number, slots) in places.items():
            # The outputs are the masked LM and, in pretraining, the next sentence.
            for output, where in enumerate([slots, number][: len(found)]):
                logits = found[output][row, where]
                np.testing.assert_allclose(logits, expected[output][pair], atol=1e-5)
                difference = abs(after[output][row, where] - logits).max()
                assert difference > 1e-3 if pair == 3 else difference < 1e-6, (pair, output)


def test_packed_pairs_have_the_same_logits():
    check_packed()
