"""Checks of the inputs of exported signatures. The signatures are in the folders of the tasks.

A new output needs a description in `model_card.py` or in the task. If its size depends on the
inputs, add it to `Task.variable_outputs`.
"""

import tensorflow as tf


def check_shapes(function, input_signature):
    """Make a function of strings check the shapes of its inputs when its graph runs.

    TensorFlow Serving accepts tensors of any shape, and some graphs would return wrong answers. A
    wrong rank, or different batch sizes, raise `tf.errors.InvalidArgumentError`.
    """
    names = " and ".join(spec.name for spec in input_signature)

    def checked(*values):
        values = [
            tf.ensure_shape(value, spec.shape)
            for value, spec in zip(values, input_signature, strict=True)
        ]
        sizes = [tf.shape(value)[0] for value in values]
        message = f"{names} must have the same first dimension; received"
        checks = [
            tf.debugging.Assert(tf.equal(sizes[0], other), [message, sizes]) for other in sizes[1:]
        ]
        with tf.control_dependencies(checks):
            return function(*map(tf.identity, values))

    return checked
