"""Question: which flags of TensorFlow Serving make an exported model faster?

The script sets what the flags set, without a server:

- `--mixed_precision=bfloat16`, an option of TensorFlow's graph optimizer, for the float32 export
- `--tensorflow_intra_op_parallelism=1`, one thread per request: "1 thread"

MiniLM with a classifier of random weights is exported in float32 and in bfloat16. A process for
each export and flag, and ONNX Runtime in this process (float32, all cores, see `serve_engines.py`),
take turns: 32 texts of SST-2, a text of 20 words, a text of 5 words, from strings to probabilities.
With clients, as many threads as there are cores ask for the text of 20 words at the same time.

    python benchmarks/serving_flags.py ../shared/data

Needs the packages of `serve_engines.py`. bfloat16 is fast only on processors with AVX512-BF16 or
AMX.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

CALLS, ROUNDS = 20, 7
CORES = os.cpu_count()
MIXED, ONE_THREAD = "--mixed_precision=bfloat16", "1 thread"
PEER = "ONNX Runtime"


def serve(version, flag):
    """Answer each line of stdin, JSON `[clients, texts]`, with milliseconds per request."""
    import tensorflow as tf

    if flag == MIXED:
        options = {"auto_mixed_precision_onednn_bfloat16": True}
        tf.config.optimizer.set_experimental_options(options)
    if flag == ONE_THREAD:
        tf.config.threading.set_intra_op_parallelism_threads(1)
    served = tf.saved_model.load(version).signatures["serving_default"]
    for line in sys.stdin:
        clients, texts = json.loads(line)
        texts = tf.constant(texts)
        print(measure(lambda texts=texts: served(text=texts), clients), flush=True)


def measure(run, clients):
    """Return milliseconds per request: the median, or with clients the total time by requests."""
    times = []
    for _ in range(CALLS + 3):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    if clients == 1:
        return statistics.median(times[3:]) * 1e3
    count = CALLS * clients
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        start = time.perf_counter()
        list(pool.map(lambda _: run(), range(count)))
        return (time.perf_counter() - start) / count * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="folder with sst2 and squad11")
    args = parser.parse_args()

    import serve_engines

    import keras_bert
    from keras_bert.runtime import processor

    print(f"{CORES} cores: {' '.join(processor.instruction_sets())}")
    texts = serve_engines.read_texts(args.folder)
    requests = {name: (1, texts[name]) for name in ("32 texts", "20 words", "5 words")}
    requests[f"20 words, {CORES} clients"] = (CORES, texts["20 words"])
    model = keras_bert.heads.classifier(
        keras_bert.load("minilm"), labels=serve_engines.LABELS, pooling="pooler"
    )
    source = str(keras_bert.hub.resolve.find("minilm"))
    with tempfile.TemporaryDirectory() as folder:
        versions = {
            precision: keras_bert.export(model, f"{folder}/{precision}", precision=precision)
            for precision in ("float32", "bfloat16")
        }
        engines = [
            ("float32", ""), ("float32", MIXED), ("float32", ONE_THREAD), ("bfloat16", ""),
            ("bfloat16", ONE_THREAD),
        ]  # fmt: skip
        processes = {
            f"{precision} {flag}".strip(): subprocess.Popen(
                [sys.executable, __file__, "--serve", str(versions[precision]), flag],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            for precision, flag in engines
        }  # fmt: skip
        peer = serve_engines.peer_engines(model, source, pathlib.Path(folder))["ort float32"]
        for request, (clients, rows) in requests.items():
            times = {name: [] for name in (*processes, PEER)}
            for _ in range(ROUNDS):
                for name, process in processes.items():
                    process.stdin.write(json.dumps([clients, rows]) + "\n")
                    process.stdin.flush()
                    times[name].append(float(process.stdout.readline()))
                times[PEER].append(measure(lambda rows=rows: peer(rows), clients))
            medians = {name: statistics.median(values) for name, values in times.items()}
            print(f"{request}: " + ", ".join(f"{name} {ms:.1f} ms" for name, ms in medians.items()))
            for precision, flag in engines[1:]:
                name = f"{precision} {flag}".strip()
                ratios = (medians[name] / medians[other] for other in ("float32", PEER))
                print(f"    {name}: {next(ratios):.2f} of float32, {next(ratios):.2f} of {PEER}")
        for process in processes.values():
            process.stdin.close()
            process.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], sys.argv[3])
    else:
        main()
