"""Does BERT need both directions and next sentence prediction? Table 5 of the paper, on a CPU.

Four small models of the same size are pretrained on the same text for the same number of steps,
and then fine-tuned on two tasks.

    both directions, NSP    masked LM and next sentence: BERT
    both directions         masked LM only
    left to right           predicts each next token from the tokens before it, like GPT
    left to right, BiLSTM   the same weights with a new BiLSTM on top, similar to ELMo

Command:   python examples/compare_directions.py TEXT ...
Time:      half an hour on 2 CPU cores
Expected:  entity F1: random weights 0.22, both directions with NSP 0.61 and without 0.60, left to
           right 0.48, with a BiLSTM 0.63. Accuracy on texts: all 0.41 to 0.44, each ± 0.02; 140
           messages cannot show smaller differences (110 MB of English Wikipedia, seed 0). Both
           directions help to tag words, as in the paper, but here a BiLSTM helps as much. Next
           sentence prediction does not help on single texts. (The heads of the taggers started
           from random weights; now they start from a regression)
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
from keras_bert.layers import MaskedLMHead
from keras_bert.pretraining import corpus, records, stream, train, vocabulary
from keras_bert.tasks.tagging import data as conll

DATA = pathlib.Path(__file__).parent / "data"
WAYS = ("both directions, NSP", "both directions", "left to right", "left to right, BiLSTM")
LENGTHS, BATCH_SIZE = (32, 64), 128  # of the two phases; (128, 512) and 256 in the paper


def new_encoder(preprocessor, args, dropout):
    """Return an encoder with random weights, the same in each call."""
    keras.utils.set_random_seed(args.seed)
    return keras_bert.BertEncoder(
        vocab_size=len(preprocessor.vocabulary),
        num_hidden_layers=args.layers,
        hidden_size=args.hidden_size,
        num_attention_heads=max(1, args.hidden_size // 32),
        intermediate_size=4 * args.hidden_size,
        # BERT's 0.02 is for a hidden size of 768. With 0.02, smaller models need many steps until
        # their attention distinguishes positions.
        initializer_range=0.02 * (768 / args.hidden_size) ** 0.5,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        preprocessor=preprocessor,
    )


def read(encoder, inputs, left_to_right):
    """Return the encoder's output (batch, seq, hidden), with a causal mask if left to right."""
    if not left_to_right:
        return encoder(inputs)["sequence_output"]
    position = ops.cumsum(ops.ones_like(inputs["input_mask"]), axis=1)
    visible = ops.cast(position[:, :, None] >= position[:, None, :], "int32")
    visible = visible * inputs["input_mask"][:, None, :]  # (batch, seq, seq)
    return encoder({**inputs, "attention_mask": visible})["sequence_output"]


def new_inputs(encoder):
    return {key: keras.Input((None,), dtype="int32", name=key) for key in encoder.input}


def language_model(encoder):
    """Return a model that predicts each next token."""
    inputs, config = new_inputs(encoder), encoder.bert_config
    x = read(encoder, inputs, left_to_right=True)
    logits = MaskedLMHead(config["vocab_size"], config["hidden_act"], name="next_token")(x)
    return keras.Model(inputs, logits)


def to_masked_lm(batch):
    """Return a batch without the targets of next sentence prediction."""
    inputs, targets, weights = batch
    return inputs, targets["masked_lm"], weights["masked_lm"]


def to_next_tokens(batch):
    """Return a batch for the language model: the unmasked ids, and the next ids as targets."""
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
    """Pretrain an encoder on the records."""
    # No dropout: text that the model sees once does not overfit.
    encoder = new_encoder(preprocessor, args, dropout=0.0)
    pairs = way == WAYS[0]
    if pairs:
        model, to_batch = heads.pretraining(encoder), tuple
    elif way == WAYS[1]:
        model, to_batch = heads.masked_lm(encoder), to_masked_lm
    else:
        model, to_batch = language_model(encoder), to_next_tokens
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
    """Return the encoder with a head: "classification" for texts or "tagging" for words."""
    inputs = new_inputs(encoder)
    left_to_right, tags = way in WAYS[2:], task == "tagging"
    x = read(encoder, inputs, left_to_right)
    if way == WAYS[3]:
        lstm = keras.layers.LSTM(encoder.bert_config["hidden_size"] // 2, return_sequences=tags)
        x = keras.layers.Bidirectional(lstm)(x, mask=ops.not_equal(inputs["input_mask"], 0))
    elif not tags:  # the mean, because only next sentence prediction trains [CLS]
        x = keras.layers.GlobalAveragePooling1D()(x, mask=ops.not_equal(inputs["input_mask"], 0))
    x = keras.layers.Dropout(0.1)(x)
    logits = keras.layers.Dense(len(labels))(x)
    return keras.Model(inputs, heads.TaskOutput(task, labels=labels)(logits))


def score(way, weights, preprocessor, examples, dev, args, seed):
    """Fine-tune from weights (`None`: random ones), and return the score on dev."""
    encoder = new_encoder(preprocessor, args, dropout=0.1)
    if weights is not None:
        encoder.set_weights(weights)
    keras.utils.set_random_seed(seed)  # for the head
    task = "tagging" if isinstance(examples, conll.TaggedSentences) else "classification"
    model = task_model(encoder, way, task, examples.label_names())
    keras_bert.finetune(
        model, examples, epochs=args.epochs, batch_size=16, learning_rate=args.learning_rate,
        seed=seed, show_progress=False,
    )  # fmt: skip
    return keras_bert.evaluate(model, dev)["f1" if task == "tagging" else "accuracy"]


def main():
    """Pretrain, fine-tune and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "text", nargs="+", help="files: a paragraph per line, blank lines between documents"
    )
    parser.add_argument("--vocabulary-size", type=int, default=4000, help="default: %(default)s")
    parser.add_argument("--layers", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--hidden-size", type=int, default=128, help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=3000, help="pretraining steps (%(default)s)")
    parser.add_argument(
        "--texts",
        nargs=2,
        metavar=("TRAIN", "DEV"),
        help="labeled texts (default: support messages)",
    )
    parser.add_argument(
        "--tags",
        nargs=2,
        metavar=("TRAIN", "DEV"),
        help="CoNLL columns (default: support messages)",
    )
    parser.add_argument("--columns", nargs=2, default=("text", "label"), help="columns of --texts")
    parser.add_argument(
        "--epochs", type=int, default=10, help="epochs of fine-tuning (%(default)s)"
    )
    parser.add_argument(
        "--learning-rate", type=float, default=1e-3, help="peak of fine-tuning (%(default)s)"
    )
    parser.add_argument(
        "--runs", type=int, default=3, help="fine-tuning runs, each with a new head (%(default)s)"
    )
    parser.add_argument("--limit", type=int, help="fine-tune on the first rows only")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    texts, dev_texts = args.texts or [DATA / f"support_{part}.tsv" for part in ("train", "dev")]
    tags, dev_tags = args.tags or [DATA / f"entities_{part}.conll" for part in ("train", "dev")]
    columns = {"text": args.columns[0], "label": args.columns[1]}
    tasks = [
        (
            keras_bert.read(texts, **columns, limit=args.limit),
            keras_bert.read(dev_texts, **columns),
        ),
        (
            keras_bert.read(tags, task="tagging", limit=args.limit),
            keras_bert.read(dev_tags, task="tagging"),
        ),
    ]
    logging.getLogger("tensorflow").setLevel("ERROR")  # it warns that models are created in a loop
    with tempfile.TemporaryDirectory() as folder:
        documents = corpus.documents(args.text)
        tokens = vocabulary.train(documents, args.vocabulary_size, max_bytes=50 * 10**6)
        preprocessor = keras_bert.Preprocessor(tokens)
        records.build(args.text, folder, preprocessor, held_out=0)
        made = records.Records(folder)
        print(f"{'':24} {'texts (accuracy)':16}  words (F1)", flush=True)
        weights = {}
        for way in ("random weights", *WAYS):
            if way in WAYS[:3]:
                weights[way] = pretrain(way, made, preprocessor, args).get_weights()
            # The BiLSTM is new; the encoder below it reads from left to right.
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
