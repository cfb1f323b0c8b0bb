"""Checks that hold for the encoder and every head, run on one Keras backend.

The tests start one process per backend. To run the checks by hand, and print a line per check:

    KERAS_BACKEND=jax python -m tests.contract

That saved models answer alike is a property in tests/properties/test_round_trip.py.
"""

import json
import sys
import traceback
import warnings

import keras
import numpy as np

import keras_bert
from keras_bert import keras_private
from keras_bert.tasks import registry

CONFIG = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "hidden_act": "gelu_new",
    "hidden_dropout_prob": 0.2,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 12,
    "type_vocab_size": 3,
    "initializer_range": 0.3,
    "layer_norm_eps": 1e-6,
}
LABELS = ["bad", "good", "so-so"]
OF_TASKS = {task.name: task.head_function() for task in registry.TASKS}
HEADS = {  # functions from an encoder to a model
    "classification": lambda encoder: keras_bert.heads.classifier(encoder, labels=LABELS),
    "regression": keras_bert.heads.regressor,
    "tagging": lambda encoder: keras_bert.heads.tagger(encoder, labels=LABELS),
    "question_answering": lambda encoder: keras_bert.heads.span_selector(encoder, no_answer=True),
    "multiple_choice": keras_bert.heads.multiple_choice,
    "masked_tokens": keras_bert.heads.masked_lm,
    "next_sentence": keras_bert.heads.next_sentence,
    "pretraining": keras_bert.heads.pretraining,
    "embedding": keras_bert.heads.embedder,
    "features": lambda encoder: keras_bert.heads.features(
        encoder, combine="weighted_sum", layers=(0, -1)
    ),
}
# The trainable layers that a head adds to the encoder, if not "logits".
OWN_LAYERS = {
    "encoder": set(),
    "embedding": set(),
    "features": {"combine"},
    "masked_tokens": {"masked_lm"},
    "next_sentence": {"next_sentence"},
    "pretraining": {"masked_lm", "next_sentence"},
}
WITHOUT_POOLER = ("tagging", "question_answering", "masked_tokens", "embedding", "features")
# A head adds little to the encoder, so the slow checks run only for the encoder and one head.
FULLY_CHECKED = ("encoder", "classification")
CHECKS_OF_EVERY_HEAD = (
    "config_round_trip",
    "symbolic_shapes",
    "padding_is_not_seen",
    "dtype_policies",
    "train_step",
    "frozen_encoder",
)
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "two", "words", "##s", "a\u2028b", "é"]
PIECES += [f"piece{index}" for index in range(len(PIECES), CONFIG["vocab_size"])]


def build(subject, **options):
    """Return a tiny encoder or head, with weights large enough to tell models apart."""
    keras.utils.set_random_seed(1)
    encoder = keras_bert.BertEncoder(**{**CONFIG, **options})
    return encoder if subject == "encoder" else HEADS[subject](encoder)


def batch(rows=3, length=7, subject="encoder"):
    """Return a batch of inputs. The rows differ in padding, and the last is all padding."""
    inputs = encoder_batch(rows, length)
    if subject == "multiple_choice":
        words = inputs["input_word_ids"]
        inputs = {key: np.stack([x, x], axis=1) for key, x in inputs.items()}
        inputs["input_word_ids"][:, 1] = np.flip(words)
    if subject in ("masked_tokens", "masked_lm", "pretraining"):  # a task, or a model's name
        inputs["masked_lm_positions"] = np.tile(np.int32([0, length // 3]), (rows, 1))
    return inputs


def encoder_batch(rows, length):
    rng = np.random.default_rng(rows * 100 + length)
    real = np.linspace(length, 0, rows).astype(int)[:, None] if rows > 1 else length
    return {
        "input_word_ids": rng.integers(0, CONFIG["vocab_size"], (rows, length), np.int32),
        "input_mask": np.broadcast_to(np.arange(length) < real, (rows, length)).astype(np.int32),
        "input_type_ids": rng.integers(0, CONFIG["type_vocab_size"], (rows, length), np.int32),
    }


def run(model, inputs=None):
    """Return all outputs of a model as a flat list of arrays."""
    outputs = model(batch(subject=model.name) if inputs is None else inputs)
    return [keras.ops.convert_to_numpy(x) for x in keras.tree.flatten(outputs)]


def raises(error, function, *args):
    """Return the message of the error that a call must raise."""
    try:
        function(*args)
    except error as raised:
        return str(raised)
    raise AssertionError(f"no {error} was raised")


def weights(model):
    return [(v.path, tuple(v.shape), v.dtype, v.trainable) for v in model.weights]


def layers(model, kind):
    return [layer for layer in keras_private.all_layers(model) if isinstance(layer, kind)]


def check_config_round_trip(subject):
    model = build(subject, rematerialize=True)
    encoder = keras_bert.heads.find_encoder(model)
    config = json.loads(json.dumps(encoder.get_config()))
    assert {key: config[key] for key in CONFIG} == CONFIG
    assert config["rematerialize"] is True
    again = type(model).from_config(model.get_config())
    assert keras_bert.heads.find_encoder(again).get_config() == encoder.get_config()
    assert weights(again) == weights(model)


def check_unknown_config_key(subject):
    encoder = keras_bert.BertEncoder
    assert "pruned" in raises(TypeError, lambda: encoder(**CONFIG, pruned=1))
    assert "pruned" in raises(TypeError, encoder.from_config, {**CONFIG, "pruned": 1})


def check_impossible_sizes(subject):
    for key, value in (
        ("hidden_size", 0),
        ("vocab_size", 2.5),
        ("num_hidden_layers", True),
        ("num_attention_heads", 3),
        ("hidden_dropout_prob", 1),
        ("hidden_act", "gelo"),
    ):
        message = raises(ValueError, lambda: keras_bert.BertEncoder(**{**CONFIG, key: value}))  # noqa: B023
        assert key in message and repr(value).strip("'") in message, message


def check_symbolic_shapes(subject):
    model = build(subject)
    # JAX compiles each operation per shape. The other checks use (3, 7).
    longest = [(3, CONFIG["max_position_embeddings"])] if subject in FULLY_CHECKED else []
    for rows, length in [(1, 1), (3, 7), *longest]:
        inputs = batch(rows, length, subject)
        symbols = {
            key: keras.Input(batch_shape=x.shape, dtype="int32") for key, x in inputs.items()
        }
        expected = [tuple(x.shape) for x in keras.tree.flatten(model(symbols))]
        assert [x.shape for x in run(model, inputs)] == expected
        free = [tuple(x.shape) for x in keras.tree.flatten(model.output)]
        for given, shape in zip(free, expected, strict=True):
            assert len(given) == len(shape)
            assert all(a in (None, b) for a, b in zip(given, shape, strict=True)), (given, shape)


def check_too_long(subject):
    model = build(subject)
    longest = CONFIG["max_position_embeddings"]
    for call in (model, model.predict_on_batch):
        message = raises(ValueError, call, batch(2, longest + 1, subject))
        assert str(longest + 1) in message and f"={longest}" in message, message


def check_any_array_type(subject):
    model, inputs = build(subject), batch(subject=subject)
    expected = run(model, inputs)
    tensors = {key: keras.ops.convert_to_tensor(x) for key, x in inputs.items()}
    longs = {key: x.astype(np.int64) for key, x in inputs.items()}
    for given in (tensors, longs):
        for a, b in zip(expected, run(model, given), strict=True):
            np.testing.assert_array_equal(a, b)
    predicted = keras.tree.flatten(model.predict(inputs, batch_size=2, verbose=0))
    for a, b in zip(expected, predicted, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)


def check_padding_is_not_seen(subject):
    model, inputs = build(subject), batch(subject=subject)
    before = run(model, inputs)
    hidden = inputs["input_mask"] == 0
    for key in ("input_word_ids", "input_type_ids"):
        inputs[key] = np.where(hidden, 1, inputs[key])
    for a, b in zip(before, run(model, inputs), strict=True):
        if a.shape[:2] == hidden.shape:
            a, b = a[~hidden], b[~hidden]
        else:  # one output per text; the last text is all padding
            a, b = a[:-1], b[:-1]
        np.testing.assert_allclose(a, b, atol=2e-6)


def check_dtype_policies(subject):
    expected = run(build(subject))
    for policy, tolerance in (("float32", 0), ("mixed_bfloat16", 0.5), ("mixed_float16", 0.05)):
        model = build(subject, dtype=policy)
        assert {v.dtype for v in model.trainable_variables} == {"float32"}
        ends_in_output = keras_bert.heads.find_output(model) is not None
        compute = "float32" if ends_in_output else keras.DTypePolicy(policy).compute_dtype
        for symbol, a, b in zip(
            keras.tree.flatten(model.output), expected, run(model), strict=True
        ):
            assert symbol.dtype == b.dtype.name == compute
            assert np.isfinite(b.astype(np.float32)).all()
            np.testing.assert_allclose(a, b.astype(np.float32), atol=tolerance)


def check_train_step(subject):
    choices = [("float32", False), ("mixed_bfloat16", True)]
    for policy, rematerialize in choices if subject == "encoder" else choices[1:]:
        depth = 2 if subject == "features" else 1  # a weighted sum of one layer learns nothing
        model = build(subject, dtype=policy, rematerialize=rematerialize, num_hidden_layers=depth)
        if subject == "encoder":
            x = keras.layers.Dense(2, name="answer")(model.output["pooled_output"])
            model = keras.Model(model.input, x)
        inputs = batch(subject=subject)
        rng = np.random.default_rng(0)
        target = keras.tree.map_structure(
            lambda x: rng.normal(size=x.shape).astype(np.float32),  # noqa: B023
            model(inputs),
        )
        # Tracing and compiling a graph takes longer than the step.
        eager = subject not in FULLY_CHECKED
        model.compile(
            keras_bert.optimizers.adamw(0.01, total_steps=10),
            loss="mse",
            jit_compile=keras.backend.backend() == "jax" and not eager,
            run_eagerly=eager,
        )
        before = {v.path: v.numpy() for v in model.trainable_variables}
        loss = model.train_on_batch(inputs, target)
        assert np.all(np.isfinite(loss))
        for variable in model.trainable_variables:
            if "pooler" in variable.path and subject in WITHOUT_POOLER:
                continue
            parts = 3 if "/qkv/kernel" in variable.path else 1
            changed = np.atleast_1d(np.not_equal(variable.numpy(), before[variable.path]))
            for part in np.split(changed, parts, axis=-1):
                assert part.any(), variable.path


def gradients(model, inputs):
    """Return the gradients of a loss on all outputs, with dropout; advances the seeds."""

    def loss(outputs):
        outputs = keras.tree.flatten(outputs)
        return sum(keras.ops.mean(x**3) for x in outputs)

    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        @tf.function
        def compute():
            with tf.GradientTape() as tape:
                value = loss(model(inputs, training=True))
            return tape.gradient(value, [v.value for v in model.trainable_variables])

        return [tf.convert_to_tensor(x).numpy() for x in compute()]
    if backend == "jax":
        import jax

        def compute(trainable, state):
            outputs, state = model.stateless_call(trainable, state, inputs, training=True)
            return loss(outputs), state

        values = [v.value for v in model.trainable_variables]
        state = [v.value for v in model.non_trainable_variables]
        found, state = jax.jit(jax.grad(compute, has_aux=True))(values, state)
        for variable, value in zip(model.non_trainable_variables, state, strict=True):
            variable.assign(value)
        return [np.array(x) for x in found]
    model.zero_grad()
    loss(model(inputs, training=True)).backward()
    return [v.value.grad.numpy() for v in model.trainable_variables]


def check_rematerialized_gradients(subject):
    if subject != "encoder":
        return  # heads have no blocks
    inputs, runs = batch(subject=subject), []
    for rematerialize in (False, True):
        model = build(subject, rematerialize=rematerialize, num_hidden_layers=1)
        keras.utils.set_random_seed(2)  # torch draws its dropout from the global generator
        runs.append([gradients(model, inputs) for _ in range(2)])
    for plain, again in zip(*runs, strict=True):
        for a, b in zip(plain, again, strict=True):
            np.testing.assert_allclose(a, b, atol=2e-5, rtol=1e-4)
    # The seeds advanced: the second step had other dropout masks.
    assert any(not np.allclose(a, b) for a, b in zip(*runs[0], strict=True))


def check_frozen_encoder(subject):
    model = build(subject)
    keras_bert.heads.find_encoder(model).trainable = False
    trained = {v.path.split("/")[0] for v in model.trainable_variables}
    assert trained == OWN_LAYERS.get(subject, {"logits"}), trained


def check_lora(subject):
    model, inputs = build(subject), batch(subject=subject)
    expected = run(model, inputs)
    for layer in layers(model, keras.layers.Dense):
        layer.enable_lora(2)
    for a, b in zip(expected, run(model, inputs), strict=True):
        np.testing.assert_array_equal(a, b)  # the second factor starts at zero
    dense = layers(model, keras.layers.Dense)
    kernels = [v for layer in dense for v in layer.weights if v.name == "kernel"]
    assert len(kernels) == len(dense)
    assert not any(kernel.trainable for kernel in kernels)
    for variable in model.trainable_variables:
        variable.trainable = "lora" in variable.path
    assert len(model.trainable_variables) == 2 * len(kernels)
    before = {v.path: v.numpy() for v in model.weights}
    if subject == "encoder":
        model = keras.Model(model.input, model.output["pooled_output"])
    model.compile("sgd", loss="mse", jit_compile=keras.backend.backend() == "jax")
    model.train_on_batch(inputs, np.ones(model(inputs).shape, np.float32))
    changed = {v.path for v in model.weights if (v.numpy() != before[v.path]).any()}
    assert changed, "nothing was trained"
    # The first factor has no gradient while the second is zero.
    assert all("lora_kernel_b" in path for path in changed), changed


def quantize(model):
    with warnings.catch_warnings():  # Keras warns about each layer without weights to quantize
        warnings.filterwarnings("ignore", "Layer .* does not have a `quantize` method")
        model.quantize("int8")
    assert_is_int8(model)
    return model


def assert_is_int8(model):
    quantized = layers(model, keras.layers.Dense | keras.layers.Embedding)
    assert quantized
    for layer in quantized:
        assert layer.quantization_mode == "int8", layer.path
        assert {v.dtype for v in layer.weights if len(v.shape) == 2} == {"int8"}, layer.path


def main():
    """Run the checks for each subject, print the results, and return True if all passed."""
    passed = True
    checks = {
        name.removeprefix("check_"): check
        for name, check in globals().items()
        if name.startswith("check_")
    }
    for subject in ("encoder", *HEADS):
        for name, check in checks.items():
            if subject not in FULLY_CHECKED and name not in CHECKS_OF_EVERY_HEAD:
                continue
            try:
                check(subject)
                print("ok", subject, name, flush=True)
            except Exception:
                traceback.print_exc(file=sys.stdout)
                print("FAILED", subject, name, flush=True)
                passed = False
    return passed


if __name__ == "__main__":
    sys.exit(not main())
