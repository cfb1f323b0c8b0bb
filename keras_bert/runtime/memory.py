"""The error of a device with too little memory."""

import contextlib
import re

# The words of TensorFlow, XLA, CUDA, MPS and torch on a CPU. Full disks and quotas have others.
_WORDS = re.compile(
    r"out of memory|OOM when allocating|failed to allocate|can't allocate memory|ALLOC_FAILED",
    re.IGNORECASE,
)
_CLASSES_OF_TENSORFLOW = ("ResourceExhaustedError", "InternalError")


class OutOfMemory(ValueError):
    """The memory of the device is too small for a batch."""


@contextlib.contextmanager
def explain_out_of_memory(advice):
    """Raise `OutOfMemory` with the text `advice()` if the block fails for lack of memory."""
    try:
        yield
    except Exception as error:  # each backend has another class
        if not is_out_of_memory(error):
            raise
        raise OutOfMemory(advice()) from error


def is_out_of_memory(error):
    """Return True for an error of Python or of a backend whose device has too little memory."""
    if isinstance(error, MemoryError):
        return True
    # The classes of JAX and torch are subclasses of RuntimeError.
    is_of_backend = (
        isinstance(error, RuntimeError) or type(error).__name__ in _CLASSES_OF_TENSORFLOW
    )
    return is_of_backend and _WORDS.search(str(error)) is not None


def advice_for_prediction(batch_size):
    """Return what is wrong and what to do if a batch of predictions does not fit."""
    remedy = "use a smaller batch_size"
    if batch_size == 1:
        remedy = "use a smaller max_length or model"
    return f"the device has too little memory to predict batches of {batch_size}; {remedy}"
