"""Tagging: find products, order numbers, dates, people and places in support messages.

The data has CoNLL columns, with a word and its tag per line: B-PLACE begins a place, I-PLACE
continues it, and O is any other word. The tag of a word is predicted at its first token.

Command:   python examples/tag_words.py
Time:      about a minute on 2 CPU cores
Expected:  entity F1 0.92 to 0.94 on the dev sentences (seeds 0 and 1)
"""

import argparse
import os
import pathlib

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras_bert

DATA = pathlib.Path(__file__).parent / "data"
MESSAGE = "Hello, Torsten Falk here: order RT-5580 should have been in Aalborg on 8 December."


def main():
    """Train and score the tagger, and tag a new message."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="minilm", help="name or path for keras_bert.load")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--limit", type=int, help="train on the first sentences only")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    train = keras_bert.read(DATA / "entities_train.conll", task="tagging", limit=args.limit)
    dev = keras_bert.read(DATA / "entities_dev.conll", task="tagging")

    bert = keras_bert.load(args.model)
    model, metrics = keras_bert.finetune(
        bert, train, dev, epochs=args.epochs, batch_size=16, learning_rate=2e-4, seed=args.seed
    )
    print(f"entity F1 {metrics['f1']:.2f} on {len(dev)} dev sentences", end=", ")
    print(f"precision {metrics['precision']:.2f}, recall {metrics['recall']:.2f}")
    print(f"{metrics['accuracy']:.2f} accuracy of words, {metrics['majority']:.2f} if all are O")

    ask = keras_bert.pipeline(model)
    for entity in ask(MESSAGE):
        print(f"  {entity['tag']:7} {entity['score']:.2f}  {entity['text']}")


if __name__ == "__main__":
    main()
