"""Training steps in bfloat16 on CPUs, with TensorFlow.

On a CPU, XLA computes matmuls in bfloat16 no faster than in float32, and TensorFlow's own graph is
slow between the matmuls. So here oneDNN computes the matmuls, and XLA compiles the functions
between them, which all layers share. A gradient computes its function again, which is faster than
to keep the intermediate results.
"""

import keras
import tensorflow as tf

from keras_bert import keras_private
from keras_bert.layers.between_matmuls import run_by
from keras_bert.model_structure import find_encoder


def can_train(model):
    """Return True if `TrainedModel` can train a model: its encoder is in mixed_bfloat16."""
    try:
        encoder = find_encoder(model)
    except ValueError:
        return False
    layers = keras_private.all_layers(encoder)
    return (
        encoder is not model
        and encoder.dtype_policy.name == "mixed_bfloat16"
        and not encoder.rematerialize
        and not any(getattr(layer, "quantization_mode", None) for layer in layers)
    )


class TrainedModel(keras.Model):
    """A model with the weights of another one, whose training steps are faster in bfloat16.

    The dropout and the outputs are those of the other model, up to rounding.

    Args:
        model: A functional model for which `can_train` is True.
    """

    def __init__(self, model):
        super().__init__(name=model.name)
        self.model = model
        self._runner = _Runner()
        self.built = True

    @property
    def output(self):
        return self.model.output

    def compile(self, optimizer, **options):
        super().compile(optimizer, **options | {"jit_compile": False})
        self.optimizer.build(self.trainable_variables)

    def call(self, inputs, training=None):
        if not training:
            return self.model(inputs, training=False)
        with run_by(self._runner):
            return self.model(inputs, training=True)

    def train_step(self, data):
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            outputs = self(x, training=True)
            loss = self.compute_loss(x, y, outputs, weights)
            keras_private.update_loss(self, loss, tf.shape(keras.tree.flatten(x)[0])[0])
        variables = [variable.value for variable in self.trainable_variables]
        gradients = tape.gradient(loss, variables)
        # TensorFlow sums the gradients of an embedding, and computes the norm, faster than XLA.
        gradients = [
            tf.convert_to_tensor(gradient) if isinstance(gradient, tf.IndexedSlices) else gradient
            for gradient in gradients
        ]
        self._apply(gradients, tf.linalg.global_norm(gradients))
        return self.compute_metrics(x, y, outputs, weights)

    @tf.function(autograph=False, jit_compile=True)
    def _apply(self, gradients, norm):
        self.optimizer.apply_with_norm(gradients, self.trainable_variables, norm)


class _Runner:
    """Runs a function of layers as a compiled function, which all equal layers share.

    The function computes in float32: XLA would round each intermediate result to bfloat16.
    """

    def __init__(self):
        self._functions = {}

    def __call__(self, method, layer, tensors):
        layers = layer if isinstance(layer, tuple) else (layer,)
        vectors = []
        for sublayer in layers:
            vectors += _biases_and_norms(sublayer)
        has_value = tuple(tensor is not None for tensor in tensors)
        key = method, has_value
        if key not in self._functions:
            self._functions[key] = self._compile(
                method, layer, vectors, has_value, layers[0].compute_dtype
            )
        with keras_private.without_autocast():
            weights = [tf.convert_to_tensor(vector) for vector in vectors]
        present = [tensor for tensor in tensors if tensor is not None]
        return self._functions[key](*weights, *present)

    def _compile(self, method, layer, vectors, has_value, dtype):
        """Compile a method as a function of weights and of the tensors that are not `None`."""

        def function(*arguments):
            arguments = [_cast_floats(argument, "float32") for argument in arguments]
            weights = arguments[: len(vectors)]
            present = iter(arguments[len(vectors) :])
            tensors = [next(present) if exists else None for exists in has_value]
            scope = keras.StatelessScope(state_mapping=[*zip(vectors, weights, strict=True)])
            with run_by(self), keras_private.without_autocast(), scope:
                outputs = method(layer, *tensors)
            return tf.nest.map_structure(lambda output: _cast_floats(output, dtype), outputs)

        return _with_xla_gradient(function)


def _cast_floats(tensor, dtype):
    return tf.cast(tensor, dtype) if tensor.dtype.is_floating else tensor


def _biases_and_norms(layer):
    """Return the biases and the weights of LayerNorm in a layer."""
    return [
        variable
        for variable in layer.variables
        if len(variable.shape) == 1 and keras.backend.is_float_dtype(variable.dtype)
    ]


def _with_xla_gradient(function):
    """Compile a function of tensors with XLA, and its gradient, which computes it again.

    Integers get no gradient.
    """
    forward = tf.function(function, autograph=False, jit_compile=True)

    @tf.function(autograph=False, jit_compile=True)
    def backward(arguments, upstream):
        floats = [argument for argument in arguments if argument.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(floats)
            outputs = function(*arguments)
        return tape.gradient(outputs, floats, output_gradients=upstream)

    @tf.custom_gradient
    def with_gradient(*arguments):
        def gradient(*upstream):
            upstream = upstream if len(upstream) > 1 else upstream[0]
            gradients = iter(backward(arguments, upstream))
            return [
                next(gradients) if argument.dtype.is_floating else None for argument in arguments
            ]

        return forward(*arguments), gradient

    return with_gradient
