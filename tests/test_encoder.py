"""The encoder: the contract on each backend, its weights' names, parity with Hugging Face."""

import json
import pathlib

import keras
import numpy as np
import pytest

from keras_bert import BertEncoder, Preprocessor, checkpoints, layers, optimizers
from tests import contract as promises
from tests import tiny

GOLDEN = pathlib.Path(__file__).parent / "golden" / "encoder_parameters.json"


def parameter_tree(encoder):
    """What the golden file holds: `json.dumps(parameter_tree(build("encoder")), indent=1)`."""
    return {
        "made by": "parameter_tree in tests/test_encoder.py, of the encoder in tests/contract.py",
        "weights": {v.path: f"{v.dtype}{list(v.shape)}" for v in encoder.weights if v.trainable},
    }


def test_contract(contract, backend):
    contract("encoder", backend)


def test_names_and_shapes_of_the_weights_are_the_golden_ones():
    expected = json.loads(GOLDEN.read_text("utf-8"))
    found = parameter_tree(promises.build("encoder"))
    assert found == expected
    assert list(found["weights"]) == list(expected["weights"])


@pytest.mark.parametrize("imports", ["import keras, keras_bert", "import keras_bert, keras"])
def test_a_saved_encoder_loads_without_tensorflow(python, tmp_path, imports):
    preprocessor = Preprocessor(promises.PIECES)
    promises.build("encoder", preprocessor=preprocessor).save(tmp_path / "encoder.keras")
    program = f"""{imports}, sys
encoder = keras.saving.load_model(sys.argv[1])
assert len(encoder.preprocessor.vocabulary) == 40
assert "tensorflow" not in sys.modules
"""
    python("-c", program, tmp_path / "encoder.keras", backend="jax")


def test_outputs_carry_the_names_of_tf_hub():
    encoder = promises.build("encoder")
    assert sorted(encoder.input) == ["input_mask", "input_type_ids", "input_word_ids"]
    out = encoder(promises.batch())
    assert sorted(out) == ["encoder_outputs", "pooled_output", "sequence_output"]
    assert len(out["encoder_outputs"]) == promises.CONFIG["num_hidden_layers"]
    np.testing.assert_array_equal(out["encoder_outputs"][-1], out["sequence_output"])


def test_the_defaults_are_bert_base():
    signature = {key: 0 for key in promises.CONFIG}
    defaults = dict(zip(signature, BertEncoder.__init__.__defaults__, strict=True))
    assert defaults == {
        "vocab_size": 30522,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "initializer_range": 0.02,
        "layer_norm_eps": 1e-12,
    }


def test_fresh_weights_are_truncated_normal_and_norms_are_the_identity():
    config = {**promises.CONFIG, "initializer_range": 0.05, "vocab_size": 4000}
    for variable in BertEncoder(**config).trainable_variables:
        value = variable.numpy()
        if variable.name in ("bias", "beta"):
            assert not value.any()
        elif variable.name == "gamma":
            assert (value == 1).all()
        else:
            # Cutting at two standard deviations leaves 0.88 of one.
            assert abs(value).max() <= 0.1 + 1e-6
            if value.size > 1000:
                np.testing.assert_allclose(value.std(), 0.05 * 0.88, rtol=0.1)


def test_a_length_that_only_the_graph_knows_is_free():
    import tensorflow as tf

    encoder = promises.build("encoder")
    spec = {key: tf.TensorSpec([None, None], tf.int32) for key in encoder.input}
    graph = tf.function(lambda inputs: encoder(inputs)["sequence_output"], input_signature=[spec])
    for rows, length in ((1, 1), (3, 7), (2, 12)):
        inputs = promises.batch(rows, length)
        expected = encoder(inputs)["sequence_output"]
        np.testing.assert_allclose(graph(inputs), expected, atol=2e-6)
    assert graph.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("rematerialize", [False, True])
def test_fit(rematerialize, jit_compile):
    keras.utils.set_random_seed(0)
    encoder = promises.build("encoder", rematerialize=rematerialize)
    model = keras.Model(encoder.input, encoder.output["pooled_output"])
    model.compile("adam", loss="mse", jit_compile=jit_compile)
    inputs, target = promises.batch(4), np.full((4, 16), 0.5, np.float32)
    history = model.fit(inputs, target, batch_size=2, epochs=6, verbose=0, shuffle=False)
    losses = history.history["loss"]
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_new", "relu"])
def test_parity_with_transformers(tmp_path, hidden_act):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {key: value for key, value in promises.CONFIG.items() if key != "hidden_act"}
    config = transformers.BertConfig(**sizes, hidden_act=hidden_act)
    theirs = transformers.BertModel(config).eval()
    with torch.no_grad():  # no weight may be left at a value that hides a mistake
        for parameter in theirs.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    theirs.save_pretrained(tmp_path)

    checkpoint = checkpoints.read(tmp_path)
    ours = BertEncoder(**checkpoint.config)
    variables = {v.path: v for v in ours.weights if v.trainable}
    checkpoints.assign(variables, checkpoint.weights, source="the test")

    inputs = promises.batch(5, 12)
    assert not inputs["input_mask"][-1].any()
    names = ("input_ids", "attention_mask", "token_type_ids")
    ids, mask, types = (torch.tensor(x).long() for x in inputs.values())
    with torch.no_grad():
        expected = theirs(
            **dict(zip(names, (ids, mask, types), strict=True)), output_hidden_states=True
        )
    found = ours(inputs)

    def equal(found, expected):
        np.testing.assert_allclose(found, expected.numpy(), atol=2e-5)

    equal(found["pooled_output"], expected.pooler_output)
    equal(found["sequence_output"], expected.last_hidden_state)
    for index, hidden in enumerate(found["encoder_outputs"]):
        equal(hidden, expected.hidden_states[index + 1])
    embeddings = ours.get_layer("embeddings")
    equal(embeddings(inputs["input_word_ids"], inputs["input_type_ids"]), expected.hidden_states[0])
    assert isinstance(ours.get_layer("layer_1"), layers.TransformerBlock)


def test_a_frozen_encoder_is_frozen_again_after_a_reload():
    encoder = promises.build("encoder", trainable=False)
    again = BertEncoder.from_config(encoder.get_config())
    assert not any(v.trainable for v in [*encoder.weights, *again.weights])
    again.trainable = True
    assert len(again.trainable_variables) == len(again.weights)


# --- Optional inputs


def optional(rows=3, length=7, causal=False):
    """A batch with a mask for each query and positions of their own, two texts a row."""
    inputs = promises.batch(rows, length)
    real = inputs["input_mask"].astype(bool)
    text = np.where(np.arange(length) < 3, 1, 2)
    mask = np.tril(np.ones((length, length))) > 0 if causal else text[:, None] == text
    inputs["attention_mask"] = (mask & real[:, None, :]).astype(np.int32)
    inputs["position_ids"] = np.tile(np.int32([*range(3), *range(length - 3)]), (rows, 1))
    return inputs


def check_optional_inputs():
    """What the optional inputs compute, on whatever backend is running."""
    encoder = promises.build("encoder")
    inputs = promises.batch()
    expected = promises.run(encoder, inputs)

    # Those that say nothing new change nothing, one alone or both.
    mask = np.repeat(inputs["input_mask"][:, None, :], 7, axis=1)
    positions = np.tile(np.arange(7, dtype=np.int32), (3, 1))
    for extra in (
        {"attention_mask": mask},
        {"position_ids": positions},
        {"attention_mask": mask, "position_ids": positions},
    ):
        for a, b in zip(expected, promises.run(encoder, inputs | extra), strict=True):
            np.testing.assert_allclose(a, b, atol=2e-6)

    # Two texts in a row are two rows.
    inputs = optional()
    packed = keras.ops.convert_to_numpy(encoder(inputs)["sequence_output"])
    for place in (slice(0, 3), slice(3, 7)):
        alone = {key: inputs[key][:, place] for key in encoder.input}
        found = keras.ops.convert_to_numpy(encoder(alone)["sequence_output"])
        np.testing.assert_allclose(packed[:, place], found, atol=1e-5)

    # Each text has a [CLS] of its own.
    first = np.array([[0, 3]] * 3, np.int32)
    pooled = encoder(inputs | {"first_positions": first})["pooled_output"]
    assert tuple(pooled.shape) == (3, 2, promises.CONFIG["hidden_size"])
    for number, place in enumerate((slice(0, 3), slice(3, 7))):
        alone = {key: inputs[key][:, place] for key in encoder.input}
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(pooled)[:, number],
            keras.ops.convert_to_numpy(encoder(alone)["pooled_output"]),
            atol=1e-5,
        )

    # The last layer for some positions alone is what it is for all.
    some = np.array([[6, 0, 0], [1, 2, 3], [0, 5, 4]], np.int32)
    for given in (promises.batch(), inputs, inputs | {"first_positions": first}):
        everywhere, there = encoder(given), encoder(given | {"output_positions": some})
        *layers, last = map(keras.ops.convert_to_numpy, everywhere["encoder_outputs"])
        expected = np.take_along_axis(last, some[..., None], 1)
        *found, output = map(keras.ops.convert_to_numpy, there["encoder_outputs"])
        np.testing.assert_allclose(output, expected, atol=1e-5)
        np.testing.assert_allclose(layers, found, atol=1e-5)
        sequence = keras.ops.convert_to_numpy(there["sequence_output"])
        np.testing.assert_allclose(sequence, expected, atol=1e-5)
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(there["pooled_output"]),
            keras.ops.convert_to_numpy(everywhere["pooled_output"]),
            atol=1e-5,
        )
        # The [CLS]s alone.
        alone = encoder(given | {"output_positions": some[:, :0]})
        assert tuple(alone["sequence_output"].shape) == (3, 0, promises.CONFIG["hidden_size"])
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(alone["pooled_output"]),
            keras.ops.convert_to_numpy(everywhere["pooled_output"]),
            atol=1e-5,
        )

    # Before a causal mask the future does not count.
    inputs = optional(causal=True)
    before = keras.ops.convert_to_numpy(encoder(inputs)["sequence_output"])
    inputs["input_word_ids"][:, 4:] = 1
    after = keras.ops.convert_to_numpy(encoder(inputs)["sequence_output"])
    np.testing.assert_allclose(before[:, :4], after[:, :4], atol=1e-6)
    assert abs(before[0, 4:] - after[0, 4:]).max() > 0.01

    # What is no input is an error, and what is missing.
    missing = {key: x for key, x in inputs.items() if key != "input_type_ids"}
    assert "input_type_ids" in promises.raises(ValueError, encoder, missing)
    wrong = inputs | {"attention_masks": inputs["attention_mask"]}
    symbols = {key: keras.Input(x.shape[1:], dtype="int32") for key, x in wrong.items()}
    for given in (wrong, symbols):
        message = promises.raises(ValueError, encoder, given)
        assert "inputs must be input_word_ids, input_mask, input_type_ids, and may be" in message
        assert (
            "attention_mask, position_ids, first_positions, output_positions; received" in message
        )


def with_optional_inputs(encoder):
    """A functional model of one dictionary with all inputs."""
    inputs = {key: keras.Input((None,), dtype="int32", name=key) for key in encoder.input}
    inputs["attention_mask"] = keras.Input((None, None), dtype="int32", name="attention_mask")
    inputs["position_ids"] = keras.Input((None,), dtype="int32", name="position_ids")
    return keras.Model(inputs, encoder(inputs)["sequence_output"])


def check_optional_inputs_in_a_functional_model(file):
    encoder = promises.build("encoder")
    model = with_optional_inputs(encoder)
    assert model.output_shape == (None, None, promises.CONFIG["hidden_size"])
    inputs = optional()
    expected = promises.run(encoder, inputs)[-1]  # by name: encoder_outputs, pooled, sequence
    np.testing.assert_allclose(promises.run(model, inputs)[0], expected, atol=2e-6)
    np.testing.assert_allclose(model.predict(inputs, verbose=0), expected, atol=5e-6)
    model.save(file)
    again = keras.saving.load_model(file)
    np.testing.assert_allclose(promises.run(again, inputs)[0], expected, atol=2e-6)
    clone = type(model).from_config(model.get_config())
    clone.set_weights(model.get_weights())
    np.testing.assert_allclose(promises.run(clone, inputs)[0], expected, atol=2e-6)


def test_optional_inputs():
    check_optional_inputs()


def test_optional_inputs_in_a_functional_model(tmp_path):
    check_optional_inputs_in_a_functional_model(tmp_path / "model.keras")


@pytest.mark.parametrize("other", ["jax", "torch"])
def test_optional_inputs_on_other_backends(python, tmp_path, other):
    pytest.importorskip(other)
    program = """import sys
from tests.test_encoder import *
check_optional_inputs()
check_optional_inputs_in_a_functional_model(sys.argv[1])
"""
    python("-c", program, tmp_path / "model.keras", backend=other)


@pytest.mark.parametrize("rematerialize", [False, True])
def test_output_positions_have_the_gradients_they_have_among_all(rematerialize):
    import tensorflow as tf

    encoder = promises.build(
        "encoder", rematerialize=rematerialize, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    firsts, gradients = np.array([[6, 0], [1, 2], [0, 3]], np.int32), []
    some = np.array([[3, 5, 5], [1, 0, 6], [0, 2, 4]], np.int32)
    for there in (False, True):
        given = optional() | {"first_positions": firsts}
        with tf.GradientTape() as tape:
            outputs = encoder(given | ({"output_positions": some} if there else {}), training=True)
            vectors = outputs["sequence_output"]
            vectors = vectors if there else tf.gather(vectors, some, batch_dims=1)
            loss = tf.reduce_sum(outputs["pooled_output"] * tf.range(16.0))
            loss += tf.reduce_sum(vectors**2 * tf.range(16.0))
        found = tape.gradient(loss, [v.value for v in encoder.trainable_variables])
        gradients.append([tf.convert_to_tensor(each).numpy() for each in found])
    for variable, a, b in zip(encoder.trainable_variables, *gradients, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4, err_msg=variable.path)


def test_the_optional_inputs_stay_out_of_the_signature():
    """A head and an export of a model that used them once are as before."""
    encoder = promises.build("encoder")
    encoder(optional())
    assert sorted(encoder.input) == ["input_mask", "input_type_ids", "input_word_ids"]
    assert len(promises.run(encoder, promises.batch())) == 4


def test_optional_inputs_train_with_dropout_and_rematerialized():
    keras.utils.set_random_seed(0)
    inputs = optional(4)
    target = np.full((4, 7, 16), 0.5, np.float32)
    losses = []
    for rematerialize in (False, True):
        model = with_optional_inputs(promises.build("encoder", rematerialize=rematerialize))
        model.compile(optimizers.AdamW(0.01), loss="mse", jit_compile=False)
        history = model.fit(inputs, target, epochs=5, verbose=0).history["loss"]
        assert history[-1] < 0.9 * history[0]
        losses.append(history[0])
    assert losses[0] != np.mean(np.square(model(inputs) - target))  # dropout was on


def test_options_of_an_encoder_with_other_weights_are_an_error():
    encoder = tiny.encoder(num_hidden_layers=1)
    with pytest.raises(ValueError, match="not of the shapes .* either an option changes them"):
        encoder.with_options(hidden_size=4)
    for layer in encoder._flatten_layers():
        if isinstance(layer, keras.layers.Dense):
            layer.enable_lora(2)
            break
    with pytest.raises(ValueError, match="or the encoder has LoRA's or was quantized"):
        encoder.with_options(rematerialize=True)
