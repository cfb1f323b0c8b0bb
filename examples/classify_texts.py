"""A text classifier in plain Keras: dataset, functional model, compile, fit.

quickstart.py uses one call of `finetune`. This example writes each step with Keras.

Command:   python examples/classify_texts.py
Time:      about two minutes on 2 CPU cores
Expected:  accuracy 0.74 to 0.76 on the dev messages (seeds 0 and 1). Always predicting the most
           frequent label gets 0.18
"""

import argparse
import os
import pathlib

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import tensorflow as tf

import keras_bert

DATA = pathlib.Path(__file__).parent / "data"
MESSAGES = [
    "I was charged twice this month, please look into it",
    "The parcel was left with a neighbour I have never met",
    "after the last update the app closes as soon as I open it",
]
BATCH_SIZE = 16


def main():
    """Train and score the classifier, and classify new messages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="minilm", help="name or path for keras_bert.load")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--limit", type=int, help="train on the first messages only")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    keras.utils.set_random_seed(args.seed)

    train = keras_bert.read(DATA / "support_train.tsv", limit=args.limit)
    dev = keras_bert.read(DATA / "support_dev.tsv")
    labels = train.label_names()

    # None: pad each batch to its longest message.
    bert = keras_bert.load(args.model, sequence_length=None)

    def batches(examples):
        targets = [labels.index(label) for label in examples.labels]
        dataset = tf.data.Dataset.from_tensor_slices((examples.texts, targets))
        dataset = dataset.shuffle(len(examples), seed=args.seed).batch(BATCH_SIZE)
        return dataset.map(lambda texts, targets: (bert.preprocessor(texts), targets)).prefetch(2)

    train_batches = batches(train)
    steps = args.epochs * len(train_batches)
    model = keras_bert.heads.classifier(bert, labels=labels)  # ids to logits
    model.compile(
        keras_bert.optimizers.adamw(1e-4, total_steps=steps, warmup_steps=steps // 10),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=False,  # XLA would compile the step for each length
    )
    # shuffle=False: the dataset shuffles.
    model.fit(train_batches, epochs=args.epochs, shuffle=False, verbose=2)
    _, accuracy = model.evaluate(batches(dev), verbose=0)
    print(f"{accuracy:.2f} accuracy on {len(dev)} dev messages")
    print(f"{dev.majority_share():.2f} for always predicting the most frequent label")

    # The preprocessor is a layer: it gives a model with the same weights that takes strings.
    text = keras.Input(shape=(), dtype="string", name="text")
    logits = model(bert.preprocessor(text))
    reader = keras.Model(text, keras.layers.Softmax(name="probabilities")(logits))
    for message, row in zip(
        MESSAGES, reader.predict(tf.constant(MESSAGES), verbose=0), strict=True
    ):
        print(f"  {labels[row.argmax()]:9} {row.max():.2f}  {message}")


if __name__ == "__main__":
    main()
