"""Question: how much memory does a training step take, with and without `rematerialize=True`?

A classifier on an encoder of BERT-Base's size with random weights, batch 32 x 128, float32,
dropout 0.1, AdamW, on the CPU. JAX compiles the step. TensorFlow runs it without XLA, because
`finetune` never compiles a step with rematerialization there. Each figure is from a new process:
its peak resident memory after the steps, minus its memory before the first step. The figure
includes the gradients and the two moments of AdamW, 12 bytes per parameter, which
rematerialization does not save.

On the CPU, XLA removes the barriers that keep the recomputation separate from the first
computation. JAX therefore saves no memory there by default. `KEEP_BARRIERS` keeps the barriers;
`--xla-default` measures without that flag.

    python benchmarks/memory.py

Needs jax.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time

BATCH, LENGTH, VOCAB = 32, 128, 30522
MIB = 2**20
KEEP_BARRIERS = "--xla_disable_hlo_passes=cse_barrier_expander"


def resident():
    """Return the resident memory of this process in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def measure(rematerialize, steps):
    """Run the steps and return their memory and time as a dict."""
    import keras
    import numpy as np

    import keras_bert

    keras.utils.set_random_seed(0)
    encoder = keras_bert.BertEncoder(vocab_size=VOCAB, rematerialize=rematerialize)
    model = keras_bert.heads.classifier(encoder, num_classes=2)
    model.compile(
        keras_bert.optimizers.adamw(5e-5, total_steps=steps, warmup_steps=0),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=keras.backend.backend() == "jax",
    )
    ids = np.random.default_rng(0).integers(1000, VOCAB, (BATCH, LENGTH), dtype=np.int32)
    inputs = {
        "input_word_ids": ids,
        "input_mask": np.ones_like(ids),
        "input_type_ids": np.zeros_like(ids),
    }
    labels = np.arange(BATCH) % 2
    before = resident()
    for _ in range(steps):
        start = time.perf_counter()
        loss = float(np.ravel(model.train_on_batch(inputs, labels))[0])
        seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "peak": peak - before, "before": before, "seconds": seconds, "loss": loss,
        "parameters": model.count_params(),
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", default="tensorflow,jax")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--xla-default", action="store_true", help="run JAX without KEEP_BARRIERS")
    parser.add_argument("--one", choices=["plain", "rematerialize"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one == "rematerialize", args.steps)))
        return
    flags = os.environ.get("XLA_FLAGS", "")
    if not args.xla_default:
        flags += " " + KEEP_BARRIERS
    for backend in args.backends.split(","):
        peaks = {}
        for variant in ("plain", "rematerialize"):
            output = subprocess.run(
                [sys.executable, __file__, "--one", variant, "--steps", str(args.steps)],
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": backend,
                     "JAX_PLATFORMS": "cpu", **({"XLA_FLAGS": flags} if backend == "jax" else {})},
                capture_output=True, text=True,
            )  # fmt: skip
            if output.returncode:
                sys.exit(output.stderr[-5000:])
            result = json.loads(output.stdout.splitlines()[-1])
            peaks[variant] = result["peak"], 12 * result["parameters"]
            print(
                f"{backend}, {variant}: a step's peak {result['peak'] / MIB:.0f} MiB over the "
                f"{result['before'] / MIB:.0f} MiB of the loaded model; "
                f"{result['seconds']:.1f} s a step, loss {result['loss']:.3f}",
                flush=True,
            )
        (plain, states), (less, _) = peaks["plain"], peaks["rematerialize"]
        print(
            f"{backend}: rematerialize takes {less / plain:.2f} of the memory; without the "
            f"{states / MIB:.0f} MiB of gradients and moments "
            f"{(less - states) / (plain - states):.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
