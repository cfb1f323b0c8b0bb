"""Scalars for TensorBoard, which itself need not be installed to write them."""


def writer(folder):
    """Opens a log.

    Args:
        folder: where it lies; `None` for none.

    Returns:
        A function `write(step, values)` of a number and a dict of numbers.

    Example:

    >>> write = writer(None)
    >>> write(1, {"loss": 0.5})
    """
    if folder is None:
        return lambda step, values: None
    import tensorflow as tf

    log = tf.summary.create_file_writer(str(folder))
    # What `tf.summary.scalar` writes, which itself needs TensorBoard to be installed.
    metadata = tf.compat.v1.Summary.Value().metadata
    metadata.plugin_data.plugin_name = "scalars"
    metadata.data_class = 1  # DATA_CLASS_SCALAR

    def write(step, values):
        with log.as_default(step=step):
            for name, value in values.items():
                tf.summary.write(name, tf.constant(value, tf.float32), metadata=metadata)
        log.flush()

    return write
