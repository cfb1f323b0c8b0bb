"""Question: what fraction of a GPU's peak FLOP/s does a pretraining step use?

    KERAS_BACKEND=jax python benchmarks/gpu_step.py
    KERAS_BACKEND=jax python benchmarks/gpu_step.py --only 0 1 --no-dropout

The steps use the model, loss and optimizer of `pretrain`, through `fit`, in mixed_bfloat16, with
dropout 0.1, 15% of the positions masked and random ids. The utilization is defined as by Chowdhery
et al. (2022): the FLOP/s of the matmuls that the model needs (`keras_bert.training.flops`), divided
by the manufacturer's peak for dense bfloat16. The script prints a line for each case: the median of
the rounds, their range, and the peak of the device's memory.

`--no-dropout` shows the cost of dropout, whose random numbers come from JAX's default generator.

Needs Keras and JAX, but not TensorFlow.
"""

import argparse
import os
import statistics
import time

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import keras
import numpy as np

import keras_bert
from keras_bert import heads, optimizers
from keras_bert.pretraining import train
from keras_bert.training import flops

VOCAB = 30522
SIZES = {"tiny": (2, 128), "base": (12, 768), "large": (24, 1024)}
# Size, length and batch of cases that fit into 80 GB.
CASES = (("base", 128, 256), ("base", 512, 64), ("large", 128, 128), ("large", 512, 32))


def model_for(size, dropout):
    layers, hidden = SIZES[size]
    encoder = keras_bert.BertEncoder(
        vocab_size=VOCAB, num_hidden_layers=layers, hidden_size=hidden,
        num_attention_heads=hidden // 64, intermediate_size=4 * hidden,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, dtype="mixed_bfloat16",
    )  # fmt: skip
    model = heads.pretraining(encoder)
    train.compile_model(model, optimizers.adamw(1e-4, total_steps=10**6, warmup_steps=10**4))
    return model


def batch_of(rows, length):
    random = np.random.default_rng(0)
    ids = random.integers(1000, VOCAB, (rows, length), dtype=np.int32)
    places = random.permuted(np.tile(np.arange(1, length - 1), (rows, 1)), axis=1)
    positions = np.sort(places[:, : -(-15 * length // 100)], axis=1).astype(np.int32)
    inputs = {
        "input_word_ids": ids,
        "input_mask": np.ones_like(ids),
        "input_type_ids": np.zeros_like(ids),
        "masked_lm_positions": positions,
    }
    targets = {
        "masked_lm": np.take_along_axis(ids, positions, axis=1),
        "next_sentence": random.integers(0, 2, rows, dtype=np.int32),
    }
    weights = {name: np.ones(target.shape, np.float32) for name, target in targets.items()}
    return inputs, targets, weights


def measure(size, length, rows, dropout, steps, rounds):
    keras.backend.clear_session()
    jax.clear_caches()
    start = time.perf_counter()
    model = model_for(size, dropout)
    batch = batch_of(rows, length)

    def take(count):
        batches = (batch for _ in range(count))
        model.fit(batches, steps_per_epoch=count, epochs=1, shuffle=False, verbose=0)

    take(2)
    ready = time.perf_counter() - start
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        take(steps)
        seconds.append((time.perf_counter() - start) / steps)
    middle = statistics.median(seconds)
    predictions = batch[0]["masked_lm_positions"].shape[1]
    needed = rows * flops.of_sequence(heads.find_encoder(model).bert_config, length, predictions)
    memory = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0)
    print(
        f"{size}, {rows} x {length}, dropout {dropout}: {middle * 1e3:.1f} ms a step "
        f"({min(seconds) * 1e3:.1f} to {max(seconds) * 1e3:.1f}), {rows * length / middle:,.0f} "
        f"tokens/s, utilization {needed / middle / flops.peak():.3f}; peak since the start "
        f"{memory / 2**30:.1f} GiB, first steps after {ready:.0f} s",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=range(len(CASES)), type=int, nargs="+", metavar="CASE")
    parser.add_argument("--size", choices=SIZES, help="replaces the cases by one of this size")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--no-dropout", action="store_true")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    cases = [CASES[number] for number in args.only]
    if args.size:
        cases = [(args.size, args.length, args.rows)]
    device = jax.devices()[0].device_kind
    print(f"jax {jax.__version__}, keras {keras.__version__}, {device}")
    for case in cases:
        measure(*case, 0.0 if args.no_dropout else 0.1, args.steps, args.rounds)


if __name__ == "__main__":
    main()
