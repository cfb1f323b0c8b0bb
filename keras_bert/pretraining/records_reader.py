"""Reads records, the documents of a corpus as token ids, and their manifest. Needs no TensorFlow.

The manifest says which files a folder of records has, and how they were made.
"""

import dataclasses
import hashlib
import json
import pathlib

import numpy as np

from keras_bert.pretraining import vocabulary
from keras_bert.runtime.files import atomic_write
from keras_bert.runtime.reading import json_value, read_bytes
from keras_bert.text.preprocessor import Preprocessor
from keras_bert.text.token_ids import splits_of
from keras_bert.training.run_state import reading
from keras_bert.untrusted import containers, links
from keras_bert.untrusted.protobuf import fields

MANIFEST = "records.json"
SPLITS = ("train", "eval")
_MAX_MANIFEST = 2**26  # bytes
_MAX_SHARD = 2**30
_REBUILD = "delete it and run `keras-bert records` again to rebuild all records"
_REPEAT = "run the same `keras-bert records` command again to rebuild it"


@dataclasses.dataclass(frozen=True)
class Documents:
    """Tokenized documents in memory.

    Attributes:
        pieces: Token ids of all documents, unsigned (tokens,).
        sentence_starts: Start of each sentence in `pieces`, and the end, int64 (sentences + 1,).
        document_starts: Start of each document in `sentence_starts`, and the end, int64
            (documents + 1,).
    """

    pieces: np.ndarray
    sentence_starts: np.ndarray
    document_starts: np.ndarray

    def __len__(self):
        return len(self.document_starts) - 1


class Records:
    """Reads a folder of records. Does not need TensorFlow.

    Args:
        folder: The folder that `build` wrote.

    Attributes:
        manifest: The dict that `build` returned.

    Raises:
        ValueError: If there are no records, or they are incomplete.

    Example:

    >>> Records("no-such-folder")
    Traceback (most recent call last):
    ValueError: no-such-folder contains no records.json; make records with `keras-bert records`
    """

    def __init__(self, folder: str | pathlib.Path) -> None:
        self.folder = pathlib.Path(folder)
        file = self.folder / MANIFEST
        if not file.is_file():
            raise ValueError(
                f"{folder} contains no {file.name}; make records with `keras-bert records`"
            )
        self.manifest = read_manifest(file)
        if not self.manifest["complete"]:
            raise ValueError(
                f"{folder}: the records are incomplete; run `keras-bert records` again to resume"
            )

    def preprocessor(self, **options) -> Preprocessor:
        """Return a `Preprocessor` with the vocabulary and tokenizer options of the records."""
        try:
            pieces, made_with = vocabulary.read(self.folder)
        except FileNotFoundError as error:
            raise ValueError(f"{error.filename} is missing; {_REPEAT}") from None
        preprocessor = Preprocessor(pieces, **made_with, **options)
        self.check_preprocessor(preprocessor)
        return preprocessor

    def check_preprocessor(self, preprocessor: Preprocessor) -> None:
        """Raise a `ValueError` unless the records have this vocabulary and these options."""
        settings = tokenizer_settings(preprocessor)
        before = {key: self.manifest["settings"].get(key) for key in (*settings, "added_tokens")}
        check_settings(self.folder, before, settings, "use the vocabulary of the records")

    def shards(self, split: str = "train") -> list[str]:
        """Return the file names of a split, `"train"` or `"eval"`, in order."""
        return [entry["file"] for entry in files_of(self.manifest) if entry["split"] == split]

    def counts(self, split: str = "train") -> dict[str, int]:
        """Return a dict with the numbers of `documents`, `sentences` and `pieces` of a split."""
        entries = [entry for entry in files_of(self.manifest) if entry["split"] == split]
        keys = ("documents", "sentences", "pieces")
        return {key: sum(entry[key] for entry in entries) for key in keys}

    def read(self, names: list[str]) -> "Documents":
        """Read shards into memory.

        Args:
            names: File names from `shards`.

        Returns:
            `Documents`.

        Raises:
            ValueError: If a file is missing or has changed since it was written.
        """
        settings = self.manifest["settings"]
        pieces = [np.zeros(0, settings["piece_type"])]
        lengths = [np.zeros(0, int)]
        sentences_of = []
        for name in names:
            content = self._content(name)
            with reading(self.folder / name, _REPEAT):
                for features in _parse(content):
                    ids = np.frombuffer(features["pieces"], settings["piece_type"])
                    values = np.frombuffer(features["sentence_lengths"], settings["length_type"])
                    if values.sum() != len(ids):
                        raise ValueError("its sentences do not fit its tokens")
                    if ids.max(initial=0) >= settings["vocab_size"]:
                        raise ValueError("a token is not in the vocabulary")
                    pieces.append(ids)
                    lengths.append(values)
                    sentences_of.append(len(values))
        return Documents(
            np.concatenate(pieces), splits_of(np.concatenate(lengths)), splits_of(sentences_of)
        )

    def _content(self, name):
        entries = {entry["file"]: entry for entry in files_of(self.manifest)}
        file = self.folder / name
        try:
            content = read_bytes(file, _MAX_SHARD)
        except FileNotFoundError:
            raise ValueError(f"{file} is missing; {_REPEAT}") from None
        if hashlib.sha256(content).hexdigest() != entries[name]["sha256"]:
            raise ValueError(f"{file} has changed since it was written; {_REPEAT}")
        return content


def _parse(content):
    """Yield the features of each `tf.train.Example` in a TFRecord file, as dicts of bytes.

    Does not verify the TFRecord checksums, so verify the hash of the file first.
    """
    view, at = memoryview(content), 0
    while at < len(view):
        size = int.from_bytes(view[at : at + 8], "little")  # followed by a checksum of 4 bytes
        (features,) = _fields(view[at + 12 : at + 12 + size])
        yield dict(map(_feature, _fields(features)))
        at += 16 + size


def _feature(entry):
    key, feature = _fields(entry)
    (values,) = _fields(feature)
    return bytes(key).decode(), b"".join(_fields(values))


def _fields(view):
    """Return the values of the fields of a protocol buffer message."""
    return [view[start:end] for _, start, end in fields(view, 0, len(view))]


def read_manifest(file):
    """Return the manifest in a file, after a check of its hash and of the values that are used."""
    links.check(file.parent)
    with reading(file, _REBUILD):
        manifest = json_value(read_bytes(file, _MAX_MANIFEST).decode("utf-8"))
        if manifest.pop("sha256") != _hash_of(manifest):
            raise ValueError("it has changed since it was written")
        settings, entries = manifest["settings"], files_of(manifest)
        if settings["piece_type"] not in ("<u2", "<u4") or settings["length_type"] != "<u4":
            raise ValueError("piece_type or length_type is unknown")
        for entry in entries:
            name = entry["file"]
            if not containers.is_below(name) or "/" in name or entry["split"] not in SPLITS:
                raise ValueError(f"{name!r:.80} is not a file of the folder and a known split")
        numbers = [settings["vocab_size"], manifest["documents_done"]]
        numbers += [shard["documents"] for shard in manifest["shards"]]
        keys = ("documents", "sentences", "pieces", "unknown_pieces")
        numbers += [entry[key] for entry in entries for key in keys]
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise ValueError("a count is not a number")
    return manifest


def write_manifest(folder, manifest):
    """Write the manifest atomically, with its hash."""
    content = manifest | {"sha256": _hash_of(manifest)}
    with atomic_write(folder / MANIFEST, durable=True) as beside:
        text = json.dumps(content, indent=1, ensure_ascii=False)
        beside.write_text(text + "\n", encoding="utf-8")


def _hash_of(manifest):
    return hashlib.sha256(json.dumps(manifest).encode()).hexdigest()


def files_of(manifest):
    """Return the entries of all files, a list of dicts."""
    return [entry for shard in manifest["shards"] for entry in shard["files"]]


def tokenizer_settings(preprocessor):
    """Return what determines the ids: a hash of the vocabulary, and the tokenizer options."""
    tokens = "".join(f"{token}\n" for token in preprocessor.vocabulary)
    options = preprocessor.tokenizer_options()
    added = [dataclasses.asdict(token) for token in options.pop("added_tokens")]
    settings = {"vocabulary": hashlib.sha256(tokens.encode()).hexdigest(), **options}
    return settings | ({"added_tokens": added} if added else {})


def check_settings(where, before, settings, remedy):
    """Raise a `ValueError` for a setting with another value than the records were made with."""
    for key in settings | before:
        old, new = before.get(key), settings.get(key)
        if old == new:
            continue
        change = f"with {key}={old!r:.80}; received {new!r:.80}"
        if key in ("corpus", "vocabulary"):  # the values are hashes
            change = f"with another {key}"
        raise ValueError(f"{where}: the records were made {change}; {remedy}")
