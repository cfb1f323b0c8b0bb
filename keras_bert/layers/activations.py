"""Activation functions by the names in BERT's configuration files."""

import keras

from keras_bert.runtime.escaping import shown


def activation(name):
    """Return the activation function for a value of `hidden_act`.

    Args:
        name: `"gelu"` (the exact form with erf, as in Hugging Face), `"gelu_new"` or
            `"gelu_pytorch_tanh"` (the tanh approximation, which Google's code computes), or a
            name that `keras.activations.get` accepts, such as `"relu"`.

    Returns:
        A function of one tensor.

    Raises:
        ValueError: If the name is unknown.

    Example:

    >>> activation("relu")(keras.ops.array([-1.0, 2.0])).shape[0]
    2
    """
    if name == "gelu":
        return _gelu_erf
    if name in ("gelu_new", "gelu_pytorch_tanh"):
        return _gelu_tanh
    try:
        return keras.activations.get(name)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"hidden_act must be 'gelu', 'gelu_new' or a Keras activation; received {shown(name)}"
        ) from error


def _gelu_erf(x):
    return keras.activations.gelu(x, approximate=False)


def _gelu_tanh(x):
    return keras.activations.gelu(x, approximate=True)
