"""Question: how fast is the encoder, compared with KerasHub's and with a large matmul?

BERT-Base, random weights, float32, inference on TensorFlow compiled by XLA, in one process.
The candidates run in alternation. Figures are medians.

    python benchmarks/encoder_speed.py

Needs keras-hub.
"""

import argparse
import os
import statistics
import time

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import keras_hub
import numpy as np
import tensorflow as tf

import keras_bert

HIDDEN, LAYERS, INTERMEDIATE, VOCAB = 768, 12, 3072, 30522


def matmul_flops(batch, seq):
    """Return the floating-point operations of the matmuls in one forward pass of BERT-Base."""
    per_token = LAYERS * 2 * (4 * HIDDEN**2 + 2 * HIDDEN * INTERMEDIATE)
    attention = LAYERS * 2 * 2 * seq * HIDDEN
    return batch * seq * (per_token + attention) + batch * 2 * HIDDEN**2


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()

    ours = keras_bert.BertEncoder(vocab_size=VOCAB)
    theirs = keras_hub.models.BertBackbone(VOCAB, LAYERS, 12, HIDDEN, INTERMEDIATE)
    run_ours = tf.function(lambda x: ours(x, training=False)["sequence_output"], jit_compile=True)
    run_theirs = tf.function(
        lambda x: theirs(x, training=False)["sequence_output"], jit_compile=True
    )
    a = tf.random.normal((2048, 2048))
    run_matmul = tf.function(lambda x: tf.matmul(x, x))

    print(
        f"keras {keras.__version__}, tensorflow {tf.__version__}, keras-hub "
        f"{keras_hub.__version__}, {os.cpu_count()} cores, median of {args.rounds}"
    )
    for batch, seq in ((8, 128), (1, 512)):
        ids = tf.constant(np.random.default_rng(0).integers(1, VOCAB, (batch, seq)), tf.int32)
        ones, zeros = tf.ones_like(ids), tf.zeros_like(ids)
        candidates = {
            "keras_bert": (
                run_ours,
                {"input_word_ids": ids, "input_mask": ones, "input_type_ids": zeros},
                matmul_flops(batch, seq),
            ),
            "keras_hub": (
                run_theirs,
                {"token_ids": ids, "padding_mask": ones, "segment_ids": zeros},
                matmul_flops(batch, seq),
            ),
            "matmul": (run_matmul, a, 2 * 2048**3),
        }
        seconds = {name: [] for name in candidates}
        for turn in range(args.rounds + 2):
            for name, (function, data, _) in candidates.items():
                start = time.perf_counter()
                function(data).numpy()
                if turn >= 2:  # the first two turns compile and warm up
                    seconds[name].append(time.perf_counter() - start)
        median = {name: statistics.median(values) for name, values in seconds.items()}
        rate = {name: candidates[name][2] / median[name] / 1e9 for name in candidates}
        paired = statistics.median(
            b / a for a, b in zip(seconds["keras_bert"], seconds["keras_hub"], strict=True)
        )
        print(
            f"{batch} x {seq}: keras_bert {median['keras_bert'] * 1e3:.0f} ms "
            f"({rate['keras_bert']:.0f} GFLOP/s), keras_hub {median['keras_hub'] * 1e3:.0f} ms "
            f"({rate['keras_hub']:.0f} GFLOP/s), matmul {rate['matmul']:.0f} GFLOP/s; "
            f"speed {paired:.2f}x keras_hub, {rate['keras_bert'] / rate['matmul']:.2f} of matmul"
        )


if __name__ == "__main__":
    main()
