"""The encoder: the contract on each backend, its weights' names, parity with Hugging Face."""

import json
import pathlib

import keras
import numpy as np
import pytest

from keras_bert import BertEncoder, Preprocessor, checkpoints, layers
from tests import contract as promises

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
