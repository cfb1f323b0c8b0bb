"""TFRecord files of tokenized documents: an atomic writer and a parser without TensorFlow."""

import dataclasses
import os
import typing

import numpy as np

from keras_bert.runtime.files import sha256_of, writing


@dataclasses.dataclass
class TokenizedDocument:
    """A document to write.

    Attributes:
        pieces: Token ids of all sentences, int32 (tokens,).
        sentence_lengths: Number of tokens per sentence, int (sentences,).
        unknown: Number of [UNK] tokens.
    """

    pieces: np.ndarray
    sentence_lengths: np.ndarray
    unknown: int


class ShardWriter:
    """Context manager that writes one TFRecord file, which appears when the block ends.

    `settings` are those of the manifest. `record` is the file's entry for the manifest; if its
    `documents` are 0, there is no file.
    """

    def __init__(self, folder, split, shard, settings):
        self._file = folder / f"{split}-{shard:05}.tfrecord"
        self._temporary = folder / f".{self._file.name}.tmp"
        self._writer: typing.Any = None
        self._types = settings["piece_type"], settings["length_type"]
        self.record = {"file": self._file.name, "split": split}
        self.record |= dict.fromkeys(("documents", "sentences", "pieces", "unknown_pieces"), 0)

    def __enter__(self):
        import tensorflow as tf

        with writing(self._file, self._temporary):
            self._writer = tf.io.TFRecordWriter(str(self._temporary))
        return self

    def write(self, document):
        """Add a `TokenizedDocument`. A document without tokens is omitted."""
        import tensorflow as tf

        if not len(document.pieces):
            return
        piece_type, length_type = self._types
        values = {
            "pieces": document.pieces.astype(piece_type),
            "sentence_lengths": document.sentence_lengths.astype(length_type),
        }
        features = {
            key: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.tobytes()]))
            for key, value in values.items()
        }
        example = tf.train.Example(features=tf.train.Features(feature=features))
        # Deterministic, because the order of a protocol buffer's map is otherwise arbitrary.
        with writing(self._file, self._temporary):
            self._writer.write(example.SerializeToString(deterministic=True))
        self.record["documents"] += 1
        self.record["sentences"] += len(document.sentence_lengths)
        self.record["pieces"] += len(document.pieces)
        self.record["unknown_pieces"] += document.unknown

    def __exit__(self, kind, *_):
        try:
            with writing(self._file, self._temporary):
                self._writer.close()
                if kind is None and self.record["documents"]:
                    self._publish()
        except OSError:
            if kind is None:  # otherwise the first error is raised
                raise
        finally:
            self._temporary.unlink(missing_ok=True)

    def _publish(self):
        """Give the complete file its name."""
        with open(self._temporary, "r+b") as file:  # Windows cannot sync a read-only file
            os.fsync(file.fileno())
        self.record["sha256"] = sha256_of(self._temporary)
        os.replace(self._temporary, self._file)


def parse(content):
    """Yield the features of each `tf.train.Example` in a TFRecord file, as dicts of bytes.

    Does not need TensorFlow. Does not verify the TFRecord checksums, so verify the hash of the file
    first.
    """
    view, at = memoryview(content), 0
    while at < len(view):
        size = int.from_bytes(view[at : at + 8], "little")  # followed by a checksum of 4 bytes
        (features,) = (value for _, value in _fields(view[at + 12 : at + 12 + size]))
        yield dict(_feature(entry) for _, entry in _fields(features))
        at += 16 + size


def _feature(entry):
    (_, key), (_, feature) = _fields(entry)
    ((_, values),) = _fields(feature)
    return bytes(key).decode(), next((value for _, value in _fields(values)), b"")


def _fields(view):
    """Yield (number, value) of the length-delimited fields of a protocol buffer message."""
    at = 0
    while at < len(view):
        tag, at = _varint(view, at)
        size, at = _varint(view, at)
        yield tag >> 3, view[at : at + size]
        at += size


def _varint(view, at):
    value = shift = 0
    while True:
        byte = view[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")
