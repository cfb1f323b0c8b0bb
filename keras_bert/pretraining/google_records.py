"""Reader and writer of the TFRecords of Google's `create_pretraining_data.py`.

These files contain fixed masks, whereas `stream` draws new masks in each epoch.

Source: `write_instance_to_example_files` in google-research/bert `create_pretraining_data.py`,
`input_fn_builder` in its `run_pretraining.py`.
"""

import os
import pathlib

import numpy as np
import tensorflow as tf

from keras_bert.runtime.files import atomic_write


def read(paths, batch_size, sequence_length, max_predictions, *, shuffle=0, seed=0):
    """Read batches for `heads.pretraining`.

    The dataset uses only TensorFlow operations. It therefore also runs on the host of a remote TPU.

    Args:
        paths: Files or patterns, including `"gs://..."`.
        batch_size: Rows per batch.
        sequence_length, max_predictions: The values with which the files were written.
        shuffle: Size of the shuffle buffer, in rows. 0: no shuffling and one pass.
        seed: Seed of the shuffling.

    Returns:
        A `tf.data.Dataset` of `(inputs, targets, weights)`, see `stream.Stream`. With `shuffle` it
        repeats without end.

    Raises:
        ValueError: If no file matches or the first row has other lengths. Later rows raise
            TensorFlow's errors when they are read.

    Example:

    >>> read("no-such-file.tfrecord", 32, 128, 20)
    Traceback (most recent call last):
    ValueError: no file matches no-such-file.tfrecord
    """
    paths = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    files = []
    for path in map(str, paths):
        found = [path] if tf.io.gfile.exists(path) else sorted(tf.io.gfile.glob(path))
        if not found:
            raise ValueError(f"no file matches {path}")
        files += found
    features = {
        **{
            key: tf.io.FixedLenFeature([sequence_length], tf.int64)
            for key in ("input_ids", "input_mask", "segment_ids")
        },
        **{
            key: tf.io.FixedLenFeature([max_predictions], tf.int64)
            for key in ("masked_lm_positions", "masked_lm_ids")
        },
        "masked_lm_weights": tf.io.FixedLenFeature([max_predictions], tf.float32),
        "next_sentence_labels": tf.io.FixedLenFeature([1], tf.int64),
    }
    _check_first_row(files, features)

    def parse(rows):
        row = tf.io.parse_example(rows, features)
        row = {
            key: tf.cast(value, tf.int32) if value.dtype == tf.int64 else value
            for key, value in row.items()
        }
        next_sentence = row["next_sentence_labels"][:, 0]
        inputs = {
            "input_word_ids": row["input_ids"],
            "input_mask": row["input_mask"],
            "input_type_ids": row["segment_ids"],
            "masked_lm_positions": row["masked_lm_positions"],
        }
        targets = {"masked_lm": row["masked_lm_ids"], "next_sentence": next_sentence}
        weights = {
            "masked_lm": row["masked_lm_weights"],
            "next_sentence": tf.ones_like(next_sentence, tf.float32),
        }
        return inputs, targets, weights

    dataset = tf.data.TFRecordDataset(files)
    if shuffle:
        dataset = dataset.shuffle(shuffle, seed=seed).repeat()
    dataset = dataset.batch(batch_size, drop_remainder=bool(shuffle))
    return dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def _check_first_row(files, features):
    of_any_size = {key: tf.io.VarLenFeature(feature.dtype) for key, feature in features.items()}
    for row in tf.data.TFRecordDataset(files).take(1):
        try:
            found = tf.io.parse_single_example(row, of_any_size)
        except (
            tf.errors.InvalidArgumentError,
            UnicodeDecodeError,
        ) as error:  # the error's message may be undecodable
            raise ValueError(
                f"{files[0]}: its rows do not have the features of Google's pretraining data"
            ) from error
        for key, feature in features.items():
            size = len(found[key].values)
            if size != feature.shape[0]:
                raise ValueError(
                    f"{files[0]}: {key} must have {feature.shape[0]} numbers per row; received "
                    f"{size}; set sequence_length and max_predictions to those of the files"
                )


def write(path, stream, epochs=1):
    r"""Write the rows of a stream, for programs that read Google's files.

    Args:
        path: The file. It is written atomically.
        stream: A `stream.Stream` of pairs without packing.
        epochs: Number of passes over the records, with different masks. Google's code uses 10.

    Returns:
        The number of rows.

    Raises:
        ValueError: If the stream is packed or yields single texts.
    """
    path = pathlib.Path(path)
    count = 0
    with atomic_write(path) as beside, tf.io.TFRecordWriter(str(beside)) as writer:
        for _, batch in stream.batches(epochs=epochs):
            for row in _rows(batch):
                writer.write(row.SerializeToString(deterministic=True))
                count += 1
    return count


def _rows(batch):
    inputs, targets, weights = batch
    if "input_mask" not in inputs or "next_sentence" not in targets:
        raise ValueError(
            "Google's files have one pair per row; use a stream with packed=False and "
            "next_sentence=True"
        )
    columns = {
        "input_ids": inputs["input_word_ids"],
        "input_mask": inputs["input_mask"],
        "segment_ids": inputs["input_type_ids"],
        "masked_lm_positions": inputs["masked_lm_positions"],
        "masked_lm_ids": targets["masked_lm"],
        "masked_lm_weights": weights["masked_lm"],
        "next_sentence_labels": targets["next_sentence"][:, None],
    }
    for index in range(len(inputs["input_word_ids"])):
        yield tf.train.Example(
            features=tf.train.Features(
                feature={key: _feature(values[index]) for key, values in columns.items()}
            )
        )


def _feature(values):
    if np.issubdtype(values.dtype, np.floating):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
