"""A `tf.data.Dataset` of batches that Python makes."""


def from_generator(batches, signature):
    """Return a dataset of the batches that `batches()` yields; two batches are made ahead.

    `signature` holds the `tf.TensorSpec` of each array of a batch.
    """
    import tensorflow as tf

    options = tf.data.Options()
    # TensorFlow may fail to wake the thread that tunes a dataset when an iterator is freed. Freeing
    # then waits for the thread's next turn, up to a minute. Here is nothing to tune.
    options.autotune.enabled = False
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    return dataset.prefetch(2).with_options(options)
