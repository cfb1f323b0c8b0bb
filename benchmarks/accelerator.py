r"""Question: how fast is keras_bert on a GPU, compared with transformers and sentence-transformers?

    python benchmarks/accelerator.py > accelerator.jsonl
    python benchmarks/accelerator.py --only finetune-base ablations-512 --seconds 300
    python benchmarks/accelerator.py --tiny --ours

keras_bert runs on JAX, the peers on torch, all on the same device in bfloat16. Each line of the
output is a JSON object, printed as soon as it is known. The first line describes the machine. Each
other line is a figure: its value for keras_bert and for the peer, the `ratio` of the two, the
`goal`, and whether the goal is reached (`ok`). A question that would not fit into the time that is
left (`--seconds`, by default 8 minutes) is skipped, and a line says so.

| question | what is measured |
|---|---|
| pretrain-SIZE-LENGTH | steps of `fit` as in `pretrain`; peer: a compiled `BertForPreTraining` |
| ablations-LENGTH | the same steps of BERT-Base without a part, or with other random numbers |
| finetune-SIZE | `finetune` on 6,000 texts, 3 epochs; peer: `Trainer`, grouped by length |
| embeddings | `finetune` on 6,000 pairs, 2 epochs; peer: `SentenceTransformerTrainer` |
| encode | `encode` of 50,000 sentences and 5,000 paragraphs; peer: `SentenceTransformer` |

Weights are random, of the sizes of BERT-Base, BERT-Large and MiniLM; dropout is 0.1. Texts and
vocabulary are made up, with the lengths of real data (`accelerator_workers/made_up_data.py`). Both
libraries use AdamW with decay on matrices only, and clip the gradient at norm 1.0. Some settings
are tried, and the fastest counts:

| question | library | settings |
|---|---|---|
| pretrain-SIZE-LENGTH | peer | float32 weights with autocast, bfloat16 weights |
| finetune-SIZE, embeddings | peer | no and two processes that load the data |
| encode | both | batch sizes, on a tenth of the texts |

To save time, only the first pretraining question of a run tries both kinds of weights. The next
ones use the faster kind, which may not be the faster one for another size or length. `peer_name`
and `peer_seconds` in the output show what was measured. The peer is fine-tuned only with autocast
(`bf16=True`), and encodes only with bfloat16 weights.

Utilization is the model's FLOP/s (`keras_bert.training.flops`) divided by the manufacturer's peak
for dense bfloat16 (Chowdhery et al., 2022). The whole time of a training run is measured from texts
in memory to the trained model, with all compilation. It does not include imports and the creation
of the weights. `cold cache` is the first run on a machine, `warm cache` the second.

Each library has its own process for each question. In fine-tuning, keras_bert has two, for the cold
and the warm cache. In `encode`, each library has two: the first tries the batch sizes, the second
runs only the fastest, so that its peak memory does not include the others. Pretraining alternates
between the libraries if both fit on the device. The processes of the next question start early, to
save the time of their imports.

With `--tiny`, all sizes and lengths are the same, so only one question of each kind is asked.

Needs Keras, JAX for the device, torch, transformers and accelerate; `embeddings` and `encode` also
sentence-transformers and datasets. TensorFlow is not needed. A machine that has no access to a
package index, but JAX, torch, transformers, accelerate, pandas, scikit-learn, matplotlib and h5py,
needs some more wheels. Download them elsewhere, for example for Python 3.12:

    pip download --no-deps --only-binary=:all: --python-version 3.12 \
        --platform manylinux_2_28_x86_64 --dest wheels keras==3.15.1 namex optree pooch \
        platformdirs absl-py rich markdown-it-py mdurl pygments sentence-transformers \
        datasets dill multiprocess xxhash pyarrow

Then copy this tree and `wheels` to the machine, and run there:

    pip install --no-index --no-deps --target site wheels/*.whl
    PYTHONPATH=site python benchmarks/accelerator.py | tee accelerator.jsonl
"""

import argparse
import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parents[1]
WORKERS = pathlib.Path(__file__).with_name("accelerator_workers")
PACKAGES = (
    "keras", "jax", "jaxlib", "torch", "transformers", "sentence-transformers", "tokenizers",
)  # fmt: skip

# The program and the environment of a process.
LIBRARIES = {
    "keras_bert": ("keras_bert_worker.py", {}),
    "plain attention": ("keras_bert_worker.py", {"KERAS_BERT_FUSED_ATTENTION": "0"}),
    "transformers": ("torch_worker.py", {}),
    "sentence-transformers": ("torch_worker.py", {}),
}
OURS = ("keras_bert", "plain attention")
# The modules that the process of a library imports.
MODULES = {
    "keras_bert": ("keras", "jax"),
    "plain attention": ("keras", "jax"),
    "transformers": ("torch", "transformers", "accelerate"),
    "sentence-transformers": ("torch", "sentence_transformers", "datasets"),
}

# Layers, width, heads.
SIZES = {"minilm": (6, 384, 12), "base": (12, 768, 12), "large": (24, 1024, 16), "tiny": (1, 16, 2)}
ROUNDS = 3
# If keras_bert takes more memory than this in pretraining, it is closed before the peer starts.
MAX_BYTES_BESIDE_PEER = 30 * 2**30
# The settings that are tried, of which the fastest counts. `None` is the default.
LOADER_PROCESSES = (0, 2)
BATCH_SIZES = {
    "keras_bert": (None, 128),
    "sentence-transformers": (64, 256, 1024),
}
TRIAL_SHARE = 0.1  # the share of the texts on which batch sizes are tried
# The questions that `--tiny` asks by default: one of each kind.
TINY_QUESTIONS = ("pretrain-base-128", "finetune-minilm", "encode", "embeddings", "ablations-128")

# Variants of the pretraining step: the library, the changes of the config, and further options.
NO_ATTENTION_DROPOUT = {"attention_probs_dropout_prob": 0.0}
NO_DROPOUT = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
ABLATIONS = {
    "without attention dropout": ("keras_bert", NO_ATTENTION_DROPOUT, {}),
    "without attention dropout, plain attention": ("plain attention", NO_ATTENTION_DROPOUT, {}),
    "random numbers of the device": ("keras_bert", {}, {"random_bits": "rbg"}),
    "random numbers of threefry": ("keras_bert", {}, {"random_bits": "threefry"}),
    "without dropout": ("keras_bert", NO_DROPOUT, {}),
}


# Processes


class WorkerError(Exception):
    """A process failed, or its answer did not come in time."""


class Worker:
    """A process of a library, which waits for requests (see `accelerator_workers/protocol.py`)."""

    def __init__(self, run, library, cache):
        program, environment = LIBRARIES[library]
        self._run = run
        self.library = library
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (`close` closes it)
        self._process = subprocess.Popen(
            [sys.executable, WORKERS / program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**run.environment(cache), **environment},
        )

    def start(self, job, **options):
        """Make a job, and return the first answer."""
        return self._ask({"job": job, "options": options})

    def run(self, **arguments):
        """Run the job once, and return its answer."""
        return self._ask(arguments)

    def _ask(self, request):
        timer = threading.Timer(max(self._run.seconds_left(), 1), self._process.kill)
        timer.daemon = True
        timer.start()
        try:
            with contextlib.suppress(BrokenPipeError):  # the process failed; there is no answer
                self._process.stdin.write(json.dumps(request) + "\n")
                self._process.stdin.flush()
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            status = self._process.wait()
            if self._run.seconds_left() <= 0:
                raise WorkerError(f"{self.library} was stopped: no time is left")
            self._log.seek(0)
            raise WorkerError(f"{self.library} ended with {status}: {self._log.read()[-1500:]}")
        return json.loads(line)

    def close(self):
        """End the process, which frees its memory on the device. A second call does nothing."""
        self._process.kill()
        self._process.wait()
        self._log.close()


@dataclasses.dataclass(frozen=True)
class Question:
    """A question of the table.

    Attributes:
        name: As for `--only`.
        answer: Function of the run, the question and its workers, which prints the figures.
        libraries: One process for each.
        seconds: The time that it takes on an H100, estimated.
        options: Options of the job.
        goals: For some figures, what is compared, how, and with which number.
        cache: Folder of compiled programs, which questions with the same name share.
    """

    name: str
    answer: Callable
    libraries: tuple[str, ...]
    seconds: int
    options: dict
    goals: dict
    cache: str = "shared"


class Run:
    """One run of this script: its time, its folder, and what it prints."""

    def __init__(self, args, folder):
        self._deadline = time.monotonic() + args.seconds
        self._folder = folder
        self._only_ours = args.ours
        self._is_tiny = args.tiny
        self._workers = []
        self.has_failed = False
        # The dtypes of the peer's weights to try in pretraining. After the first pretraining
        # question, this is only the faster one.
        self.peer_weights = ("bfloat16", "float32")

    def seconds_left(self):
        return self._deadline - time.monotonic()

    def environment(self, cache):
        """Return the environment of a process; `cache` is the name of a folder."""
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {
            **os.environ,
            "PYTHONPATH": path,
            "KERAS_BERT_CACHE": os.path.join(self._folder, cache),
            "TMPDIR": self._folder,
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            "HF_HUB_OFFLINE": "1",
        }
        # This folder of programs would not be cold.
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)
        if self._is_tiny:  # compilation is most of the time, and threads wait for each other
            environment["OMP_NUM_THREADS"] = "1"
            environment["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "true"
            environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        return environment

    def has_time_for(self, question):
        return self.seconds_left() >= question.seconds

    def start_workers(self, question):
        if not self.has_time_for(question):
            return []
        libraries = libraries_of(question, self._only_ours)
        workers = [Worker(self, library, question.cache) for library in libraries]
        self._workers += workers
        return workers

    def close(self):
        """End all processes."""
        for worker in self._workers:
            worker.close()

    def print_figure(self, question, figure, unit, ours, peer=None, peer_name=None, **details):
        """Print a figure. `ours` and `peer` are numbers, or `None` where there is none."""
        ratio = None
        if ours is not None and peer is not None:
            ratio = ours / peer
        goal = question.goals.get(figure)
        goal_text = None
        if goal is not None:
            goal_text = " ".join(map(str, goal))
        line = {
            "question": question.name,
            "figure": figure,
            "unit": unit,
            "keras_bert": ours,
            "peer": peer,
            "peer_name": peer_name,
            "ratio": ratio,
            "goal": goal_text,
            "ok": _is_reached(goal, {"keras_bert": ours, "ratio": ratio}),
        }
        self.print_line(**line, **details)

    def print_failure(self, question, error):
        self.has_failed = True
        self.print_line(question=question.name, error=str(error))

    @contextlib.contextmanager
    def printing_failures(self, question):
        """Print the failure of a process in place of raising it."""
        try:
            yield
        except WorkerError as error:
            self.print_failure(question, error)

    def print_line(self, **line):
        print(json.dumps(_rounded(line)), flush=True)


def libraries_of(question, only_ours):
    """Return the libraries that answer a question: all, or only keras_bert."""
    return [library for library in question.libraries if not only_ours or library in OURS]


def missing_modules(chosen, only_ours):
    """Return the names of modules that the chosen questions need and that are not installed."""
    names = set()
    for question in chosen:
        for library in libraries_of(question, only_ours):
            names.update(MODULES[library])
    return sorted(name for name in names if importlib.util.find_spec(name) is None)


def _is_reached(goal, values):
    """Return True if the values reach the goal, `None` without a goal or a value."""
    if goal is None or values[goal[0]] is None:
        return None
    name, comparison, limit = goal
    return values[name] >= limit if comparison == ">=" else values[name] <= limit


def _rounded(value):
    """Return the value with four significant digits in all numbers."""
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _gibibytes(answers):
    """Return the peak memory in GiB, `None` if the device does not tell."""
    peaks = [answer["memory"] for answer in answers if answer["memory"] is not None]
    return max(peaks) / 2**30 if peaks else None


def _median(answers):
    """Return the median of the seconds of some answers, `None` if there are none."""
    return statistics.median(answer["seconds"] for answer in answers) if answers else None


def _rate(count, seconds):
    return None if seconds is None else count / seconds


# Pretraining


def pretraining(run, question, workers):
    """Compare steps of keras_bert with those of the peer."""
    ours, *peers = workers
    started = ours.start("pretraining", **question.options)
    answers = [ours.run() for _ in range(ROUNDS)]
    _print_utilization(run, question, "utilization", started, answers)
    both_fit = (answers[-1]["memory"] or 0) <= MAX_BYTES_BESIDE_PEER
    if not both_fit:
        ours.close()
    peer_answers = {}
    with run.printing_failures(question):
        for peer in peers:
            peer.start("pretraining", **question.options)
            for weights in run.peer_weights:
                peer_answers[weights] = []
                for _ in range(ROUNDS):
                    peer_answers[weights].append(peer.run(weights=weights))
                    if both_fit:
                        answers.append(ours.run())
    _print_pretraining(run, question, started, answers, peer_answers)


def _print_pretraining(run, question, started, answers, peer_answers):
    """Print speed and memory. `peer_answers` has a list of answers for each dtype of weights."""
    peer_seconds = {weights: _median(rounds) for weights, rounds in peer_answers.items() if rounds}
    fastest = min(peer_seconds, key=peer_seconds.get, default=None)
    peer_name = None
    if fastest is not None:
        run.peer_weights = (fastest,)
        peer_name = f"transformers, {fastest} weights"
    rows = question.options["rows"]
    run.print_figure(
        question,
        "speed",
        "sequences/s",
        _rate(rows, _median(answers)),
        _rate(rows, peer_seconds.get(fastest)),
        peer_name,
        seconds=[answer["seconds"] for answer in answers],
        peer_seconds=peer_seconds,
        set_up_seconds=started["seconds"],
        loss=answers[0]["loss"],
    )
    peer_memory = _gibibytes(peer_answers.get(fastest, []))
    run.print_figure(question, "peak memory", "GiB", _gibibytes(answers), peer_memory, peer_name)


def _print_utilization(run, question, figure, started, answers):
    """Print the share of the device's peak that steps of keras_bert use."""
    rate = started["operations"] / _median(answers)
    peak = started["peak"]
    run.print_figure(question, figure, "of the peak", rate / peak, peak=peak)


def ablations(run, question, workers):
    """Compare variants of the step of keras_bert with the default."""
    default, *variants = workers
    started = default.start("pretraining", **question.options)
    answers = [default.run() for _ in range(ROUNDS)]
    _print_utilization(run, question, "utilization", started, answers)
    for variant, name in zip(variants, ABLATIONS, strict=True):
        with run.printing_failures(question):
            _compare_variant(run, question, name, variant, default)
        variant.close()  # the next variant needs its memory


def _compare_variant(run, question, name, variant, default):
    """Compare the process `variant`, for a key of `ABLATIONS`, with the process `default`."""
    _, changed_config, more_options = ABLATIONS[name]
    config = question.options["config"] | changed_config
    started = variant.start("pretraining", **question.options | {"config": config} | more_options)
    answers = []
    default_answers = []
    for _ in range(ROUNDS):
        answers.append(variant.run())
        default_answers.append(default.run())
    rows = question.options["rows"]
    rate = _rate(rows, _median(answers))
    default_rate = _rate(rows, _median(default_answers))
    memory = _gibibytes(answers)
    default_memory = _gibibytes(default_answers)
    peer_name = "keras_bert, default"
    run.print_figure(question, f"speed {name}", "sequences/s", rate, default_rate, peer_name)
    _print_utilization(run, question, f"utilization {name}", started, answers)
    run.print_figure(question, f"peak memory {name}", "GiB", memory, default_memory, peer_name)


# Fine-tuning and embeddings


def training(run, question, workers):
    """Compare whole training runs: with a cold and a warm cache, and their later epochs."""
    cold_worker, warm_worker, *peers = workers
    options = question.options
    cold_worker.start("training", **options)
    cold = cold_worker.run()
    cold_worker.close()
    peer_answers = []
    with run.printing_failures(question):
        for peer in peers:
            peer.start("training", **options)
            for processes in LOADER_PROCESSES:
                peer_answers.append(peer.run(loader_processes=processes))
            peer.close()
    warm_worker.start("training", **options)
    warm = warm_worker.run()
    peer_name = peers[0].library if peers else None
    peer_seconds = min((answer["seconds"] for answer in peer_answers), default=None)
    peer_epoch = min((answer["epoch_seconds"] for answer in peer_answers), default=None)
    rows = options["rows"]
    seen = rows * options["epochs"]
    for cache, answer in (("cold", cold), ("warm", warm)):
        run.print_figure(
            question,
            f"whole time, {cache} cache",
            "examples/s",
            _rate(seen, answer["seconds"]),
            _rate(seen, peer_seconds),
            peer_name,
            seconds=answer["seconds"],
            peer_seconds=[answer["seconds"] for answer in peer_answers],
            loss=answer["loss"],
            peer_loss=[answer["loss"] for answer in peer_answers],
        )
    rates = _rate(rows, warm["epoch_seconds"]), _rate(rows, peer_epoch)
    run.print_figure(question, "steady state", "examples/s", *rates, peer_name)
    memory = _gibibytes([cold, warm]), _gibibytes(peer_answers)
    run.print_figure(question, "peak memory", "GiB", *memory, peer_name)


# Embeddings of texts


def encoding(run, question, workers):
    """Compare the embedding of many texts.

    The first process of each library tries the batch sizes, the second one measures the fastest.
    In one process, the peak memory would be that of the largest batch size: JAX cannot reset it.
    """
    middle = len(workers) // 2
    counts = question.options["counts"]
    tried = {}
    for worker in workers[:middle]:
        with run.printing_failures(question):
            worker.start("encoding", **question.options)
            for kind, count in counts.items():
                tried[worker.library, kind] = _try_batch_sizes(worker, kind, count)
        worker.close()
    answers = {}
    for worker in workers[middle:]:
        with run.printing_failures(question):
            worker.start("encoding", **question.options)
            for kind, count in counts.items():
                seconds = tried.get((worker.library, kind))
                if seconds is not None:
                    fastest = min(seconds, key=seconds.get)
                    answers[worker.library, kind] = _encode(worker, kind, count, fastest)
        worker.close()
    _print_encoding(run, question, tried, answers)


def _try_batch_sizes(worker, kind, count):
    """Return the seconds for a part of the texts, for each batch size. The second call counts."""
    part = max(1, round(TRIAL_SHARE * count))
    seconds = {}
    for batch_size in BATCH_SIZES[worker.library]:
        seconds[batch_size] = _encode(worker, kind, part, batch_size)[-1]["seconds"]
    return seconds


def _encode(worker, kind, count, batch_size):
    """Embed the texts twice, and return both answers. The first call may compile programs."""
    return [worker.run(kind=kind, count=count, batch_size=batch_size) for _ in range(2)]


def _print_encoding(run, question, tried, answers):
    """Print speed and memory. `tried` and `answers` have a value for each library and kind."""
    names = ("keras_bert", "sentence-transformers")
    for kind, count in question.options["counts"].items():
        seconds = {}
        tried_sizes = {}
        for name in names:
            if (name, kind) in tried:
                tried_sizes[name] = list(map(list, tried[name, kind].items()))
            if (name, kind) in answers:
                seconds[name] = [answer["seconds"] for answer in answers[name, kind]]
        rates = [_rate(count, min(seconds[name])) if name in seconds else None for name in names]
        run.print_figure(
            question,
            f"speed, {kind}",
            "texts/s",
            *rates,
            "sentence-transformers",
            seconds=seconds,
            tried=tried_sizes,
        )
    memory = []
    for name in names:
        kinds = [kind for kind in question.options["counts"] if (name, kind) in answers]
        memory.append(_gibibytes([answers[name, kind][-1] for kind in kinds]))
    run.print_figure(question, "peak memory", "GiB", *memory, "sentence-transformers")


# The questions


def config_of(size):
    layers, width, heads = SIZES[size]
    return {
        "vocab_size": 2000 if size == "tiny" else 30522,
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "intermediate_size": 4 * width,
        "max_position_embeddings": 512,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
    }


def pretraining_question(size, length, rows, seconds, tiny):
    options = {"config": config_of(size), "rows": rows, "length": length, "steps": 20}
    if tiny:
        options = {"config": config_of("tiny"), "rows": 4, "length": 32, "steps": 2}
    goals = {
        "utilization": ("keras_bert", ">=", 0.40 if length == 128 else 0.30),
        "speed": ("ratio", ">=", 1.2),
        "peak memory": ("ratio", "<=", 1.0),
    }
    return Question(
        f"pretrain-{size}-{length}",
        pretraining,
        ("keras_bert", "transformers"),
        seconds,
        options,
        goals,
    )


def ablations_question(length, rows, seconds, tiny):
    pretraining = pretraining_question("base", length, rows, seconds, tiny)
    return dataclasses.replace(
        pretraining,
        name=f"ablations-{length}",
        answer=ablations,
        libraries=("keras_bert", *(library for library, _, _ in ABLATIONS.values())),
        goals={"utilization without attention dropout": ("keras_bert", ">=", 0.40)},
    )


def training_question(name, size, data, seconds, tiny):
    is_pairs = data == "pairs"
    options = {
        "config": config_of("tiny" if tiny else size),
        "data": data,
        "pooling": None if size == "base" else "mean",
        "rows": 32 if tiny else 6000,
        "epochs": 2 if is_pairs else 3,
        "batch_size": 16 if tiny else 32,
        "max_length": 256 if is_pairs else 64,
    }
    goals = {
        "whole time, cold cache": ("ratio", ">=", 1.0),
        "steady state": ("ratio", ">=", 1.3 if is_pairs else 1.5),
        "peak memory": ("ratio", "<=", 1.0),
    }
    peer = "sentence-transformers" if is_pairs else "transformers"
    libraries = ("keras_bert", "keras_bert", peer)
    return Question(name, training, libraries, seconds, options, goals, cache=name)


def encoding_question(seconds, tiny):
    counts = {"sentences": 50_000, "encyclopedia": 5000}
    if tiny:
        counts = {"sentences": 100, "encyclopedia": 10}
    goals = {f"speed, {kind}": ("ratio", ">=", 1.2) for kind in counts}
    options = {"config": config_of("tiny" if tiny else "minilm"), "counts": counts}
    return Question(
        "encode",
        encoding,
        2 * ("keras_bert", "sentence-transformers"),
        seconds,
        options,
        goals | {"peak memory": ("ratio", "<=", 1.0)},
    )


def questions(tiny):
    """Return all questions, the most important first."""
    return [
        pretraining_question("base", 128, 256, 140, tiny),
        training_question("finetune-minilm", "minilm", "sentences", 80, tiny),
        encoding_question(80, tiny),
        pretraining_question("base", 512, 64, 90, tiny),
        pretraining_question("large", 512, 32, 150, tiny),
        training_question("embeddings", "minilm", "pairs", 90, tiny),
        training_question("finetune-base", "base", "sentences", 110, tiny),
        ablations_question(512, 64, 150, tiny),
        ablations_question(128, 256, 150, tiny),
        pretraining_question("large", 128, 128, 150, tiny),
    ]


def machine():
    """Return what there is to know about the machine and the libraries."""
    facts = {"gpus": [], "cores": os.cpu_count(), "versions": {}}
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv"]
        output = subprocess.run(query, capture_output=True, text=True).stdout
        facts["gpus"] = output.splitlines()[1:]
    processors = pathlib.Path("/proc/cpuinfo")
    if processors.exists():
        lines = processors.read_text().splitlines()
        names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
        facts["processor"] = names[0] if names else None
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            facts["versions"][package] = importlib.metadata.version(package)
    return facts


def ask(run, chosen):
    """Answer the questions one after the other."""
    following_workers = run.start_workers(chosen[0])
    for question, following in zip(chosen, [*chosen[1:], None], strict=True):
        workers = following_workers
        following_workers = [] if following is None else run.start_workers(following)
        if run.has_time_for(question):
            with run.printing_failures(question):
                question.answer(run, question, workers)
        else:
            needed = f"needs {question.seconds} s; {run.seconds_left():.0f} s are left"
            run.print_line(question=question.name, skipped=needed)
        for worker in workers:
            worker.close()


def main():
    names = [question.name for question in questions(tiny=False)]
    times = [f"{question.name} ({question.seconds} s)" for question in questions(tiny=False)]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=names, metavar="QUESTION",
                        help="in this order, for an H100: " + ", ".join(times))  # fmt: skip
    parser.add_argument("--ours", action="store_true", help="run keras_bert, and no peers")
    parser.add_argument("--tiny", action="store_true", help="tiny models, for a test on a CPU")
    parser.add_argument("--seconds", type=float, default=480, help="default: 480")
    args = parser.parse_args()
    chosen_names = args.only
    if chosen_names is None:
        chosen_names = TINY_QUESTIONS if args.tiny else names
    chosen = [question for question in questions(args.tiny) if question.name in chosen_names]
    if missing := missing_modules(chosen, args.ours):
        parser.error(f"install {', '.join(missing)}; --ours needs only Keras and JAX")
    with tempfile.TemporaryDirectory() as folder:
        run = Run(args, folder)
        run.print_line(**machine())
        try:
            ask(run, chosen)
        finally:  # also after Ctrl-C, before the folder is deleted
            run.close()
    return 1 if run.has_failed else 0


if __name__ == "__main__":
    sys.exit(main())
