"""A `tf.data.Dataset` of batches that Python makes."""


def from_generator(batches, signature):
    """Return a dataset of the batches of a generator function, two of which are made ahead.

    `signature` holds the `tf.TensorSpec` of each array of a batch.
    """
    import tensorflow as tf

    options = tf.data.Options()
    # Nothing here can be tuned. And TensorFlow can miss the end of its tuning thread: it then waits
    # for the thread's next turn when an iterator is freed, up to as long as the iterator has lived.
    options.autotune.enabled = False
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    return dataset.prefetch(2).with_options(options)
