"""Packages that only some functions need."""


def import_tensorflow(feature):
    """Return the module `tensorflow`.

    Args:
        feature: What needs it, for the error.

    Raises:
        ImportError: If TensorFlow is not installed.
    """
    try:
        import tensorflow
    except ImportError as error:
        raise ImportError(
            f"{feature} needs TensorFlow; run: pip install 'keras3-bert[tensorflow]'"
        ) from error
    return tensorflow
