"""Look inside a classifier: which words decide, and what the attention heads look at.

The scores of the words are integrated gradients. They add up to the difference between the logits
for the message and for a message of the same length without words. In a notebook, both results show
as colored text and heat maps. `keras-bert explain MODEL "text" --output explain.html` writes them
to a page.

Command:   python examples/look_inside.py
Time:      about a minute on 2 CPU cores
Expected:  accuracy 0.79; the words with the highest scores are charged, parcel and closes. Their
           sum is off by less than 0.001. A head of the first layer gives the previous token a
           weight of 1.00
"""

import argparse
import os
import pathlib

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

import keras_bert

DATA = pathlib.Path(__file__).parent / "data"
MESSAGES = [
    "I was charged twice this month, please look into it",
    "The parcel was left with a neighbour I have never met",
    "after the last update the app closes as soon as I open it",
]


def main():
    """Fine-tune a classifier, and look at three messages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="minilm", help="name or path for keras_bert.load")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--limit", type=int, help="train on the first messages only")
    args = parser.parse_args()
    keras.utils.set_random_seed(0)

    train = keras_bert.read(DATA / "support_train.tsv", limit=args.limit)
    dev = keras_bert.read(DATA / "support_dev.tsv")
    bert = keras_bert.load(args.model)
    model, metrics = keras_bert.finetune(bert, train, dev, epochs=args.epochs, learning_rate=1e-4)
    print(f"{metrics['accuracy']:.2f} accuracy on {len(dev)} dev messages")

    # Of each message, the label, its logit compared to a message without words, and four words.
    for message in MESSAGES:
        found = keras_bert.inspect.attributions(model, message)
        words = sorted(found.words, key=lambda word: -abs(word["score"]))[:4]
        shown = ", ".join(f"{word['text']} {word['score']:+.2f}" for word in words)
        print(f"  {found.target:9} {found.logit - found.baseline_logit:+.2f}: {shown}")
        print(f"    error of the sum: {abs(found.error):.0e}")

    seen = keras_bert.inspect.attention(model, MESSAGES[0])
    tokens = np.arange(len(seen.tokens))
    # The weight from each token to the token before it, averaged over the tokens: (layers, heads).
    previous = seen.weights[:, :, tokens[1:], tokens[:-1]].mean(axis=-1)
    layer, head = np.unravel_index(previous.argmax(), previous.shape)
    print(f"Head {head} of layer {layer} attends most to the previous token", end="")
    print(f" (weight {previous.max():.2f}; equal weights: {1 / len(tokens):.2f})")


if __name__ == "__main__":
    main()
