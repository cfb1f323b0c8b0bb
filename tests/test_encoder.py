"""Tests of `BertEncoder`: all backends, names of weights, parity with Hugging Face."""

import json
import pathlib
import warnings

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import BertEncoder, Preprocessor, heads
from tests import contract, tiny

GOLDEN = pathlib.Path(__file__).parent / "golden" / "encoder_parameters.json"


def parameter_tree(encoder):
    """Return the content of the golden file."""
    return {
        "made by": "parameter_tree in tests/test_encoder.py, of the encoder in tests/contract.py",
        "weights": {v.path: f"{v.dtype}{list(v.shape)}" for v in encoder.weights if v.trainable},
    }


@pytest.mark.slow
def test_contract(check_contract, backend):
    check_contract("encoder", backend)


def test_names_and_shapes_of_the_weights():
    expected = json.loads(GOLDEN.read_text("utf-8"))
    found = parameter_tree(contract.build("encoder"))
    assert found == expected
    assert list(found["weights"]) == list(expected["weights"])


@pytest.mark.slow
def test_a_saved_encoder_loads_without_tensorflow(python, tmp_path):
    """`import keras_bert` after `import keras` registers the layers."""
    preprocessor = Preprocessor(contract.PIECES)
    contract.build("encoder", preprocessor=preprocessor).save(tmp_path / "encoder.keras")
    program = """import sys
import keras, keras_bert
encoder = keras.saving.load_model(sys.argv[1])
assert len(encoder.preprocessor.vocabulary) == 40
assert "tensorflow" not in sys.modules
"""
    python("-c", program, tmp_path / "encoder.keras", backend="jax")


def test_outputs_have_the_names_of_tf_hub():
    encoder = contract.build("encoder")
    assert sorted(encoder.input) == ["input_mask", "input_type_ids", "input_word_ids"]
    out = encoder(contract.batch())
    assert sorted(out) == ["encoder_outputs", "pooled_output", "sequence_output"]
    assert len(out["encoder_outputs"]) == contract.CONFIG["num_hidden_layers"]
    np.testing.assert_array_equal(out["encoder_outputs"][-1], out["sequence_output"])


def test_initial_weights():
    config = {**contract.CONFIG, "initializer_range": 0.05, "vocab_size": 4000}
    for variable in BertEncoder(**config).trainable_variables:
        value = variable.numpy()
        if variable.name in ("bias", "beta"):
            assert not value.any()
        elif variable.name == "gamma":
            assert (value == 1).all()
        else:
            # Truncation at two standard deviations reduces the deviation to 0.88 of it.
            assert abs(value).max() <= 0.1 + 1e-6
            if value.size > 1000:
                np.testing.assert_allclose(value.std(), 0.05 * 0.88, rtol=0.1)


@pytest.mark.peers
@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_new", "relu"])
def test_parity_with_transformers(tmp_path, hidden_act):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(**{**contract.CONFIG, "hidden_act": hidden_act})
    theirs = transformers.BertModel(config).eval()
    with torch.no_grad():  # initial zeros and ones could hide a mistake
        for parameter in theirs.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    theirs.save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(contract.PIECES))
    ours = keras_bert.load(tmp_path)
    inputs = contract.batch(5, 12)
    assert not inputs["input_mask"][-1].any()
    names = ("input_ids", "attention_mask", "token_type_ids")
    tensors = [torch.tensor(x).long() for x in inputs.values()]
    with torch.no_grad():
        expected = theirs(**dict(zip(names, tensors, strict=True)), output_hidden_states=True)
    found = ours(inputs)
    pairs = [(found["pooled_output"], expected.pooler_output)]
    pairs += [(found["sequence_output"], expected.last_hidden_state)]
    pairs += zip(found["encoder_outputs"], expected.hidden_states[1:], strict=True)
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs.numpy(), atol=2e-5)


# --- Optional inputs


def optional(rows=3, length=7, causal=False):
    """Return a batch with two packed texts per row, an attention mask and position ids."""
    inputs = contract.batch(rows, length)
    real = inputs["input_mask"].astype(bool)
    text = np.where(np.arange(length) < 3, 1, 2)
    mask = np.tril(np.ones((length, length))) > 0 if causal else text[:, None] == text
    inputs["attention_mask"] = (mask & real[:, None, :]).astype(np.int32)
    inputs["position_ids"] = np.tile(np.int32([*range(3), *range(length - 3)]), (rows, 1))
    return inputs


def arrays(encoder, inputs):
    """Return the outputs of an encoder as arrays."""
    return keras.tree.map_structure(keras.ops.convert_to_numpy, encoder(inputs))


def assert_near(found, expected):
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_defaults_are_bert_base():
    *defaults, epsilon = BertEncoder.__init__.__defaults__
    assert defaults == [30522, 768, 12, 12, 3072, "gelu", 0.1, 0.1, 512, 2, 0.02]
    assert epsilon == 1e-12


def check_optional_inputs():
    """Check the optional inputs on the current backend."""
    encoder = contract.build("encoder")
    inputs = contract.batch()
    expected = contract.run(encoder, inputs)

    # Values equal to the defaults change nothing.
    mask = {"attention_mask": np.repeat(inputs["input_mask"][:, None, :], 7, axis=1)}
    positions = {"position_ids": np.tile(np.arange(7, dtype=np.int32), (3, 1))}
    for extra in (mask, positions, mask | positions):
        for a, b in zip(expected, contract.run(encoder, inputs | extra), strict=True):
            np.testing.assert_allclose(a, b, atol=2e-6)

    # Two packed texts have the outputs of two rows, and one pooled vector each.
    inputs = optional()
    first = np.array([[0, 3]] * 3, np.int32)
    packed = arrays(encoder, inputs | {"cls_positions": first})
    assert packed["pooled_output"].shape == (3, 2, contract.CONFIG["hidden_size"])
    for index, part in enumerate((slice(0, 3), slice(3, 7))):
        alone = arrays(encoder, {key: inputs[key][:, part] for key in encoder.input})
        assert_near(packed["sequence_output"][:, part], alone["sequence_output"])
        assert_near(packed["pooled_output"][:, index], alone["pooled_output"])

    # The last layer at some positions equals a gather from all positions.
    some = np.array([[6, 0, 0], [1, 2, 3], [0, 5, 4]], np.int32)
    for given in (contract.batch(), inputs, inputs | {"cls_positions": first}):
        everywhere = arrays(encoder, given)
        there = arrays(encoder, given | {"output_positions": some})
        *layers, last = everywhere["encoder_outputs"]
        expected = np.take_along_axis(last, some[..., None], 1)
        *found, output = there["encoder_outputs"]
        assert_near(output, expected)
        assert_near(layers, found)
        assert_near(there["sequence_output"], expected)
        assert_near(there["pooled_output"], everywhere["pooled_output"])
        # Only the [CLS] positions.
        alone = arrays(encoder, given | {"output_positions": some[:, :0]})
        assert alone["sequence_output"].shape == (3, 0, contract.CONFIG["hidden_size"])
        assert_near(alone["pooled_output"], everywhere["pooled_output"])

    # With a causal mask, later tokens have no effect.
    inputs = optional(causal=True)
    before = arrays(encoder, inputs)["sequence_output"]
    inputs["input_word_ids"][:, 4:] = 1
    after = arrays(encoder, inputs)["sequence_output"]
    np.testing.assert_allclose(before[:, :4], after[:, :4], atol=1e-6)
    assert abs(before[0, 4:] - after[0, 4:]).max() > 0.01

    # Unknown and missing inputs are errors.
    missing = {key: x for key, x in inputs.items() if key != "input_type_ids"}
    assert "input_type_ids" in contract.raises(ValueError, encoder, missing)
    wrong = inputs | {"attention_masks": inputs["attention_mask"]}
    symbols = {key: keras.Input(x.shape[1:], dtype="int32") for key, x in wrong.items()}
    for given in (wrong, symbols):
        assert "attention_masks" in contract.raises(ValueError, encoder, given)


def check_optional_inputs_in_a_functional_model(file):
    encoder = contract.build("encoder")
    inputs = {key: keras.Input((None,), dtype="int32", name=key) for key in encoder.input}
    inputs["attention_mask"] = keras.Input((None, None), dtype="int32", name="attention_mask")
    inputs["position_ids"] = keras.Input((None,), dtype="int32", name="position_ids")
    model = keras.Model(inputs, encoder(inputs)["sequence_output"])
    assert model.output_shape == (None, None, contract.CONFIG["hidden_size"])
    inputs = optional()
    expected = arrays(encoder, inputs)["sequence_output"]
    np.testing.assert_allclose(contract.run(model, inputs)[0], expected, atol=2e-6)
    model.save(file)
    again = keras.saving.load_model(file)
    np.testing.assert_allclose(contract.run(again, inputs)[0], expected, atol=2e-6)


def test_optional_inputs():
    check_optional_inputs()


def test_optional_inputs_in_a_functional_model(tmp_path):
    check_optional_inputs_in_a_functional_model(tmp_path / "model.keras")


@pytest.mark.parametrize("rematerialize", [False, True])
def test_gradients_with_output_positions(rematerialize):
    import tensorflow as tf

    encoder = contract.build(
        "encoder", rematerialize=rematerialize, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    cls_positions, gradients = np.array([[6, 0], [1, 2], [0, 3]], np.int32), []
    some = np.array([[3, 5, 5], [1, 0, 6], [0, 2, 4]], np.int32)
    for given_positions in (False, True):
        given = optional() | {"cls_positions": cls_positions}
        with tf.GradientTape() as tape:
            outputs = encoder(
                given | ({"output_positions": some} if given_positions else {}), training=True
            )
            vectors = outputs["sequence_output"]
            vectors = vectors if given_positions else tf.gather(vectors, some, batch_dims=1)
            loss = tf.reduce_sum(outputs["pooled_output"] * tf.range(16.0))
            loss += tf.reduce_sum(vectors**2 * tf.range(16.0))
        found = tape.gradient(loss, [v.value for v in encoder.trainable_variables])
        gradients.append([tf.convert_to_tensor(each).numpy() for each in found])
    for variable, a, b in zip(encoder.trainable_variables, *gradients, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4, err_msg=variable.path)


def test_with_options_errors():
    encoder = tiny.encoder(num_hidden_layers=1)
    with pytest.raises(ValueError, match="must have the same shapes. Leave out options"):
        encoder.with_options(hidden_size=4)


def test_with_options_copies_lora_and_frozen_layers():
    encoder = tiny.encoder(num_hidden_layers=1)
    encoder.get_layer("embeddings").trainable = False
    layer = contract.layers(encoder, keras.layers.Dense)[0]
    layer.enable_lora(2, lora_alpha=3)
    layer.lora_kernel_b.assign(np.ones(layer.lora_kernel_b.shape))
    copy = encoder.with_options(rematerialize=True)
    inputs = encoder.preprocessor(["so good"])
    for a, b in zip(contract.run(encoder, inputs), contract.run(copy, inputs), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    trainable = [[v.path for v in each.trainable_variables] for each in (encoder, copy)]
    assert trainable[0] == trainable[1] and any("lora" in path for path in trainable[1])
    assert copy.with_options(trainable=False).trainable_variables == []


def test_enable_lora_trains_only_its_matrices():
    encoder = tiny.encoder(num_hidden_layers=1)
    encoder.enable_lora(np.int64(2))
    names = {variable.name for variable in encoder.trainable_variables}
    assert names == {"lora_kernel_a", "lora_kernel_b"}
    assert len(encoder.trainable_variables) == 2 * 5  # four matrices of the layer, and the pooler
    with pytest.raises(ValueError, match="rank must be an integer of at least 1"):
        tiny.encoder(num_hidden_layers=1).enable_lora(0)


def partly_frozen():
    """Return an encoder with frozen layers, of which one is a part of another layer."""
    encoder = tiny.encoder(num_hidden_layers=3)
    for name in ("embeddings", "layer_0"):
        encoder.get_layer(name).trainable = False
    encoder.get_layer("layer_1").attention.trainable = False
    return encoder


def trainable(model):
    return [variable.path for variable in model.trainable_variables]


def test_frozen_layers_are_kept(tmp_path):
    encoder = partly_frozen()
    paths = trainable(encoder)
    assert 0 < len(paths) < len(encoder.weights) - 12
    keras_bert.save(encoder, tmp_path / "encoder")
    loaded = keras_bert.load(tmp_path / "encoder")
    changed = keras_bert.load(tmp_path / "encoder", dtype="mixed_bfloat16")
    by_keras = keras.models.load_model(tmp_path / "encoder/model.keras")
    for copy in (encoder.keep_layers([0, 1, 2]), loaded, changed, by_keras):
        assert trainable(copy) == paths
    assert trainable(encoder.keep_layers([0, 2])) == [
        path.replace("layer_2", "layer_1") for path in paths if "layer_1" not in path
    ]
    encoder.get_layer("layer_1").attention.trainable = True
    model = keras.Model(encoder.input, keras.layers.Dense(2)(encoder.output["pooled_output"]))
    keras_bert.save(model, tmp_path / "model")
    assert trainable(keras_bert.load(tmp_path / "model")) == trainable(model)
    loaded.trainable = False
    loaded.trainable = True
    weights = [weight for weight in encoder.weights if "seed" not in weight.path]
    assert len(trainable(loaded)) == len(weights)


@pytest.mark.slow
@pytest.mark.parametrize("steps", ["lora int8", "int8 lora"])
def test_lora_and_int8_are_kept(steps, tmp_path):
    encoder = tiny.encoder(num_hidden_layers=1)
    model = heads.classifier(encoder, labels=["bad", "good"])
    for step in steps.split():
        if step == "lora":
            encoder.enable_lora(2)
            for variable in encoder.trainable_variables:
                variable.assign(np.full(variable.shape, 0.3))
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Keras names layers that stay as they are
                encoder.quantize("int8")
    keras_bert.save(model, tmp_path / "model.keras")
    loaded = keras_bert.load(tmp_path / "model.keras")
    assert trainable(loaded) == trainable(model)
    inputs = encoder.preprocessor(["so good"])
    np.testing.assert_allclose(loaded(inputs), model(inputs), atol=0.05)
    # With two matrices of zeros, all gradients would be zeros.
    firsts = [each for each in loaded.trainable_variables if each.name == "lora_kernel_a"]
    assert len(firsts) == 5
    assert all(each.numpy().any() for each in firsts)


def test_lora_of_single_layers_is_kept(tmp_path):
    encoder = tiny.encoder(num_hidden_layers=1)
    encoder.get_layer("layer_0").attention.qkv.enable_lora(2, lora_alpha=3)
    encoder.get_layer("embeddings").word_embeddings.enable_lora(2)
    model = heads.embedder(encoder, layers=[keras.layers.Dense(3, name="last")])
    model.get_layer("last").enable_lora(1)
    keras_bert.save(model, tmp_path)
    loaded = keras_bert.load(tmp_path)
    assert trainable(loaded) == trainable(model)
    layers = contract.layers(heads.find_encoder(loaded), keras.layers.Dense)
    assert [layer.lora_alpha for layer in layers if layer.lora_enabled] == [3]
    firsts = [each for each in loaded.trainable_variables if each.name.endswith("_a")]
    assert len(firsts) == 3
    assert all(each.numpy().any() for each in firsts)
