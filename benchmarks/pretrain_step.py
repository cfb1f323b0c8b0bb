"""Question: how fast is a pretraining step, compared with KerasHub, packed, and with its data?

    python benchmarks/pretrain_step.py
    python benchmarks/pretrain_step.py --questions peer --sizes tiny

`peer`: steps at length 128 with 20 masked positions, float32, dropout 0.1, AdamW, random ids,
compiled by XLA on TensorFlow. keras_bert has two heads, masked LM and next sentence. KerasHub's
`BertMaskedLM` has only the first. The libraries alternate in one process with a large matmul, and
the rate of each step is given relative to the rate of the matmul. Three ratios are printed: the
median over pairs of rounds by wall time, the ratio of the fastest round of each library, and the
median by processor time. The last two depend less on other jobs of the machine.

`packed`: real tokens (no padding) per second at length 512, for rows of one pair and for packed
rows. The pairs of the documents have the lengths that Krell et al. (2021) found in Wikipedia:
about half of the positions of unpacked rows are padding.

`stream`: rows per second that the stream generates from records, and rows per second of the step.

`bfloat16`: the same steps in float32 and in mixed_bfloat16, as `pretrain` runs them.

`peer` needs keras-hub. The corpus is synthetic: random words.
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
from keras_bert import heads, mixed_training, optimizers, packed_heads
from keras_bert.pretraining import records, stream, train
from keras_bert.runtime import distribution, processor
from keras_bert.training import flops

VOCAB = 30522
# Layers, width, batch.
SIZES = {"tiny": (2, 128, 64), "mini": (4, 256, 32), "base": (12, 768, 8)}
LENGTH, PREDICTIONS = 128, 20
SQUARE = 2048  # size of the matmul that gives the reference rate


def encoder(size):
    layers, hidden, _ = SIZES[size]
    return keras_bert.BertEncoder(
        vocab_size=VOCAB, num_hidden_layers=layers, hidden_size=hidden,
        num_attention_heads=hidden // 64, intermediate_size=4 * hidden,
    )  # fmt: skip


def ours(model, batch):
    """Return a function that runs `steps` steps of a compiled model on one batch."""
    dataset = tf.data.Dataset.from_tensors(batch).repeat()
    return lambda steps: model.fit(dataset, steps_per_epoch=steps, epochs=1, verbose=0)


def batch_of(rows):
    """Return a batch of random ids: inputs, targets and weights of `heads.pretraining`."""
    random = np.random.default_rng(0)
    ids = random.integers(1000, VOCAB, (rows, LENGTH), dtype=np.int32)
    positions = np.sort(random.permuted(np.tile(np.arange(1, LENGTH - 1), (rows, 1)), axis=1)
                        [:, :PREDICTIONS]).astype(np.int32)  # fmt: skip
    labels = np.take_along_axis(ids, positions, axis=1)
    weights = np.ones(positions.shape, np.float32)
    inputs = {"input_word_ids": ids, "input_mask": np.ones_like(ids), "input_type_ids": 0 * ids,
              "masked_lm_positions": positions}  # fmt: skip
    next_sentence = random.integers(0, 2, rows, dtype=np.int32)
    return (inputs, {"masked_lm": labels, "next_sentence": next_sentence},
            {"masked_lm": weights, "next_sentence": np.ones(rows, np.float32)})  # fmt: skip


def compiled(model):
    train.compile_model(model, optimizers.adamw(1e-4, total_steps=10**6, warmup_steps=10**4))
    return model


def in_bfloat16(size, rounds, steps):
    """Print the ratio of the step in float32 to the one in mixed_bfloat16."""
    rows = SIZES[size][2]
    batch, runs = batch_of(rows), {}
    for dtype in ("float32", "mixed_bfloat16"):
        model = heads.pretraining(encoder(size).with_options(dtype=dtype))
        if dtype == "mixed_bfloat16" and distribution.is_faster_in_bfloat16():
            model = mixed_training.TrainedModel(model)
        runs[dtype] = ours(compiled(model), batch)
    seconds, _ = in_turns(runs, rounds, steps)
    one, other = (statistics.median(values) / steps for values in seconds.values())
    print(
        f"{size}, {rows} x {LENGTH}, {PREDICTIONS} masked: float32 {one * 1e3:.0f} ms, "
        f"mixed_bfloat16 {other * 1e3:.0f} ms; {one / other:.2f}x",
        flush=True,
    )


def against_keras_hub(size, rounds, steps):
    import keras_hub

    layers, hidden, rows = SIZES[size]
    batch = batch_of(rows)
    inputs, targets, _ = batch
    ids, ones, positions = (
        inputs[name] for name in ("input_word_ids", "input_mask", "masked_lm_positions")
    )
    labels, weights = targets["masked_lm"], np.ones(positions.shape, np.float32)
    mine = compiled(heads.pretraining(encoder(size)))
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
    """Return a function that runs `count` large matmuls per step."""
    square = tf.ones((SQUARE, SQUARE))

    def run(steps):
        for _ in range(steps * count):
            product = tf.linalg.matmul(square, square)
        product[0, 0].numpy()

    return run


def in_turns(runs, rounds, steps):
    """Return the wall time and the processor time of each round, without the first, which compiles.

    Rounds are short because the speed of a shared machine changes within minutes.
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
    """Return records of documents with the given numbers of words, 22 per sentence."""
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
    """Return numbers of words per document, for pairs with the lengths of Wikipedia's pairs.

    In figure 1 of Krell et al. (2021), 23% of the pairs fill a row of 512, most others are short,
    and 51% of all positions are tokens. Pairs from these documents have 22% and 51%.
    """
    return np.clip(random.lognormal(5.3, 1.2, documents), 10, 8000).astype(int)


def packed_against_unpacked(size, rounds, steps, folder):
    made = made_up_records(folder, 4000, like_wikipedia)
    fills, runs = {}, {}
    rows = max(2, SIZES[size][2] // 4)
    for name, packed in (("unpacked", False), ("packed", True)):
        model = heads.pretraining(encoder(size))
        trained = packed_heads.packed_pretraining(model) if packed else model
        train.compile_model(trained, optimizers.adamw(1e-4, total_steps=10**6, warmup_steps=10**4))
        source = stream.Stream(made, rows, 512, packed=packed)
        # The time of a step does not depend on its content, so time a few batches and count many.
        batches = [batch for _, (_, batch) in zip(range(300), source.batches(), strict=False)]
        masks = [batch[0].get("input_mask", batch[0].get("text_ids")) for batch in batches]
        fills[name] = float(np.mean([np.count_nonzero(mask) / mask.size for mask in masks]))
        runs[name] = lambda steps, model=trained, batches=batches[:steps]: model.fit(
            (batch for batch in batches), steps_per_epoch=steps, epochs=1, verbose=0
        )
    seconds, _ = in_turns(runs, rounds, steps)
    tokens = rows * 512 * steps
    rates = {name: fills[name] * tokens / statistics.median(seconds[name]) for name in runs}
    # The median over pairs of rounds, because the speed of the machine may change.
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
    parser.add_argument("--questions", default="peer,packed,stream,bfloat16")
    parser.add_argument("--sizes", default="tiny,base", help="sizes for `peer` and `bfloat16`")
    parser.add_argument("--packed-size", default="mini", help="size for `packed`")
    parser.add_argument("--rounds", type=int, default=21)
    args = parser.parse_args()
    questions = args.questions.split(",")
    print(f"keras {keras.__version__}, tensorflow {tf.__version__}, {os.cpu_count()} cores")
    print(f"instruction sets: {' '.join(processor.instruction_sets())}")
    for question, compare in (("peer", against_keras_hub), ("bfloat16", in_bfloat16)):
        for size in args.sizes.split(",") if question in questions else ():
            compare(size, args.rounds, 3 if size != "base" else 1)
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
