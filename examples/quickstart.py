"""From a pretrained BERT to a served prediction, step by step.

Command:   make quickstart
Time:      one to three minutes on 2 CPU cores
Expected:  accuracy 0.78 to 0.80 on the dev messages (seeds 0 to 2). Always predicting the most
           frequent label gets 0.18
"""

import argparse
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile

from rich.console import Console

import keras_bert

os.environ["KERAS_BACKEND"] = "tensorflow"
DATA = pathlib.Path(__file__).parent / "data"
MESSAGES = [
    "I was charged twice this month, please look into it",
    "The parcel was left with a neighbour I have never met",
    "after the last update the app closes as soon as I open it",
    "Just wanted to say your team is wonderful!",
]
# A client needs only TensorFlow, not keras_bert.
CLIENT = """
import sys
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
answers = model.signatures["serving_default"](text=tf.constant(sys.argv[2:]))
for text, label, score in zip(sys.argv[2:], answers["label"].numpy(), answers["score"].numpy()):
    print(f"  {label.decode():9} {score:.2f}  {text}")
"""


def waiting(title):
    """Show a spinner on the terminal during a step."""
    return Console().status(title) if sys.stdout.isatty() else contextlib.nullcontext()


def step(title):
    """Print the heading of a step."""
    print(f"\n{title}", flush=True)


def main():
    """Run all steps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--limit", type=int, help="train on the first messages only")
    args = parser.parse_args()

    step("1. Load a pretrained BERT")
    keras_bert.quiet()  # hides TensorFlow's messages about missing GPUs

    with waiting("Loading"):
        bert = keras_bert.load("minilm")
    config = bert.get_config()
    print(
        f"  minilm: {config['num_hidden_layers']} layers of width {config['hidden_size']}, "
        f"{bert.count_params():,} parameters, {config['vocab_size']:,} tokens"
    )

    step("2. Tokenize a sentence")
    sentence = "Unbelievable: the café refunded me!"
    with waiting("Making the tokenizer"):
        ids = bert.preprocessor([sentence])["input_word_ids"][0].numpy()
    ids = ids[: int((ids != 0).sum())]
    print(f"  {sentence}")
    print("  " + " ".join(bert.preprocessor.vocabulary[i] for i in ids))
    print("  " + " ".join(map(str, ids)))

    step("3. Fine-tune it on labeled messages")
    messages = keras_bert.read(DATA / "support_train.tsv", limit=args.limit)
    dev = keras_bert.read(DATA / "support_dev.tsv")
    print(f"  {len(messages)} messages, {len(messages.label_names())} labels")
    model, metrics = keras_bert.finetune(bert, messages, dev, epochs=args.epochs)
    print(
        f"  {metrics['accuracy']:.2f} accuracy on {len(dev)} dev messages; "
        f"{metrics['majority']:.2f} for always predicting the most frequent label"
    )

    with tempfile.TemporaryDirectory() as folder:
        step("4. Export it as a SavedModel that takes strings")
        with waiting("Exporting"):
            exported = keras_bert.export(model, pathlib.Path(folder, "support"))
        size = sum(file.stat().st_size for file in exported.rglob("*") if file.is_file())
        print(f"  {size / 1e6:.0f} MB, for TensorFlow Serving")

        step("5. Run it in a new process that imports only tensorflow")
        with waiting("Starting TensorFlow alone"):
            client = subprocess.run(
                [sys.executable, "-c", CLIENT, exported, *MESSAGES],
                capture_output=True,
                text=True,
                check=False,
            )
        if client.returncode:
            sys.exit(client.stderr)
        print(client.stdout, end="")


if __name__ == "__main__":
    main()
