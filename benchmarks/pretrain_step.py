"""Question: how fast is a step of pretraining, beside KerasHub, packed, and beside its data?

    python benchmarks/pretrain_step.py
    python benchmarks/pretrain_step.py --questions peer --sizes tiny

`peer`: steps at length 128 with 20 masked positions, float32, dropout 0.1, AdamW, compiled by XLA
on TensorFlow, random ids: keras_bert with both heads, masked LM and next sentence; KerasHub's
`BertMaskedLM`, which has the first alone. The libraries take turns in one process, with a large
matmul, whose rate says how much of the time is arithmetic that neither can do without. Three
ratios: the median over pairs of rounds; of the fastest round of each, which tells what the programs
do where a shared machine lends its cores for some seconds only; and the median by processor time.

`packed`: real tokens (no padding) a second at length 512, rows of one pair against packed rows, on
documents whose pairs have the lengths that Krell et al. (2021) found in Wikipedia: about half of
the positions of unpacked rows are padding.

`stream`: rows a second that the stream draws from records, beside those that the step takes.

Needs keras-hub beside keras_bert for the first. The corpus is made up: words drawn at random.
"""

import argparse
import itertools
import os
import pathlib
import statistics
import tempfile
import time

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

import keras_bert
from keras_bert import heads, optimizers
from keras_bert.pretraining import records, stream, train
from keras_bert.training import flops

VOCAB = 30522
# Layers, width, batch.
SIZES = {"tiny": (2, 128, 64), "mini": (4, 256, 32), "base": (12, 768, 8)}
LENGTH, PREDICTIONS = 128, 20
SQUARE = 2048  # of the matmul that a step's rate is held against


def encoder(size):
    layers, hidden, _ = SIZES[size]
    return keras_bert.BertEncoder(
        vocab_size=VOCAB, num_hidden_layers=layers, hidden_size=hidden,
        num_attention_heads=hidden // 64, intermediate_size=4 * hidden,
    )  # fmt: skip


def ours(model, batch):
    """A function that takes `steps` steps of a compiled model on one batch."""
    dataset = tf.data.Dataset.from_tensors(batch).repeat()
    return lambda steps: model.fit(dataset, steps_per_epoch=steps, epochs=1, verbose=0)


def against_keras_hub(size, rounds, steps):
    import keras_hub

    layers, hidden, rows = SIZES[size]
    random = np.random.default_rng(0)
    ids = random.integers(1000, VOCAB, (rows, LENGTH), dtype=np.int32)
    positions = np.sort(random.permuted(np.tile(np.arange(1, LENGTH - 1), (rows, 1)), axis=1)
                        [:, :PREDICTIONS]).astype(np.int32)  # fmt: skip
    labels = np.take_along_axis(ids, positions, axis=1)
    ones, weights = np.ones_like(ids), np.ones(positions.shape, np.float32)

    mine = heads.pretraining(encoder(size))
    train.compile_model(mine, optimizers.adamw(1e-4, total_steps=10**6, warmup_steps=10**4))
    inputs = {"input_word_ids": ids, "input_mask": ones, "input_type_ids": 0 * ids,
              "masked_lm_positions": positions}  # fmt: skip
    next_sentence = random.integers(0, 2, rows, dtype=np.int32)
    batch = (inputs, {"masked_lm": labels, "next_sentence": next_sentence},
             {"masked_lm": weights, "next_sentence": np.ones(rows, np.float32)})  # fmt: skip

    backbone = keras_hub.models.BertBackbone(VOCAB, layers, hidden // 64, hidden, 4 * hidden)
    theirs = keras_hub.models.BertMaskedLM(backbone=backbone, preprocessor=None)
    theirs.compile(
        optimizer=optimizers.adamw(1e-4, total_steps=10**6, warmup_steps=10**4),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=[keras.metrics.SparseCategoricalAccuracy()],
        jit_compile=True,
    )
    their_inputs = {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": ones,
                    "mask_positions": positions}  # fmt: skip
    runs = {
        "keras_bert": ours(mine, batch),
        "keras_hub": ours(theirs, (their_inputs, labels, weights)),
    }
    operations = rows * flops.of_sequence(heads.find_encoder(mine).bert_config, LENGTH, PREDICTIONS)
    count = max(1, round(operations / (2 * SQUARE**3)))
    runs["matmul"] = matmuls(count)
    seconds, work = in_turns(runs, rounds, steps)

    def median_ratio(values, a, b, scale=1.0):
        return statistics.median(scale * x / y for x, y in zip(values[a], values[b], strict=True))

    rates = {name: rows * steps / statistics.median(values) for name, values in seconds.items()}
    scale = operations / (count * 2 * SQUARE**3)
    use = {name: median_ratio(seconds, "matmul", name, scale) for name in runs}
    print(
        f"{size}, {rows} x {LENGTH}, {PREDICTIONS} masked: keras_bert {rates['keras_bert']:.1f}, "
        f"keras_hub {rates['keras_hub']:.1f} sequences/s; "
        f"{median_ratio(seconds, 'keras_hub', 'keras_bert'):.2f}x, of the fastest rounds "
        f"{min(seconds['keras_hub']) / min(seconds['keras_bert']):.2f}x, by processor time "
        f"{median_ratio(work, 'keras_hub', 'keras_bert'):.2f}x; "
        f"{use['keras_bert']:.2f} and {use['keras_hub']:.2f} of a matmul's rate",
        flush=True,
    )


def matmuls(count):
    """A function that multiplies large matrices, so many for a step."""
    square = tf.ones((SQUARE, SQUARE))

    def run(steps):
        for _ in range(steps * count):
            product = tf.linalg.matmul(square, square)
        product[0, 0].numpy()

    return run


def in_turns(runs, rounds, steps):
    """Seconds and seconds of processor time of each round; the first one compiles.

    A round is short: where the machine is a share of a larger one, its speed changes by the minute,
    and those that are compared should meet the same.
    """
    seconds, work = ({name: [] for name in runs} for _ in range(2))
    for turn in range(rounds + 1):
        for name, run in runs.items():
            start, start_work = time.perf_counter(), time.process_time()
            run(steps)
            if turn:
                seconds[name].append(time.perf_counter() - start)
                work[name].append(time.process_time() - start_work)
    return seconds, work


def made_up_records(folder, documents, lengths):
    """Records of documents with such numbers of words, 22 a sentence."""
    random = np.random.default_rng(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [
        "".join(word) for word in itertools.islice(itertools.product(letters, repeat=4), 20000)
    ]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *words]
    pieces += [f"[unused{index}]" for index in range(VOCAB - len(pieces))]
    with open(folder / "corpus.txt", "w", encoding="utf-8") as file:
        for length in lengths(random, documents):
            chosen = random.integers(0, len(words), length)
            sentences = [
                " ".join(words[word] for word in chosen[first : first + 22]).capitalize()
                for first in range(0, length, 22)
            ]
            file.write(". ".join(sentences) + ".\n\n")
    records.build(
        [folder / "corpus.txt"], folder / "records", keras_bert.Preprocessor(pieces), held_out=0,
    )  # fmt: skip
    return records.Records(folder / "records")


def like_wikipedia(random, documents):
    """Words of documents that make pairs as long as Wikipedia's.

    In figure 1 of Krell et al. (2021) 23% of the pairs fill a row of 512, most others are short,
    and 51% of all positions are real; of the pairs drawn from these it is 22% and 51%.
    """
    return np.clip(random.lognormal(5.3, 1.2, documents), 10, 8000).astype(int)


def packed_against_unpacked(size, rounds, steps, folder):
    made = made_up_records(folder, 4000, like_wikipedia)
    fills, runs = {}, {}
    rows = max(2, SIZES[size][2] // 4)
    for name, packed in (("unpacked", False), ("packed", True)):
        model = heads.pretraining(encoder(size))
        trained = heads.packed_pretraining(model) if packed else model
        train.compile_model(trained, optimizers.adamw(1e-4, total_steps=10**6, warmup_steps=10**4))
        source = stream.Stream(made, rows, 512, packed=packed)
        # A step takes as long whatever a row holds, so a few are timed, and many counted.
        batches = [batch for _, (_, batch) in zip(range(300), source.batches(), strict=False)]
        masks = [batch[0].get("input_mask", batch[0].get("text_ids")) for batch in batches]
        fills[name] = float(np.mean([np.count_nonzero(mask) / mask.size for mask in masks]))
        runs[name] = lambda steps, model=trained, batches=batches[:steps]: model.fit(
            (batch for batch in batches), steps_per_epoch=steps, epochs=1, verbose=0
        )
    seconds, _ = in_turns(runs, rounds, steps)
    tokens = rows * 512 * steps
    rates = {name: fills[name] * tokens / statistics.median(seconds[name]) for name in runs}
    # Of pairs of rounds: between them the machine may change its speed.
    ratio = statistics.median(
        a / b for a, b in zip(seconds["unpacked"], seconds["packed"], strict=True)
    )
    ratio *= fills["packed"] / fills["unpacked"]
    print(
        f"{size}, {rows} x 512: unpacked {rates['unpacked']:.0f} real tokens/s "
        f"({fills['unpacked']:.3f} of positions), packed {rates['packed']:.0f} "
        f"({fills['packed']:.3f}); {ratio:.2f}x",
        flush=True,
    )


def stream_against_step(size, steps, folder):
    made = made_up_records(folder, 1000, lambda random, n: random.integers(300, 3000, n))
    rows = SIZES[size][2]
    source = stream.Stream(made, rows, LENGTH, max_predictions=PREDICTIONS)
    batches = source.batches()
    start = time.perf_counter()
    count = 300
    for _ in range(count):
        _, batch = next(batches)
    drawn = count * rows / (time.perf_counter() - start)
    model = heads.pretraining(encoder(size))
    train.compile_model(model, optimizers.adamw(1e-4, total_steps=10**6, warmup_steps=10**4))
    run = ours(model, batch)
    seconds = statistics.median(in_turns({"step": run}, 3, steps)[0]["step"])
    print(
        f"{size}, {rows} x {LENGTH}: the stream draws {drawn:.0f} rows/s, the step takes "
        f"{rows * steps / seconds:.1f}; {drawn * seconds / (rows * steps):.0f}x",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--questions", default="peer,packed,stream")
    parser.add_argument("--sizes", default="tiny,base", help="of the first question")
    parser.add_argument("--packed-size", default="mini", help="of the second")
    parser.add_argument("--rounds", type=int, default=21)
    args = parser.parse_args()
    questions = args.questions.split(",")
    print(f"keras {keras.__version__}, tensorflow {tf.__version__}, {os.cpu_count()} cores")
    if "peer" in questions:
        for size in args.sizes.split(","):
            against_keras_hub(size, args.rounds, 3 if size != "base" else 1)
    for question, ask in (
        (
            "packed",
            lambda path: packed_against_unpacked(args.packed_size, args.rounds // 2, 2, path),
        ),
        ("stream", lambda path: stream_against_step("tiny", 20, path)),
    ):
        if question in questions:
            with tempfile.TemporaryDirectory() as folder:
                ask(pathlib.Path(folder))


if __name__ == "__main__":
    main()
