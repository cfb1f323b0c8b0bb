"""Reads records: the documents of a corpus as token ids."""

import dataclasses
import hashlib
import pathlib

import numpy as np

from keras_bert.pretraining import records_manifest, shards, vocabulary
from keras_bert.runtime.reading import one_line, read_bytes
from keras_bert.text.preprocessor import Preprocessor
from keras_bert.text.token_ids import splits_of

MAX_SHARD = 2**30  # bytes of a file
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
        file = self.folder / records_manifest.FILE
        if not file.is_file():
            raise ValueError(
                f"{folder} contains no {file.name}; make records with `keras-bert records`"
            )
        self.manifest = records_manifest.read(file)
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
        self._check_vocabulary(pieces)
        return Preprocessor(pieces, **made_with, **options)

    def _check_vocabulary(self, pieces):
        """Raise a `ValueError` unless the records were made with this vocabulary."""
        if records_manifest.vocabulary_hash(pieces) != self.manifest["settings"]["vocabulary"]:
            size = self.manifest["settings"]["vocab_size"]
            received = "other tokens" if size == len(pieces) else f"{len(pieces)} tokens"
            raise ValueError(
                f"{self.folder}: the records were made with another vocabulary of {size} tokens; "
                f"received {received}; use the vocabulary of the records"
            )

    def check_preprocessor(self, preprocessor: Preprocessor) -> None:
        """Raise a `ValueError` unless the records have this vocabulary and these options."""
        self._check_vocabulary(preprocessor.vocabulary)
        options = records_manifest.tokenizer_options(preprocessor)
        for key in ("lowercase", "strip_accents", "split_cjk", "added_tokens"):
            made_with, received = self.manifest["settings"].get(key), options.get(key)
            if made_with != received:
                raise ValueError(
                    f"{self.folder}: the records were made with {key}={made_with!r:.80}; received "
                    f"{received!r:.80}"
                )

    def shards(self, split: str = "train") -> list[str]:
        """Return the file names of a split, `"train"` or `"eval"`, in order."""
        return [entry["file"] for entry in self._entries() if entry["split"] == split]

    def counts(self, split: str = "train") -> dict[str, int]:
        """Return a dict with the numbers of `documents`, `sentences` and `pieces` of a split."""
        entries = [entry for entry in self._entries() if entry["split"] == split]
        keys = ("documents", "sentences", "pieces")
        return {key: sum(entry[key] for entry in entries) for key in keys}

    def _entries(self):
        """Return the entries of all files, which the manifest has by shard."""
        return records_manifest.files_of(self.manifest)

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
        pieces, lengths, sentences_of = [], [], []
        for name in names:
            for features in self._documents(name):
                ids = np.frombuffer(features["pieces"], settings["piece_type"])
                values = np.frombuffer(features["sentence_lengths"], settings["length_type"])
                if values.sum() != len(ids) or ids.max(initial=0) >= settings["vocab_size"]:
                    raise ValueError(
                        f"{self.folder / name} is broken: its sentences do not fit its tokens, or "
                        f"a token is not in the vocabulary; {_REPEAT}"
                    )
                pieces.append(ids)
                lengths.append(values)
                sentences_of.append(len(values))
        empty = np.zeros(0, settings["piece_type"])
        return Documents(
            np.concatenate([empty, *pieces]),
            splits_of(np.concatenate([np.zeros(0, int), *lengths])),
            splits_of(sentences_of),
        )

    def _documents(self, name):
        """Return the features of the documents in a file."""
        content = self._bytes(name)
        itemsize = np.dtype(self.manifest["settings"]["piece_type"]).itemsize
        try:
            documents = list(shards.parse(content))
            for features in documents:
                if len(features["pieces"]) % itemsize or len(features["sentence_lengths"]) % 4:
                    raise ValueError("an array is truncated")
        except (ValueError, KeyError, IndexError) as error:
            raise ValueError(
                f"{self.folder / name} is broken ({one_line(error)}); {_REPEAT}"
            ) from error
        return documents

    def _bytes(self, name):
        expected = next(entry["sha256"] for entry in self._entries() if entry["file"] == name)
        file = self.folder / name
        try:
            content = read_bytes(file, MAX_SHARD)
        except FileNotFoundError:
            raise ValueError(f"{file} is missing; {_REPEAT}") from None
        if hashlib.sha256(content).hexdigest() != expected:
            raise ValueError(f"{file} has changed since it was written; {_REPEAT}")
        return content
