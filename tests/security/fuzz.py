r"""Feed mutated files to every reader, in one process per reader, and count what happens.

    python -m tests.security.fuzz                          # 500 files for each reader
    python -m tests.security.fuzz --files 10000 --seed 1   # more files
    python -m tests.security.fuzz --readers keras google --seconds 60

A reader may accept a file, or raise a ValueError or an OSError with one printable line. Anything
else is a finding: a crash, over 10 seconds of CPU time or over 2 GB for one file, another
exception, a file opened outside the reader's folder, a module imported that the file names, a
program started, a connection opened. The last four are detected by Python's audit hooks. With
findings, the exit status is 1. A finding is identified by reader, seed and number; reproduce its
file with `--readers NAME --seed SEED --first NUMBER --files 1 --keep FOLDER`.
"""

import argparse
import functools
import itertools
import json
import os
import pathlib
import resource
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib

import numpy as np

from tests.security import memory, mutations

SECONDS_A_FILE = 10
BYTES_A_FILE = 2 * 10**9
ROOT = pathlib.Path(__file__).parents[2]


# Readers: a function that makes a valid folder, and a function that reads it


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

        from tests.checkpoints import pickles

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


def _make_hdf5(folder):
    from tests.checkpoints import tensorflow_files

    _checkpoint("huggingface")(folder)
    tensorflow_files.write_hdf5(folder)


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


def _make_layers(folder):
    """Make a model of Keras' own layers."""
    import keras

    x = keras.Input((3,))
    y = keras.layers.Dense(2, "gelu")(keras.layers.LayerNormalization()(x))
    keras.Model(x, keras.layers.Concatenate()([x, y])).save(folder / "model.keras")


def _make_sentence_transformer(folder):
    import keras_bert
    from keras_bert import heads

    model = heads.embedder(_encoder(), prompts={"query": "q: "})
    keras_bert.save(model, folder, format="sentence_transformers")


def _make_onnx(folder):
    import keras_bert
    from keras_bert import heads

    model = heads.classifier(_encoder(), labels=["bad", "good"])
    keras_bert.export(model, folder / "model", format="onnx")


def _read_onnx(folder):
    import keras_bert

    keras_bert.pipeline(folder / "model")(["so good"])


def _make_records(folder):
    from keras_bert.pretraining import records

    (folder.parent / "corpus.txt").write_text("so good a film\nso bad\n\nfilm\n" * 20, "utf-8")
    records.build([folder.parent / "corpus.txt"], folder, _encoder().preprocessor, workers=1)


def _read_records(folder):
    from keras_bert.pretraining import records

    opened = records.Records(folder)
    for split in ("train", "eval"):
        opened.read(opened.shards(split))


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

    return run_state.RunState(folder, {"epochs": 2}, epochs=2, batches=5)


def _read_run(folder):
    _run_state(folder).restore(_run_model(), _run_model())


def _make_steps(folder):
    import keras

    from keras_bert.training import run_state

    checkpoints = run_state.Checkpoints(folder, {"steps": 2})
    variables = [keras.Variable(np.ones((2, 3)), dtype="float32")]
    checkpoints.save(variables, {"history": [{"step": 1}]}, 1)


def _read_steps(folder):
    import keras

    from keras_bert.training import run_state

    variables = [keras.Variable(np.ones((2, 3)), dtype="float32")]
    run_state.Checkpoints(folder, {"steps": 2}).restore(variables)


def _make_vocabulary(folder):
    from tests import tiny

    (folder / "vocab.txt").write_text("\n".join(tiny.PIECES), "utf-8")


def _read_vocabulary(folder):
    import keras_bert

    keras_bert.Preprocessor(folder / "vocab.txt")


def _load(folder, calls=itertools.count()):  # noqa: B008
    """Read a checkpoint and all of its weights. Every tenth call builds the model instead."""
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
    from keras_bert.tasks.tagging import data as conll

    conll.read(next(folder.glob("train.*")))


def _read_questions(folder):
    from keras_bert.tasks.question_answering import data as squad

    squad.read(folder / "train.json")


def _read_choices(folder):
    from keras_bert.tasks.multiple_choice import data as swag

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
    "hdf5": (_make_hdf5, _load),
    "google": (_checkpoint("google"), _load),
    "keras_hub": (_checkpoint("keras_hub"), _load),
    "model_garden": (_make_model_garden, _load),
    "saved_model": (_make_saved_model, _load),
    "keras": (_make_keras, _load_auto),
    "keras_layers": (_make_layers, _load_auto),
    "sentence_transformers": (_make_sentence_transformer, _load_auto),
    "onnx": (_make_onnx, _read_onnx),
    "records": (_make_records, _read_records),
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


# The process that reads


def read_in_this_process(name, folder, seed, first, count):
    """Make, mutate and read files. Print one JSON line before and after each file."""
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is not the report
    folder = pathlib.Path(folder)
    good, work = folder / "good", folder / "work"
    make, read = READERS[name]
    if not good.exists():
        good.mkdir(parents=True)
        make(good)
    files = sorted(file.relative_to(good) for file in good.rglob("*") if file.is_file())
    refresh(good, work)
    read(work)  # imports happen here, before the audit hook is set
    watch(folder)
    for number in range(first, first + count):
        refresh(good, work)
        random = np.random.default_rng([seed, zlib.crc32(name.encode()), number])
        for _ in range(int(random.choice([1, 1, 1, 2]))):
            mutations.mutate(work / files[int(random.integers(len(files)))], random)
        memory.reset_peak()
        print(json.dumps({"started": number}), file=report, flush=True)
        # CPU time, which other programs on a busy machine do not change. SIGXCPU ends the process.
        limit = int(time.process_time()) + 1 + SECONDS_A_FILE
        hard_limit = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (limit, hard_limit))
        start = time.process_time()
        SEEN.clear()
        outcome, problem = "accepted", None
        try:
            read(work)
        except (ValueError, OSError) as error:
            outcome = "refused"
            if not str(error).isprintable() or not str(error):
                problem = f"message that is not one printable line: {str(error)[:300]!r}"
        except BaseException as error:
            outcome, problem = (
                "unexpected",
                f"{type(error).__module__}.{type(error).__name__}: {error}",
            )
        resource.setrlimit(resource.RLIMIT_CPU, (hard_limit, hard_limit))  # mutations take time
        peak = memory.peak()
        if peak > BYTES_A_FILE:
            problem = f"{peak / 1e9:.1f} GB"
        if time.process_time() - start > SECONDS_A_FILE:
            problem = f"over {SECONDS_A_FILE} seconds of CPU time"
        problem = problem or ("; ".join(sorted(SEEN)) or None)
        result = {"outcome": outcome, "problem": problem and problem[:500]}
        print(json.dumps(result), file=report, flush=True)


SEEN: set[str] = set()


def watch(folder):
    """Record in `SEEN` files opened elsewhere, named modules, programs and connections."""
    own = [str(folder), str(ROOT / "keras_bert"), str(ROOT / "tests"), sys.prefix, sys.base_prefix]
    own += ["/proc", "/dev", "/sys", tempfile.gettempdir(), os.path.realpath(sys.prefix)]

    def note(event, arguments):
        if event == "open" and isinstance(arguments[0], (str, bytes)):
            path = os.fsdecode(arguments[0])
            # shutil.rmtree opens bare names, relative to an open folder.
            if "/" in path and not os.path.abspath(path).startswith(tuple(own)):
                SEEN.add(f"opened {path}")
        elif event == "import" and arguments[0] in mutations.MODULES:
            SEEN.add(f"imported {arguments[0]}")
        elif event in ("subprocess.Popen", "os.system", "os.exec", "os.fork", "socket.connect"):
            SEEN.add(event)

    sys.addaudithook(note)


def refresh(good, work):
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(good, work)


# The process that watches

_HANG_SECONDS = 600  # to start TensorFlow, to make a file or to read one, on a busy machine


def run(name, folder, seed, first, count, seconds):
    """Run a reader on mutated files, and return counts and findings."""
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
                bufsize=0,  # a selector does not see lines in a buffer
            ) as process,
        ):
            number = _follow(process, number, counts, findings, end)
            process.kill()
        if findings and findings[-1][0] is None:  # the fuzzer itself failed
            lines = (folder / "stderr.txt").read_text(errors="replace").splitlines()
            raise SystemExit(f"{name}, near file {number}: {lines[-1] if lines else 'no reason'}")
    return counts, findings


def _follow(process, number, counts, findings, end):
    """Read the output of a process until it ends or hangs, and return the next file number."""
    current = None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while time.monotonic() < end:
            if not selector.select(timeout=min(_HANG_SECONDS, end - time.monotonic())):
                if time.monotonic() < end:
                    findings.append((current, f"no answer in {_HANG_SECONDS} seconds"))
                return number + 1
            line = process.stdout.readline()
            if not line:
                status = process.wait()
                if status or current is not None:
                    over_limit = f"over {SECONDS_A_FILE} seconds of CPU time"
                    ended = f"the process ended with status {status}"
                    findings.append((current, over_limit if status == -signal.SIGXCPU else ended))
                return number + 1
            event = json.loads(line)
            if "started" in event:
                current = number = event["started"]
            else:
                counts[event["outcome"]] = counts.get(event["outcome"], 0) + 1
                if event["problem"]:
                    findings.append((current, event["problem"]))
                current, number = None, number + 1
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
        summary = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        print(f"{name:13} {summary}, {len(findings)} findings, {time.monotonic() - start:.0f} s")
        for number, finding in findings[:20]:
            print(f"    seed {args.seed}, file {number}: {finding}")
        sys.stdout.flush()
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
