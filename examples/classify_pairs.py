"""Pair classification: do two support messages ask for the same thing?

The encoder reads both texts together, [CLS] text [SEP] text_pair [SEP], so it can compare their
words. Each message occurs in one pair of each label, so one text alone does not reveal the label.
Half of the pairs with different meanings are about the same product or topic.

Command:   python examples/classify_pairs.py
Time:      one to two minutes on 2 CPU cores
Expected:  accuracy 0.74 to 0.78 on the dev pairs (seeds 0 and 1). Always predicting one label gets
           0.50. A threshold on the cosine of score_similarity.py, whose model was trained on far
           more pairs, gets 0.81. The label of the second printed pair is wrong
"""

import argparse
import os
import pathlib

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras_bert

DATA = pathlib.Path(__file__).parent / "data"
PAIRS = [
    ("My bag has not arrived with the flight", "I'm at the airport but my suitcase isn't. Help!"),
    ("My bag has not arrived with the flight", "The wheel of my suitcase broke off on the flight"),
    ("My bag has not arrived with the flight", "Which vegetarian meals do you serve on board?"),
]


def main():
    """Train and score the classifier, and classify new pairs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="minilm", help="name or path for keras_bert.load")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--limit", type=int, help="train on the first pairs only")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    columns = {"task": "pair", "text": "text", "text_pair": "text_pair", "label": "label"}
    train = keras_bert.read(DATA / "pairs_train.tsv", **columns, limit=args.limit)
    dev = keras_bert.read(DATA / "pairs_dev.tsv", **columns)

    bert = keras_bert.load(args.model)
    model, metrics = keras_bert.finetune(
        bert, train, dev, epochs=args.epochs, batch_size=16, learning_rate=1e-4, seed=args.seed
    )
    print(f"{metrics['accuracy']:.2f} accuracy on {len(dev)} dev pairs, F1 {metrics['f1']:.2f}")
    print(f"{metrics['majority']:.2f} if all pairs get the same label")

    ask = keras_bert.pipeline(model)
    for pair, answer in zip(PAIRS, ask(PAIRS), strict=True):
        print(f"  {answer['label']:5} {answer['score']:.2f}  {' | '.join(pair)}")


if __name__ == "__main__":
    main()
