"""Small layers of the task heads."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_bert")
class WithoutDropout(keras.layers.Layer):
    """Wrapper that always calls its layer with `training=False`.

    In a functional model, `layer(x, training=False)` does not do that: a call of the model in
    training passes `training=True` to all layers.

    Args:
        layer: A layer or model.

    Example:

    >>> layer = WithoutDropout(keras.layers.Dropout(0.9))
    >>> float(layer(keras.ops.ones((1, 1)), training=True)[0, 0])
    1.0
    """

    def __init__(self, layer, **kwargs):
        super().__init__(**kwargs)
        self.layer = layer

    def build(self, inputs_shape):
        if not self.layer.built:
            self.layer.build(inputs_shape)
        self.built = True

    def call(self, inputs, training=None):
        return self.layer(inputs, training=False)

    def compute_output_spec(self, inputs, training=None):
        return self.layer.compute_output_spec(inputs)

    def get_config(self):
        return {**super().get_config(), "layer": keras.saving.serialize_keras_object(self.layer)}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        layer = keras.saving.deserialize_keras_object(config["layer"], custom_objects)
        return cls(**{**config, "layer": layer})


@keras.saving.register_keras_serializable(package="keras_bert")
class WeightedSum(keras.layers.Layer):
    """Learned weighted sum of layer outputs: softmax weights, times a learned scale.

    Source: Peters et al. (2018), ELMo, equation 1; "weighted sum" in table 7 of the BERT paper.

    Example:

    >>> layer = WeightedSum()
    >>> float(layer([keras.ops.ones((1, 1)), 3 * keras.ops.ones((1, 1))])[0, 0])
    2.0
    """

    def build(self, layers_shape):
        self.mix = self.add_weight(shape=(len(layers_shape),), initializer="zeros", name="mix")
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")
        self.built = True

    def call(self, layers):
        """Sum a list of tensors of one shape."""
        weights = ops.exp(self.mix) / ops.sum(ops.exp(self.mix))  # (layers,)
        mixed = sum(ops.cast(weights[index], x.dtype) * x for index, x in enumerate(layers))
        return ops.cast(self.scale, mixed.dtype) * mixed

    def compute_output_shape(self, layers_shape):
        return layers_shape[0]

    def get_config(self):
        return super().get_config()  # Keras cannot generate it if `dtype` is a policy object


@keras.saving.register_keras_serializable(package="keras_bert")
class MergeChoices(keras.layers.Layer):
    """Reshape (batch, choices, seq) to (batch * choices, seq).

    Example:

    >>> tuple(MergeChoices()(keras.ops.ones((2, 3, 4), dtype="int32")).shape)
    (6, 4)
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.built = True

    def call(self, ids):
        batch, choices, seq = ops.shape(ids)
        return ops.reshape(ids, (batch * choices, seq))

    def compute_output_spec(self, ids):
        batch, choices, seq = ids.shape
        rows = None if None in (batch, choices) else batch * choices
        return keras.KerasTensor((rows, seq), dtype=ids.dtype)


@keras.saving.register_keras_serializable(package="keras_bert")
class SplitChoices(keras.layers.Layer):
    """Reshape logits (batch * choices, 1) to (batch, choices), the shape of the given ids.

    Args:
        keep_width: If True, reshape vectors (batch * choices, width) to (batch, choices, width).

    Example:

    >>> ids = keras.ops.ones((2, 3, 4), dtype="int32")
    >>> tuple(SplitChoices()(keras.ops.ones((6, 1)), ids).shape)
    (2, 3)
    """

    def __init__(self, keep_width=False, **kwargs):
        super().__init__(**kwargs)
        self.keep_width = keep_width
        self.built = True

    def call(self, logits, ids):
        return ops.reshape(logits, self.compute_output_shape(logits.shape, ops.shape(ids)))

    def compute_output_shape(self, logits_shape, ids_shape):
        width = logits_shape[-1:] if self.keep_width else ()
        return (*ids_shape[:2], *width)

    def get_config(self):
        return {**super().get_config(), "keep_width": self.keep_width}


@keras.saving.register_keras_serializable(package="keras_bert")
class GatherTexts(keras.layers.Layer):
    """Collect the vectors of texts from packed sequences.

    Example:

    >>> vectors = keras.ops.reshape(keras.ops.arange(4.0), (2, 2, 1))
    >>> tuple(GatherTexts()(vectors, keras.ops.array([[3, 0]])).shape)
    (1, 2, 1)
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.built = True

    def call(self, vectors, numbers):
        """Return vectors (rows, texts, width) for numbers (rows, texts) of (batch, n, width)."""
        flat = ops.reshape(vectors, (-1, vectors.shape[-1]))
        return ops.take(flat, ops.cast(numbers, "int32"), axis=0)

    def compute_output_shape(self, vectors_shape, numbers_shape):
        return (*numbers_shape, vectors_shape[-1])
