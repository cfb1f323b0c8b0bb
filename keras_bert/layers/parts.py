"""Built layers of Keras, from which the layers of BERT are made."""

import keras

from keras_bert.layers.initializers import initializer


def new_dense(units, input_shape, initializer_range, *, dtype, name, activation=None):
    """Return a built `keras.layers.Dense` for inputs of a shape.

    Example:

    >>> tuple(new_dense(2, (None, 3), 0.02, dtype="float32", name="dense").kernel.shape)
    (3, 2)
    """
    layer = keras.layers.Dense(
        units,
        activation=activation,
        kernel_initializer=initializer(initializer_range),
        dtype=dtype,
        name=name,
    )
    layer.build(input_shape)
    return layer


def new_layer_norm(shape, epsilon, *, dtype, name):
    """Return a built `keras.layers.LayerNormalization` for inputs of a shape.

    Example:

    >>> tuple(new_layer_norm((None, 3), 1e-12, dtype="float32", name="layer_norm").gamma.shape)
    (3,)
    """
    layer = keras.layers.LayerNormalization(epsilon=epsilon, dtype=dtype, name=name)
    layer.build(shape)
    return layer
