"""Question: fine-tuning on SST-2, how accurate and how fast beside Hugging Face transformers?

MiniLM, the first 6,000 training rows, one epoch, batch 32, length up to 64, learning rate 5e-5,
warm-up 10%, float32, CPU. Each library trains in a process of its own, from strings, taking turns
over the seeds; the time is that of the training loop, tokenizing included. transformers pads each
batch to its longest text (`DataCollatorWithPadding`), shuffles at random, and uses AdamW with the
same decay, clipping and schedule.

    python benchmarks/finetune_sst2.py ../shared/data/sst2

Needs transformers and torch beside keras_bert.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

EPOCHS, BATCH, LENGTH, RATE, WARMUP = 1, 32, 64, 5e-5, 0.1


def ours(train_file, dev_file, seed, rows):
    """Accuracy and examples per second of keras_bert."""
    import keras_bert
    from keras_bert.finetuning import data, train

    examples = data.read(train_file, text="sentence", label="label", limit=rows)
    dev = data.read(dev_file, text="sentence", label="label")
    encoder = keras_bert.load("minilm")
    start = time.perf_counter()
    model, _ = train.finetune_classifier(
        encoder, examples, epochs=EPOCHS, batch_size=BATCH, learning_rate=RATE, warmup=WARMUP,
        max_length=LENGTH, seed=seed, show_progress=False,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    metrics = train.evaluate_classifier(model, dev, show_progress=False)
    return metrics["accuracy"], len(examples) / seconds


def theirs(train_file, dev_file, seed, rows):
    """The same of transformers, in a plain PyTorch loop."""
    import torch
    import transformers

    import keras_bert.hub
    from keras_bert.finetuning import data

    transformers.logging.set_verbosity_error()
    transformers.set_seed(seed)
    folder = keras_bert.hub.find("minilm")
    examples = data.read(train_file, text="sentence", label="label", limit=rows)
    dev = data.read(dev_file, text="sentence", label="label")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2)
    collate = transformers.DataCollatorWithPadding(tokenizer)

    def tokenize(part):
        ids = tokenizer(part.texts, truncation=True, max_length=LENGTH)["input_ids"]
        return [
            {"input_ids": row, "labels": int(label)}
            for row, label in zip(ids, part.labels, strict=True)
        ]

    start = time.perf_counter()
    loader = torch.utils.data.DataLoader(
        tokenize(examples), batch_size=BATCH, shuffle=True, collate_fn=collate
    )
    matrices = [p for n, p in model.named_parameters() if p.ndim > 1]
    vectors = [p for n, p in model.named_parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}],
        lr=RATE, eps=1e-6,
    )  # fmt: skip
    steps = EPOCHS * len(loader)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, round(WARMUP * steps), steps)
    model.train()
    for _ in range(EPOCHS):
        for batch in loader:
            model(**batch).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    seconds = time.perf_counter() - start
    model.eval()
    right = 0
    with torch.no_grad():
        for batch in torch.utils.data.DataLoader(tokenize(dev), batch_size=64, collate_fn=collate):
            right += int((model(**batch).logits.argmax(-1) == batch["labels"]).sum())
    return right / len(dev), len(examples) / seconds


LIBRARIES = {"keras_bert": ours, "transformers": theirs}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="with train.tsv and dev.tsv of SST-2")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--one", choices=LIBRARIES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    files = [os.path.join(args.folder, name) for name in ("train.tsv", "dev.tsv")]
    if args.one:
        print(json.dumps(LIBRARIES[args.one](*files, args.seeds, args.rows)))
        return
    results = {name: [] for name in LIBRARIES}
    for seed in range(args.seeds):
        for name in LIBRARIES:
            command = [sys.executable, __file__, args.folder, "--one", name]
            command += ["--seeds", str(seed), "--rows", str(args.rows)]
            output = subprocess.run(
                command, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
            )  # fmt: skip
            accuracy, rate = json.loads(output.stdout.splitlines()[-1])
            results[name].append((accuracy, rate))
            print(
                f"{name}, seed {seed}: accuracy {accuracy:.3f}, {rate:.0f} examples/s", flush=True
            )
    for name, rows in results.items():
        accuracies, rates = zip(*rows, strict=True)
        print(
            f"{name}: accuracy {statistics.mean(accuracies):.3f}, "
            f"{statistics.median(rates):.0f} examples/s"
        )
    ratio = statistics.median(
        a[1] / b[1] for a, b in zip(results["keras_bert"], results["transformers"], strict=True)
    )
    print(f"speed {ratio:.2f}x transformers")


if __name__ == "__main__":
    main()
