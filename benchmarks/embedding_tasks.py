"""Question: how good and fast is the training of embeddings, compared with sentence-transformers?

MiniLM is trained by one recipe with both libraries, each run in a new process, in alternation:
batches of 32, peak rate 2e-5 after 10% warm-up, then linear decay, AdamW with decay 0.01 on
matrices only, gradients clipped at norm 1.0, float32, two CPU cores. `--bfloat16` adds keras_bert
in mixed_bfloat16, and sentence-transformers under bfloat16 autocast. sentence-transformers trains
with its own trainer and its defaults, such as the fused AdamW.

`squad`: questions of 30 articles of SQuAD 1.1 and the paragraphs with their answers, one epoch with
in-batch negatives (`MultipleNegativesRanking`, no query or paragraph twice in a batch for
sentence-transformers), at most 256 tokens. The questions of 8 other articles search among all
paragraphs of these articles: MRR@10. `stsb`: scored pairs, 3 epochs with `CoSENT`, Spearman's rank
correlation on the dev data.

    python benchmarks/embedding_tasks.py ../shared --tasks stsb,squad --seeds 3

keras_bert runs on the backend of KERAS_BACKEND. Both use a GPU if there is one.

Needs sentence-transformers, datasets and torch.
"""

import argparse
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from keras_bert.runtime import processor

BATCH, RATE, WARMUP = 32, 2e-5, 0.1
EPOCHS = {"squad": 1, "stsb": 3}
LENGTH = {"squad": 256, "stsb": 128}


def read(task, folder, limit):
    """Return training and dev data as `EmbeddingExamples`."""
    from keras_bert import EmbeddingExamples
    from keras_bert.data import tabular
    from keras_bert.tasks.question_answering import data as squad

    if task == "stsb":
        options = {"text": "6", "text_pair": "7", "label": "5", "header": False, "kind": "score"}
        parts = [
            tabular.read(folder / "data/stsb" / f"{name}.tsv", format="tsv", **options)
            for name in ("train", "dev")
        ]
        parts = [EmbeddingExamples.of_pairs(part) for part in parts]
        return [EmbeddingExamples(part.texts[:limit], part.scores[:limit]) for part in parts]
    parts = [squad.read(folder / "data/squad11" / f"{name}.json") for name in ("train", "dev")]
    return [
        EmbeddingExamples(list(zip(part.questions, part.contexts, strict=True))[:limit])
        for part in parts
    ]


def ours(task, train, seed, dtype=None):
    import keras_bert

    bert = keras_bert.load("minilm", dtype=dtype)
    start = time.perf_counter()
    model, _ = keras_bert.finetune(
        bert, train, epochs=EPOCHS[task], batch_size=BATCH, learning_rate=RATE, warmup=WARMUP,
        max_length=LENGTH[task], seed=seed, show_progress=False,
    )  # fmt: skip
    return time.perf_counter() - start, keras_bert.pipeline(model).encode


def before(task, train, seed):
    import keras_bert

    return 1.0, keras_bert.pipeline("minilm", task="embedding").encode


def theirs(task, train, seed, autocast=False):
    import datasets
    import torch
    import transformers
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.base.modules import Normalize, Transformer
    from sentence_transformers.sentence_transformer import losses
    from sentence_transformers.sentence_transformer.modules import Pooling

    import keras_bert.hub.resolve

    torch.set_num_threads(2)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    transformers.set_seed(seed)
    transformer = Transformer(
        str(keras_bert.hub.resolve.find("minilm")), max_seq_length=LENGTH[task]
    )
    model = SentenceTransformer(
        modules=[transformer, Pooling(384, "mean"), Normalize()], device=device
    )
    loss_class = {"squad": losses.MultipleNegativesRankingLoss, "stsb": losses.CoSENTLoss}[task]
    names = ("query", "positive") if task == "squad" else ("first", "second")
    columns = dict(zip(names, zip(*train.texts, strict=True), strict=True))
    if train.scores:
        columns["score"] = train.scores
    rows = datasets.Dataset.from_dict(columns)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        # What is not given is the default, such as the fused AdamW.
        arguments = SentenceTransformerTrainingArguments(
            folder,
            num_train_epochs=EPOCHS[task],
            per_device_train_batch_size=BATCH,
            batch_sampler="no_duplicates" if task == "squad" else "batch_sampler",
            learning_rate=RATE,
            warmup_steps=WARMUP,
            weight_decay=0.01,
            adam_epsilon=1e-6,
            max_grad_norm=1.0,
            bf16=autocast,
            use_cpu=device == "cpu",
            seed=seed,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        SentenceTransformerTrainer(
            model, arguments, train_dataset=rows, loss=loss_class(model)
        ).train()
    if arguments.optim != "adamw_torch_fused":
        raise ValueError("the peer must train with the fused AdamW; install torch 2.8 or later")
    model.eval()
    if device == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    return seconds, lambda texts: model.encode(texts, show_progress_bar=False)


RUNS = {
    "keras_bert": ours, "sentence-transformers": theirs, "before": before,
    "keras_bert bfloat16": functools.partial(ours, dtype="mixed_bfloat16"),
    "sentence-transformers bfloat16": functools.partial(theirs, autocast=True),
}  # fmt: skip


def run_one(task, library, folder, seed, limit):
    """Run a task in this process; return its metrics and examples per second."""
    import numpy as np

    from keras_bert.tasks.embedding.task import Embedding

    embedding = Embedding()

    train, dev = read(task, folder, limit)
    seconds, encode = RUNS[library](task, train, seed)
    texts = list(dict.fromkeys(text for row in dev.texts for text in row))
    vectors = dict(zip(texts, np.asarray(encode(texts)), strict=True))
    answers = [np.stack([vectors[text] for text in row]) for row in dev.texts]
    scores = embedding.score(None, dev, answers)
    return {**scores, "rate": len(train) * EPOCHS[task] / seconds, "rows": [len(train), len(dev)]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="folder with data/")
    parser.add_argument("--tasks", default="stsb,squad")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit", type=int, help="maximum rows of training and dev data")
    parser.add_argument("--bfloat16", action="store_true")
    parser.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(run_one(folder=args.folder, **args.one)))
        return
    print(f"instruction sets: {' '.join(processor.instruction_sets())}")
    for task in args.tasks.split(","):
        results: dict[str, list] = {}
        for seed in range(args.seeds):
            for library in RUNS:
                if library == "before" and seed or "bfloat16" in library and not args.bfloat16:
                    continue
                options = {"task": task, "library": library, "seed": seed, "limit": args.limit}
                command = [sys.executable, __file__, str(args.folder), "--one", json.dumps(options)]
                output = subprocess.run(
                    command, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
                    capture_output=True, text=True,
                )  # fmt: skip
                if output.returncode:
                    sys.exit(output.stderr[-3000:])
                result = json.loads(output.stdout.splitlines()[-1])
                results.setdefault(library, []).append(result)
                name = "spearman" if task == "stsb" else "mrr@10"
                rate = f", {result['rate']:.1f} examples/s" if library != "before" else ""
                print(
                    f"{task}, {library}, seed {seed}: {name} {result[name]:.4f}{rate}", flush=True
                )
        for library, found in results.items():
            values = [result[name] for result in found]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            print(f"{task}, {library}: {name} {statistics.mean(values):.4f} ± {spread:.4f}")
        for dtype in ("", " bfloat16")[: 1 + args.bfloat16]:
            pairs = zip(
                results[f"keras_bert{dtype}"], results[f"sentence-transformers{dtype}"], strict=True
            )
            speed = statistics.median(one["rate"] / other["rate"] for one, other in pairs)
            print(f"{task}{dtype}: speed {speed:.2f}x sentence-transformers", flush=True)


if __name__ == "__main__":
    main()
