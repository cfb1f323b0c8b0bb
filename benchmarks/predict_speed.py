"""Question: how fast are many texts classified, compared with transformers' pipeline?

The first 20,000 training texts of SST-2 go through `KerasPredictor.answers` and
through `pipeline("text-classification", batch_size=32)`, both with MiniLM and the same random
classifier head, float32, on two CPU cores. The pipeline gets the texts sorted by length, which is
its fastest way. Each run is a new process, and the libraries alternate.
The time is from texts in memory to a label and a score for each text, without loading. The script
also prints the fraction of equal labels.

    python benchmarks/predict_speed.py ../shared

Needs transformers and torch.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np

BATCH = 32


def head(hidden):
    """Return the weights of the head: kernel (hidden, 2) and bias (2,)."""
    generator = np.random.default_rng(0)
    return generator.normal(0, 0.1, (hidden, 2)).astype("float32"), np.zeros(2, "float32")


def ours(texts):
    import keras_bert
    from keras_bert.data import tabular
    from keras_bert.tasks.keras_predictor import KerasPredictor

    bert = keras_bert.load("minilm")
    model = keras_bert.heads.classifier(bert, labels=["0", "1"], pooling="pooler")  # as the peer
    dense = model.get_layer("logits")
    dense.set_weights(head(dense.kernel.shape[0]))
    start = time.perf_counter()
    examples = tabular.Examples(texts)
    rows = KerasPredictor(model).answers(examples, batch_size=BATCH)
    answers = [(str(row.argmax()), float(row.max())) for row in rows]
    return time.perf_counter() - start, [label for label, _ in answers]


def theirs(texts):
    import torch
    import transformers

    import keras_bert.hub.resolve

    torch.set_num_threads(2)
    transformers.logging.set_verbosity_error()
    folder = keras_bert.hub.resolve.find("minilm")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=2, dtype=torch.float32
    )
    kernel, bias = head(model.config.hidden_size)
    with torch.no_grad():
        model.classifier.weight.copy_(torch.tensor(kernel.T))
        model.classifier.bias.copy_(torch.tensor(bias))
    classify = transformers.pipeline(
        "text-classification",
        model=model,
        tokenizer=transformers.AutoTokenizer.from_pretrained(folder),
        batch_size=BATCH,
        device="cpu",
    )
    start = time.perf_counter()
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    answers = [(answer["label"], answer["score"]) for answer in classify([texts[i] for i in order])]
    labels = [""] * len(texts)
    for index, (label, _) in zip(order, answers, strict=True):
        labels[index] = label.removeprefix("LABEL_")
    return time.perf_counter() - start, labels


LIBRARIES = {"keras_bert": ours, "transformers": theirs}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="folder with data/sst2/train.tsv")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", choices=LIBRARIES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        if hasattr(os, "sched_setaffinity"):  # two cores, for all threads
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
        from keras_bert.data import tabular

        file = args.folder / "data" / "sst2" / "train.tsv"
        texts = tabular.read(file, text="sentence", limit=args.rows).texts
        print(json.dumps(LIBRARIES[args.one](texts)))
        return
    seconds, labels = {name: [] for name in LIBRARIES}, {}
    for turn in range(args.rounds):
        for name in LIBRARIES:
            command = [sys.executable, __file__, str(args.folder)]
            command += ["--rows", str(args.rows), "--one", name]
            output = subprocess.run(
                command, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
                capture_output=True, text=True,
            )  # fmt: skip
            if output.returncode:
                sys.exit(output.stderr[-5000:])
            taken, labels[name] = json.loads(output.stdout.splitlines()[-1])
            seconds[name].append(taken)
            print(
                f"{name}, round {turn + 1}: {taken:.1f} s, {args.rows / taken:.0f} texts/s",
                flush=True,
            )
    same = np.mean([a == b for a, b in zip(*labels.values(), strict=True)])
    ratio = statistics.median(
        b / a for a, b in zip(seconds["keras_bert"], seconds["transformers"], strict=True)
    )
    print(f"equal labels {same:.4f}; speed {ratio:.2f}x transformers")


if __name__ == "__main__":
    main()
