"""A tagger: products, order numbers, dates, people and places in support messages.

The data is in CoNLL columns, a word and its tag a line: B-PLACE begins a place, I-PLACE goes on
with it, O is none of the five. A word of several pieces is tagged by its first piece.

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
from keras_bert.data import conll
from keras_bert.tasks import inference, tagging
from keras_bert.training import finetuning

DATA = pathlib.Path(__file__).parent / "data"
MESSAGE = "Hello, Torsten Falk here: order RT-5580 should have been in Aalborg on 8 December."


def main():
    """Trains, scores and asks the tagger."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="minilm", help="any name or path that `load` takes")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--limit", type=int, help="learn from the first sentences only")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    sentences = conll.read(DATA / "entities_train.conll", limit=args.limit)
    dev = conll.read(DATA / "entities_dev.conll")

    bert = keras_bert.load(args.model)
    model, metrics = finetuning.finetune(
        bert, sentences, dev, epochs=args.epochs, batch_size=16, learning_rate=2e-4, seed=args.seed
    )
    print(f"entity F1 {metrics['f1']:.2f} on {len(dev)} dev sentences", end=", ")
    print(f"precision {metrics['precision']:.2f}, recall {metrics['recall']:.2f}")
    print(f"{metrics['accuracy']:.2f} of the words right, {metrics['majority']:.2f} if all are O")

    # A new text is split into words as the training data was: at spaces and punctuation.
    words, _ = tagging.split_words([MESSAGE], bert.preprocessor.tokenizer)
    [answer] = inference.answers(model, conll.TaggedSentences(words))
    for word, (tag, score) in zip(words[0], answer, strict=True):
        if tag != "O":
            print(f"  {word:10} {tag:9} {score:.2f}")


if __name__ == "__main__":
    main()
