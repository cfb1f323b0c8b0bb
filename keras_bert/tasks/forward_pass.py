"""A model as a function from the inputs of a batch to its outputs, fast for many batches."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable

import keras

from keras_bert import encoder, keras_private
from keras_bert.data.batching import choose_lengths
from keras_bert.model_structure import find_encoder
from keras_bert.runtime import compilation_cache, distribution
from keras_bert.runtime.arguments import check_one_of

_PRECISIONS = ("float32", "bfloat16", "float16")


@dataclasses.dataclass
class ForwardPass:
    """A function from the inputs of a batch, a dict of arrays, to the outputs.

    On JAX and torch, a device may still compute the outputs when the call returns. On TensorFlow,
    they are arrays of NumPy. If it compiles, the number of rows must be a multiple of
    `distribution.replicas()`.

    Attributes:
        compute: The function.
        compiles: True if each shape of a batch costs a compilation.
        lengths: Lengths that programs were compiled for; empty if `compiles` is False.
    """

    compute: Callable
    compiles: bool = False
    lengths: tuple[int, ...] = ()

    def __call__(self, inputs):
        return self.compute(inputs)

    def lengths_for(self, encoded, batch_size, most):
        """Return the lengths to pad the batches of encoded sequences to; `None` for any length.

        There are at most `most` lengths, with those of earlier calls. If all of these are too
        short, the maximum length of the sequences is added.
        """
        if not self.compiles:
            return None
        longest_per_batch = sorted(encoded.lengths.tolist(), reverse=True)[::batch_size]
        cost = distribution.positions_per_compilation() / batch_size
        self.lengths = choose_lengths(
            longest_per_batch, cost, most, self.lengths, encoded.max_length
        )
        return self.lengths


def forward_pass(model, precision=None):
    """Return the `ForwardPass` of a model. Later calls return the same one, with its programs.

    If the activation or the dtype policy of a layer has changed since, they return a new one.
    On TensorFlow, it is one graph for batches of all shapes, as in an export.

    Args:
        model: A model with an encoder.
        precision: `"float32"`, `"bfloat16"` or, on JAX and torch, `"float16"` for the layers of the
            encoder; `None` keeps their dtype.

    Raises:
        ValueError: If the precision is unknown, or given with several machines.
    """
    if precision is not None and keras.backend.backend() != "tensorflow":
        check_one_of("precision", precision, _PRECISIONS)
    passes = vars(model).setdefault("_forward_passes", {})
    layers = tuple(
        (layer.dtype_policy.name, vars(layer).get("activation"))
        for layer in keras_private.all_layers(model)
    )
    key = (precision, distribution.devices(), layers)
    if key not in passes:
        passes[key] = _new_pass(model, precision)
    return passes[key]


def _new_pass(model, precision):
    backend = keras.backend.backend()
    if distribution.worker()[1] > 1:
        if precision is not None:
            raise ValueError(
                "precision works on one machine. Load the model with dtype='mixed_bfloat16'"
            )
        compiles = distribution.compiles_each_shape()
        return ForwardPass(lambda inputs: _predict_on_batch(model, inputs), compiles)
    if backend == "tensorflow":
        return ForwardPass(_with_tensorflow(model, precision))
    if backend == "jax":
        return ForwardPass(_with_jax(model, precision), compiles=True)
    return ForwardPass(_with_torch(model, precision))


def _predict_on_batch(model, inputs):
    """Return the outputs of one replica.

    Under a strategy of TensorFlow, each replica computes the whole batch, and `predict_on_batch`
    concatenates their outputs.
    """
    outputs = model.predict_on_batch(inputs)
    if keras.backend.backend() != "tensorflow":
        return outputs
    copies = model.distribute_strategy.num_replicas_in_sync
    return keras.tree.map_structure(lambda array: array[: len(array) // copies], outputs)


def _with_tensorflow(model, precision):
    import tensorflow as tf

    from keras_bert.tasks import inference_graph

    names = sorted(model.input)
    specs = [tf.TensorSpec([None] * len(model.input[name].shape), tf.int32) for name in names]
    layers = [layer for layer in keras_private.all_layers(model) if hasattr(layer, "lora_enabled")]

    inference_graph.forward_function(model, precision)  # raises an error for a wrong precision

    @functools.lru_cache(maxsize=1)
    def graph(weight_forms):
        forward = inference_graph.forward_function(model, precision)
        traced = tf.function(
            lambda *values: forward(dict(zip(names, values, strict=True))), autograph=False
        )
        return traced.get_concrete_function(*specs)  # a call takes 0.5 ms less than one of `traced`

    def compute(inputs):
        # LoRA and quantization change which variables a layer computes with.
        forms = tuple((layer.lora_enabled, layer.quantization_mode) for layer in layers)
        outputs = graph(forms)(*(tf.constant(inputs[name], tf.int32) for name in names))
        return keras.tree.map_structure(lambda output: output.numpy(), outputs)

    return compute


def _with_jax(model, precision):
    import jax

    compilation_cache.enable()

    @jax.jit
    def forward(values, inputs):
        # The order of `variables` does not depend on which of them are trainable.
        mapping = list(zip(model.variables, values, strict=True))
        with _computing_in(model, precision), keras.StatelessScope(state_mapping=mapping):
            return model(inputs, training=False)

    def compute(inputs):
        model.jax_state_sync()  # in a callback, `fit` has the values of the variables
        values = [variable.value for variable in model.variables]
        return forward(values, distribution.split_batch(inputs))

    return compute


def _with_torch(model, precision):
    import torch

    def compute(inputs):
        with torch.no_grad(), _computing_in(model, precision):
            return model(inputs, training=False)

    return compute


def _computing_in(model, precision):
    """Return a context in which the encoder of a model computes in a precision."""
    if precision is None:
        return contextlib.nullcontext()
    policy = precision if precision == "float32" else f"mixed_{precision}"
    return encoder.computing_in(find_encoder(model), policy)
