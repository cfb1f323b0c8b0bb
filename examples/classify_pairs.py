"""A classifier of pairs: do two support messages ask for the same thing?

The encoder reads both texts at once, [CLS] text [SEP] text_pair [SEP], and can compare them word
by word. Each message of the data is in one pair of either label, so neither text alone gives it
away, and half of the pairs that differ are about one product or topic.

Command:   python examples/classify_pairs.py
Time:      one to two minutes on 2 CPU cores
Expected:  0.74 to 0.78 of the dev pairs right (seeds 0 and 1); one answer to all gets 0.50, and a
           threshold on the cosine of score_similarity.py, which has seen far more text, 0.81.
           The second of the pairs that are printed is called the same, which it is not
"""

import argparse
import os
import pathlib

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras_bert
from keras_bert.data import tabular
from keras_bert.tasks import inference
from keras_bert.training import finetuning

DATA = pathlib.Path(__file__).parent / "data"
PAIRS = [
    ("My bag has not arrived with the flight", "I'm at the airport but my suitcase isn't. Help!"),
    ("My bag has not arrived with the flight", "The wheel of my suitcase broke off on the flight"),
    ("My bag has not arrived with the flight", "Which vegetarian meals do you serve on board?"),
]


def main():
    """Trains, scores and asks the classifier."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="minilm", help="any name or path that `load` takes")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--limit", type=int, help="learn from the first pairs only")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    columns = {"text": "text", "text_pair": "text_pair", "label": "label"}
    pairs = tabular.read(DATA / "pairs_train.tsv", **columns, limit=args.limit)
    dev = tabular.read(DATA / "pairs_dev.tsv", **columns)

    bert = keras_bert.load(args.model)
    model, metrics = finetuning.finetune(
        bert, pairs, dev, epochs=args.epochs, batch_size=16, learning_rate=1e-4, seed=args.seed
    )
    print(f"{metrics['accuracy']:.2f} of {len(dev)} dev pairs right, F1 {metrics['f1']:.2f}")
    print(f"{metrics['majority']:.2f} for one answer to all")

    answers = inference.classify(model, *zip(*PAIRS, strict=True))
    for (text, text_pair), (label, score) in zip(PAIRS, answers, strict=True):
        print(f"  {label:5} {score:.2f}  {text} | {text_pair}")


if __name__ == "__main__":
    main()
