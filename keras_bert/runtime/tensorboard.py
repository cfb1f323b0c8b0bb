"""Scalar logs for TensorBoard, written without the tensorboard package."""

from keras_bert.runtime.packages import import_tensorflow


def writer(folder):
    """Open a TensorBoard log; return `write(step, values)`, with `values` {name: number}.

    If `folder` is `None`, `write` does nothing.
    """
    if folder is None:
        return lambda step, values: None
    tf = import_tensorflow("a TensorBoard log")
    try:
        log = tf.summary.create_file_writer(str(folder))
    except tf.errors.OpError as error:
        raise OSError(f"{folder}: TensorBoard's log cannot be written there") from error
    # The metadata of `tf.summary.scalar`, which itself needs the tensorboard package.
    metadata = tf.compat.v1.Summary.Value().metadata
    metadata.plugin_data.plugin_name = "scalars"
    metadata.data_class = 1  # DATA_CLASS_SCALAR

    def write(step, values):
        with log.as_default(step=step):
            for name, value in values.items():
                tf.summary.write(name, tf.constant(value, tf.float32), metadata=metadata)
        log.flush()

    return write
