r"""Feed mutated files to every reader, in one process per reader, and count what happens.

    python -m tests.security.fuzz                          # 500 files for each reader
    python -m tests.security.fuzz --files 10000 --seed 1   # more files
    python -m tests.security.fuzz --readers keras google --seconds 60

A reader may read a file or raise a ValueError or an OSError of one printable line. Anything else is
a finding, and the command ends with status 1: a process that ends, one that takes over 10 seconds
or over 2 GB for a file, another exception, a file opened outside the reader's folder, a program
started, a connection opened (as far as Python's audit hooks see them). A finding is named by
reader, seed and number of the file;
`--readers NAME --seed SEED --first NUMBER --files 1 --keep FOLDER` makes that file again.
"""

import argparse
import contextlib
import functools
import itertools
import json
import os
import pathlib
import re
import selectors
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib

import numpy as np

SECONDS_A_FILE = 10
BYTES_A_FILE = 2 * 10**9
ROOT = pathlib.Path(__file__).parents[2]
# Values that readers of numbers may not expect.
NUMBERS = ["-1", "0", "3", "100.7", "1e400", "NaN", "3000000", "1000000000", str(2**63), "9" * 5000]
SIZES = [0, 1, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1]
TOKENS = ["null", "[]", "{}", '""', "true", '"\\u001b[2J"', '"' + "x" * 9999 + '"', "[" * 3000]


# --- The readers: what makes a good folder, and what reads it.


def _encoder():
    import keras_bert
    from tests import tiny

    encoder = tiny.encoder(num_hidden_layers=1, hidden_act="gelu_new")
    encoder.preprocessor = keras_bert.Preprocessor(tiny.PIECES, max_sequence_length=32)
    return encoder


def _checkpoint(format):
    def make(folder):
        import keras_bert

        keras_bert.save(_encoder(), folder, format=format)

    return make


def _make_shards(folder):
    from safetensors import numpy as safetensors

    _checkpoint("huggingface")(folder)
    file = folder / "model.safetensors"
    tensors = safetensors.load_file(file)
    names = sorted(tensors)
    file_of = {}
    for number, part in enumerate((names[::2], names[1::2])):
        shard = f"model-{number}.safetensors"
        safetensors.save_file({name: tensors[name] for name in part}, folder / shard)
        file_of |= dict.fromkeys(part, shard)
    file.unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": file_of}))
    pieces = (folder / "vocab.txt").read_text("utf-8").splitlines()
    (folder / "vocab.txt").unlink()
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = {"model": {"type": "WordPiece", "vocab": vocabulary}, "added_tokens": []}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


def _make_pickle(write):
    def make(folder):
        from safetensors import numpy as safetensors

        from tests.checkpoints import test_huggingface as pickles

        _checkpoint("huggingface")(folder)
        tensors = safetensors.load_file(folder / "model.safetensors")
        (folder / "model.safetensors").unlink()
        records, state = {}, {}
        for number, (name, array) in enumerate(tensors.items()):
            strides = tuple(stride // 4 for stride in np.ascontiguousarray(array).strides)
            storage = pickles.storage(str(number), array.size)
            state[name] = pickles.tensor(storage, 0, array.shape, strides)
            records[str(number)] = array.tobytes()
        getattr(pickles, write)(folder / "pytorch_model.bin", pickles.state(**state), records)

    return make


def _make_model_garden(folder):
    import tensorflow as tf

    from tests import garden_objects

    garden_objects.write_config(folder)
    tf.train.Checkpoint(model=garden_objects.Maker().encoder()).write(
        str(folder / "bert_model.ckpt")
    )


def _make_saved_model(folder):
    from tests import garden_objects

    garden_objects.save_model(folder / "1", garden_objects.Maker().functional_encoder(), None)
    shutil.copytree(folder / "1", folder, dirs_exist_ok=True)
    shutil.rmtree(folder / "1")


def _make_keras(folder):
    import keras_bert
    from keras_bert import heads

    keras_bert.save(heads.classifier(_encoder(), labels=["bad", "good"]), folder)


def _make_archive(folder):
    inner = folder.parent / "inner"
    inner.mkdir()
    _checkpoint("google")(inner / "bert")
    shutil.make_archive(str(folder / "model"), "zip", inner)
    shutil.rmtree(inner)


def _make_run(folder):
    state, model = _run_state(folder), _run_model()
    state.epoch, state.history = 1, [{"epoch": 1, "loss": 1.0, "accuracy": 0.5}]
    model.optimizer.build(model.trainable_variables)
    state.keep_best(model, state.history[0])
    state.save(model)


@functools.cache
def _run_model():
    from keras_bert import heads, optimizers
    from tests import tiny

    model = heads.classifier(tiny.encoder(num_hidden_layers=1), labels=["bad", "good"])
    model.compile(optimizers.adamw(1e-3, total_steps=2), "mse")
    return model


def _run_state(folder):
    from keras_bert.training import run_state

    return run_state.RunState(folder, {"epochs": 2})


def _read_run(folder):
    _run_state(folder).restore(_run_model())


def _make_steps(folder):
    import keras

    from keras_bert.pretraining import state

    checkpoints = state.Checkpoints(folder, {"steps": 2})
    checkpoints.save(1, [keras.Variable(np.ones((2, 3)), dtype="float32")], {"place": 3})


def _read_steps(folder):
    import keras

    from keras_bert.pretraining import state

    variables = [keras.Variable(np.ones((2, 3)), dtype="float32")]
    state.Checkpoints(folder, {"steps": 2}).restore(variables)


def _make_vocabulary(folder):
    from tests import tiny

    (folder / "vocab.txt").write_text("\n".join(tiny.PIECES), "utf-8")


def _read_vocabulary(folder):
    import keras_bert

    keras_bert.Preprocessor(folder / "vocab.txt")


def _load(folder, calls=itertools.count()):  # noqa: B008
    """Reads a checkpoint and all of its weights; of every tenth the model is built too."""
    import keras_bert
    from keras_bert import checkpoints

    if next(calls) % 10 == 0:
        keras_bert.load(folder)
        return
    weights = checkpoints.read(folder).weights
    for name in weights:
        checkpoints.canonical.check_numbers(folder, name, weights[name])


def _load_auto(folder):
    import keras_bert

    keras_bert.load(folder, task="auto")


def _load_archive(folder):
    import keras_bert

    os.environ["KERAS_BERT_CACHE"] = str(folder / "cache")
    keras_bert.load(folder / "model.zip")


def _text(name, content):
    def make(folder):
        (folder / name).write_text(content, "utf-8")

    return make


def _read_texts(name):
    def read(folder):
        from keras_bert.data import tabular

        tabular.read(folder / name, text="text", label="label")

    return read


def _read_tags(folder):
    from keras_bert.data import conll

    conll.read(next(folder.glob("train.*")))


def _read_questions(folder):
    from keras_bert.data import squad

    squad.read(folder / "train.json")


def _read_choices(folder):
    from keras_bert.data import swag

    swag.read(folder / "train.jsonl")


def _read_corpus(folder):
    from keras_bert.pretraining import corpus

    for _ in corpus.documents(folder):
        pass


ROWS = "text\tlabel\n" + "so good\tgood\nso bad\tbad\n한국어 영화\tgood\n" * 5
WORDS = "this O\nfilm B-work\n\nis O\ngood B-mood\n한국 I-mood\n\n" * 3
TREE = (
    "# sent_id = 1\n1\tso\tso\tADV\tRB\t_\t0\troot\t_\t_\n2\tbad\tbad\tADJ\tJJ\t_\t1\tx\t_\t_\n\n"
)
SQUAD = {
    "version": "1.1",
    "data": [{"title": "a", "paragraphs": [{"context": "so good a film", "qas": [
        {"id": "1", "question": "how", "answers": [{"text": "good", "answer_start": 3}]}
    ]}]}],
}  # fmt: skip
CHOICE = json.dumps({"text": "so", "choices": ["good", "bad"], "label": 0})
WIKI = (
    "<mediawiki><page><title>A</title><ns>0</ns><revision><text>'''A''' is [[good]]. {{x|y}}\n\n"
    "== B ==\nSo it is.</text></revision></page></mediawiki>"
)
READERS = {
    "safetensors": (_checkpoint("huggingface"), _load),
    "shards": (_make_shards, _load),
    "pickle": (_make_pickle("write_archive"), _load),
    "old_pickle": (_make_pickle("write_legacy"), _load),
    "google": (_checkpoint("google"), _load),
    "keras_hub": (_checkpoint("keras_hub"), _load),
    "model_garden": (_make_model_garden, _load),
    "saved_model": (_make_saved_model, _load),
    "keras": (_make_keras, _load_auto),
    "archive": (_make_archive, _load_archive),
    "run": (_make_run, _read_run),
    "steps": (_make_steps, _read_steps),
    "vocabulary": (_make_vocabulary, _read_vocabulary),
    "tsv": (_text("train.tsv", ROWS), _read_texts("train.tsv")),
    "csv": (_text("train.csv", ROWS.replace("\t", ",")), _read_texts("train.csv")),
    "jsonl": (
        _text("train.jsonl", '{"text": "so good", "label": "good"}\n' * 5),
        _read_texts("train.jsonl"),
    ),
    "conll": (_text("train.conll", WORDS), _read_tags),
    "conllu": (_text("train.conllu", TREE * 3), _read_tags),
    "squad": (_text("train.json", json.dumps(SQUAD)), _read_questions),
    "choices": (_text("train.jsonl", f"{CHOICE}\n" * 3), _read_choices),
    "mediawiki": (_text("dump.xml", WIKI), _read_corpus),
}


# --- Mutations.


def mutate(file, random):
    """Changes a file, sometimes with valid checksums and sizes."""
    content = file.read_bytes()
    kind = file.suffix
    if zipfile.is_zipfile(file) and random.random() < 0.7:
        with contextlib.suppress(Exception):  # it may be broken already
            _mutate_member(file, random)
    elif kind == ".index" and random.random() < 0.7:
        with contextlib.suppress(Exception):
            file.write_bytes(_sealed_index(content, random))
    elif kind == ".safetensors" and random.random() < 0.5:
        size = struct.unpack("<Q", content[:8])[0]
        header = _changed(content[8 : 8 + size], random, text=True)
        file.write_bytes(struct.pack("<Q", len(header)) + header + content[8 + size :])
    else:
        file.write_bytes(_changed(content, random, kind in (".json", ".jsonl", ".yaml", ".txt")))


def _mutate_member(file, random):
    with zipfile.ZipFile(file) as archive:
        parts = {item.filename: archive.read(item) for item in archive.infolist()}
    name = str(random.choice(sorted(parts)))
    parts[name] = _changed(parts[name], random, text=name.endswith((".json", ".txt")))
    method = zipfile.ZIP_DEFLATED if random.random() < 0.1 else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", method) as archive:
        for part, content in parts.items():
            archive.writestr(part, content)


def _changed(content, random, text=False):
    """Other bytes: flipped, cut, doubled, moved; in text numbers and values replaced too."""
    if not content:
        return b"\x00" * int(random.integers(3))
    if text and random.random() < 0.6:
        return _changed_text(content, random)
    changed = bytearray(content)
    for _ in range(int(random.choice([1, 1, 2, 8, 64]))):
        if not changed:
            break
        place = int(random.integers(len(changed)))
        size = int(random.integers(1, 17))
        kind = int(random.integers(7))
        if kind == 0:
            changed[place] ^= 1 << int(random.integers(8))
        elif kind == 1:
            changed[place] = int(random.choice([0, 1, 0x7F, 0x80, 0xFF]))
        elif kind == 2:
            del changed[place : place + size]
        elif kind == 3:
            changed[place:place] = random.bytes(size)
        elif kind == 4:
            there = int(random.integers(len(changed)))
            changed[place : place + size] = changed[there : there + size]
        elif kind == 5 and random.random() < 0.2:
            del changed[place:]
        else:
            number = SIZES[int(random.integers(len(SIZES)))]
            changed[place : place + 8] = number.to_bytes(8, "little")
    return bytes(changed)


def _changed_text(content, random):
    text = content.decode("utf-8", "surrogateescape")
    pattern = str(random.choice([r"-?\d+(\.\d+)?", r'"[^"]*"', r"[^\s,:{}\[\]\"]+"]))
    found = list(re.finditer(pattern, text))
    if not found:
        return content
    place = found[int(random.integers(len(found)))]
    new = str(random.choice([*NUMBERS, *TOKENS, found[int(random.integers(len(found)))][0]]))
    return (text[: place.start()] + new + text[place.end() :]).encode("utf-8", "surrogateescape")


def _sealed_index(content, random):
    """An index with changed bytes in a block, whose checksum is right again."""
    place = len(content) - 48
    numbers = []
    for _ in range(4):
        value = shift = 0
        while True:
            byte = content[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        numbers.append(value)
    assert max(numbers) < len(content)
    blocks = [(numbers[0], numbers[1]), (numbers[2], numbers[3]), (0, numbers[0] - 5)]
    start, size = blocks[int(random.choice(3, p=[0.1, 0.1, 0.8]))]
    changed = bytearray(content)
    block = bytearray(_changed(bytes(content[start : start + size]), random))[:size]
    block += bytes(size - len(block))
    changed[start : start + size] = block
    sealed = crc32c(bytes(block) + bytes(changed[start + size : start + size + 1]))
    sealed = ((sealed >> 15 | sealed << 17) + 0xA282EAD8) & 0xFFFFFFFF
    changed[start + size + 1 : start + size + 5] = sealed.to_bytes(4, "little")
    return bytes(changed)


def crc32c(data, table=[]):  # noqa: B006  # made once
    """The checksum that TensorFlow's files have."""
    if not table:
        for value in range(256):
            for _ in range(8):
                value = value >> 1 ^ 0x82F63B78 * (value & 1)
            table.append(value)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


# --- The process that reads.


def read_in_this_process(name, folder, seed, first, count):
    """Makes, mutates and reads files, and says before and after each what happens."""
    folder = pathlib.Path(folder)
    good, work = folder / "good", folder / "work"
    make, read = READERS[name]
    if not good.exists():
        good.mkdir(parents=True)
        make(good)
    files = sorted(file.relative_to(good) for file in good.rglob("*") if file.is_file())
    refresh(good, work)
    read(work)  # the good one; whatever it imports is imported now
    watch(folder)
    for number in range(first, first + count):
        refresh(good, work)
        random = np.random.default_rng([seed, zlib.crc32(name.encode()), number])
        for _ in range(int(random.choice([1, 1, 1, 2]))):
            mutate(work / files[int(random.integers(len(files)))], random)
        _reset_peak()
        print(json.dumps({"begins": number}), flush=True)
        SEEN.clear()
        said, problem = "accepted", None
        try:
            read(work)
        except (ValueError, OSError) as error:
            said = "refused"
            if not str(error).isprintable() or not str(error):
                problem = f"message that is not one printable line: {str(error)[:300]!r}"
        except BaseException as error:
            said, problem = "foreign", f"{type(error).__module__}.{type(error).__name__}: {error}"
        peak = _peak()
        if peak > BYTES_A_FILE:
            problem = f"{peak / 1e9:.1f} GB"
        problem = problem or ("; ".join(sorted(SEEN)) or None)
        print(json.dumps({"said": said, "problem": problem and problem[:500]}), flush=True)


SEEN: set[str] = set()


def watch(folder):
    """Notes files opened elsewhere, programs that are started, connections."""
    own = [str(folder), str(ROOT / "keras_bert"), str(ROOT / "tests"), sys.prefix, sys.base_prefix]
    own += ["/proc", "/dev", "/sys", tempfile.gettempdir(), os.path.realpath(sys.prefix)]

    def note(event, arguments):
        if event == "open" and isinstance(arguments[0], (str, bytes)):
            path = os.fsdecode(arguments[0])
            # A bare name is opened within a folder that is open, by what deletes folders.
            if "/" in path and not os.path.abspath(path).startswith(tuple(own)):
                SEEN.add(f"opened {path}")
        elif event in ("subprocess.Popen", "os.system", "os.exec", "os.fork", "socket.connect"):
            SEEN.add(event)

    sys.addaudithook(note)


def refresh(good, work):
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(good, work)


def _reset_peak():
    pathlib.Path("/proc/self/clear_refs").write_text("5")


def _peak():
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", status)[1])


# --- The process that watches.

_STARTUP_SECONDS = 120  # seconds to start TensorFlow, or to make a file on a busy machine


def run(name, folder, seed, first, count, seconds):
    """Runs a reader over files; returns counts and findings."""
    counts = {"accepted": 0, "refused": 0}
    findings, number, end = [], first, time.monotonic() + seconds
    while number < first + count and time.monotonic() < end:
        command = [sys.executable, "-m", "tests.security.fuzz", "--in-process", name, str(folder)]
        command += ["--seed", str(seed), "--first", str(number)]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
        environment |= {"TMPDIR": str(folder), "CUDA_VISIBLE_DEVICES": "-1"}
        with (
            open(folder / "stderr.txt", "wb") as errors,
            subprocess.Popen(
                [*command, "--files", str(first + count - number)],
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=errors,
            ) as process,
        ):
            number = _follow(process, number, counts, findings, end)
            process.kill()
        if findings and findings[-1][0] is None:  # the fuzzer itself failed
            lines = (folder / "stderr.txt").read_text(errors="replace").splitlines()
            raise SystemExit(f"{name}, near file {number}: {lines[-1] if lines else 'no reason'}")
        process.kill()
        process.wait()
    return counts, findings


def _follow(process, number, counts, findings, end):
    """Reads what a process says until it ends or hangs; returns the next number."""
    under_way, limit = None, _STARTUP_SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while time.monotonic() < end:
            if not selector.select(timeout=limit):
                findings.append((under_way, f"over {limit} seconds"))
                return number + 1
            line = process.stdout.readline()
            if not line:
                status = process.wait()
                if status or under_way is not None:
                    findings.append((under_way, f"the process ended with status {status}"))
                return number + 1
            said = json.loads(line)
            if "begins" in said:
                under_way, limit = said["begins"], SECONDS_A_FILE
                number = under_way
            else:
                counts[said["said"]] = counts.get(said["said"], 0) + 1
                if said["problem"]:
                    findings.append((under_way, said["problem"]))
                under_way, number, limit = None, number + 1, _STARTUP_SECONDS
    return number


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--readers", nargs="+", choices=READERS, default=list(READERS))
    parser.add_argument("--files", type=int, default=500, help="for each reader (500)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for each reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first file")
    parser.add_argument("--keep", help="folder that keeps the last file of each reader")
    parser.add_argument("--in-process", nargs=2, metavar=("READER", "FOLDER"))
    args = parser.parse_args()
    if args.in_process:
        read_in_this_process(*args.in_process, args.seed, args.first, args.files)
        return 0
    found = 0
    for name in args.readers:
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="fuzz-") as temporary:
            folder = pathlib.Path(args.keep or temporary, name)
            folder.mkdir(parents=True, exist_ok=True)
            counts, findings = run(name, folder, args.seed, args.first, args.files, args.seconds)
        found += len(findings)
        said = ", ".join(f"{count} {what}" for what, count in counts.items())
        print(f"{name:13} {said}, {len(findings)} findings, {time.monotonic() - start:.0f} s")
        for number, finding in findings[:20]:
            print(f"    seed {args.seed}, file {number}: {finding}")
        sys.stdout.flush()
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
