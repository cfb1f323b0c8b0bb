"""Similarity of texts: the cosine of their embeddings, without training.

MiniLM was trained for this. The embedding of a text is the mean over its tokens, scaled to length
1, so the product of two embeddings is their cosine. The example also gives each dev message the
label of the most similar training message.

Command:   python examples/score_similarity.py
Time:      about 15 seconds on 2 CPU cores
Expected:  accuracy 0.49 with the label of the nearest message. Always predicting the most frequent
           label gets 0.18, and fine-tuning on the same messages (classify_texts.py) 0.74 to 0.76
"""

import argparse
import os
import pathlib

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

import keras_bert

DATA = pathlib.Path(__file__).parent / "data"
SENTENCES = [
    "How do I get my money back?",
    "I would like a refund, please.",
    "How do I get to the station?",
]
QUERY = "my package is lost"


def main():
    """Compare sentences, search, and classify by the nearest message."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="minilm", help="name or path for keras_bert.load")
    parser.add_argument("--limit", type=int, help="use only the first training messages")
    args = parser.parse_args()

    known = keras_bert.read(DATA / "support_train.tsv", limit=args.limit)
    dev = keras_bert.read(DATA / "support_dev.tsv")

    embed = keras_bert.pipeline(keras_bert.load(args.model))  # strings to unit vectors

    print("Cosine between sentences")
    vectors = embed(SENTENCES)  # (3, 384)
    for sentence, row in zip(SENTENCES, vectors @ vectors.T, strict=True):
        print("  " + "  ".join(f"{cosine:5.2f}" for cosine in row) + f"  {sentence}")

    print(f"The dev messages nearest to {QUERY!r}")
    dev_vectors = embed(dev.texts)  # (messages, 384)
    cosines = dev_vectors @ embed(QUERY)
    for index in np.argsort(-cosines)[:3]:
        print(f"  {cosines[index]:.2f}  {dev.texts[index]}")

    nearest = (dev_vectors @ embed(known.texts).T).argmax(axis=1)
    right = [known.labels[index] == label for index, label in zip(nearest, dev.labels, strict=True)]
    print(f"{np.mean(right):.2f} of {len(dev)} dev messages have the label of the nearest", end=" ")
    print(f"of {len(known)} messages; {dev.majority_share():.2f} for the most frequent label")


if __name__ == "__main__":
    main()
