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

import contextlib
import dataclasses
import hashlib
import itertools
import os
import pathlib

import numpy as np

from keras_bert.data.packed_layout import within
from keras_bert.pretraining import corpus, records_manifest, sentences, shards, vocabulary
from keras_bert.pretraining.workers import apply
from keras_bert.runtime.escaping import printable
from keras_bert.runtime.files import exclusive_lock, sha256_of
from keras_bert.runtime.packages import import_tensorflow
from keras_bert.runtime.reading import one_line, read_bytes
from keras_bert.text.preprocessor import Preprocessor

_FORMAT = 1
_SHARD_BYTES = 16 * 2**20  # of text
_MAX_SHARD = 2**30  # bytes of a file
_PART_BYTES = 2**19  # of text per task of a worker process
_END_BYTES = 2**16  # at each end of a file, hashed to detect changes
# Longer "sentences", such as lists and poems, are cut, so that pairs need not drop the rest.
_LONGEST_SENTENCE = 128  # tokens
_REPEAT = "run the same `keras-bert records` command again to rebuild it"
_SPREAD = 2654435761  # Knuth's multiplier spreads consecutive numbers over 32 bits


def build(
    paths,
    folder,
    preprocessor,
    *,
    held_out=0.01,
    shard_bytes=_SHARD_BYTES,
    workers=None,
    on_progress=None,
):
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
        ValueError: If an argument is invalid, the corpus contains no text, the folder holds records
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
    if not 0 <= held_out < 1:
        raise ValueError(f"held_out must be at least 0 and below 1; received {held_out}")
    if not 1 <= shard_bytes <= _MAX_SHARD // 4:  # a token takes up to 4 bytes
        raise ValueError(
            f"shard_bytes must be between 1 and {_MAX_SHARD // 4}; received {shard_bytes}"
        )
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1; received {workers}")
    import_tensorflow("making records")
    corpus.check_outside(folder, paths)
    files = corpus.files(paths)
    missing = [piece for piece in vocabulary.SPECIAL if piece not in preprocessor.vocabulary]
    if missing:
        raise ValueError(
            f"the vocabulary has no {', '.join(missing)}; pretraining needs these tokens"
        )
    settings = {
        "format": _FORMAT,
        "corpus": [
            {"file": file.name, "bytes": file.stat().st_size, "ends": _hash_of_ends(file)}
            for file in files
        ],
        "vocabulary": vocabulary_hash(preprocessor.vocabulary),
        "vocab_size": len(preprocessor.vocabulary),
        **_options(preprocessor),
        "held_out": held_out,
        "shard_bytes": shard_bytes,
        "piece_type": "<u2" if len(preprocessor.vocabulary) <= 2**16 else "<u4",
        "length_type": "<u4",
    }
    folder = pathlib.Path(folder)
    with exclusive_lock(folder, "making records"):
        return _build(files, folder, preprocessor, settings, workers, on_progress)


def vocabulary_hash(pieces):
    """Return the SHA-256 of a vocabulary as hexadecimal digits."""
    return hashlib.sha256("".join(f"{piece}\n" for piece in pieces).encode()).hexdigest()


def _hash_of_ends(path):
    """Return a hash of a file's first and last bytes, which detects most changes quickly."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        found.update(file.read(_END_BYTES))
        file.seek(max(0, path.stat().st_size - _END_BYTES))
        found.update(file.read(_END_BYTES))
    return found.hexdigest()


def _build(files, folder, preprocessor, settings, workers, on_progress):
    manifest = _started(folder, settings)
    _write_vocabulary(folder, preprocessor)
    made = manifest["shards"]
    broken = {index for index, shard in enumerate(made) if not _is_intact(folder, shard)}
    if manifest["complete"] and not broken:
        return manifest
    for stale in (*folder.glob(".*.tmp"), *folder.glob(".records.*.json")):
        stale.unlink()
    counts: dict[str, int] = {}
    all_parts = _parts(files, settings["shard_bytes"], counts)
    parts = (part for part in all_parts if part[0] in broken or part[0] >= len(made))
    parts_with_sentences = _with_progress(_with_sentences(parts, workers), on_progress)
    encode = _encoder(preprocessor)
    for index, parts_of_shard in itertools.groupby(parts_with_sentences, key=lambda part: part[0]):
        shard = _write_shard(folder, index, parts_of_shard, encode, settings)
        if index not in broken:
            made.append(shard)
            manifest["documents_done"] += shard["documents"]
            records_manifest.write(folder, manifest)
        elif shard != made[index]:
            raise ValueError(
                f"{folder}: the corpus has changed since the records were made; use another folder"
            )
    manifest["complete"] = True
    manifest["counts"] = _sums(manifest) | {"documents": manifest["documents_done"]} | {
        key: value for key, value in counts.items() if key != "documents"
    }  # fmt: skip
    if not manifest["counts"].get("pieces"):
        _raise_empty(files, folder, manifest)
    records_manifest.write(folder, manifest)
    return manifest


def _write_shard(folder, index, parts, encode, settings):
    """Write the files of a shard and return its entry for the manifest."""
    documents = 0
    with contextlib.ExitStack() as stack:
        writers = [
            stack.enter_context(shards.ShardWriter(folder, split, index, settings))
            for split in records_manifest.SPLITS
        ]
        for _, first, _, texts in parts:
            for offset, document in enumerate(encode(texts)):
                writers[_is_held_out(first + offset, settings["held_out"])].write(document)
            documents += len(texts)
    written = [writer.record for writer in writers if writer.record["documents"]]
    return {"documents": documents, "files": written}


def _raise_empty(files, folder, manifest):
    """Delete the records of a corpus without text, and raise an error."""
    for entry in (entry for shard in manifest["shards"] for entry in shard["files"]):
        (folder / entry["file"]).unlink(missing_ok=True)
    # With the manifest, a later call could not use another corpus.
    (folder / records_manifest.FILE).unlink(missing_ok=True)
    names = printable(", ".join(file.name for file in files[:3]), 200)
    more = f" and {len(files) - 3} more" if len(files) > 3 else ""
    raise ValueError(f"the corpus contains no text: {names}{more}; add a file with text")


def _started(folder, settings):
    """Return the manifest of an earlier call with the same settings, or a new manifest."""
    file = folder / records_manifest.FILE
    if not file.exists():
        return {"settings": settings, "complete": False, "documents_done": 0, "shards": []}
    manifest = records_manifest.read(file)
    before = manifest["settings"]
    for key in settings | before:
        if settings.get(key) != before.get(key):
            difference = _describe_change(key, before.get(key), settings.get(key))
            raise ValueError(f"{file}: the records were made {difference}; use another folder")
    return manifest


def _describe_change(key, old, new):
    """Describe a setting that changed, for an error message."""
    if key == "vocabulary":  # the values are hashes
        return "with another vocabulary"
    if key == "corpus":
        old, new = _difference(old, new)
        if not old:
            return f"from a corpus without {printable(', '.join(new), 80)}"
        if not new:
            return f"from a corpus that also has {printable(', '.join(old), 80)}"
    return f"with {key}={old!r:.80}; received {new!r:.80}"


def _difference(before, now):
    """Return the names that only one of two lists of files has, or a file that changed."""
    old, new = ([entry["file"] for entry in files] for files in (before, now))
    if old != new:
        return [name for name in old if name not in new], [name for name in new if name not in old]
    return next(pair for pair in zip(before, now, strict=True) if pair[0] != pair[1])


def _options(preprocessor):
    """Return the options of a preprocessor that change the ids, as JSON."""
    options = preprocessor.tokenizer_options()
    added = [dataclasses.asdict(token) for token in options.pop("added_tokens")]
    if added:
        options["added_tokens"] = added
    return options


def _write_vocabulary(folder, preprocessor):
    """Write the vocabulary, unless the folder has it already."""
    options = preprocessor.tokenizer_options()
    with contextlib.suppress(OSError, ValueError):
        pieces, found = vocabulary.read(folder)
        written = Preprocessor(pieces, **found)
        if written.vocabulary == preprocessor.vocabulary and written.tokenizer_options() == options:
            return
    vocabulary.write(folder, preprocessor.vocabulary, **options)


def _is_intact(folder, shard):
    """Return True if all files of a shard are those that the manifest describes."""
    for entry in shard["files"]:
        file = folder / entry["file"]
        if not file.exists() or sha256_of(file) != entry["sha256"]:
            return False
    return True


def _parts(files, shard_bytes, counts):
    """Yield (shard, index of the first document, bytes, list of documents)."""
    shard = in_shard = number = 0
    part: list[corpus.Document] = []
    in_part = 0
    for document in corpus.documents(files, counts=counts):
        size = len(document.text)
        number += 1
        part.append(document)
        in_part += size
        in_shard += size
        full = in_shard >= shard_bytes
        if full or in_part >= _PART_BYTES:
            yield shard, number - len(part), in_part, part
            part = []
            in_part = 0
        if full:
            shard, in_shard = shard + 1, 0
    if part:
        yield shard, number - len(part), in_part, part


def _with_sentences(parts, workers):
    """Replace the documents of parts by their sentences, in worker processes."""
    workers = workers or min(os.cpu_count() or 1, 61)  # the limit of ProcessPoolExecutor on Windows
    if workers == 1:
        for *place, documents in parts:
            yield *place, sentences.of_documents(documents)
        return
    keyed = ((place, documents) for *place, documents in parts)
    for place, texts in apply(sentences.of_documents, keyed, workers):
        yield *place, texts


def _with_progress(parts, on_progress):
    """Yield parts, and report the bytes of those that are done."""
    done = 0
    for part in parts:
        yield part
        done += part[2]
        if on_progress is not None:
            on_progress(done)


def _encoder(preprocessor):
    """Return a function from documents, lists of sentences, to `TokenizedDocument`s."""
    import tensorflow as tf

    from keras_bert.text.fast_tokenizer import tokenize_function

    tokenize = tokenize_function(preprocessor.tokenizer)
    unknown = preprocessor.tokenizer.unknown_id

    def encode(documents):
        found = [
            tokenize(tf.constant(texts, tf.string))
            for texts in _batches([text for document in documents for text in document])
        ]
        values = np.concatenate([ids.values.numpy() for ids in found])
        lengths = np.concatenate([np.diff(ids.row_splits.numpy()) for ids in found])
        splits = np.concatenate([[0], np.cumsum(lengths)])
        start = 0
        for document in documents:
            end = start + len(document)
            limits = splits[start : end + 1]
            pieces = values[limits[0] : limits[-1]]
            unknowns = int((pieces == unknown).sum())
            yield shards.TokenizedDocument(pieces, _cut(np.diff(limits)), unknowns)
            start = end

    return encode


def _batches(texts):
    """Yield lists of texts of about `_PART_BYTES`, to limit the memory for long documents."""
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= _PART_BYTES:
            yield batch
            batch, size = [], 0
    yield batch


def _cut(lengths):
    """Drop empty sentences and cut long ones into parts of similar lengths."""
    lengths = lengths[lengths > 0]
    if not (lengths > _LONGEST_SENTENCE).any():
        return lengths
    parts = -(-lengths // _LONGEST_SENTENCE)
    index = within(parts)
    lengths, parts = np.repeat(lengths, parts), np.repeat(parts, parts)
    return lengths * (index + 1) // parts - lengths * index // parts


def _is_held_out(index, share):
    # Document 0 is for training if `share` is at most 0.61.
    return (index + 1) * _SPREAD % 2**32 < share * 2**32


def _sums(manifest):
    files = [file for shard in manifest["shards"] for file in shard["files"]]
    keys = ("sentences", "pieces", "unknown_pieces")
    return {key: sum(file[key] for file in files) for key in keys}


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

    def __init__(self, folder):
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

    def preprocessor(self, **options):
        """Return a `Preprocessor` with the vocabulary and tokenizer options of the records."""
        try:
            pieces, made_with = vocabulary.read(self.folder)
        except FileNotFoundError as error:
            raise ValueError(f"{error.filename} is missing; {_REPEAT}") from None
        self._check_vocabulary(pieces)
        return Preprocessor(pieces, **made_with, **options)

    def _check_vocabulary(self, pieces):
        """Raise a `ValueError` unless the records were made with this vocabulary."""
        if vocabulary_hash(pieces) != self.manifest["settings"]["vocabulary"]:
            size = self.manifest["settings"]["vocab_size"]
            received = "other tokens" if size == len(pieces) else f"{len(pieces)} tokens"
            raise ValueError(
                f"{self.folder}: the records were made with another vocabulary of {size} tokens; "
                f"received {received}; use the vocabulary of the records"
            )

    def check_preprocessor(self, preprocessor):
        """Raise a `ValueError` unless the records have this vocabulary and these options."""
        self._check_vocabulary(preprocessor.vocabulary)
        options = _options(preprocessor)
        for key in ("lowercase", "strip_accents", "split_cjk", "added_tokens"):
            made_with, received = self.manifest["settings"].get(key), options.get(key)
            if made_with != received:
                raise ValueError(
                    f"{self.folder}: the records were made with {key}={made_with!r:.80}; received "
                    f"{received!r:.80}"
                )

    def shards(self, split="train"):
        """Return the file names of a split, `"train"` or `"eval"`, in order."""
        return [
            file["file"]
            for shard in self.manifest["shards"]
            for file in shard["files"]
            if file["split"] == split
        ]

    def counts(self, split="train"):
        """Return a dict with the numbers of `documents`, `sentences` and `pieces` of a split."""
        files = [file for shard in self.manifest["shards"] for file in shard["files"]]
        return {
            key: sum(file[key] for file in files if file["split"] == split)
            for key in ("documents", "sentences", "pieces")
        }

    def read(self, names):
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
        return Documents(
            np.concatenate(pieces) if pieces else np.zeros(0, settings["piece_type"]),
            _starts(np.concatenate(lengths) if lengths else []),
            _starts(sentences_of),
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
        expected = next(
            file["sha256"]
            for shard in self.manifest["shards"]
            for file in shard["files"]
            if file["file"] == name
        )
        file = self.folder / name
        try:
            content = read_bytes(file, _MAX_SHARD)
        except FileNotFoundError:
            raise ValueError(f"{file} is missing; {_REPEAT}") from None
        if hashlib.sha256(content).hexdigest() != expected:
            raise ValueError(f"{file} has changed since it was written; {_REPEAT}")
        return content


def _starts(lengths):
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
