"""The paper's claim at small scale: is it better to read in both directions, and to learn pairs?

Four ways to the same two tasks, as in table 5 of the paper: small BERTs of one size are pretrained
on the same text for as many steps, then fine-tuned.

    both directions, NSP    masked LM and next sentence: BERT
    both directions         masked LM alone
    left to right           predicts each next piece and sees what is left of it, as GPT does
    left to right, BiLSTM   the same with a fresh BiLSTM on top, a little like ELMo

Command:   python examples/compare_directions.py TEXT ...
Time:      half an hour on 2 CPU cores
Expected:  words, entity F1: random weights 0.22, both directions with NSP 0.61, without 0.60; left
           to right 0.48, with a BiLSTM 0.63. Texts, accuracy: all of them 0.41 to 0.44, each
           ± 0.02, as 140 messages tell no more (110 MB of English Wikipedia, seed 0). So to see
           what follows is worth much where each word is judged, as in the paper; but a BiLSTM
           makes up for all of it here, and next sentences are worth nothing for single texts
"""

import argparse
import itertools
import logging
import os
import pathlib
import statistics
import tempfile

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from keras import ops

import keras_bert
from keras_bert import heads, optimizers
from keras_bert.data import conll, tabular
from keras_bert.layers import MaskedLMHead
from keras_bert.pretraining import corpus, records, stream, train, vocabulary
from keras_bert.tasks import inference
from keras_bert.training import finetuning

DATA = pathlib.Path(__file__).parent / "data"
WAYS = ("both directions, NSP", "both directions", "left to right", "left to right, BiLSTM")
LENGTHS, BATCH_SIZE = (32, 64), 128  # of the two phases; the paper's are 128 and 512, and 256


def new_encoder(preprocessor, args, dropout):
    """An encoder with random weights, the same for all."""
    keras.utils.set_random_seed(args.seed)
    return keras_bert.BertEncoder(
        vocab_size=len(preprocessor.vocabulary),
        num_hidden_layers=args.layers,
        hidden_size=args.width,
        num_attention_heads=max(1, args.width // 32),
        intermediate_size=4 * args.width,
        # BERT's 0.02 is for a width of 768. Narrower models wait long at it before their attention
        # tells positions apart, and predict from a bag of words until then.
        initializer_range=0.02 * (768 / args.width) ** 0.5,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        preprocessor=preprocessor,
    )


def read(encoder, inputs, left_to_right):
    """The encoder's vectors (batch, seq, hidden); from left to right none knows what follows."""
    if not left_to_right:
        return encoder(inputs)["sequence_output"]
    position = ops.cumsum(ops.ones_like(inputs["input_mask"]), axis=1)
    visible = ops.cast(position[:, :, None] >= position[:, None, :], "int32")
    visible = visible * inputs["input_mask"][:, None, :]  # (batch, seq, seq)
    return encoder({**inputs, "attention_mask": visible})["sequence_output"]


def new_inputs(encoder):
    return {key: keras.Input((None,), dtype="int32", name=key) for key in encoder.input}


def language_model(encoder):
    """A model that predicts each next piece."""
    inputs, config = new_inputs(encoder), encoder.bert_config
    x = read(encoder, inputs, left_to_right=True)
    logits = MaskedLMHead(config["vocab_size"], config["hidden_act"], name="next_piece")(x)
    return keras.Model(inputs, logits)


def to_masked_lm(batch):
    """A batch without what is for pairs."""
    inputs, targets, weights = batch
    return inputs, targets["masked_lm"], weights["masked_lm"]


def to_next_pieces(batch):
    """A batch for the language model: what was masked is put back, the targets are one further."""
    inputs, targets, weights = batch
    ids = inputs["input_word_ids"].copy()
    rows, slots = np.nonzero(weights["masked_lm"])
    ids[rows, inputs["masked_lm_positions"][rows, slots]] = targets["masked_lm"][rows, slots]
    inputs = {key: inputs[key] for key in ("input_mask", "input_type_ids")}
    following = np.roll(ids, -1, axis=1)
    counts = np.roll(inputs["input_mask"], -1, axis=1).astype(np.float32)
    counts[:, -1] = 0
    return {**inputs, "input_word_ids": ids}, following, counts


def pretrain(way, made, preprocessor, args):
    """Trains an encoder on text."""
    # No dropout: what is read once is not learned by heart.
    encoder = new_encoder(preprocessor, args, dropout=0.0)
    pairs = way == WAYS[0]
    if pairs:
        model, to_batch = heads.pretraining(encoder), tuple
    elif way == WAYS[1]:
        model, to_batch = heads.masked_lm(encoder), to_masked_lm
    else:
        model, to_batch = language_model(encoder), to_next_pieces
    train.compile_model(
        model,
        optimizers.adamw(1e-3, total_steps=args.steps, warmup_steps=args.steps // 20),
    )
    for phase in train.two_phases(args.steps, BATCH_SIZE, LENGTHS):
        source = stream.Stream(
            made, BATCH_SIZE, phase.sequence_length, next_sentence=pairs, seed=args.seed
        )
        batches = itertools.islice(source.batches(), phase.steps)
        model.fit(
            (to_batch(batch) for _, batch in batches),
            steps_per_epoch=phase.steps,
            shuffle=False,
            verbose=0,
        )
    return encoder


def task_model(encoder, way, task, labels):
    """The encoder with a head for texts ("classifier") or words ("tagger")."""
    inputs = new_inputs(encoder)
    left_to_right, tags = way in WAYS[2:], task == "tagger"
    x = read(encoder, inputs, left_to_right)
    if way == WAYS[3]:
        lstm = keras.layers.LSTM(encoder.bert_config["hidden_size"] // 2, return_sequences=tags)
        x = keras.layers.Bidirectional(lstm)(x, mask=ops.not_equal(inputs["input_mask"], 0))
    elif not tags:  # their mean, as next sentences alone train the vector of [CLS]
        x = keras.layers.GlobalAveragePooling1D()(x, mask=ops.not_equal(inputs["input_mask"], 0))
    x = keras.layers.Dropout(0.1)(x)
    logits = keras.layers.Dense(len(labels))(x)
    return keras.Model(inputs, heads.TaskOutput(task, labels=labels)(logits))


def score(way, weights, preprocessor, examples, dev, args, seed):
    """The dev score of a model that is fine-tuned from weights (`None`: random ones)."""
    encoder = new_encoder(preprocessor, args, dropout=0.1)
    if weights is not None:
        encoder.set_weights(weights)
    keras.utils.set_random_seed(seed)  # of the head
    task = "tagger" if isinstance(examples, conll.TaggedSentences) else "classifier"
    model = task_model(encoder, way, task, examples.label_names())
    finetuning.finetune(
        model, examples, epochs=args.epochs, batch_size=16, learning_rate=args.rate, seed=seed,
        show_progress=False,
    )  # fmt: skip
    return inference.evaluate(model, dev)["f1" if task == "tagger" else "accuracy"]


def main():
    """Pretrains, fine-tunes, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "text", nargs="+", help="a paragraph a line, a blank line between documents"
    )
    parser.add_argument("--pieces", type=int, default=4000, help="of the vocabulary (%(default)s)")
    parser.add_argument("--layers", type=int, default=2, help="of each BERT (%(default)s)")
    parser.add_argument("--width", type=int, default=128, help="of each BERT (%(default)s)")
    parser.add_argument("--steps", type=int, default=3000, help="of pretraining (%(default)s)")
    parser.add_argument(
        "--texts", nargs=2, metavar=("TRAIN", "DEV"), help="labelled texts (default: messages)"
    )
    parser.add_argument(
        "--tags", nargs=2, metavar=("TRAIN", "DEV"), help="CoNLL columns (default: messages)"
    )
    parser.add_argument("--columns", nargs=2, default=("text", "label"), help="of --texts")
    parser.add_argument("--epochs", type=int, default=10, help="of fine-tuning (%(default)s)")
    parser.add_argument(
        "--rate", type=float, default=1e-3, help="peak of fine-tuning (%(default)s)"
    )
    parser.add_argument(
        "--runs", type=int, default=3, help="of fine-tuning, each with a new head (%(default)s)"
    )
    parser.add_argument("--limit", type=int, help="fine-tune on the first rows only")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    texts, dev_texts = args.texts or [DATA / f"support_{part}.tsv" for part in ("train", "dev")]
    tags, dev_tags = args.tags or [DATA / f"entities_{part}.conll" for part in ("train", "dev")]
    columns = {"text": args.columns[0], "label": args.columns[1]}
    tasks = [
        (tabular.read(texts, **columns, limit=args.limit), tabular.read(dev_texts, **columns)),
        (conll.read(tags, limit=args.limit), conll.read(dev_tags)),
    ]
    logging.getLogger("tensorflow").setLevel("ERROR")  # that models are made anew is meant
    with tempfile.TemporaryDirectory() as folder:
        pieces = vocabulary.train(corpus.documents(args.text), args.pieces, max_bytes=50 * 10**6)
        preprocessor = keras_bert.Preprocessor(pieces)
        records.build(args.text, folder, preprocessor, held_out=0)
        made = records.Records(folder)
        print(f"{'':24} {'texts (accuracy)':16}  words (F1)", flush=True)
        weights = {}
        for way in ("random weights", *WAYS):
            if way in WAYS[:3]:
                weights[way] = pretrain(way, made, preprocessor, args).get_weights()
            # The BiLSTM is fresh, and what is below it reads from left to right.
            start = weights.get(WAYS[2] if way == WAYS[3] else way)
            cells = []
            for train_examples, dev_examples in tasks:
                scores = [
                    score(way, start, preprocessor, train_examples, dev_examples, args, seed)
                    for seed in range(args.seed, args.seed + args.runs)
                ]
                spread = statistics.stdev(scores) if args.runs > 1 else 0.0
                cells.append(f"{statistics.mean(scores):.2f} \u00b1 {spread:.2f}")
            print(f"{way:24} {cells[0]:16}  {cells[1]}", flush=True)


if __name__ == "__main__":
    main()
