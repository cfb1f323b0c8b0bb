"""Attack: small files that need much memory or time. Each one is over one limit of `budget`."""

import contextlib
import json
import struct
import time
import zipfile

import h5py
import pytest
from onnx import helper
from tensorflow.core.framework import graph_pb2

import keras_bert
from keras_bert.checkpoints import (
    bundle,
    folder,
    model_garden,
    sentence_transformers,
    tokenizer_config,
)
from keras_bert.checkpoints.added_tokens import as_added_tokens
from keras_bert.data import tabular
from keras_bert.pretraining import corpus, records
from keras_bert.runtime import budget
from keras_bert.runtime.budget import (
    MAX_DEPTH,
    MAX_FILE,
    MAX_HEADER,
    MAX_ITEMS,
    MAX_LAYERS,
    MAX_NAME,
    MAX_OBJECTS,
    MAX_RANK,
    MAX_TEXT,
    MAX_TOKENS,
)
from keras_bert.tasks.multiple_choice import data as swag
from keras_bert.tasks.question_answering import data as squad
from keras_bert.untrusted import (
    archives,
    bundle_index,
    containers,
    onnx_graph_check,
    openvino_graph_check,
    protobuf,
    torch_pickle,
)
from tests import prose
from tests.checkpoints import pickles
from tests.machine import slowness
from tests.security import bundles, fuzz, memory
from tests.security.rewriting import rewrite_zip

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
MANY = range(MAX_OBJECTS + 1)


@pytest.fixture(autouse=True)
def limit_resources():
    memory.reset_peak()
    before, start = memory.resident(), time.process_time()
    yield
    assert memory.peak() - before < 2e9
    assert time.process_time() - start < 10 * slowness()


# Writers of a hostile file


def archive(names, content=b""):
    def write(file):
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED if content else 0) as opened:
            for name in names:
                opened.writestr(name, content)

    return write


def keys(file):
    """Write an object with as many keys as a file may have."""
    items = ",".join(f'"{number:x}":0' for number in range(MAX_ITEMS - 1))
    file.write_text(f"{{{items}}}")


def list_of(item, count):
    return lambda file: file.write_bytes(b"[" + item * count + b"1]")


def million_members(file):
    """Write a list of members that takes `zipfile` half a minute."""
    directory = (b"PK\1\2" + bytes(42)) * 10**6
    end = struct.pack("<4sQHHLLQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, 10**6, 10**6, len(directory), 0)
    end += struct.pack("<4sLQL", b"PK\6\7", 0, len(directory), 1)
    end += struct.pack("<4sHHHHLLH", b"PK\5\6", 0, 0, 2**16 - 1, 2**16 - 1, 2**32 - 1, 2**32 - 1, 0)
    file.write_bytes(directory + end)


def content(data):
    return lambda file: file.write_bytes(data)


def hdf5(write):
    def write_file(file):
        with h5py.File(file, "w", libver="latest") as opened:
            write(opened)

    return write_file


def attributes(opened, numbers=MANY):
    for number in numbers:
        opened.attrs[str(number)] = 1


def long_names(opened):
    opened.create_group("a" * 100_000)["b"] = 1


def groups(opened):
    for number in MANY:
        opened.create_group(str(number))


def nested_groups(opened):
    """Nest groups, which HDF5 visits in quadratic time."""
    for _ in range(5000):
        opened = opened.create_group("a")


def index(entries):
    return lambda file: bundles.write_index(file, entries)


def keras_file(members):
    def write(file):
        fuzz.READERS["keras"][0](file.parent)
        rewrite_zip(file, lambda old: old.update(members))

    return write


def layers(count):
    return "".join(f'<layer id="{number}" type="ReLU"/>' for number in range(count))


def nodes(file):
    added = [helper.make_node("Relu", ["w"], [str(number)]) for number in MANY]
    graph = helper.make_graph(added, "graph", [], [])
    file.write_bytes(helper.make_model(graph).SerializeToString())


def openvino(inner):
    return content(f"<net><layers>{inner}</layers></net>".encode())


def pickle(program, write=pickles.write_archive):
    return lambda file: write(file, program, {"0": bytes(20_000)})


def rebuilt(shape, strides):
    """Return a pickle with a tensor of 20,000 bytes at most."""
    return pickles.state(a=pickles.tensor(pickles.storage("0", 5000), 0, shape, strides))


def many_views():
    """Return a pickle with many tensors of one storage."""
    view = pickles.tensor(pickles.storage("0", 5000), 0, (5000,), (1,))
    return pickles.state(**{f"a{number}": view for number in range(1000)})


def strides_of_many_calls():
    """Return a pickle with calls that have the same long tuple."""
    arguments = pickles.storage("0", 1) + b"K\0)" + b"(" + b"K\1" * 10**5 + b"t"
    call = b"h\1h\0R"
    rebuild = pickles.global_name("torch._utils", "_rebuild_tensor_v2")
    return b"\x80\x02" + rebuild + b"q\1(" + arguments + b"tq\0" + call * 10**5 + b"."


def safetensors(names, shape=(0,)):
    def write(file):
        fuzz.READERS["safetensors"][0](file.parent)
        entry = {"dtype": "F32", "shape": list(shape), "data_offsets": [0, 0]}
        data = json.dumps(dict.fromkeys(names, entry)).encode()
        file.write_bytes(struct.pack("<Q", len(data)) + data)

    return write


def shard(file):
    made = prose.build(file.parent, "Zed.\n", held_out=0.0)
    sparse(made.folder / made.shards()[0])


def sparse(file):
    with open(file, "wb") as opened:
        opened.truncate(2**40)


def state_file(file):
    sparse(file)
    (file.parent / "a.index").touch()


def tokens(names):
    """Return a writer of a tokenizer.json."""

    def write(file):
        ids = {name: id_ for id_, name in enumerate([*SPECIAL, *names])}
        file.write_text(json.dumps({"model": {"vocab": ids}}))

    return write


# Readers


def graph_of_objects(file):
    graph = file.read_bytes()
    bundle.read_graph(bundle.Bundle("ckpt", {bundle.GRAPH: ()}, lambda name: graph))


def read_corpus(file):
    list(corpus.documents([file]))


def large_vocabulary(file):
    names = [f"{number:058}" for number in range(MAX_TOKENS - len(SPECIAL))]
    keras_bert.Preprocessor(SPECIAL + names)(["a"])


def load_folder(file):
    keras_bert.load(file.parent)


def read_hdf5(file):
    with h5py.File(file) as opened:
        containers.check_hdf5(opened, file.stat().st_size)


def read_index(file):
    bundle_index.read(file.with_suffix(""))


def read_modules(file):
    sentence_transformers.read_module_paths(file.parent)


def read_openvino(file):
    (file.parent / "a.bin").write_bytes(bytes(24))
    openvino_graph_check.check(file, file.parent / "a.bin")


def read_shards(file):
    made = records.Records(file.parent / "records")
    made.read(made.shards())


def read_tokenizer(file):
    tokenizer_config.read(file.parent)


def unpack(file):
    archives.unpack(file, file.parent / "unpacked")


def read_ops(file):
    protobuf.find(file.read_bytes(), graph_pb2.GraphDef.DESCRIPTOR, "node.op")


NESTED = b"[" * 500 + b"]" * 500
JSON_READERS = {
    "train.json": squad.read,
    "train.jsonl": lambda file: tabular.read(file, text="text", label="label"),
    "swag.jsonl": swag.read,
    "wiki.jsonl": read_corpus,
    "config.json": folder.read_json,
    "modules.json": folder.read_json_list,
}
ELEMENTS = f'<layer id="0" type="Add"><rt_info>{"<a/>" * 2**22}</rt_info></layer>'
NESTED_XML = b"<mediawiki>" + b"<a>" * 500
MODULES = json.dumps([{"type": "x", "path": ""}] * 300).encode()
LONG_CONFIG = {"config.json": bytes(MAX_TEXT + 1)}
VOCABULARIES = {f"assets/{number}/vocab.txt": b"" for number in range(300)}
LONG_KEYS = [(0, b"k" * 10**5, b""), *((10**5, b"%06d" % number, b"") for number in MANY)]
SHORT_KEYS = [(0, b"k%08d" % number, b"") for number in range(200_000)]
# Limit -> hostile files: name, writer, reader.
HOSTILE = {
    MAX_FILE: [
        ("a.onnx", sparse, onnx_graph_check.check),
        ("records", shard, read_shards),
    ],
    MAX_TEXT: [
        ("config.json", sparse, folder.read_json),
        ("vocab.txt", sparse, folder.read_vocabulary),
        ("a.xml", sparse, read_openvino),
        ("model.keras", keras_file(LONG_CONFIG), load_folder),
        ("tokenizer.json", tokens(f"{number:0985}" for number in range(68_000)), read_tokenizer),
        ("vocab", None, lambda _: keras_bert.Preprocessor([*SPECIAL, *["a" * 1000] * 70_000])),
    ],
    MAX_HEADER: [
        ("a.index", sparse, read_index),
        ("checkpoint", state_file, lambda file: bundle.find(file.parent)),
        ("graph", content(bytes(2**23)), graph_of_objects),
        ("a.bin", pickle(b"\x80\2" + b"}" * 2**23), torch_pickle.read),
        ("model.safetensors", safetensors(map(str, range(100_000))), load_folder),
        ("a.zip", million_members, unpack),
        ("a.npz", million_members, containers.read_npz),
        ("model.keras", million_members, load_folder),
    ],
    MAX_ITEMS: [
        *((name, list_of(b"[],", MAX_ITEMS + 1), read) for name, read in JSON_READERS.items()),
        ("keys.json", lambda file: file.write_bytes(b"{" + b'"":0,' * MAX_ITEMS), folder.read_json),
        ("messages", content(b"\x0a\0" * 2**22), read_ops),
        ("unknown fields", content(b"\x7a\0" * 2**22), read_ops),
        ("a.onnx", content(b"\x08\1" * 2**22), onnx_graph_check.check),
        ("a.xml", openvino(ELEMENTS), read_openvino),
    ],
    MAX_TOKENS: [
        ("vocab.txt", content(b"\n" * 2**25), folder.read_vocabulary),
        ("vocab", None, lambda _: keras_bert.Preprocessor([*SPECIAL, *["a"] * 2**20])),
        ("added", None, lambda _: as_added_tokens(f"{number:0200}" for number in range(6000))),
    ],
    MAX_OBJECTS: [
        ("a.zip", archive(map(str, MANY)), unpack),
        ("folders.zip", archive(f"{number}/" + "a/" * 20 for number in range(1000)), unpack),
        ("a.bin", archive(map(str, MANY)), torch_pickle.read),
        ("groups.h5", hdf5(groups), read_hdf5),
        ("attributes.h5", hdf5(attributes), read_hdf5),
        ("a.index", index(SHORT_KEYS), read_index),
        ("model.safetensors", safetensors(map(str, MANY)), load_folder),
        ("a.onnx", nodes, onnx_graph_check.check),
        ("a.xml", openvino(layers(len(MANY))), read_openvino),
    ],
    MAX_LAYERS: [
        ("model.keras", keras_file(VOCABULARIES), load_folder),
        ("modules.json", content(MODULES), read_modules),
    ],
    8 * MAX_OBJECTS: [("graph", content(b"\n\0" * 200_000), graph_of_objects)],
    MAX_NAME: [
        ("tf_model.h5", hdf5(long_names), read_hdf5),
        ("model.safetensors", safetensors(["a" * 2000]), load_folder),
        ("tokenizer.json", tokens(["a" * 2000]), read_tokenizer),
        ("a.index", index(LONG_KEYS), read_index),
    ],
    MAX_DEPTH: [
        *((name, content(NESTED), read) for name, read in JSON_READERS.items()),
        ("model.keras", keras_file({"config.json": NESTED}), load_folder),
        ("a.h5", hdf5(nested_groups), read_hdf5),
        ("a.zip", archive(["a/" * 400 + "a"]), unpack),
        ("wiki.xml", content(NESTED_XML), read_corpus),
    ],
    MAX_RANK: [
        ("model.safetensors", safetensors(["a"], [10**18] * 50_000 + [0]), load_folder),
        ("shape.bin", pickle(rebuilt((1,) * 100_000, (1,) * 100_000)), torch_pickle.read),
        ("strides.bin", pickle(strides_of_many_calls()), torch_pickle.read),
    ],
    budget.GROWTH * 20_000 + budget.EXTRA: [
        ("a.bin", pickle(rebuilt((9999, 9999), (0, 0))), torch_pickle.read),
        ("many.bin", pickle(many_views()), torch_pickle.read),
    ],
    2**17: [("params.yaml", sparse, lambda file: model_garden.read_config(file.parent))],
    r"\d{7}": [("a.zip", archive("a", bytes(2**24)), unpack)],
}


@pytest.mark.parametrize(
    ("limit", "name", "write", "read"),
    [
        pytest.param(limit, *row, id=f"{row[0]} over {limit}")
        for limit, rows in HOSTILE.items()
        for row in rows
    ],
)
def test_a_file_over_a_limit(tmp_path, limit, name, write, read):
    if write:
        write(tmp_path / name)
    with pytest.raises(ValueError, match=rf"\d+ .*, at most {limit} are allowed") as caught:
        read(tmp_path / name)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 500


NAMES = [(0, b"a" * 1000, b""), *((1000, b"%06d" % number, b"") for number in MANY[2:])]
TUPLES = b"\x80\2}" + b"\x85" * (MAX_HEADER - 4) + b"."
# Files within all limits: a reader may accept or refuse them.
ALLOWED = [
    ("objects.json", list_of(b'{"":0},', MAX_ITEMS // 2 - 1), folder.read_json_list),
    ("floats.json", list_of(b"1.5,", MAX_TEXT // 4 - 1), folder.read_json_list),
    ("keys.json", keys, folder.read_json),
    ("graph", content(b"\x0a\0" * (MAX_HEADER // 2)), graph_of_objects),
    ("a.bin", pickle(TUPLES), torch_pickle.read),
    ("legacy.bin", pickle(TUPLES, pickles.write_legacy), torch_pickle.read),
    ("a.index", index(NAMES), read_index),
    ("a.h5", hdf5(lambda opened: attributes(opened, MANY[2:])), read_hdf5),
    ("vocab", None, large_vocabulary),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "write", "read"), ALLOWED, ids=[row[0] for row in ALLOWED])
def test_a_file_at_a_limit_takes_seconds(tmp_path, name, write, read):
    if write:
        write(tmp_path / name)
    start = time.process_time()
    with contextlib.suppress(ValueError):
        read(tmp_path / name)
    assert time.process_time() - start < 10 * slowness()
