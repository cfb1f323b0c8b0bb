"""Question: how fast is a float32 export with TensorFlow Serving's `--mixed_precision=bfloat16`?

The flag switches on an option of TensorFlow's graph optimizer, which this script sets without a
server. MiniLM with a classifier of random weights is exported in float32 and in bfloat16. Three
processes load an export each, one of them with the option, and take turns: 32 texts of SST-2 and a
text of 20 words, from strings to probabilities.

    python benchmarks/mixed_precision_flag.py ../shared/data

The option and the export in bfloat16 are fast only on processors with AVX512-BF16 or AMX.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

CALLS, ROUNDS = 20, 5
WORDS = "the film is a slow but honest look at a family that loses its house and finds a new one"


def serve(version, with_option):
    """Answer each line of stdin, JSON texts, with the median time of some calls in ms."""
    import tensorflow as tf

    if with_option:
        options = {"auto_mixed_precision_onednn_bfloat16": True}
        tf.config.optimizer.set_experimental_options(options)
    served = tf.saved_model.load(version).signatures["serving_default"]
    for line in sys.stdin:
        texts = tf.constant(json.loads(line))
        times = []
        for _ in range(CALLS + 3):
            start = time.perf_counter()
            served(text=texts)
            times.append(time.perf_counter() - start)
        print(statistics.median(times[3:]) * 1e3, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="folder with sst2/dev.tsv")
    args = parser.parse_args()

    import keras_bert
    from keras_bert.runtime import processor

    print(f"instruction sets: {' '.join(processor.instruction_sets())}")
    rows = keras_bert.read(args.folder / "sst2/dev.tsv", text="sentence", label=None, limit=32)
    requests = {"32 texts": rows.texts, "20 words": [WORDS]}
    model = keras_bert.heads.classifier(keras_bert.load("minilm"), labels=["bad", "good"])
    with tempfile.TemporaryDirectory() as folder:
        versions = {
            precision: keras_bert.export(model, f"{folder}/{precision}", precision=precision)
            for precision in ("float32", "bfloat16")
        }
        engines = {
            "float32": (versions["float32"], ""),
            "float32 with the option": (versions["float32"], "option"),
            "bfloat16": (versions["bfloat16"], ""),
        }
        processes = {
            name: subprocess.Popen(
                [sys.executable, __file__, "--serve", str(version), option],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            for name, (version, option) in engines.items()
        }  # fmt: skip
        for request, texts in requests.items():
            times = {name: [] for name in engines}
            for _ in range(ROUNDS):
                for name, process in processes.items():
                    process.stdin.write(json.dumps(texts) + "\n")
                    process.stdin.flush()
                    times[name].append(float(process.stdout.readline()))
            medians = {name: statistics.median(values) for name, values in times.items()}
            found = ", ".join(f"{name} {value:.1f} ms" for name, value in medians.items())
            ratio = medians["float32 with the option"] / medians["float32"]
            print(f"{request}: {found}; option: {ratio:.2f} of float32")
        for process in processes.values():
            process.stdin.close()
            process.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], bool(sys.argv[3]))
    else:
        main()
