"""Question: does the workflow of the quickstart work on other data sets?

MiniLM is fine-tuned on a file, scored and exported. A new process that imports only TensorFlow
classifies the dev texts with the exported model. Its accuracy must equal that of the Keras model.
Data: the support messages of `examples/data`, SST-2 (first 6,000 training rows, GLUE's dev) and the
SMS Spam Collection (every fifth message is dev).

    python benchmarks/served_jobs.py ../shared/data
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras_bert
from keras_bert.data import tabular
from keras_bert.training import finetuning

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples" / "data"
CLIENT = """
import json, sys
import tensorflow as tf
served = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
texts = json.load(open(sys.argv[2]))
labels = []
for start in range(0, len(texts), 64):
    labels += served(text=tf.constant(texts[start : start + 64]))["label"].numpy().tolist()
print(json.dumps([label.decode() for label in labels]))
"""


def support(folder):
    """Return the data and settings of the quickstart."""
    train_set, dev = (
        tabular.read(EXAMPLES / f"support_{split}.tsv", text="text", label="label")
        for split in ("train", "dev")
    )
    return train_set, dev, {"epochs": 6, "batch_size": 16, "learning_rate": 1e-4}


def sst2(folder):
    """Return data and settings: sentiment of sentences, 2 classes."""
    train_set, dev = (
        tabular.read(folder / "sst2" / f"{split}.tsv", text="sentence", label="label", limit=limit)
        for split, limit in (("train", 6000), ("dev", None))
    )
    return train_set, dev, {"epochs": 1, "max_length": 64}


def sms_spam(folder):
    """Return data and settings: spam among text messages, 2 classes of 87% and 13%."""
    every = tabular.read(
        folder / "sms_spam" / "SMSSpamCollection", text="2", label="1", format="tsv", header=False
    )

    def part(is_dev):
        rows = [row for row in range(len(every)) if (row % 5 == 0) == is_dev]
        return tabular.Examples(
            [every.texts[row] for row in rows], labels=[every.labels[row] for row in rows]
        )

    return part(False), part(True), {"epochs": 1, "max_length": 128}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="folder with sst2/ and sms_spam/")
    args = parser.parse_args()
    for job in (support, sst2, sms_spam):
        train_set, dev, options = job(args.folder)
        start = time.perf_counter()
        model, metrics = finetuning.finetune(
            keras_bert.load("minilm"), train_set, dev, show_progress=False, **options
        )
        with tempfile.TemporaryDirectory() as folder:
            version = keras_bert.export(model, folder)
            texts = pathlib.Path(folder, "texts.json")
            texts.write_text(json.dumps(dev.texts), encoding="utf-8")
            client = subprocess.run(
                [sys.executable, "-c", CLIENT, version, texts],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
            )  # fmt: skip
        labels = json.loads(client.stdout)
        served = sum(a == b for a, b in zip(labels, dev.labels, strict=True)) / len(dev)
        print(
            f"{job.__name__}: {len(train_set)} + {len(dev)} texts, dev accuracy "
            f"{metrics['accuracy']:.3f}, served {served:.3f}, majority {metrics['majority']:.3f}; "
            f"{metrics['examples_per_second']:.0f} examples/s in training, "
            f"{time.perf_counter() - start:.0f} s in all",
            flush=True,
        )


if __name__ == "__main__":
    main()
