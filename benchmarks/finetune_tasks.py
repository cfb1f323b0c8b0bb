"""Question: how accurate and fast is fine-tuning for each task, compared with transformers?

MiniLM is fine-tuned with keras_bert and with transformers by one recipe: the same rows, batches of
32, epochs and length of `TASKS`, peak rate 5e-5 after 10% warm-up, then linear decay, AdamW with
decay 0.01 on matrices only, gradients clipped at norm 1.0, dropout 0.1, float32, two CPU cores.
Each run is a new process, and the libraries alternate for each seed.

The time is the wall time from texts in memory to the trained model. It includes tokenization, and
for keras_bert building and tracing the model, but not loading the weights or scoring. The processor
time of all threads is printed too, because the wall time depends on other jobs of the machine.

transformers uses its fast tokenizer and its `Trainer` with the defaults, such as the fused AdamW.
Batches group texts of similar length (`train_sampling_strategy="group_by_length"`), and are padded
to the longest text. It follows its own examples: tags at the first token of a word and -100 at the
others, overlapping windows for questions. The same functions score both libraries.

    python benchmarks/finetune_tasks.py ../shared --tasks sst2-6000,mrpc
    python benchmarks/finetune_tasks.py ../shared --tasks sst2-6000 --peer keras_hub
    python benchmarks/finetune_tasks.py ../shared --tasks sst2-6000,wnut17,stsb --bfloat16
    python benchmarks/finetune_tasks.py ../shared --tasks sst2-6000,wnut17 --attention-dropout \
        --only-ours

The third command also runs keras_bert with mixed_bfloat16 and transformers under autocast to
bfloat16, and compares each with the first of these two.

Needs transformers and torch, and keras-hub for the second command. KerasHub is used as in its guide
(the preprocessor of the model, a fixed length, jit), but with the optimizer of keras_bert.

The Korean tasks have no pretrained weights and no peer. They train a small encoder from random
weights, which must be better than the most frequent answer.
"""

import argparse
import dataclasses
import functools
import importlib.metadata
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

from keras_bert.runtime import processor

BATCH, RATE, WARMUP, DECAY, CLIP = 32, 5e-5, 0.1, 0.01, 1.0
EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples" / "data"
STRIDE = 128  # between the windows of long contexts
SMALL = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
         "intermediate_size": 1024}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Task:
    """A task of the table.

    Attributes:
        kind: "label", "score", "tags" or "questions".
        files: Files of the training and dev data, or one file that `split` divides.
        metrics: Names of the metrics to print.
        read: Options of the reader.
        epochs, max_length, rate: Settings of the recipe.
        rows: Maximum number of training rows.
        split: Number of training rows in a single file, or their fraction in a random order.
        vocabulary: Vocabulary of an encoder with random weights. `None`: use MiniLM.
    """

    kind: str
    files: tuple[str, ...]
    metrics: tuple[str, str]
    read: dict = dataclasses.field(default_factory=dict)
    epochs: int = 1
    max_length: int = 128
    rate: float = RATE
    rows: int | None = None
    split: float | None = None
    vocabulary: str | None = None


SST2 = Task(
    "label", ("sst2/train.tsv", "sst2/dev.tsv"), ("accuracy", "f1"),
    {"text": "sentence", "label": "label"}, max_length=64,
)  # fmt: skip
RANDOM = {"vocabulary": "vocab/kcbert-base-vocab.txt", "rate": 3e-4, "epochs": 3}
TASKS = {
    "sst2": SST2,
    "sst2-6000": dataclasses.replace(SST2, rows=6000),
    "sms_spam": Task(
        "label", ("sms_spam/SMSSpamCollection",), ("accuracy", "f1"),
        {"text": "2", "label": "1", "format": "tsv", "header": False}, split=0.8,
    ),
    "mrpc": Task(
        "label", ("mrpc/train.txt", "mrpc/test.txt"), ("accuracy", "f1"),
        {"text": "#1 String", "text_pair": "#2 String", "label": "Quality"}, epochs=3,
    ),
    "stsb": Task(
        "score", ("stsb/train.tsv", "stsb/dev.tsv"), ("pearson", "spearman"),
        {"text": "6", "text_pair": "7", "label": "5", "header": False}, epochs=3,
    ),
    "wnut17": Task(
        "tags", ("wnut17/wnut17train.conll", "wnut17/emerging.dev.conll"), ("f1", "accuracy"),
        epochs=3,
    ),
    "ewt": Task(
        "tags",
        ("ud_english_ewt/en_ewt-ud-train.conllu", "ud_english_ewt/en_ewt-ud-dev.conllu"),
        ("accuracy", "accuracy"),
    ),
    "support": Task(
        "label",
        tuple(str(EXAMPLES / f"support_{part}.tsv") for part in ("train", "dev")),
        ("accuracy", "f1"), {"text": "text", "label": "label"}, epochs=3,
    ),
    "squad11": Task(
        "questions", ("squad11/train.json", "squad11/dev.json"), ("exact_match", "f1"),
        epochs=2, max_length=384,
    ),
    "nsmc": Task(
        "label", ("nsmc/ratings_train.txt", "nsmc/ratings_test.txt"), ("accuracy", "f1"),
        {"text": "document", "label": "label"}, max_length=64, rows=10_000, **RANDOM,
    ),
    "korsts": Task(
        "score", ("korsts/sts-train.tsv", "korsts/sts-dev.tsv"), ("pearson", "spearman"),
        {"text": "sentence1", "text_pair": "sentence2", "label": "score"}, **RANDOM,
    ),
    "klue_ner": Task(
        "tags", ("klue_ner/dev.tsv",), ("f1", "accuracy"), split=4000, **RANDOM,
    ),
}  # fmt: skip
# Small data: at most 500 rows.
TASKS |= {
    f"{name}-500": dataclasses.replace(TASKS[name], rows=500, epochs=3)
    for name in ("sst2", "mrpc", "wnut17")
}


# Data


def read(task, folder, limit):
    """Return training and dev data, each with at most `limit` rows."""
    from keras_bert.data import tabular
    from keras_bert.tasks.question_answering import data as squad
    from keras_bert.tasks.tagging import data as conll

    options = dict(task.read)
    if task.kind in ("label", "score"):
        reader = tabular.read
        options["kind"] = task.kind
        if "format" not in options:
            options["format"] = "tsv"
    else:
        reader = conll.read if task.kind == "tags" else squad.read
    parts = [reader(folder / "data" / file, **options) for file in task.files]
    if task.split is not None:
        order = list(range(len(parts[0])))
        if task.split < 1:
            random.Random(0).shuffle(order)
        cut = round(task.split * len(order)) if task.split < 1 else task.split
        parts = [take(parts[0], order[:cut]), take(parts[0], order[cut:])]
    train, dev = parts
    rows = min(number for number in (task.rows, limit, len(train)) if number is not None)
    return take(train, range(rows)), take(dev, range(min(limit or len(dev), len(dev))))


def take(examples, rows):
    """Return the given rows of examples of any kind."""
    columns = {
        field.name: [getattr(examples, field.name)[row] for row in rows]
        for field in dataclasses.fields(examples)
        if field.init and isinstance(getattr(examples, field.name), list)
    }
    return dataclasses.replace(examples, **columns)


def without_labels(examples):
    """Return the examples without labels, because labels outside the training rows are errors."""
    columns = {"labels", "label_sets", "scores", "tags", "answers"}
    names = {field.name for field in dataclasses.fields(examples)}
    return dataclasses.replace(examples, **dict.fromkeys(names & columns))


def score(task, dev, answers):
    """Return the metrics of labels, numbers, (tag, score) per word, or dicts with `text`.

    F1 is that of the label that sorts last, or the mean over more than two labels.
    """
    from scipy import stats
    from sklearn import metrics

    from keras_bert.tasks.question_answering.task import QuestionAnswering

    question_answering = QuestionAnswering()
    from keras_bert.tasks.tagging.task import Tagging

    tagging = Tagging()

    if task.kind == "tags":
        return tagging.score(None, dev, answers)
    if task.kind == "questions":
        return question_answering.score(None, dev, answers)
    if task.kind == "score":
        return {
            "pearson": float(stats.pearsonr(answers, dev.scores).statistic),
            "spearman": float(stats.spearmanr(answers, dev.scores).statistic),
            "majority": 0.0,  # the correlation with a constant
        }
    labels = dev.label_names()
    f1 = metrics.f1_score(dev.labels, answers, labels=labels, average=None)
    return {
        "accuracy": float(metrics.accuracy_score(dev.labels, answers)),
        "f1": float(f1[-1]) if len(labels) == 2 else float(f1.mean()),
        "majority": dev.majority_share(),
    }


def clock():
    """Return the wall time and the processor time of this process, in seconds."""
    return time.perf_counter(), time.process_time()


def since(start):
    """Return the wall time and the processor time since `start`, a result of `clock`."""
    return [now - then for now, then in zip(clock(), start, strict=True)]


# keras_bert


def run_keras_bert(task, folder, train, dev, seed, dtype="float32", **encoder_options):
    import keras

    import keras_bert
    from keras_bert.tasks.keras_predictor import KerasPredictor
    from keras_bert.training.finetuning import finetune

    keras.utils.set_random_seed(seed)
    if task.vocabulary is None:
        encoder = keras_bert.load("minilm", dtype=dtype)
    else:
        preprocessor = keras_bert.Preprocessor(folder / task.vocabulary, lowercase=False)
        encoder = keras_bert.BertEncoder(
            vocab_size=len(preprocessor.vocabulary), preprocessor=preprocessor, **SMALL
        )
    encoder = encoder.with_options(**encoder_options)
    options = {"stride": STRIDE} if task.kind == "questions" else {}
    start = clock()
    model, _ = finetune(
        encoder, train, epochs=task.epochs, batch_size=BATCH, learning_rate=task.rate,
        warmup=WARMUP, max_length=task.max_length, seed=seed, show_progress=False, **options,
    )  # fmt: skip
    seconds = since(start)
    answers = KerasPredictor(model).answers(dev, batch_size=64)
    if task.kind == "label":
        labels = train.label_names()
        answers = [labels[row.argmax()] for row in answers]
    return seconds, answers


# transformers: model, training features and answers for each kind of task


class TextPeer:
    """Classification and regression of texts and pairs."""

    def __init__(self, task, train):
        self.labels = None if task.kind == "score" else train.label_names()
        self.auto_class = "AutoModelForSequenceClassification"
        self.options = {"num_labels": 1 if self.labels is None else len(self.labels)}
        self.max_length = task.max_length

    def collator(self, tokenizer):
        import transformers

        return transformers.DataCollatorWithPadding(tokenizer)

    def _tokenize(self, tokenizer, examples):
        encoded = tokenizer(
            examples.texts, examples.text_pairs, truncation=True, max_length=self.max_length
        )
        names = list(encoded)
        rows = zip(*(encoded[name] for name in names), strict=True)
        return [dict(zip(names, row, strict=True)) for row in rows]

    def features(self, tokenizer, examples):
        targets = examples.scores
        if self.labels is not None:
            index = {label: number for number, label in enumerate(self.labels)}
            targets = [index[label] for label in examples.labels]
        rows = self._tokenize(tokenizer, examples)
        return [{**row, "labels": target} for row, target in zip(rows, targets, strict=True)]

    def answers(self, tokenizer, examples, run):
        rows = self._tokenize(tokenizer, examples)
        logits = [output["logits"] for output in run(rows)]
        if self.labels is None:
            return [float(row[0]) for row in logits]
        return [self.labels[row.argmax()] for row in logits]


class TagPeer:
    """Tagging, as in transformers' `run_ner.py`: long sentences are cut."""

    def __init__(self, task, train):
        self.labels = train.label_names()
        self.auto_class = "AutoModelForTokenClassification"
        self.options = {"num_labels": len(self.labels)}
        self.max_length = task.max_length

    def collator(self, tokenizer):
        import transformers

        return transformers.DataCollatorForTokenClassification(tokenizer)

    def _tokenize(self, tokenizer, examples):
        """Return rows, and for each token its word's index if it is the first token, else -1."""
        encoded = tokenizer(
            examples.words, is_split_into_words=True, truncation=True, max_length=self.max_length
        )
        rows, firsts = [], []
        for number in range(len(examples)):
            rows.append({name: encoded[name][number] for name in encoded})
            first, previous = [], None
            for word in encoded.word_ids(number):
                first.append(-1 if word is None or word == previous else word)
                previous = word
            firsts.append(first)
        return rows, firsts

    def features(self, tokenizer, examples):
        index = {label: number for number, label in enumerate(self.labels)}
        rows, firsts = self._tokenize(tokenizer, examples)
        for row, first, tags in zip(rows, firsts, examples.tags, strict=True):
            row["labels"] = [-100 if word < 0 else index[tags[word]] for word in first]
        return rows

    def answers(self, tokenizer, examples, run):
        rows, firsts = self._tokenize(tokenizer, examples)
        answers = []
        for output, first, words in zip(run(rows), firsts, examples.words, strict=True):
            answer = [(self.labels[0], 0.0)] * len(words)  # default for words that were cut
            for word, logits in zip(first, output["logits"], strict=False):
                if word >= 0:
                    answer[word] = (self.labels[logits.argmax()], 1.0)
            answers.append(answer)
        return answers


class QuestionPeer:
    """Question answering, as in transformers' `run_qa.py` and `utils_qa.py`."""

    n_best, max_answer_length = 20, 30

    def __init__(self, task, train):
        self.auto_class = "AutoModelForQuestionAnswering"
        self.options = {}
        self.max_length = task.max_length

    def collator(self, tokenizer):
        import transformers

        return transformers.DataCollatorWithPadding(tokenizer)

    def _tokenize(self, tokenizer, examples):
        """Return rows, and for each its question, the types of its tokens and their offsets."""
        encoded = tokenizer(
            [question.lstrip() for question in examples.questions],
            examples.contexts,
            truncation="only_second",
            max_length=self.max_length,
            stride=STRIDE,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        questions = encoded.pop("overflow_to_sample_mapping")
        offsets = encoded.pop("offset_mapping")
        rows = [{name: encoded[name][i] for name in encoded} for i in range(len(questions))]
        return rows, questions, [encoded.sequence_ids(i) for i in range(len(rows))], offsets

    def features(self, tokenizer, examples):
        windows = self._tokenize(tokenizer, examples)
        for row, question, sides, offsets in zip(*windows, strict=True):
            row["start_positions"] = row["end_positions"] = 0  # [CLS]
            text, start = next((a for a in examples.answers[question] if a[1] >= 0), ("", -1))
            end = start + len(text)
            first = sides.index(1)
            last = len(sides) - 1
            while sides[last] != 1:
                last -= 1
            if start < 0 or offsets[first][0] > start or offsets[last][1] < end:
                continue
            while first < len(offsets) and offsets[first][0] <= start:
                first += 1
            row["start_positions"] = first - 1
            while offsets[last][1] >= end:
                last -= 1
            row["end_positions"] = last + 1
        return [row for row in windows[0]]

    def answers(self, tokenizer, examples, run):
        rows, questions, sides, offsets = self._tokenize(tokenizer, examples)
        best = [(-float("inf"), "")] * len(examples)
        for index, output in enumerate(run(rows)):
            question = questions[index]
            start, end = output["start_logits"], output["end_logits"]
            for i in start.argsort()[: -self.n_best - 1 : -1].tolist():
                for j in end.argsort()[: -self.n_best - 1 : -1].tolist():
                    if max(i, j) >= len(sides[index]) or not i <= j < i + self.max_answer_length:
                        continue
                    if sides[index][i] != 1 or sides[index][j] != 1:
                        continue
                    text = examples.contexts[question][offsets[index][i][0] : offsets[index][j][1]]
                    best[question] = max(best[question], (float(start[i] + end[j]), text))
        return [{"text": text} for _, text in best]


def check_optimizer_is_fused(trainer):
    """Raise an error unless a `Trainer` used its fast optimizer, the default since torch 2.8."""
    if trainer.args.optim != "adamw_torch_fused":
        raise ValueError("the peer must train with the fused AdamW; install torch 2.8 or later")


PEERS = {"label": TextPeer, "score": TextPeer, "tags": TagPeer, "questions": QuestionPeer}


def run_transformers(task, folder, train, dev, seed, autocast=False):
    import torch
    import transformers

    import keras_bert.hub.resolve

    if hasattr(os, "sched_getaffinity"):
        torch.set_num_threads(len(os.sched_getaffinity(0)))
    transformers.logging.set_verbosity_error()
    transformers.set_seed(seed)
    peer = PEERS[task.kind](task, train)
    weights = keras_bert.hub.resolve.find("minilm")
    tokenizer = transformers.AutoTokenizer.from_pretrained(weights)
    if not tokenizer.is_fast:
        raise ValueError("the tokenizer must be the fast one")
    auto_class = getattr(transformers, peer.auto_class)
    model = auto_class.from_pretrained(weights, dtype=torch.float32, **peer.options)
    collate = peer.collator(tokenizer)

    start = clock()
    rows = peer.features(tokenizer, train)
    with tempfile.TemporaryDirectory() as folder_of_trainer:
        # What is not given is the default, such as the fused AdamW.
        arguments = transformers.TrainingArguments(
            folder_of_trainer,
            num_train_epochs=task.epochs,
            per_device_train_batch_size=BATCH,
            train_sampling_strategy="group_by_length",
            learning_rate=task.rate,
            warmup_steps=WARMUP,
            weight_decay=DECAY,
            adam_epsilon=1e-6,
            max_grad_norm=CLIP,
            bf16=autocast,
            use_cpu=True,
            seed=seed,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        trainer = transformers.Trainer(model, arguments, collate, train_dataset=rows)
        trainer.train()
    check_optimizer_is_fused(trainer)
    seconds = since(start)

    def run(rows):
        """Return a dict of logits per row. Rows of similar lengths are in one batch."""
        outputs = [None] * len(rows)
        order = sorted(range(len(rows)), key=lambda row: -len(rows[row]["input_ids"]))
        pad = transformers.DataCollatorWithPadding(tokenizer)
        for first in range(0, len(order), 64):
            part = order[first : first + 64]
            with torch.inference_mode():
                found = model(**pad([rows[row] for row in part]))
            arrays = {name: value.numpy() for name, value in found.items()}
            for place, row in enumerate(part):
                outputs[row] = {name: array[place] for name, array in arrays.items()}
        return outputs

    model.eval()
    return seconds, peer.answers(tokenizer, dev, run)


# KerasHub


def run_keras_hub(task, folder, train, dev, seed):
    import keras
    import keras_hub
    import numpy as np

    import keras_bert.hub.resolve
    from keras_bert import optimizers

    keras.utils.set_random_seed(seed)
    if task.kind == "label":
        labels = train.label_names()
        targets = [labels.index(label) for label in train.labels]
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    else:
        labels, targets, loss = [None], train.scores, keras.losses.MeanSquaredError()
    model = keras_hub.models.BertTextClassifier.from_preset(
        str(keras_bert.hub.resolve.find("minilm")), num_classes=len(labels)
    )
    start = clock()
    model.preprocessor.sequence_length = task.max_length
    steps = task.epochs * -(-len(train) // BATCH)
    model.compile(
        optimizer=optimizers.adamw(
            task.rate, total_steps=steps, warmup_steps=round(WARMUP * steps), weight_decay=DECAY,
            global_clipnorm=CLIP,
        ),
        loss=loss,
        jit_compile=True,
    )  # fmt: skip

    def texts(examples):
        if examples.text_pairs is None:
            return np.array(examples.texts)
        return np.array(examples.texts), np.array(examples.text_pairs)

    model.fit(texts(train), np.array(targets), batch_size=BATCH, epochs=task.epochs, verbose=0)
    seconds = since(start)
    logits = model.predict(texts(dev), batch_size=64, verbose=0)
    if task.kind == "score":
        return seconds, [float(row[0]) for row in logits]
    return seconds, [labels[row.argmax()] for row in logits]


# The runs

OURS_BFLOAT16, THEIRS_BFLOAT16 = "keras_bert bfloat16", "transformers bfloat16"
NO_ATTENTION_DROPOUT = "keras_bert without attention dropout"
LIBRARIES = {
    "keras_bert": run_keras_bert,
    "transformers": run_transformers,
    "keras_hub": run_keras_hub,
    OURS_BFLOAT16: functools.partial(run_keras_bert, dtype="mixed_bfloat16"),
    NO_ATTENTION_DROPOUT: functools.partial(run_keras_bert, attention_probs_dropout_prob=0.0),
    THEIRS_BFLOAT16: functools.partial(run_transformers, autocast=True),
}


def libraries_for(task, peers, bfloat16, attention_dropout, only_ours):
    """Return the names of the libraries that run a task; the others are compared with the first."""
    libraries = [OURS_BFLOAT16, "keras_bert"] if bfloat16 else ["keras_bert"]
    if attention_dropout:
        libraries.append(NO_ATTENTION_DROPOUT)
    if task.vocabulary is None and not only_ours:
        libraries.append("transformers")
        if bfloat16:
            libraries.append(THEIRS_BFLOAT16)
        if "keras_hub" in peers and task.kind in ("label", "score"):  # KerasHub has no other heads
            libraries.append("keras_hub")
    return libraries


def run_one(name, library, folder, seed, limit, epochs):
    """Run a task in this process. Return its metrics and training examples per second."""
    if hasattr(os, "sched_setaffinity"):  # two cores, for all threads
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    task = dataclasses.replace(TASKS[name], **({"epochs": epochs} if epochs else {}))
    train, dev = read(task, folder, limit)
    seconds, answers = LIBRARIES[library](task, folder, train, without_labels(dev), seed)
    wall, processor = seconds
    return {
        **score(task, dev, answers),
        "rate": len(train) * task.epochs / wall,
        "seconds": wall,
        "processor": processor,
        "rows": [len(train), len(dev)],
    }


def in_a_process(folder, options):
    """Run `run_one` in a new process."""
    command = [sys.executable, __file__, str(folder), "--one", json.dumps(options)]
    output = subprocess.run(
        command, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True, text=True,
    )  # fmt: skip
    if output.returncode:
        sys.exit(output.stderr[-5000:])
    return json.loads(output.stdout.splitlines()[-1])


def run_task(name, folder, seeds, limit, epochs, libraries):
    """Print the runs of a task and their summary. Return the ratios of speed to each library."""
    task = TASKS[name]
    metrics = list(dict.fromkeys(task.metrics))
    results = {library: [] for library in libraries}
    first = libraries[0]
    for seed in seeds:
        for library, rows in results.items():
            options = {"name": name, "library": library, "seed": seed, "limit": limit}
            result = in_a_process(folder, {**options, "epochs": epochs})
            if seed == seeds[0] and library == first:
                print("{}: {} + {} rows".format(name, *result["rows"]), end="")
                majority = result.get("majority")
                print("" if majority is None else f", majority {majority:.3f}", flush=True)
            rows.append(result)
            scores = ", ".join(f"{metric} {result[metric]:.4f}" for metric in metrics)
            print(
                f"{name}, {library}, seed {seed}: {scores}, {result['rate']:.1f} examples/s "
                f"({result['seconds']:.0f} s, processors {result['processor']:.0f} s)",
                flush=True,
            )
    for library, rows in results.items():
        scores = ", ".join(
            f"{metric} {statistics.mean(values):.4f} "
            f"\u00b1 {statistics.stdev(values) if len(values) > 1 else 0:.4f}"
            for metric in metrics
            for values in [[row[metric] for row in rows]]
        )
        rate = statistics.median(row["rate"] for row in rows)
        print(f"{name}, {library}: {scores}, {rate:.1f} examples/s")
    ratios = {
        library: [
            statistics.median(
                theirs[time] / ours[time] for ours, theirs in zip(results[first], rows, strict=True)
            )
            for time in ("seconds", "processor")
        ]
        for library, rows in results.items()
        if library != first
    }
    for library, (speed, less) in ratios.items():
        print(f"{name}: {first} {speed:.2f}x {library}, by processor time {less:.2f}x", flush=True)
    return ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "folder", type=pathlib.Path, help="folder with data/ and, for Korean, vocab/"
    )
    parser.add_argument("--tasks", default=",".join(TASKS), help=f"of {', '.join(TASKS)}")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--limit", type=int, help="maximum rows of training and dev data")
    parser.add_argument("--epochs", type=int, help="default: as in the task")
    parser.add_argument("--peer", action="append", choices=["keras_hub"], default=[])
    parser.add_argument("--bfloat16", action="store_true", help="also run both in bfloat16")
    parser.add_argument(
        "--attention-dropout", action="store_true", help="also run keras_bert without it"
    )
    parser.add_argument("--only-ours", action="store_true", help="do not run transformers")
    parser.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(run_one(folder=args.folder, **args.one)))
        return
    names = args.tasks.split(",")
    unknown = [name for name in names if name not in TASKS]
    if unknown:
        parser.error(f"--tasks: no task {unknown[0]!r}; there are {', '.join(TASKS)}")
    packages = ("keras", "tensorflow", "transformers", "tokenizers", "torch", "keras-hub")
    print(f"instruction sets: {' '.join(processor.instruction_sets())}")
    print(", ".join(f"{p} {importlib.metadata.version(p)}" for p in packages[: 5 + len(args.peer)]))
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    variants = args.peer, args.bfloat16, args.attention_dropout, args.only_ours
    ratios = [
        run_task(
            name, args.folder, seeds, args.limit, args.epochs, libraries_for(TASKS[name], *variants)
        )
        for name in names
    ]
    for library in LIBRARIES:
        found = [ratio[library] for ratio in ratios if library in ratio]
        if len(found) > 1:
            speed, less = map(statistics.geometric_mean, zip(*found, strict=True))
            print(
                f"{len(found)} tasks: speed {speed:.2f}x {library}, by processor time {less:.2f}x "
                "(geometric means)"
            )


if __name__ == "__main__":
    main()
