"""The manifest of a folder of records: which files it has, and how they were made."""

import dataclasses
import hashlib
import json

from keras_bert.runtime.files import atomic_write
from keras_bert.runtime.reading import json_value, one_line, read_bytes
from keras_bert.untrusted import containers, links

FILE = "records.json"
SPLITS = ("train", "eval")
_MAX_BYTES = 2**26
_REBUILD = "delete it and run `keras-bert records` again to rebuild all records"
_NUMBERS = (int, float)
# Required keys and their types. The tokenizer options may be of any type: they are only compared.
_MANIFEST = {"settings": dict, "complete": bool, "documents_done": int, "shards": list}
_SETTINGS = {
    "corpus": list, "vocabulary": str, "vocab_size": int, "lowercase": object,
    "strip_accents": object, "split_cjk": object, "held_out": _NUMBERS, "shard_bytes": int,
    "piece_type": str, "length_type": str,
}  # fmt: skip
_CORPUS_FILE = {"file": str, "bytes": int, "ends": str}
_SHARD = {"documents": int, "files": list}
_COUNTS = {"documents": int, "sentences": int, "pieces": int, "unknown_pieces": int}
_SHARD_FILE = {"file": str, "split": str, "sha256": str, **_COUNTS}


def read(file):
    """Return the manifest in a file, after a check of its hash, its keys and its types."""
    links.check(file.parent)
    try:
        manifest = json_value(read_bytes(file, _MAX_BYTES).decode("utf-8"))
        expected = manifest.pop("sha256")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{file} is broken ({one_line(error):.80}); {_REBUILD}") from error
    if _hash_of(manifest) != expected:
        raise ValueError(f"{file} has changed since it was written; {_REBUILD}")
    try:
        _check(manifest)
    except ValueError as error:
        raise ValueError(f"{file} is broken ({error}); {_REBUILD}") from error
    return manifest


def write(folder, manifest):
    """Write the manifest atomically, with its hash."""
    content = manifest | {"sha256": _hash_of(manifest)}
    with atomic_write(folder / FILE, durable=True) as beside:
        text = json.dumps(content, indent=1, ensure_ascii=False)
        beside.write_text(text + "\n", encoding="utf-8")


def files_of(manifest):
    """Return the entries of all files, a list of dicts."""
    return [entry for shard in manifest["shards"] for entry in shard["files"]]


def tokenizer_options(preprocessor):
    """Return the options of a preprocessor that change the ids, as JSON."""
    options = preprocessor.tokenizer_options()
    added = [dataclasses.asdict(token) for token in options.pop("added_tokens")]
    if added:
        options["added_tokens"] = added
    return options


def vocabulary_hash(tokens):
    """Return the SHA-256 of a vocabulary as hexadecimal digits."""
    return hashlib.sha256("".join(f"{token}\n" for token in tokens).encode()).hexdigest()


def check_settings(file, before, settings):
    """Raise a `ValueError` for a setting with another value than an earlier call had."""
    for key in settings | before:
        old = before.get(key)
        new = settings.get(key)
        if old == new:
            continue
        change = f"with {key}={old!r:.80}; received {new!r:.80}"
        if key in ("corpus", "vocabulary"):  # the values are hashes
            change = f"with another {key}"
        raise ValueError(f"{file}: the records were made {change}; use another folder")


def _hash_of(manifest):
    return hashlib.sha256(json.dumps(manifest).encode()).hexdigest()


def _check(manifest):
    """Raise ValueError for a missing key, a wrong type, or a file outside the folder."""
    _check_types(manifest, _MANIFEST)
    settings = manifest["settings"]
    _check_types(settings, _SETTINGS)
    if settings["piece_type"] not in ("<u2", "<u4") or settings["length_type"] != "<u4":
        raise ValueError("piece_type or length_type is unknown")
    for entry in settings["corpus"]:
        _check_types(entry, _CORPUS_FILE)
    if manifest["complete"]:
        _check_types(manifest.get("counts"), _COUNTS)
    names = set()
    for shard in manifest["shards"]:
        _check_types(shard, _SHARD)
        for entry in shard["files"]:
            _check_types(entry, _SHARD_FILE)
            name = entry["file"]
            if not containers.is_below(name) or "/" in name or name in names:
                raise ValueError(f"{name!r:.80} is not the name of one file of the folder")
            if entry["split"] not in SPLITS:
                raise ValueError(f"the split {entry['split']!r:.80} is unknown")
            names.add(name)


def _check_types(value, types):
    if not isinstance(value, dict):
        raise ValueError(f"an object is missing, received {value!r:.80}")
    for key, kind in types.items():
        if key not in value or not isinstance(value[key], kind):
            raise ValueError(f"{key} is missing or of another type")
        if kind is int and value[key] < 0:
            raise ValueError(f"{key} is negative")
