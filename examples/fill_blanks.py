"""Masked language model: predict masked words in support messages.

MiniLM has no head for masked LM, so the example adds a new head and trains it with the encoder.
Each epoch masks another 15% of the tokens (section 3.1 of the paper).

Command:   python examples/fill_blanks.py
Time:      about two minutes on 2 CPU cores
Expected:  accuracy 0.20 on the masked dev tokens (seeds 0 and 1), 0.00 before training. Always
           predicting the most frequent token gets 0.06
"""

import argparse
import os
import pathlib

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

import keras_bert
from keras_bert.pretraining import hash_random, masking

DATA = pathlib.Path(__file__).parent / "data"
SENTENCES = ["My parcel has not [MASK] yet.", "Please [MASK] my subscription."]
MAX_PREDICTIONS = 6  # masked tokens per message: 15% of 40 positions
BATCH_SIZE = 16


def masked(bert, masker, texts, epoch):
    """Mask 15% of the tokens. Return the inputs, the masked tokens and their weights."""
    inputs = {key: np.array(value) for key, value in bert.preprocessor(texts).items()}
    ids, positions, tokens, count = masker.mask(
        inputs["input_word_ids"], inputs["input_mask"].sum(axis=1), epoch, range(len(texts))
    )
    weights = (np.arange(MAX_PREDICTIONS) < count[:, None]).astype(np.float32)
    return {**inputs, "input_word_ids": ids, "masked_lm_positions": positions}, tokens, weights


def main():
    """Train the model, score it before and after, and predict masked words."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="minilm", help="name or path for keras_bert.load")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--limit", type=int, help="train on the first messages only")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    keras.utils.set_random_seed(args.seed)

    texts = keras_bert.read(DATA / "support_train.tsv", limit=args.limit).texts
    dev_texts = keras_bert.read(DATA / "support_dev.tsv").texts

    bert = keras_bert.load(args.model, sequence_length=40)  # a few messages are longer
    model = keras_bert.heads.masked_lm(bert)
    masker = masking.Masker(bert.preprocessor.vocabulary, max_predictions=MAX_PREDICTIONS)
    steps = args.epochs * -(-len(texts) // BATCH_SIZE)
    model.compile(
        keras_bert.optimizers.adamw(3e-4, total_steps=steps, warmup_steps=steps // 10),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=["accuracy"],
        jit_compile=False,
    )
    *dev, weights = masked(bert, masker, dev_texts, 0)
    _, before = model.evaluate(*dev, sample_weight=weights, verbose=0)
    for epoch in range(args.epochs):  # each epoch has other masks
        *batch, counts = masked(bert, masker, texts, hash_random.key_of(args.seed, epoch))
        model.fit(*batch, sample_weight=counts, batch_size=BATCH_SIZE, verbose=0)
    _, after = model.evaluate(*dev, sample_weight=weights, verbose=0)
    masked_tokens = dev[1][weights > 0]
    share = np.bincount(masked_tokens).max() / len(masked_tokens)
    print(f"accuracy on {len(masked_tokens)} masked dev tokens: {before:.2f} before", end=", ")
    print(f"{after:.2f} after; {share:.2f} for always predicting the most frequent token")

    ask = keras_bert.pipeline(model)
    for sentence, answers in zip(SENTENCES, ask(SENTENCES), strict=True):
        tokens = ", ".join(f"{answer['token']} {answer['score']:.2f}" for answer in answers)
        print(f"  {sentence}  {tokens}")


if __name__ == "__main__":
    main()
