"""TFRecord files of tokenized documents. To read them needs no TensorFlow."""

import dataclasses

import numpy as np

from keras_bert.runtime.files import atomic_write, sha256_of
from keras_bert.untrusted.protobuf import varint


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


def write(file, documents, settings):
    """Write a list of `TokenizedDocument`s atomically; return the counts for the manifest.

    `settings` are those of the manifest.
    """
    import tensorflow as tf

    with (
        atomic_write(file, durable=True) as temporary,
        tf.io.TFRecordWriter(str(temporary)) as writer,
    ):
        for document in documents:
            values = {
                "pieces": document.pieces.astype(settings["piece_type"]),
                "sentence_lengths": document.sentence_lengths.astype(settings["length_type"]),
            }
            features = {
                key: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.tobytes()]))
                for key, value in values.items()
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            # Deterministic, because the order of a protocol buffer's map is otherwise arbitrary.
            writer.write(example.SerializeToString(deterministic=True))
    return {
        "documents": len(documents),
        "sentences": sum(len(document.sentence_lengths) for document in documents),
        "pieces": sum(len(document.pieces) for document in documents),
        "unknown_pieces": sum(document.unknown for document in documents),
        "sha256": sha256_of(file),
    }


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
        tag, at = varint(view, at)
        size, at = varint(view, at)
        yield tag >> 3, view[at : at + size]
        at += size
