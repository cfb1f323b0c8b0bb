"""Text to records: every document tokenized once, into shards of TFRecords.

A folder of records holds

    train-00000.tfrecord, ...   a `tf.train.Example` for each document
    eval-00000.tfrecord, ...    the same, of documents that are held out
    vocab.txt, tokenizer_config.json
    records.json                the manifest: settings, and for each file counts and its hash

An example has two features: `pieces`, the ids of all its sentences, and `sentence_lengths`, how
many of them each sentence takes; both little-endian, in the types that the manifest names.

What a shard holds is a function of the corpus and the settings alone, and it appears whole or not
at all. So a build that was killed goes on where it was, and ends with the same bytes.
"""

import collections
import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import pathlib
import typing

import numpy as np

from keras_bert.pretraining import corpus, sentences, vocabulary
from keras_bert.runtime.files import atomic_write, exclusive_lock
from keras_bert.text.preprocessor import Preprocessor

MANIFEST_FILE = "records.json"
SPLITS = ("train", "eval")
_OPTIONS = ("lowercase", "strip_accents", "split_cjk")  # of a preprocessor
_FORMAT = 1
_SHARD_BYTES = 16 * 2**20  # of text
_PART_BYTES = 2**19  # of text: what a worker is given at once
_END_BYTES = 2**16
# Nothing ends some sentences: a list, a poem. Cut, so that pairs need not drop what is too long.
_LONGEST_SENTENCE = 128  # pieces
_AGAIN = "`keras-bert records`, called as before, makes it anew"
_ANEW = "delete it, and `keras-bert records` makes all of the records anew"
_SPREAD = 2654435761  # Knuth's multiplier: consecutive numbers to numbers all over 32 bits


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
    r"""Tokenizes a corpus into records; goes on where an earlier call was killed.

    Given again for records that are finished, it looks at every file, and makes anew what is
    missing or broken.

    Args:
        paths: files, folders and patterns, see `corpus.files`.
        folder: where the records go; made if need be.
        preprocessor: a `Preprocessor`: its vocabulary and options are what counts.
        held_out: share of the documents that training does not see, 0 up to 1.
        shard_bytes: of text that make up a shard, at least; it is cut between documents.
        workers: processes that find the sentences; default: one for each core. With 1 it is
            done here.
        on_progress: called after each part with the bytes of text done in this call.

    Returns:
        The manifest, a dict: `settings`, `shards` (a list of dicts), `counts` (documents,
        sentences, pieces, unknown pieces, and what was mended in reading).

    Raises:
        ValueError: the corpus holds no text, an impossible number, the folder holds records with
            other settings, another process is at work on it, or a file is broken.
        OSError: a file cannot be read or written.

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
    if shard_bytes < 1:
        raise ValueError(f"shard_bytes must be at least 1; received {shard_bytes}")
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1; received {workers}")
    corpus.check_outside(folder, paths)
    files = corpus.files(paths)
    missing = [piece for piece in vocabulary.SPECIAL if piece not in preprocessor.vocabulary]
    if missing:
        raise ValueError(f"the vocabulary has no {', '.join(missing)}, which pretraining needs")
    settings = {
        "format": _FORMAT,
        "corpus": [
            {"file": file.name, "bytes": file.stat().st_size, "ends": _hash_of_ends(file)}
            for file in files
        ],
        "vocabulary": vocabulary_hash(preprocessor.vocabulary),
        "vocab_size": len(preprocessor.vocabulary),
        **{key: getattr(preprocessor, key) for key in _OPTIONS},
        "held_out": held_out,
        "shard_bytes": shard_bytes,
        "piece_type": "<u2" if len(preprocessor.vocabulary) <= 2**16 else "<u4",
        "length_type": "<u4",
    }
    folder = pathlib.Path(folder)
    with exclusive_lock(folder, "making records"):
        return _build(files, folder, preprocessor, settings, workers, on_progress)


def vocabulary_hash(pieces):
    """SHA-256 of a vocabulary, as hexadecimal digits.

    Example:

    >>> vocabulary_hash(["[PAD]", "[UNK]"])[:8]
    'baaffec7'
    """
    return hashlib.sha256("".join(f"{piece}\n" for piece in pieces).encode()).hexdigest()


def _hash_of_ends(path):
    """Tells most files of one name and size apart without reading all of them."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        found.update(file.read(_END_BYTES))
        file.seek(max(0, path.stat().st_size - _END_BYTES))
        found.update(file.read(_END_BYTES))
    return found.hexdigest()


def _build(files, folder, preprocessor, settings, workers, on_progress):
    manifest = _started(folder, settings)
    _write_vocabulary(folder, preprocessor, {key: settings[key] for key in _OPTIONS})
    if manifest["complete"]:
        return manifest
    for stale in (*folder.glob(".*.tmp"), *folder.glob(".records.*.json")):
        stale.unlink()
    counts: dict[str, int] = {}
    parts = _parts(files, settings["shard_bytes"], counts, manifest["documents_done"])
    encode = _encoder(preprocessor)
    done = 0
    for shard, parts_of_shard in itertools.groupby(
        _with_sentences(parts, workers), key=lambda part: part[0]
    ):
        documents = 0
        with contextlib.ExitStack() as stack:
            writers = [stack.enter_context(_ShardWriter(folder, s, shard)) for s in SPLITS]
            for _, first, size, texts in parts_of_shard:
                for offset, document in enumerate(encode(texts)):
                    writers[_is_held_out(first + offset, settings["held_out"])].write(
                        document, settings
                    )
                documents += len(texts)
                done += size
                if on_progress is not None:
                    on_progress(done)
        written = [writer.record for writer in writers if writer.record["documents"]]
        manifest["shards"].append({"documents": documents, "files": written})
        manifest["documents_done"] += documents
        _write_manifest(folder, manifest)
    manifest["complete"] = True
    manifest["counts"] = _sums(manifest) | {"documents": manifest["documents_done"]} | {
        key: value for key, value in counts.items() if key != "documents"
    }  # fmt: skip
    if not manifest["counts"].get("pieces"):
        names = ", ".join(file.name for file in files[:3])
        more = f" and {len(files) - 3} more" if len(files) > 3 else ""
        for entry in (entry for shard in manifest["shards"] for entry in shard["files"]):
            (folder / entry["file"]).unlink(missing_ok=True)
        (folder / MANIFEST_FILE).unlink(missing_ok=True)  # or it would refuse a better corpus
        raise ValueError(f"the corpus holds no text: {names}{more}")
    _write_manifest(folder, manifest)
    return manifest


def _started(folder, settings):
    """The manifest of an earlier call with the same settings, or a new one."""
    file = folder / MANIFEST_FILE
    if not file.exists():
        return {"settings": settings, "complete": False, "documents_done": 0, "shards": []}
    manifest = _read_manifest(file)
    before = manifest["settings"]
    changed = [key for key in settings | before if settings.get(key) != before.get(key)]
    if changed:
        key = changed[0]
        old, new = before.get(key), settings.get(key)
        if key == "corpus":
            old, new = _difference(old, new)
        if key == "vocabulary":  # a hash, which tells people nothing
            what = "of another vocabulary"
        elif key == "corpus" and not old:
            what = f"of a corpus without {', '.join(new):.80}"
        elif key == "corpus" and not new:
            what = f"of a corpus that has {', '.join(old):.80} too"
        else:
            what = f"with {key}={old!r:.80}, these would have {new!r:.80}"
        raise ValueError(f"{file} is of records {what}; take another folder")
    for number, shard in enumerate(manifest["shards"]):
        if not all(_is_whole(folder / entry["file"], entry["sha256"]) for entry in shard["files"]):
            return _up_to(manifest, number)
    return manifest


def _difference(before, now):
    """What two lists of a corpus' files do not share, by their names, or a file that changed."""
    old, new = ([entry["file"] for entry in files] for files in (before, now))
    if old != new:
        return [name for name in old if name not in new], [name for name in new if name not in old]
    return next(pair for pair in zip(before, now, strict=True) if pair[0] != pair[1])


def _write_vocabulary(folder, preprocessor, options):
    """Writes it unless it is there already."""
    with contextlib.suppress(OSError, ValueError):
        pieces, found = vocabulary.read(folder)
        if tuple(pieces) == tuple(preprocessor.vocabulary) and found == options:
            return
    vocabulary.write(folder, preprocessor.vocabulary, **options)


def _is_whole(file, expected):
    try:
        with open(file, "rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest() == expected
    except FileNotFoundError:
        return False


def _up_to(manifest, number):
    """The manifest as it was when so many shards were done."""
    shards = manifest["shards"][:number]
    done = sum(shard["documents"] for shard in shards)
    return {"settings": manifest["settings"], "complete": False, "documents_done": done,
            "shards": shards}  # fmt: skip


def _read_manifest(file):
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
        expected = manifest.pop("sha256")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{file} is broken ({error!r:.80}); {_ANEW}") from error
    if _hash_of(manifest) != expected:
        raise ValueError(f"{file} is not what was written there; {_ANEW}")
    return manifest


def _hash_of(manifest):
    return hashlib.sha256(json.dumps(manifest).encode()).hexdigest()


def _parts(files, shard_bytes, counts, skip):
    """Runs of documents: (shard, number of the first document, bytes, list of documents)."""
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
            if number > skip:
                yield shard, number - len(part), in_part, part
            part = []
            in_part = 0
        if full:
            shard, in_shard = shard + 1, 0
    if part and number > skip:
        yield shard, number - len(part), in_part, part


def _with_sentences(parts, workers):
    """The same runs with the sentences in place of the documents, in the same order."""
    workers = workers or os.cpu_count() or 1
    if workers == 1:
        for *place, documents in parts:
            yield *place, sentences.of_documents(documents)
        return
    from joblib.externals import loky

    under_way: collections.deque[tuple] = collections.deque()
    try:
        pool = loky.get_reusable_executor(max_workers=workers)
        for *place, documents in parts:
            # These processes import neither Keras nor TensorFlow, so they stay small.
            under_way.append((place, pool.submit(sentences.of_documents, documents)))
            # No more is read than is asked for, or a slow tokenizer would find a corpus in memory.
            if len(under_way) > 2 * workers:
                place, texts = under_way.popleft()
                yield *place, texts.result()
        while under_way:
            place, texts = under_way.popleft()
            yield *place, texts.result()
    finally:
        for _, texts in under_way:
            texts.cancel()


def _encoder(preprocessor):
    """A function from documents, lists of sentences, to lists of int32 arrays."""
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
            yield _Document(pieces, _cut(np.diff(limits)), int((pieces == unknown).sum()))
            start = end

    return encode


def _batches(texts):
    """Texts in lists of `_PART_BYTES` and a text more: a long document takes no more memory."""
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= _PART_BYTES:
            yield batch
            batch, size = [], 0
    yield batch


@dataclasses.dataclass
class _Document:
    pieces: np.ndarray
    sentence_lengths: np.ndarray
    unknown: int


def _cut(lengths):
    """Lengths of sentences without empty ones, the long ones in parts of like size."""
    lengths = lengths[lengths > 0]
    if not (lengths > _LONGEST_SENTENCE).any():
        return lengths
    parts = -(-lengths // _LONGEST_SENTENCE)
    number = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
    lengths, parts = np.repeat(lengths, parts), np.repeat(parts, parts)
    return lengths * (number + 1) // parts - lengths * number // parts


def _is_held_out(number, share):
    return (number + 1) * _SPREAD % 2**32 < share * 2**32  # up to 0.61 not the first one


class _ShardWriter:
    """Writes one file of records; it appears under its name at the end of a `with` block."""

    def __init__(self, folder, split, shard):
        self._file = folder / f"{split}-{shard:05}.tfrecord"
        self._beside = folder / f".{self._file.name}.tmp"
        self._writer: typing.Any = None
        self.record = {"file": self._file.name, "split": split}
        self.record |= dict.fromkeys(("documents", "sentences", "pieces", "unknown_pieces"), 0)

    def __enter__(self):
        import tensorflow as tf

        with self._errors():
            self._writer = tf.io.TFRecordWriter(str(self._beside))
        return self

    def write(self, document, settings):
        """Adds a document; one without pieces is left out."""
        import tensorflow as tf

        if not len(document.pieces):
            return
        values = {
            "pieces": document.pieces.astype(settings["piece_type"]),
            "sentence_lengths": document.sentence_lengths.astype(settings["length_type"]),
        }
        features = {
            key: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.tobytes()]))
            for key, value in values.items()
        }
        example = tf.train.Example(features=tf.train.Features(feature=features))
        # A map has no order of its own, and a file is to have the same bytes each time.
        with self._errors():
            self._writer.write(example.SerializeToString(deterministic=True))
        self.record["documents"] += 1
        self.record["sentences"] += len(document.sentence_lengths)
        self.record["pieces"] += len(document.pieces)
        self.record["unknown_pieces"] += document.unknown

    def __exit__(self, kind, *_):
        try:
            with self._errors():
                self._writer.close()  # what is left of it is written now
        except OSError:
            self._beside.unlink(missing_ok=True)
            if kind is None:  # else there is an error already
                raise
            return
        if kind is not None or not self.record["documents"]:
            self._beside.unlink(missing_ok=True)
            return
        with open(self._beside, "r+b") as file:  # Windows syncs no file that is only read
            self.record["sha256"] = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
        os.replace(self._beside, self._file)

    @contextlib.contextmanager
    def _errors(self):
        """TensorFlow has its own for a full disk."""
        import tensorflow as tf

        try:
            yield
        except tf.errors.OpError as error:
            raise OSError(f"{self._file}: {error.message}") from error


def _sums(manifest):
    files = [file for shard in manifest["shards"] for file in shard["files"]]
    keys = ("sentences", "pieces", "unknown_pieces")
    return {key: sum(file[key] for file in files) for key in keys}


def _write_manifest(folder, manifest):
    content = manifest | {"sha256": _hash_of(manifest)}
    with atomic_write(folder / MANIFEST_FILE, durable=True) as beside:
        text = json.dumps(content, indent=1, ensure_ascii=False)
        beside.write_text(text + "\n", encoding="utf-8")


@dataclasses.dataclass(frozen=True)
class Documents:
    """Tokenized documents in memory.

    Attributes:
        pieces: ids of all of them in a row, unsigned (pieces,).
        sentence_starts: where each sentence starts in `pieces`, and behind the last one where it
            ends; int64 (sentences + 1,).
        document_starts: where each document starts in `sentence_starts`, and the end; int64
            (documents + 1,).
    """

    pieces: np.ndarray
    sentence_starts: np.ndarray
    document_starts: np.ndarray

    def __len__(self):
        return len(self.document_starts) - 1


class Records:
    """A folder of records, to be read. Needs no TensorFlow.

    Args:
        folder: what `build` wrote to.

    Attributes:
        manifest: the dict that `build` returned.

    Raises:
        ValueError: there are no records, or they are not finished.

    Example:

    >>> Records("no-such-folder")
    Traceback (most recent call last):
    ValueError: no-such-folder holds no records.json: make records with `keras-bert records`
    """

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        file = self.folder / MANIFEST_FILE
        if not file.is_file():
            raise ValueError(
                f"{folder} holds no {MANIFEST_FILE}: make records with `keras-bert records`"
            )
        self.manifest = _read_manifest(file)
        if not self.manifest["complete"]:
            raise ValueError(
                f"{folder}: the records are not finished; `keras-bert records` goes on with them"
            )

    def preprocessor(self, **options):
        """A `Preprocessor` with the vocabulary and the options that the records were made with."""
        try:
            pieces, made_with = vocabulary.read(self.folder)
        except FileNotFoundError as error:
            raise ValueError(f"{error.filename} is missing; {_AGAIN}") from None
        self.check_vocabulary(pieces)
        return Preprocessor(pieces, **made_with, **options)

    def check_vocabulary(self, pieces):
        """Raises a ValueError unless the records were made with this vocabulary."""
        if vocabulary_hash(pieces) != self.manifest["settings"]["vocabulary"]:
            size = self.manifest["settings"]["vocab_size"]
            received = "others, as many" if size == len(pieces) else f"{len(pieces)} pieces"
            raise ValueError(
                f"{self.folder}: the records were made with another vocabulary, of {size} pieces; "
                f"received {received}"
            )

    def check_preprocessor(self, preprocessor):
        """Raises a ValueError unless the records were made with this vocabulary and options."""
        self.check_vocabulary(preprocessor.vocabulary)
        for key in _OPTIONS:
            made_with, received = self.manifest["settings"][key], getattr(preprocessor, key)
            if made_with != received:
                raise ValueError(
                    f"{self.folder}: the records were made with {key}={made_with}; received "
                    f"{received}"
                )

    def shards(self, split="train"):
        """The names of the files of a split, `"train"` or `"eval"`, in order."""
        return [
            file["file"]
            for shard in self.manifest["shards"]
            for file in shard["files"]
            if file["split"] == split
        ]

    def counts(self, split="train"):
        """A dict with the `documents`, `sentences` and `pieces` of a split."""
        files = [file for shard in self.manifest["shards"] for file in shard["files"]]
        return {
            key: sum(file[key] for file in files if file["split"] == split)
            for key in ("documents", "sentences", "pieces")
        }

    def read(self, names):
        """Reads shards into memory.

        Args:
            names: of files, from `shards`.

        Returns:
            `Documents`.

        Raises:
            ValueError: a file is missing, or is not what was written.
        """
        settings = self.manifest["settings"]
        pieces, lengths, sentences_of = [], [], []
        for name in names:
            for features in _examples(self._bytes(name)):
                pieces.append(np.frombuffer(features["pieces"], settings["piece_type"]))
                values = np.frombuffer(features["sentence_lengths"], settings["length_type"])
                lengths.append(values)
                sentences_of.append(len(values))
        return Documents(
            np.concatenate(pieces) if pieces else np.zeros(0, settings["piece_type"]),
            _starts(np.concatenate(lengths) if lengths else []),
            _starts(sentences_of),
        )

    def _bytes(self, name):
        expected = next(
            file["sha256"]
            for shard in self.manifest["shards"]
            for file in shard["files"]
            if file["file"] == name
        )
        file = self.folder / name
        try:
            content = file.read_bytes()
        except FileNotFoundError:
            raise ValueError(f"{file} is missing; {_AGAIN}") from None
        if hashlib.sha256(content).hexdigest() != expected:
            raise ValueError(f"{file} is not what was written there; {_AGAIN}")
        return content


def _starts(lengths):
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)


def _examples(content):
    """The features of each example in a file of TFRecords, dicts of bytes.

    A few lines in place of TensorFlow, which the JAX backend does without. The checksums need no
    look: the hash of the whole file was right.
    """
    view, at = memoryview(content), 0
    while at < len(view):
        size = int.from_bytes(view[at : at + 8], "little")  # then 4 bytes of checksum
        (features,) = (value for _, value in _fields(view[at + 12 : at + 12 + size]))
        yield dict(_feature(entry) for _, entry in _fields(features))
        at += 16 + size


def _feature(entry):
    (_, key), (_, feature) = _fields(entry)
    ((_, values),) = _fields(feature)
    return bytes(key).decode(), next((value for _, value in _fields(values)), b"")


def _fields(view):
    """The fields of a message of Protocol Buffers that are bytes: (number, value)."""
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
