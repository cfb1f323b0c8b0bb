"""Dropout that is cheap in a compiled training step."""

import math

import keras
from keras import ops

from keras_bert.runtime import distribution

_GOLDEN_RATIO = 0x9E3779B9  # 2**32 / golden ratio, odd: spreads consecutive numbers


@keras.saving.register_keras_serializable(package="keras_bert")
class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout` with masks computed by a hash.

    Keras draws a random number per element and keeps the mask for the backward pass, which takes
    a large part of a training step. This layer hashes the index of an element with a new seed per
    call. XLA computes the hash where it is used, and again in the backward pass. The masks are
    equal on one device of TensorFlow and JAX. On torch, which lacks the integer arithmetic, Keras'
    own dropout is used, which draws from torch's generators.

    Source: The hash is `lowbias32` of Wellons (2018), github.com/skeeto/hash-prospector.

    Args: See `keras.layers.Dropout`.

    Example:

    >>> layer = Dropout(0.5, seed=0)
    >>> x = layer(keras.ops.ones((2, 500)), training=True)
    >>> bool(keras.ops.all((x == 0) | (x == 2)))
    True
    """

    def call(self, inputs, training=False):
        return self.drop(inputs, self.next_seed(training))

    def next_seed(self, training):
        """Return the argument of `drop` for the next call; `None` without dropout."""
        if not training or self.rate == 0:
            return None
        if self.noise_shape is not None or keras.backend.backend() == "torch":
            return self.seed_generator
        return distribution.seed_of_replica(self.seed_generator.next())

    def drop(self, inputs, seed):
        """Apply dropout with a result of `next_seed`."""
        if seed is None:
            return inputs
        if seed is self.seed_generator:
            return keras.random.dropout(inputs, self.rate, self.noise_shape, seed=seed)
        bits = random_bits(ops.shape(inputs), seed)
        # Compare 24 bits as int32: not all kernels compare uint32.
        bits = ops.cast(ops.right_shift(bits, _uint32(8)), "int32")
        keep = bits >= round(self.rate * 2**24)
        scale = 1.0 / (1.0 - self.rate) if self.rate < 1 else 0.0
        return ops.where(keep, inputs * scale, ops.zeros_like(inputs))


def random_bits(shape, seed):
    """Return 32 random bits per element, uint32 of the given shape, from a seed (2,)."""
    golden = _uint32(_GOLDEN_RATIO)
    keys = _hash(ops.cast(seed, "uint32") * golden + _uint32([1, 2]))
    first, second = ops.unstack(keys, 2)
    keys = _hash(ops.stack([first + second * golden, ops.bitwise_xor(first, second)]))
    # With a random step and start, two calls almost never hash the same numbers.
    step, start = ops.unstack(keys, 2)
    step = ops.bitwise_or(step, _uint32(1))
    # One `arange` per axis: a single one over all elements cannot be sharded over devices.
    index = start
    for axis, size in enumerate(shape):
        inner = shape[axis + 1 :]
        index = index + ops.reshape(_multiples(inner, size), (-1, *(1 for _ in inner))) * step
    return _hash(index)


def _multiples(sizes, count):
    """Return 0, p, 2p, ..., uint32 (count,), where p is the product of sizes."""
    if all(isinstance(size, int) for size in (*sizes, count)):
        product = math.prod(sizes)
        return _uint32([product * number % 2**32 for number in range(count)])
    numbers = ops.cast(ops.arange(count, dtype="int32"), "uint32")
    for size in sizes:
        numbers = numbers * ops.cast(size, "uint32")
    return numbers


def _hash(x):
    """Apply lowbias32 to each uint32."""
    x = ops.bitwise_xor(x, ops.right_shift(x, _uint32(16))) * _uint32(0x7FEB352D)
    x = ops.bitwise_xor(x, ops.right_shift(x, _uint32(15))) * _uint32(0x846CA68B)
    return ops.bitwise_xor(x, ops.right_shift(x, _uint32(16)))


def _uint32(number):
    return ops.convert_to_tensor(number, dtype="uint32")
