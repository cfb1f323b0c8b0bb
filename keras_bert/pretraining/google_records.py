"""The TFRecords of Google's `create_pretraining_data.py`: read those there are, write new ones.

Their masks were drawn when they were written. `stream` draws fresh ones each epoch instead.

Source: `write_instance_to_example_files` in google-research/bert `create_pretraining_data.py`,
`input_fn_builder` in its `run_pretraining.py`.
"""

import os
import pathlib

import numpy as np
import tensorflow as tf

from keras_bert.runtime.files import atomic_write


def read(paths, batch_size, sequence_length, max_predictions, *, shuffle=0, seed=0):
    """Reads batches as `heads.pretraining` takes them.

    All of it is TensorFlow's own, so the files may lie in a bucket, and no step needs this
    process, which a TPU that another machine holds could not reach.

    Args:
        paths: files or patterns, also `"gs://..."`.
        batch_size: rows a batch.
        sequence_length, max_predictions: that the files were written with.
        shuffle: rows among which the next one is drawn; 0: in their order, once.
        seed: of the order.

    Returns:
        A `tf.data.Dataset` of (inputs, targets, weights), see `stream.Stream`; with `shuffle` it
        has no end.

    Raises:
        ValueError: no such file, or its first row is of another length. A later one is
            TensorFlow's own error, while it is read.

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
        except (tf.errors.InvalidArgumentError, UnicodeDecodeError) as error:  # of its message
            raise ValueError(f"{files[0]}: its rows are none of Google's") from error
        for key, feature in features.items():
            size = len(found[key].values)
            if size != feature.shape[0]:
                raise ValueError(
                    f"{files[0]}: {key} must have {feature.shape[0]} numbers a row, by "
                    f"sequence_length and max_predictions; it has {size}"
                )


def write(path, stream, epochs=1):
    r"""Writes what a stream draws, for programs that read Google's files.

    Args:
        path: the file, which appears when it is whole.
        stream: a `stream.Stream` of pairs that are not packed.
        epochs: passes over the records, each with masks of its own; Google's code makes 10.

    Returns:
        How many rows were written.

    Raises:
        ValueError: a packed stream, or one of single texts.

    Example:

    >>> import tempfile
    >>> from keras_bert import Preprocessor
    >>> from keras_bert.pretraining import records, stream
    >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "."]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     text, made = pathlib.Path(folder, "corpus.txt"), pathlib.Path(folder, "records")
    ...     _ = text.write_text("A b. B a. A c.\n\nB b. C b. C a.\n")
    ...     _ = records.build([text], made, Preprocessor(pieces), workers=1)
    ...     drawn = stream.Stream(records.Records(made), 2, 16, max_predictions=3)
    ...     rows = write(folder + "/pairs.tfrecord", drawn)
    ...     inputs, _, _ = next(iter(read(folder + "/pairs.tfrecord", rows, 16, 3)))
    >>> inputs["input_word_ids"].shape == (rows, 16)
    True
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
        raise ValueError("Google's files hold a pair a row; received a stream of others")
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
