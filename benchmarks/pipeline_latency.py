"""Question: how long does a pipeline take for a text, compared with the exported model?

MiniLM with a new classifier is called through `keras_bert.pipeline` and through its export, in
alternation, after a warm-up. Each figure is the median of the calls, for one text of 20 words and
for 32 texts.

    python benchmarks/pipeline_latency.py
"""

import argparse
import os
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from served_latency import LABELS, TEXT, median

import keras_bert


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    args = parser.parse_args()
    model = keras_bert.heads.classifier(keras_bert.load("minilm"), labels=LABELS)
    classify = keras_bert.pipeline(model)
    with tempfile.TemporaryDirectory() as folder:
        loaded = tf.saved_model.load(str(keras_bert.export(model, folder)))
        served = loaded.signatures["serving_default"]
        words = TEXT.split()
        many = [" ".join(words[: 5 + index % 16]) for index in range(32)]
        for title, texts in {"20 words": TEXT, "32 texts": many}.items():
            strings = tf.constant([texts] if isinstance(texts, str) else texts)
            calls = {
                "pipeline": lambda texts=texts: classify(texts),
                "export": lambda strings=strings: served(text=strings)["probabilities"].numpy(),
            }
            times = median(calls, args.rounds if title == "20 words" else args.rounds // 5)
            print(
                f"{title}: pipeline {times['pipeline']:.1f} ms, export {times['export']:.1f} ms, "
                f"ratio {times['pipeline'] / times['export']:.2f}"
            )


if __name__ == "__main__":
    main()
