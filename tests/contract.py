"""Checks that hold for the encoder and every head, run on one Keras backend.

The tests start one process per backend. To run the checks by hand, and print a line per check:

    KERAS_BACKEND=jax python -m tests.contract

That saved models answer alike is a property in tests/properties/test_round_trip.py.
"""

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
WITHOUT_POOLER = ("tagging", "question_answering", "masked_tokens", "embedding", "features")
# A head adds little to the encoder, so the slow checks run only for the encoder and one head.
FULLY_CHECKED = ("encoder", "classification")
CHECKS_OF_EVERY_HEAD = (
    "symbolic_shapes",
    "padding_is_not_seen",
    "dtype_policies",
    "train_step",
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


def check_rematerialized_steps(subject):
    """Rematerialization changes no step, also with dropout."""
    if subject != "encoder":
        return  # heads have no blocks
    inputs = batch()
    trained = []
    for rematerialize in (False, True):
        encoder = build(subject, rematerialize=rematerialize, num_hidden_layers=1)
        keras.utils.set_random_seed(2)  # torch draws its dropout from the global generator
        model = keras.Model(encoder.input, encoder.output["sequence_output"])
        jit_compile = keras.backend.backend() == "jax"
        model.compile(keras.optimizers.SGD(0.1), loss="mse", jit_compile=jit_compile)
        for _ in range(2):
            model.train_on_batch(inputs, np.zeros((3, 7, 16)))
        trained.append([v.numpy() for v in model.variables if "seed" not in v.path])
    for a, b in zip(*trained, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5, rtol=1e-4)


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
