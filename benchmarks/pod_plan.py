"""Question: what does the paper's recipe require of a TPU pod, its hosts and their disks?

    python benchmarks/pod_plan.py
    python benchmarks/pod_plan.py --utilization 0.5 --text-gb 25 --price 1.2

This is a calculation for a TPU pod; no TPU is used.

- Measured on this machine: the rows per second that the stream generates, also for one of many
  hosts (each host plans all rows of a window and builds its own), and the time to write a
  checkpoint.
- Computed: the FLOPs of 1,000,000 steps of 256 sequences, 90% of them at length 128 (section A.2 of
  the paper).
- Assumed: the utilization of the chips, the same at both lengths.
- Stated by Google for a v5e: 197 TFLOP/s in bfloat16, four chips per host.

The same sequences in larger batches need the same FLOPs, so the hours hold for LAMB too.
"""

import argparse
import os
import pathlib
import statistics
import tempfile
import time

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
from paper_plan import MODELS, SEQUENCES, chip_hours, operations_per_sequence
from pretrain_step import made_up_records

import keras_bert
from keras_bert import heads, optimizers
from keras_bert.pretraining import stream
from keras_bert.training import flops, run_state

CHIPS_A_HOST, PEAK = 4, flops.stated_peak("TPU v5e")
PODS = {"base": (16, 64), "large": (64, 256)}  # chips


def rows_a_second(records, length, hosts, rows=256, count=100):
    """Return the total rows per second that a host can plan while it builds its own rows."""
    source = stream.Stream(records, rows * hosts, length, worker=(0, hosts))
    batches = source.batches()
    next(batches)
    rates = []
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(max(3, count // hosts)):
            next(batches)
        rates.append(max(3, count // hosts) * rows * hosts / (time.perf_counter() - start))
    return statistics.median(rates)


def checkpoint(layers, hidden):
    """Write a checkpoint to this machine's disk. Return its size in bytes and the seconds."""
    keras.backend.clear_session()
    encoder = keras_bert.BertEncoder(
        vocab_size=30522, num_hidden_layers=layers, hidden_size=hidden,
        num_attention_heads=hidden // 64, intermediate_size=4 * hidden,
    )  # fmt: skip
    model = heads.pretraining(encoder)
    optimizer = optimizers.adamw(1e-4, total_steps=10)
    optimizer.build(model.trainable_variables)
    variables = [*model.variables, *optimizer.variables]
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        run_state.Checkpoints(folder, {}).save(variables, {}, 1)
        seconds = time.perf_counter() - start
        size = sum(file.stat().st_size for file in pathlib.Path(folder).rglob("*.npz"))
    return size, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--utilization", type=float, default=0.4, help="assumed utilization of the chips"
    )
    parser.add_argument("--text-gb", type=float, default=20.0, help="size of the corpus")
    parser.add_argument("--price", type=float, help="price of a chip-hour")
    parser.add_argument(
        "--documents", type=int, default=4000, help="documents of the measured text"
    )
    args = parser.parse_args()

    hosts = sorted({chips // CHIPS_A_HOST for pods in PODS.values() for chips in pods})
    with tempfile.TemporaryDirectory() as folder:
        made = made_up_records(
            pathlib.Path(folder), args.documents, lambda random, n: random.integers(300, 3000, n)
        )
        drawn = {
            (length, count): rows_a_second(made, length, count)
            for length in SEQUENCES
            for count in (1, *hosts)
        }
        text = made.manifest["settings"]["corpus"][0]["bytes"]
        share = sum(file.stat().st_size for file in made.folder.glob("*.tfrecord")) / text
        shards = args.text_gb * 1e9 / made.manifest["settings"]["shard_bytes"]
    print(f"keras {keras.__version__}, {os.cpu_count()} cores; {args.text_gb:.0f} GB of text: "
          f"{shards:.0f} shards, {share * args.text_gb:.1f} GB of records")  # fmt: skip
    for (length, count), rate in drawn.items():
        print(f"length {length}, one of {count} hosts: plans {rate:,.0f} rows/s of all, "
              f"lays out {rate / count:,.0f} of its own")  # fmt: skip
    print("| model | chips | hosts | hours | chip-hours | rows/s of all at 128, at 512 | a host "
          "keeps up with | checkpoint |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|")
    for name, shape in MODELS.items():
        size, seconds = checkpoint(*shape)
        rate_per_chip = PEAK * args.utilization
        seconds = {
            length: operations_per_sequence(name, length) / rate_per_chip for length in SEQUENCES
        }
        for chips in PODS[name]:
            hours = chip_hours(seconds) / chips
            wanted = [chips / seconds[length] for length in SEQUENCES]
            can = [drawn[length, chips // CHIPS_A_HOST] for length in SEQUENCES]
            cost = f"{hours * chips:,.0f}"
            if args.price is not None:
                cost += f" ({hours * chips * args.price:,.0f})"
            print(
                f"| {name} | {chips} | {chips // CHIPS_A_HOST} | {hours:.1f} | {cost} | "
                f"{wanted[0]:,.0f}, {wanted[1]:,.0f} | {can[0]:,.0f}, {can[1]:,.0f} | "
                f"{size / 1e9:.2f} GB, {seconds:.1f} s |",
                flush=True,
            )


if __name__ == "__main__":
    main()
