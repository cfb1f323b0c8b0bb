"""Question: how fast is text converted to records, and with how much memory?

Each line is from a new process: the seconds of `records.build`, the megabytes of text per second
and core, and the peak memory of the process and its children. The memory is what they allocated. It
does not include some 600 MB of libraries such as TensorFlow, which are mapped from files and shared
by all processes. The text is used once, twice and four times; this must not change the memory.

    python benchmarks/records_speed.py ../shared
    python benchmarks/records_speed.py ../shared --garden .venv-older/bin/python

The second command also runs the Model Garden's `create_pretraining_data` on the first megabytes of
the same text, with one copy (`dupe_factor=1`). It writes masked rows, of which a run needs ten
copies, while keras_bert masks its records anew in each epoch. It keeps all rows in memory.
`make test-older` creates `.venv-older`; install sentencepiece into it for this benchmark.
"""

import argparse
import json
import lzma
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

MB = 10**6


def read_text(shared, megabytes):
    with lzma.open(pathlib.Path(shared, "corpus/en_wiki.txt.xz")) as file:
        return file.read(megabytes * MB).decode("utf-8", "ignore")


def measure(corpus, vocabulary, workers):
    """Build the records in this process, and print the figures as JSON."""
    import keras_bert
    from keras_bert.pretraining import records

    preprocessor = keras_bert.Preprocessor(vocabulary)
    start_memory, done, most = memory(), threading.Event(), [0]

    def watch():
        while not done.wait(0.05):
            most[0] = max(most[0], memory())

    threading.Thread(target=watch).start()
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        manifest = records.build([corpus], folder, preprocessor, workers=workers)
        seconds = time.perf_counter() - start
    done.set()
    print(json.dumps({"seconds": seconds, "start": start_memory, "most": most[0],
                      "pieces": manifest["counts"]["pieces"]}))  # fmt: skip


def memory():
    """Return the bytes that this process and its children have allocated."""
    total = 0
    parents = {os.getpid()}
    processes = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    for process in sorted(processes):
        try:
            parent = int(
                pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")")[1].split()[1]
            )
            if process not in parents and parent not in parents:
                continue
            parents.add(process)
            lines = pathlib.Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
            total += (
                next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) * 1024
            )
        except (OSError, StopIteration):  # the process has ended
            continue
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shared", help="folder with corpus/en_wiki.txt.xz and vocab/")
    parser.add_argument("--megabytes", type=int, default=50)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--garden", help="Python of an environment with tf-models-official")
    parser.add_argument("--garden-megabytes", type=int, default=5)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    vocabulary = str(pathlib.Path(args.shared, "vocab/bert-base-uncased-vocab.txt").resolve())
    if args.one:
        measure(args.one, vocabulary, args.workers)
        return
    text = read_text(args.shared, args.megabytes)
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    rates = []
    with tempfile.TemporaryDirectory() as folder:
        corpus = pathlib.Path(folder, "corpus.txt")
        for times in (1, 2, 4):
            corpus.write_text("\n\n".join([text] * times), encoding="utf-8")
            size = corpus.stat().st_size / MB
            output = subprocess.run(
                [sys.executable, __file__, args.shared, "--one", corpus, "--workers",
                 str(args.workers)],
                env=environment, capture_output=True, text=True,
            )  # fmt: skip
            if output.returncode:
                sys.exit(output.stderr[-3000:])
            found = json.loads(output.stdout.splitlines()[-1])
            rates.append(size / found["seconds"])
            print(
                f"{size:.0f} MB of text, {args.workers} workers: {found['seconds']:.1f} s, "
                f"{rates[-1]:.1f} MB/s, {rates[-1] / os.cpu_count():.1f} a core; memory "
                f"{found['most'] / 2**20:.0f} MiB, {found['start'] / 2**20:.0f} before",
                flush=True,
            )
        if args.garden:
            corpus.write_text(text[: args.garden_megabytes * MB], encoding="utf-8")
            size = corpus.stat().st_size / MB
            start = time.perf_counter()
            output = subprocess.run(
                [args.garden, "-m", "official.nlp.data.create_pretraining_data",
                 f"--input_file={corpus}", f"--output_file={folder}/garden.tfrecord",
                 f"--vocab_file={vocabulary}", "--do_lower_case", "--max_seq_length=128",
                 "--max_predictions_per_seq=20", "--dupe_factor=1"],
                env=environment, capture_output=True, text=True,
            )  # fmt: skip
            if output.returncode:
                sys.exit(output.stderr[-3000:])
            rate = size / (time.perf_counter() - start)
            print(f"the Model Garden, {size:.0f} MB of text: {rate:.2f} MB/s, one core; "
                  f"{rates[0] / os.cpu_count() / rate:.1f}x a core")  # fmt: skip


if __name__ == "__main__":
    main()
