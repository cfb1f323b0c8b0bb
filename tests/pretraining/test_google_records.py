"""Reading and writing the TFRecords of Google's script."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.pretraining import google_records
from keras_bert.pretraining.stream import Stream
from tests import prose


@pytest.fixture
def stream(tmp_path):
    made = prose.build(tmp_path / "corpus", prose.documents(60, seed=31), shard_bytes=1500)
    return Stream(made, 8, 32, max_predictions=4, shards_in_memory=2)


def batches(stream, epochs=1):
    return [batch for _, batch in stream.batches(epochs=epochs)]


def test_round_trip(stream, tmp_path):
    file = tmp_path / "google.tfrecord"
    count = google_records.write(file, stream, epochs=2)
    expected = batches(stream, 2)
    assert count == sum(len(batch[0]["input_mask"]) for batch in expected)
    found = list(google_records.read(file, 8, 32, 4).as_numpy_iterator())
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert sorted(a) == sorted(b)
            for key in a:
                assert a[key].dtype == b[key].dtype
                np.testing.assert_array_equal(a[key], b[key])
    assert [path.name for path in tmp_path.glob("*google*")] == ["google.tfrecord"]


def test_files_in_a_bucket(stream, tmp_path):
    """TensorFlow's in-memory file system represents a bucket."""
    file = tmp_path / "google.tfrecord"
    google_records.write(file, stream)
    for number in range(2):
        tf.io.gfile.copy(str(file), f"ram://bucket/part-{number}.tfrecord")
    here = list(google_records.read([file, file], 8, 32, 4).as_numpy_iterator())
    there = list(google_records.read("ram://bucket/*.tfrecord", 8, 32, 4).as_numpy_iterator())
    assert len(there) == len(here)
    for a, b in zip(here, there, strict=True):
        np.testing.assert_array_equal(a[0]["input_word_ids"], b[0]["input_word_ids"])
    with pytest.raises(ValueError, match="^no file matches ram://bucket/other"):
        google_records.read("ram://bucket/other*", 8, 32, 4)


def test_google_reader_finds_its_features(stream, tmp_path):
    """`input_fn_builder` and `_decode_record` in google-research/bert `run_pretraining.py`."""
    file = tmp_path / "google.tfrecord"
    google_records.write(file, stream)
    features = {
        "input_ids": tf.io.FixedLenFeature([32], tf.int64),
        "input_mask": tf.io.FixedLenFeature([32], tf.int64),
        "segment_ids": tf.io.FixedLenFeature([32], tf.int64),
        "masked_lm_positions": tf.io.FixedLenFeature([4], tf.int64),
        "masked_lm_ids": tf.io.FixedLenFeature([4], tf.int64),
        "masked_lm_weights": tf.io.FixedLenFeature([4], tf.float32),
        "next_sentence_labels": tf.io.FixedLenFeature([1], tf.int64),
    }
    record = next(iter(tf.data.TFRecordDataset(str(file))))
    assert set(tf.train.Example.FromString(record.numpy()).features.feature) == set(features)
    row = {key: x.numpy() for key, x in tf.io.parse_single_example(record, features).items()}
    inputs, targets, weights = batches(stream)[0]
    assert row["input_ids"].tolist() == inputs["input_word_ids"][0].tolist()
    assert row["segment_ids"].tolist() == inputs["input_type_ids"][0].tolist()
    assert row["masked_lm_ids"].tolist() == targets["masked_lm"][0].tolist()
    assert row["masked_lm_weights"].tolist() == weights["masked_lm"][0].tolist()
    assert row["next_sentence_labels"].tolist() == targets["next_sentence"][:1].tolist()


def google_file(path, rows=5, seq=16, predictions=3):
    """Write a file as `write_instance_to_example_files` in `create_pretraining_data.py` does."""

    def ints(*values):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in range(rows):
            weights = tf.train.FloatList(value=[1.0, 1.0, 0.0][:predictions])
            feature = {
                "input_ids": ints(*range(row, row + seq)),
                "input_mask": ints(*[1] * 10, *[0] * (seq - 10)),
                "segment_ids": ints(*[0] * 5, *[1] * 5, *[0] * (seq - 10)),
                "masked_lm_positions": ints(*[1, 4, 0][:predictions]),
                "masked_lm_ids": ints(*[row, 9, 0][:predictions]),
                "masked_lm_weights": tf.train.Feature(float_list=weights),
                "next_sentence_labels": ints(row % 2),
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())
    return path


def test_google_files(tmp_path):
    for name in ("b", "a"):
        google_file(tmp_path / f"{name}.tfrecord")
    found = list(google_records.read(f"{tmp_path}/*.tfrecord", 4, 16, 3).as_numpy_iterator())
    inputs, targets, weights = found[0]
    assert [len(batch[0]["input_mask"]) for batch in found] == [4, 4, 2]
    assert inputs["input_word_ids"][:, 0].tolist() == [0, 1, 2, 3]
    assert inputs["input_mask"].sum(1).tolist() == [10] * 4
    assert inputs["input_type_ids"].sum(1).tolist() == [5] * 4
    assert inputs["masked_lm_positions"].tolist() == [[1, 4, 0]] * 4
    assert targets["masked_lm"].tolist() == [[row, 9, 0] for row in range(4)]
    assert targets["next_sentence"].tolist() == [0, 1, 0, 1]
    assert weights["masked_lm"].tolist() == [[1, 1, 0]] * 4
    assert weights["next_sentence"].tolist() == [1] * 4
    assert {x.dtype for part in found[0][:2] for x in part.values()} == {np.dtype("int32")}
    again = google_records.read([tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"], 4, 16, 3)
    assert len(list(again)) == 3


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((24, 3), "input_ids must have 24 numbers per row; received 16"),
        ((8, 3), "input_ids must have 8 numbers per row; received 16"),
        ((16, 2), "masked_lm_positions must have 2 numbers per row; received 3"),
        ((16, 5), "masked_lm_positions must have 5 numbers per row; received 3"),
    ],
)
def test_rows_of_other_sizes_raise(tmp_path, sizes, message):
    file = google_file(tmp_path / "a.tfrecord")
    with pytest.raises(ValueError, match=rf"a\.tfrecord: {message}"):
        google_records.read(file, 4, *sizes)


def test_other_records_raise(tmp_path):
    file = tmp_path / "a.tfrecord"
    with tf.io.TFRecordWriter(str(file)) as writer:
        writer.write(b"\xff no example")
    with pytest.raises(ValueError, match=r"a\.tfrecord: its rows do not have the features"):
        google_records.read(file, 4, 16, 3)


def test_shuffled_rows_repeat_in_full_batches(tmp_path):
    file = google_file(tmp_path / "a.tfrecord", rows=10)
    read = [
        np.concatenate([
            batch[0]["input_word_ids"][:, 0]
            for batch in google_records.read(file, 4, 16, 3, shuffle=10, seed=seed)
            .take(5).as_numpy_iterator()
        ]).tolist()
        for seed in (0, 0, 1)
    ]  # fmt: skip
    assert read[0] == read[1] != read[2]
    assert sorted(read[0]) == sorted([*range(10)] * 2) and read[0] != sorted(read[0])


def test_later_row_of_another_size_raises(tmp_path):
    files = [google_file(tmp_path / "a.tfrecord"), google_file(tmp_path / "b.tfrecord", seq=32)]
    with pytest.raises(tf.errors.InvalidArgumentError, match="Key: "):
        list(google_records.read(files, 4, 16, 3))


def test_missing_file_raises(tmp_path):
    with pytest.raises(ValueError, match="no file matches .*none"):
        google_records.read([google_file(tmp_path / "a.tfrecord"), tmp_path / "none"], 4, 16, 3)


@pytest.mark.parametrize("options", [{"packed": True}, {"next_sentence": False}])
def test_unsupported_streams_raise_and_leave_no_file(stream, tmp_path, options):
    other = Stream(stream.records, 4, 32, **options)
    with pytest.raises(ValueError, match="Google's files have one pair per row"):
        google_records.write(tmp_path / "google.tfrecord", other)
    assert not list(tmp_path.glob("*google*"))
