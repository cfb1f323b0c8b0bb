"""Attention in one kernel, where the backend and the device have a suitable one.

`choose` says which kernel computes a call of `SelfAttention`, and why.
"""

import dataclasses
import functools
import os

import keras
from keras import ops

DISABLE = "KERAS_BERT_FUSED_ATTENTION"  # the value 0 turns off all kernels
_MAX_HEAD_SIZE = 128  # of cuDNN's kernels on all GPUs


@dataclasses.dataclass(frozen=True)
class Choice:
    """How attention is computed.

    Attributes:
        kernel: `"cudnn"` (JAX), `"sdpa"` (torch), or `None` for separate operations.
        reason: Why.
    """

    kernel: str | None
    reason: str


def choose(dtype, head_size, *, heads=1, lengths=(64, 64), masked=True, dropout=False):
    """Return the `Choice` for a call of `SelfAttention`.

    Args:
        dtype: Dtype of queries, keys and values.
        head_size: Width of a head.
        heads: Number of heads.
        lengths: Numbers of queries and of keys.
        masked: True if there is an attention mask.
        dropout: True if dropout applies to the attention probabilities.
    """
    if os.environ.get(DISABLE) == "0":
        return Choice(None, f"{DISABLE}=0")
    backend = keras.backend.backend()
    if backend == "torch":
        return Choice("sdpa", "torch.nn.functional.scaled_dot_product_attention")
    if backend != "jax":
        return Choice(None, f"no kernel is used on {backend}")
    dtype = keras.backend.standardize_dtype(dtype)
    problem = _problem_of_cudnn(dtype, head_size, lengths, dropout)
    if problem is None:
        problem = _error_of_cudnn(dtype, head_size, heads, lengths, masked)
    return Choice("cudnn", "cuDNN's flash attention") if problem is None else Choice(None, problem)


def describe():
    """Return one line about attention in 16 bits on this machine, for `doctor`."""
    choice = choose("bfloat16", 64)
    if choice.kernel is None:
        return f"several kernels: {choice.reason}"
    with_dropout = choose("bfloat16", 64, dropout=True)
    exception = "" if with_dropout.kernel else "; several where dropout applies to attention"
    return f"one kernel: {choice.reason}{exception}"


def _problem_of_cudnn(dtype, head_size, lengths, dropout):
    """Return why cuDNN cannot compute a call on JAX, or `None`."""
    if not _has_nvidia_gpu():
        return "JAX has no NVIDIA GPU"
    if dtype not in ("float16", "bfloat16"):
        return f"cuDNN's kernel needs float16 or bfloat16, not {dtype}"
    if head_size % 8 or head_size > _MAX_HEAD_SIZE:
        return f"cuDNN's kernel needs a head size of 8, 16, ..., {_MAX_HEAD_SIZE}, not {head_size}"
    if any(length % 2 for length in lengths):
        return "cuDNN's kernel needs even numbers of queries and keys"
    if dropout:
        return "JAX's cuDNN kernel would drop the same probabilities in every step"
    return None


def _has_nvidia_gpu():
    import jax

    # `keras.device` sets the default.
    default = jax.config.jax_default_device  # type: ignore[attr-defined]
    device = default or jax.devices()[0]
    if isinstance(device, str):
        device = jax.devices(device)[0]
    return device.platform == "gpu" and "cuda" in device.client.platform_version


@functools.cache
def _error_of_cudnn(dtype, head_size, heads, lengths, masked):
    """Return why cuDNN cannot compile the kernel and its gradient for one row, or `None`."""
    import jax

    from keras_bert.runtime.memory import is_out_of_memory
    from keras_bert.runtime.reading import first_line

    queries, keys = (jax.ShapeDtypeStruct((1, heads, n, head_size), dtype) for n in lengths)
    mask = jax.ShapeDtypeStruct((1, 1, lengths[1]), "bool") if masked else None

    def total(query, key, value, mask):
        return _cudnn(query, key, value, mask).astype("float32").sum()

    gradient = jax.jit(jax.grad(total, argnums=(0, 1, 2)))
    try:
        gradient.lower(queries, keys, keys, mask).compile()
    except Exception as error:  # cuDNN, the driver, XLA and JAX have no common class of errors
        if is_out_of_memory(error):
            raise
        return f"cuDNN's kernel does not compile: {first_line(error):.200}"
    return None


def attend(choice, query, key, value, visible, dropout, seed):
    """Return the contexts, (batch, heads, queries, head).

    Args:
        choice: A `Choice` with a kernel.
        query: Scaled queries (batch, heads, queries, head).
        key, value: (batch, heads, seq, head).
        visible: Booleans (batch, 1 or queries, seq), the keys that a query sees; or `None`.
        dropout: The `Dropout` layer of the probabilities.
        seed: Result of its `next_seed`.
    """
    if visible is not None:
        # Kernels differ for a query that sees no key. The caller sets its context to zeros.
        sees_none = ops.logical_not(ops.any(visible, axis=-1, keepdims=True))
        visible = ops.logical_or(visible, sees_none)
    if choice.kernel == "cudnn":
        return _cudnn(query, key, value, visible)
    return _sdpa(query, key, value, visible, dropout, seed)


def _cudnn(query, key, value, visible):
    import jax

    # JAX's axes are (batch, seq, heads, head). XLA transposes by choosing another memory layout.
    query, key, value = (ops.transpose(x, (0, 2, 1, 3)) for x in (query, key, value))
    mask = None
    if visible is not None:
        shape = (visible.shape[0], 1, query.shape[1], key.shape[1])
        mask = ops.broadcast_to(visible[:, None], shape)
    context = jax.nn.dot_product_attention(
        query, key, value, mask=mask, scale=1.0, implementation="cudnn"
    )
    return ops.transpose(context, (0, 2, 1, 3))


def _sdpa(query, key, value, visible, dropout, seed):
    import torch

    return torch.nn.functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=None if visible is None else visible[:, None],
        dropout_p=0.0 if seed is None else dropout.rate,
        scale=1.0,
    )
