"""Attack: small files that need much memory or time, crash the process, or write escape codes."""

import bz2
import gzip
import io
import json
import lzma
import struct
import time
import zipfile
import zlib

import numpy as np
import pytest
import zstandard
from tensorflow.core.protobuf import tensor_bundle_pb2

import keras_bert
from keras_bert import __main__ as command_line
from keras_bert import checkpoints, heads
from keras_bert.checkpoints import (
    bundle,
    model_garden,
)
from keras_bert.data import tabular
from keras_bert.pretraining import corpus
from keras_bert.runtime import reading
from keras_bert.tasks.question_answering import data as squad
from keras_bert.untrusted import bundle_index, containers, torch_pickle
from tests import tiny
from tests.checkpoints import pickles
from tests.checkpoints.huggingface_files import edit_json
from tests.machine import slowness
from tests.security import bundles, fuzz, memory
from tests.security.rewriting import edit_config, layer_of


@pytest.fixture(autouse=True)
def limit_resources():
    """Each attack must fail within seconds and without much memory."""
    memory.reset_peak()
    before, start = memory.resident(), time.process_time()
    yield
    assert memory.peak() - before < 500e6
    assert time.process_time() - start < 20 * slowness()


def make_folder(reader, path):
    path.mkdir(exist_ok=True)
    fuzz.READERS[reader][0](path)
    return path


def assert_rejected(path, message):
    with pytest.raises(ValueError, match=message) as caught:
        keras_bert.load(path)
    assert str(caught.value).isprintable()


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["google", "pickle", "keras_hub", "keras"])
def test_fuzzed_files_do_not_crash(reader, tmp_path):
    """Fuzz the formats whose libraries crash or hang; `make fuzz` covers the others."""
    counts, findings = fuzz.run(reader, tmp_path, seed=100, first=0, count=40, seconds=100)
    assert findings == []
    assert sum(counts.values()) == 40 and counts["refused"] > 5


# Shapes and sizes


HASH_MODULUS = 2**61 - 1  # multiples of it have the same hash


def keys_of_one_hash():
    items = []
    for number in range(1, 30_000):
        key = (number * HASH_MODULUS).to_bytes(11, "little")
        items.append(b"\x8a" + bytes([len(key)]) + key + b"N")
    return b"\x80\x02}(" + b"".join(items) + b"u."


@pytest.mark.parametrize("write", [pickles.write_archive, pickles.write_legacy])
def test_a_pickle_with_keys_of_one_hash(tmp_path, write):
    write(tmp_path / "pytorch_model.bin", keys_of_one_hash(), {"0": bytes(4)})
    start = time.process_time()
    with pytest.raises(ValueError, match="a int for a str"):
        torch_pickle.read(tmp_path / "pytorch_model.bin")
    assert time.process_time() - start < 5 * slowness()


TOKEN_IDS = {number * HASH_MODULUS: f"{number}" for number in range(1, 30_000)}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", {"model": {"vocab": {token: id_ for id_, token in TOKEN_IDS.items()}}}),
        (
            "tokenizer.json",
            {"added_tokens": [{"id": id_, "content": token} for id_, token in TOKEN_IDS.items()]},
        ),
        ("added_tokens.json", {token: id_ for id_, token in TOKEN_IDS.items()}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"9" * 5000: {"content": "a"}}}),
        ("tokenizer_config.json", {"added_tokens_decoder": {str(2**25): {"content": "a"}}}),
    ],
)
def test_token_ids_of_one_hash(tmp_path, name, content):
    path = make_folder("safetensors", tmp_path / "model")
    if "model" in content:
        (path / "vocab.txt").unlink()
    (path / name).write_text(json.dumps(content))
    start = time.process_time()
    assert_rejected(path, f"{name}: ids must")
    assert time.process_time() - start < 3 * slowness()


@pytest.mark.parametrize(
    ("reader", "name", "content"),
    [
        ("safetensors", "special_tokens_map.json", {"additional_special_tokens": 1}),
        ("safetensors", "config.json", {"layer_norm_eps": 10**400}),
        ("safetensors", "config.json", {"initializer_range": 10**400}),
        ("safetensors", "config.json", {"hidden_act": ["relu"]}),
    ],
)
def test_values_of_wrong_types(tmp_path, reader, name, content):
    path = make_folder(reader, tmp_path / "model")
    file = path / name
    before = json.loads(file.read_text()) if file.is_file() else {}
    file.write_text(json.dumps(before | content))
    assert_rejected(path, rf"{name}: {next(iter(content))} must be|model cannot be read")


def test_any_error_of_a_reader_names_the_folder(tmp_path, monkeypatch):
    path = make_folder("safetensors", tmp_path / "model")

    def fail(*arguments):
        raise TypeError("'int' object is not iterable")

    monkeypatch.setattr(checkpoints.huggingface, "read", fail)
    assert_rejected(path, "model cannot be read: 'int' object is not iterable")


@pytest.mark.parametrize(
    "value",
    ['!!int ""', '!!float ""', "!!bool x", "!!timestamp x", "[" * 10_000, "? " * 10_000],
)
def test_yaml_values_that_their_tags_do_not_fit(tmp_path, value):
    (tmp_path / "params.yaml").write_text(f"task: {value}\n")
    start = time.process_time()
    with pytest.raises(ValueError, match=r"params\.yaml: must be YAML in UTF-8, received"):
        model_garden.read_config(tmp_path)
    assert time.process_time() - start < 3 * slowness()


def overlapping(count, size):
    """Return a zip file whose members all refer to the same bytes."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("archive/data.pkl", bytes(size))
        entry = archive.infolist()[0]
        for number in range(count):
            more = zipfile.ZipInfo(f"archive/data/{number}")
            more.file_size, more.compress_size, more.CRC = size, size, entry.CRC
            more.header_offset = entry.header_offset
            archive.filelist.append(more)
            archive.NameToInfo[more.filename] = more
        archive._didModify = True
    return data.getvalue()


ZIP_READERS = {
    "pytorch_model.bin": torch_pickle.read,
    "training.npz": containers.read_npz,
    "model.keras": keras_bert.load,
}


@pytest.mark.parametrize("name", ZIP_READERS)
def test_zip_bombs(tmp_path, name):
    file = tmp_path / name
    file.write_bytes(overlapping(1000, 10_000))
    with pytest.raises(ValueError, match="overlap: they declare 10010000 bytes"):
        ZIP_READERS[name](file)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.weights.h5", bytes(10**7))
    with pytest.raises(ValueError, match="'model.weights.h5' must be stored uncompressed"):
        ZIP_READERS[name](file)


def test_the_vocabulary_is_checked_before_the_weights(tmp_path):
    path = make_folder("keras_hub", tmp_path / "model")
    (path / "assets" / "tokenizer" / "vocabulary.txt").write_text("one\n" * 1000)
    (path / "model.weights.h5").write_bytes(b"unused")
    assert_rejected(path, "must have at most one token for each of the vocab_size")


# safetensors: the library already rejects these files


def safetensors_file(path, header, data):
    header = json.dumps(header).encode() if isinstance(header, dict) else header
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)


def entry(start, end, shape=(4,)):
    return {"dtype": "F32", "shape": list(shape), "data_offsets": [start, end]}


@pytest.mark.parametrize(
    ("header", "data", "message"),
    [
        ({"a": entry(0, 16), "b": entry(8, 24)}, bytes(24), "must be a complete safetensors file"),
        ({"a": {**entry(0, 16), "data_offsets": [0]}}, bytes(16), "must be a complete safetensors"),
    ],
    ids=["overlapping", "one offset"],
)
def test_safetensors_with_wrong_headers(tmp_path, header, data, message):
    path = make_folder("safetensors", tmp_path / "model")
    safetensors_file(path / "model.safetensors", header, data)
    assert_rejected(path, message)


@pytest.mark.parametrize("count", [1, 10_000])
def test_a_config_of_many_layers_for_many_safetensors(tmp_path, count):
    path = make_folder("safetensors", tmp_path / "model")
    edit_json(path / "config.json", num_hidden_layers=count)
    tensors = {f"{number:x}": entry(0, 0, (0,)) for number in range(count)}
    tensors["large"] = entry(0, 4000, (1000,))
    safetensors_file(path / "model.safetensors", tensors, bytes(4000))
    start = time.process_time()
    assert_rejected(path, "at most 100 for these weights|missing")
    assert time.process_time() - start < 5 * slowness()


def with_header(path, change):
    """Change the header of a safetensors file and append data."""
    with open(path, "rb") as stream:
        header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
        data = stream.read()
    data += change(header, len(data))
    safetensors_file(path, header, data)


def test_safetensors_with_names_of_one_long_prefix(tmp_path):
    path = make_folder("safetensors", tmp_path / "model")

    def change(header, size):
        for index in range(6):
            start = size + 4 * index
            header[f"{'a' * 1000}.{index}"] = entry(start, start + 4, (1,))
        return bytes(24)

    with_header(path / "model.safetensors", change)
    start = time.process_time()
    with pytest.raises(ValueError, match="unknown") as caught:
        keras_bert.load(path, task="auto")
    assert len(str(caught.value)) < 10_000
    assert time.process_time() - start < 5 * slowness()


# Configs


@pytest.mark.parametrize("reader", ["safetensors", "google", "keras_hub", "model_garden"])
@pytest.mark.parametrize("key", ["num_hidden_layers", "hidden_size", "vocab_size"])
def test_sizes_larger_than_the_weights(tmp_path, reader, key):
    path = make_folder(reader, tmp_path / "model")
    file = next(f for f in (path / "config.json", path / "bert_config.json") if f.is_file())
    config = json.loads(file.read_text())
    inner = config.get("config", config)
    theirs = {"num_hidden_layers": "num_layers", "hidden_size": "hidden_dim"}
    name = {**theirs, "vocab_size": "vocabulary_size"}[key] if reader == "keras_hub" else key
    inner[name] = 3_000_000
    file.write_text(json.dumps(config))
    for vocabulary in path.rglob("voc*.txt"):
        vocabulary.unlink()
    assert_rejected(path, rf"{key} must be at most \d+")


def test_nan_and_infinity(tmp_path):
    for reader in ("safetensors", "keras"):
        path = make_folder(reader, tmp_path / reader)
        encoder = heads.find_encoder(keras_bert.load(path))
        bias = next(w for w in encoder.weights if w.path.endswith("pooler/dense/bias"))
        bias.assign([np.nan] * bias.shape[0])
        target = tmp_path / f"{reader}-with-nan"
        keras_bert.save(encoder, target, format="huggingface" if reader != "keras" else "keras")
        assert_rejected(target, "pooler/dense/bias must hold finite numbers")


# Text


ESCAPE = "\x1b[2J\x1b]0;title\x07\u202e"


def test_names_with_terminal_escapes(tmp_path, capsys):
    from safetensors import numpy as safetensors

    path = make_folder("safetensors", tmp_path / "model")
    tensors = safetensors.load_file(path / "model.safetensors")
    safetensors.save_file({**tensors, ESCAPE: np.ones(1)}, path / "model.safetensors")
    with pytest.raises(ValueError, match=r"unknown \(1\): \\x1b\[2J") as caught:
        checkpoints.read(path)
    assert str(caught.value).isprintable()
    edit_json(path / "config.json", **{ESCAPE: 1})
    assert command_line.main(["info", str(path)]) == 1
    output = capsys.readouterr().err
    assert output.rstrip("\n").isprintable() and "ignored keys" in output


def test_names_of_files_are_printable(tmp_path):
    (tmp_path / "\x1b[2Jmodel.txt").write_text("x")
    with pytest.raises(ValueError) as caught:
        checkpoints.detect(tmp_path)
    assert str(caught.value).isprintable()


def test_labels_with_terminal_escapes(tmp_path, capsys):
    file = tmp_path / "model.keras"
    encoder = tiny.encoder(num_hidden_layers=1)
    keras_bert.save(heads.classifier(encoder, labels=["good", "bad"]), file)

    def rename_label(config):
        layer_of(config, "TaskOutput")["config"]["labels"] = [ESCAPE, "bad"]

    edit_config(file, rename_label)
    with pytest.raises(ValueError, match=r"a label must .*received '\\x1b\[2J.* Rename it"):
        keras_bert.load(file)
    assert command_line.main(["info", str(file)]) == 1
    output = capsys.readouterr().err
    assert output.rstrip("\n").isprintable() and r"\x1b[2J" in output


def test_duplicate_keys_are_found_in_linear_time():
    """An object with many keys must not take minutes."""
    keys = [f'"{number}": 0' for number in range(200_000)]
    start = time.monotonic()
    with pytest.raises(ValueError, match="the key '199999' twice"):
        reading.parse_json(("{" + ", ".join([*keys, keys[-1]]) + "}").encode(), "config.json")
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("length", [10**12, 3 * 10**9, 3, 5])
def test_a_string_of_another_size_than_its_entry(tmp_path, length):
    data = bundles.varint(length) + b"....four"
    bundles.write_checkpoint(tmp_path / "ckpt", data, [{"dtype": 7, "size": len(data)}])
    with pytest.raises(ValueError, match=f"declares a string of {length} bytes"):
        bundle.read(tmp_path / "ckpt").load("a")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"offset": 0, "size": 16, "shape": {"dim": [{"size": 4}]}}, "tensors overlap"),
        ({"offset": 12}, "'b' is outside the data files"),
        ({"shard_id": 1}, "'b' is outside the data files"),
        ({"slices": [{}]}, "'b' is split into slices"),
        ({"shape": {"dim": [{"size": -2}]}}, "'b' has the invalid shape"),
        ({"shape": {"dim": [{"size": 1}] * 9}}, "'b' has the invalid shape"),
        ({"shape": {"dim": [{"size": 3}]}}, "'b' of type 1 has 8 bytes"),
        ({"dtype": 99}, "'b' of type 99 has 8 bytes"),
    ],
)
def test_entries_of_an_index(tmp_path, changes, message):
    entry = {"dtype": 1, "size": 8, "shape": {"dim": [{"size": 2}]}}
    bundles.write_checkpoint(tmp_path / "ckpt", bytes(16), [entry, entry | {"offset": 8}])
    assert list(bundle_index.read(tmp_path / "ckpt")) == ["a", "b"]
    bundles.write_checkpoint(tmp_path / "ckpt", bytes(16), [entry, entry | {"offset": 8} | changes])
    with pytest.raises(ValueError, match=message):
        bundle_index.read(tmp_path / "ckpt")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"endianness": "BIG"}, "big-endian or of a later"),
        ({"version": {"min_consumer": 2}}, "big-endian or of a later"),
        ({"num_shards": 0}, "names 0 data files"),
        ({"num_shards": 2}, "the data file .*00001-of-00002 is missing"),
    ],
)
def test_a_header_of_an_unreadable_checkpoint(tmp_path, header, message):
    content = tensor_bundle_pb2.BundleHeaderProto(**header).SerializeToString()
    bundles.write_index(tmp_path / "ckpt.index", [(0, b"", content)])
    (tmp_path / "ckpt.data-00000-of-00002").write_bytes(b"")
    with pytest.raises(ValueError, match=message):
        bundle.read(tmp_path / "ckpt")


# Small JSON that takes gigabytes of memory, or more levels than Python can walk over.


@pytest.mark.parametrize(
    "options", [{"labels": ["good", ""]}, {"names": ["score", ESCAPE]}, {"prompts": {ESCAPE: "q"}}]
)
def test_names_with_control_characters_are_refused(options):
    with pytest.raises(ValueError, match="must be a string without .* Rename it") as caught:
        heads.TaskOutput("classification", **options)
    assert str(caught.value).isprintable()


def test_a_label_of_the_data_with_control_characters_is_refused(tmp_path):
    encoder = tiny.encoder(num_hidden_layers=1)
    with pytest.raises(ValueError, match=r"a label must .*\\x1b\[2J.* Rename it"):
        heads.classifier(encoder, labels=["good", ESCAPE])
    file = tmp_path / "data.tsv"
    file.write_text("label\ttext\ngood\ta film\nb\x1bad\ta film\n")
    with pytest.raises(ValueError, match=r"row 3: a label must .*b\\x1bad"):
        tabular.read(file, text="text", label="label")


def bomb(kind, size):
    """Return compressed line ends."""
    text = b"\n" * size
    if kind == "bz2":
        return bz2.compress(text)
    if kind == "zst":
        return zstandard.ZstdCompressor().compress(text)
    if kind == "gz":
        return gzip.compress(text)
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**20}]
    return lzma.compress(text, filters=filters)


# In a process of its own: the memory of a test run depends on other tests.
READ_A_BOMB = """
import sys
from keras_bert.pretraining import corpus, decompression
from tests.security import memory

decompression._ALWAYS_ALLOWED_BYTES = 2**25
before = memory.resident()
try:
    list(corpus.documents(sys.argv[1]))
except ValueError as error:
    message = str(error)
assert "at most 33554432 bytes; " in message and "decompress it and use" in message, message
assert memory.peak() - before < 60e6
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bz2", "xz", "gz", "zst"])
def test_a_corpus_that_decompresses_to_gigabytes(tmp_path, python, kind):
    file = tmp_path / "corpus"
    file.write_bytes(bomb(kind, 2**27))
    python("-c", READ_A_BOMB, file)


def test_xz_that_declares_a_large_window(tmp_path):
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**20}]
    content = bytearray(lzma.compress(b"One.\n", filters=filters))
    end = 12 + 4 * content[12] + 4  # of the header of the block
    content[content.index(b"\x21\x01", 12) + 2] = 40  # a window of 4 GB
    content[end - 4 : end] = zlib.crc32(content[12 : end - 4]).to_bytes(4, "little")
    (tmp_path / "a.xz").write_bytes(content)
    with pytest.raises(ValueError, match=r"a.xz: this xz file .* needs too much memory"):
        list(corpus.documents(tmp_path / "a.xz"))


def test_yaml_bomb(tmp_path):
    path = make_folder("model_garden", tmp_path / "model")
    (path / "bert_config.json").unlink()
    lines = ["a0: &a0 [x, x]", *(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 30))]
    (path / "params.yaml").write_text("\n".join([*lines, "encoder: *a29"]))
    assert_rejected(path, "must be YAML in UTF-8, received an alias")


def squad_file(path, context, *answers):
    qas = [
        {"id": str(number), "question": "q", "answers": [{"text": text, "answer_start": start}]}
        for number, (text, start) in enumerate(answers)
    ]
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": context, "qas": qas}]}]}))
    return path


def test_many_answers_that_are_not_in_a_long_context(tmp_path):
    answers = [(f"z{number}", 0) for number in range(20_000)]
    file = squad_file(tmp_path / "a.json", "a" * 10**6, *answers)
    start = time.process_time()
    with pytest.raises(ValueError, match="question 1074: .*Correct answer_start"):
        squad.read(file)
    assert time.process_time() - start < 10 * slowness()


def test_a_long_answer_of_repeated_letters(tmp_path):
    half = "a" * 150_000
    file = squad_file(tmp_path / "a.json", "a" * 10**6, (f"{half}b{half}", 10**6))
    start = time.process_time()
    assert squad.read(file).lost_answers == 1
    assert time.process_time() - start < 5 * slowness()
