"""Records: a corpus, tokenized once and stored as shards of TFRecords.

A folder of records contains

    train-00000.tfrecord, ...   a `tf.train.Example` per document
    eval-00000.tfrecord, ...    the same for held-out documents
    vocab.txt, tokenizer_config.json
    records.json                the manifest: settings, and counts and a hash per file

An example has two features: `pieces`, the token ids of all sentences, and `sentence_lengths`, the
number of tokens per sentence. Both are little-endian, in the types that the manifest names.

A shard depends only on the corpus and the settings, and it is written atomically. A build that was
killed therefore resumes and ends with the same bytes.
"""

import collections
import dataclasses
import hashlib
import itertools
import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from keras_bert.data.packed_layout import within
from keras_bert.pretraining import corpus, sentences, vocabulary
from keras_bert.pretraining.workers import apply
from keras_bert.runtime import budget
from keras_bert.runtime.arguments import as_integer
from keras_bert.runtime.escaping import printable, shown
from keras_bert.runtime.files import (
    atomic_write,
    exclusive_lock,
    remove_stale_temporaries,
    sha256_of,
)
from keras_bert.runtime.packages import import_tensorflow
from keras_bert.runtime.reading import json_value, read_bytes
from keras_bert.text.preprocessor import Preprocessor
from keras_bert.text.token_ids import splits_of
from keras_bert.training.run_state import reading
from keras_bert.untrusted import containers, links
from keras_bert.untrusted.protobuf import fields

_FORMAT = 1
_SHARD_BYTES = 16 * 2**20  # of text
_PART_BYTES = 2**19  # of text per task of a worker process
_END_BYTES = 2**16  # at each end of a file, hashed to detect changes
# Longer "sentences", such as lists and poems, are cut, so that pairs need not drop the rest.
_LONGEST_SENTENCE = 128  # tokens
_SPREAD = 2654435761  # Knuth's multiplier spreads consecutive numbers over 32 bits
MANIFEST = "records.json"
SPLITS = ("train", "eval")
_REBUILD = "delete it and run `keras-bert records` again to rebuild all records"
_REPEAT = "run the same `keras-bert records` command again to rebuild it"


def build(
    paths: corpus.Paths,
    folder: str | os.PathLike,
    preprocessor: Preprocessor,
    *,
    held_out: float = 0.01,
    shard_bytes: int = _SHARD_BYTES,
    workers: int | None = None,
    on_progress: Callable[[int], Any] | None = None,
) -> dict[str, Any]:
    r"""Tokenize a corpus into records. Resumes if an earlier call was killed.

    If the records are complete, it verifies every file and rebuilds missing or broken ones.

    A script that calls this function with several workers needs an
    `if __name__ == "__main__":` guard, because the worker processes import the script.

    Args:
        paths: Files, folders and patterns, see `corpus.documents`.
        folder: Folder for the records. It is created if it does not exist.
        preprocessor: A `Preprocessor`, for its vocabulary and tokenizer options.
        held_out: Share of the documents for evaluation, in [0, 1).
        shard_bytes: Minimum bytes of text per shard. A shard ends with a document.
        workers: Number of processes that split text into sentences. Default: the number of cores.
            1: no additional process.
        on_progress: Function that is called repeatedly with the bytes of text done in this call.

    Returns:
        The manifest, a dict: `settings`, `shards` (a list of dicts), `counts` (documents,
        sentences, pieces, unknown pieces, and repaired input, see `corpus.documents`).

    Raises:
        ValueError: If the corpus contains no text, the folder holds records
            with other settings, another process uses the folder, or a file is broken.
        RuntimeError: If a worker process ended unexpectedly.
        OSError: If a file cannot be read or written.

    Example:

    >>> import tempfile
    >>> preprocessor = Preprocessor(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "."])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "corpus.txt")
    ...     _ = file.write_text("A b. B a.\n\nB b.\n")
    ...     manifest = build([file], pathlib.Path(folder, "records"), preprocessor, workers=1)
    >>> [manifest["counts"][key] for key in ("documents", "sentences", "pieces")]
    [2, 3, 9]
    """
    import_tensorflow("making records")
    corpus.check_outside(folder, paths)
    files = corpus.files(paths)
    missing = [token for token in vocabulary.SPECIAL if token not in preprocessor.vocabulary]
    if missing:
        raise ValueError(
            f"the vocabulary has no {', '.join(missing)}; pretraining needs these tokens"
        )
    if not 0 <= held_out < 1:
        raise ValueError(f"held_out must be at least 0 and below 1; received {held_out}")
    as_integer("shard_bytes", shard_bytes, 1)
    if workers is not None:
        as_integer("workers", workers, 1)
    limit = budget.MAX_FILE // 4  # a token takes up to 4 bytes
    if shard_bytes > limit:
        raise ValueError(f"shard_bytes must be at most {limit}; received {shard_bytes}")
    settings = _settings(files, preprocessor, held_out, shard_bytes)
    folder = pathlib.Path(folder)
    with exclusive_lock(folder, "making records"):
        return _build(files, folder, preprocessor, settings, workers, on_progress)


def _settings(files, preprocessor, held_out, shard_bytes):
    """Return the settings on which the records depend."""
    size = len(preprocessor.vocabulary)
    return {
        "format": _FORMAT,
        "corpus": [
            {"file": file.name, "bytes": file.stat().st_size, "ends": _hash_of_ends(file)}
            for file in files
        ],
        **tokenizer_settings(preprocessor),
        "vocab_size": size,
        "held_out": held_out,
        "shard_bytes": shard_bytes,
        "piece_type": "<u2" if size <= 2**16 else "<u4",
        "length_type": "<u4",
    }


def _hash_of_ends(path):
    """Return a hash of a file's first and last bytes, which detects most changes quickly."""
    ends = hashlib.sha256()
    with open(path, "rb") as file:
        ends.update(file.read(_END_BYTES))
        file.seek(max(0, path.stat().st_size - _END_BYTES))
        ends.update(file.read(_END_BYTES))
    return ends.hexdigest()


def _build(files, folder, preprocessor, settings, workers, on_progress):
    """Write the shards that are missing, then return the complete manifest."""
    file = folder / MANIFEST
    manifest = {"settings": settings, "complete": False, "shards": []}
    if file.exists():
        manifest = read_manifest(file)
        check_settings(file, manifest["settings"], settings, "use another folder")
    vocabulary.write(folder, preprocessor.vocabulary, **preprocessor.tokenizer_options())
    entries = manifest["shards"]
    broken = {index for index, entry in enumerate(entries) if not _is_intact(folder, entry)}
    if manifest["complete"] and not broken:
        return manifest
    for stale in ("train-*.tfrecord", "eval-*.tfrecord", MANIFEST):
        remove_stale_temporaries(folder / stale)
    counts: collections.Counter[str] = collections.Counter()
    parts = (
        part
        for part in _parts(files, settings["shard_bytes"], counts)
        if part.shard in broken or part.shard >= len(entries)
    )
    parts = _with_sentences(parts, workers, on_progress)
    encode = _encoder(preprocessor)
    for shard, parts_of_shard in itertools.groupby(parts, key=lambda part: part.shard):
        entry = _write_shard(folder, shard, parts_of_shard, encode, settings)
        if shard not in broken:
            entries.append(entry)
            write_manifest(folder, manifest)
        elif entry != entries[shard]:
            raise ValueError(
                f"{folder}: the corpus has changed since the records were made; use another folder"
            )
    manifest["complete"] = True
    counts["documents"] = sum(shard["documents"] for shard in entries)
    for key in ("sentences", "pieces", "unknown_pieces"):
        counts[key] = sum(entry[key] for entry in files_of(manifest))
    manifest["counts"] = counts
    if not counts["pieces"]:
        file.unlink(missing_ok=True)  # with it, a later call could not use another corpus
        names = printable(", ".join(file.name for file in files[:3]), 200)
        raise ValueError(f"the corpus contains no text: {names}; add a file with text")
    write_manifest(folder, manifest)
    return manifest


def _is_intact(folder, shard):
    """Return True if all files of a shard are those that the manifest describes."""
    for entry in shard["files"]:
        file = folder / entry["file"]
        if not file.exists() or sha256_of(file) != entry["sha256"]:
            return False
    return True


@dataclasses.dataclass(frozen=True)
class _Part:
    """Consecutive documents of a shard, a task of a worker process.

    `first` is the index of the first document in the corpus, and `size` the characters of all.
    """

    shard: int
    first: int
    size: int
    documents: list


def _parts(files, shard_bytes, counts):
    """Yield the documents of a corpus in `_Part`s."""
    shard = 0
    size_of_shard = 0
    size = 0
    documents: list[corpus.Document] = []
    first = 0
    for document in corpus.documents(files, counts=counts):
        documents.append(document)
        size += len(document.text)
        is_full = size_of_shard + size >= shard_bytes
        if is_full or size >= _PART_BYTES:
            yield _Part(shard, first, size, documents)
            first += len(documents)
            size_of_shard += size
            size = 0
            documents = []
        if is_full:
            shard += 1
            size_of_shard = 0
    if documents:
        yield _Part(shard, first, size, documents)


def _with_sentences(parts, workers, on_progress):
    """Replace the documents of parts by their sentences; report the characters of what is done."""
    workers = workers or min(os.cpu_count() or 1, 61)  # the limit of ProcessPoolExecutor on Windows
    inputs = ((part, part.documents) for part in parts)
    done = 0
    for part, texts in apply(sentences.of_documents, inputs, workers):
        yield dataclasses.replace(part, documents=texts)
        done += part.size
        if on_progress is not None:
            on_progress(done)


def _write_shard(folder, shard, parts, encode, settings):
    """Write the files of a shard and return its entry for the manifest."""
    count = 0
    documents_of_split: dict[str, list] = {split: [] for split in SPLITS}
    for part in parts:
        count += len(part.documents)
        for index, document in enumerate(encode(part.documents), part.first):
            if len(document[0]):
                # Document 0 is for training if `held_out` is at most 0.61.
                is_held_out = (index + 1) * _SPREAD % 2**32 < settings["held_out"] * 2**32
                documents_of_split["eval" if is_held_out else "train"].append(document)
    entries = []
    for split, documents in documents_of_split.items():
        if documents:
            file = folder / f"{split}-{shard:05}.tfrecord"
            entry = _write_file(file, documents, settings)
            entries.append({"file": file.name, "split": split, **entry})
    return {"documents": count, "files": entries}


def _write_file(file, documents, settings):
    """Write documents of `_encoder` atomically; return the counts for the manifest."""
    import tensorflow as tf

    with (
        atomic_write(file, durable=True) as temporary,
        tf.io.TFRecordWriter(str(temporary)) as writer,
    ):
        for pieces, lengths, _ in documents:
            values = {
                "pieces": pieces.astype(settings["piece_type"]),
                "sentence_lengths": lengths.astype(settings["length_type"]),
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
        "sentences": sum(len(lengths) for _, lengths, _ in documents),
        "pieces": sum(len(pieces) for pieces, _, _ in documents),
        "unknown_pieces": sum(unknown for _, _, unknown in documents),
        "sha256": sha256_of(file),
    }


def _encoder(preprocessor):
    """Return a function that tokenizes documents, lists of sentences.

    It yields for each document the ids of its tokens, the number of tokens per sentence and the
    number of [UNK] tokens.
    """
    import tensorflow as tf

    from keras_bert.text.fast_tokenizer import tokenize_function

    tokenize = tokenize_function(preprocessor.tokenizer)
    unknown_id = preprocessor.tokenizer.unknown_id

    def encode(documents):
        texts = itertools.chain.from_iterable(documents)
        # In batches, to limit the memory for long documents.
        batches = corpus.batched(texts, _PART_BYTES)
        ragged = [tokenize(tf.constant(batch, tf.string)) for batch in batches]
        pieces = np.concatenate([ids.values.numpy() for ids in ragged])
        lengths = np.concatenate([ids.row_lengths().numpy() for ids in ragged])  # (texts,)
        splits = splits_of(lengths)
        first = 0
        for document in documents:
            end = first + len(document)
            ids = pieces[splits[first] : splits[end]]
            yield ids, _cut(lengths[first:end]), int(np.sum(ids == unknown_id))
            first = end

    return encode


def _cut(lengths):
    """Drop empty sentences and cut long ones into parts of similar lengths.

    For sentences of 5, 0 and 300 tokens:

        lengths   5 300
        parts     1 3                 (of at most 128 tokens)
        index     0 0 1 2
        result    5 100 100 100
    """
    lengths = lengths[lengths > 0]
    parts = -(-lengths // _LONGEST_SENTENCE)
    index = within(parts)
    lengths = np.repeat(lengths, parts)
    parts = np.repeat(parts, parts)
    return lengths * (index + 1) // parts - lengths * index // parts


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
        if self.manifest["complete"] is not True:
            raise ValueError(
                f"{folder}: the records are incomplete; run `keras-bert records` again to resume"
            )

    def preprocessor(self, **options) -> Preprocessor:
        """Return a `Preprocessor` with the vocabulary and tokenizer options of the records."""
        pieces, made_with = vocabulary.read(self.folder)
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
        content = read_bytes(file, budget.MAX_FILE) if file.is_file() else b""
        if hashlib.sha256(content).hexdigest() != entries[name]["sha256"]:
            raise ValueError(f"{file} is missing or has changed since it was written; {_REPEAT}")
        return content


def _parse(content):
    """Yield the features of each `tf.train.Example` in a TFRecord file, as dicts of bytes.

    Does not verify the TFRecord checksums, so verify the hash of the file first.
    """
    view = memoryview(content)
    at = 0
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
        manifest = json_value(read_bytes(file).decode("utf-8"))
        if manifest.pop("sha256") != _hash_of(manifest):
            raise ValueError("it has changed since it was written")
        settings = manifest["settings"]
        entries = files_of(manifest)
        if settings["piece_type"] not in ("<u2", "<u4") or settings["length_type"] != "<u4":
            raise ValueError("piece_type or length_type is unknown")
        for entry in entries:
            name = entry["file"]
            if not containers.is_below(name) or "/" in name or entry["split"] not in SPLITS:
                raise ValueError(f"{shown(name)} is not a file of the folder and a known split")
        numbers = [settings["vocab_size"]]
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
        change = f"with {key}={shown(old)}; received {shown(new)}"
        if key in ("corpus", "vocabulary"):  # the values are hashes
            change = f"with another {key}"
        raise ValueError(f"{where}: the records were made {change}; {remedy}")
