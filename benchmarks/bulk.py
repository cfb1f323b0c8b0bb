"""Question: how many rows per second does bulk inference answer, and how much memory does it take?

MiniLM with a new classifier answers the training texts of SST-2 from a JSON Lines file: by
`keras-bert predict` in one process, and by examples/bulk/predict.py on Beam's DirectRunner with one
and two worker processes, from the SavedModel and from the ONNX folder. The programs alternate. The
time is that of the whole process, with its start.

With `--memory`, a tiny encoder answers short texts: 100,000 and 1,000,000. The peak memory of the
largest process should not grow with the number of rows.

    python benchmarks/bulk.py ../shared

Needs apache-beam, see examples/bulk/README.md.
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from keras_bert.runtime import processor

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

EXAMPLE = pathlib.Path(__file__).resolve().parents[1] / "examples/bulk/predict.py"
PROCESSES = ["--direct_running_mode", "multi_processing", "--direct_num_workers"]


def commands(folder, file, output):
    """Return the command of each program."""
    predict = [sys.executable, "-m", "keras_bert", "predict", folder / "model.keras"]
    beam = [sys.executable, EXAMPLE]
    options = ["--trusted", "--input", file, "--output", output, "--keep", "id"]
    return {
        "keras-bert predict": [*predict, "--input", file, "--output", f"{output}.jsonl"],
        "Beam, 1 process": [*beam, folder / "exported", *options],
        "Beam, 2 processes": [*beam, folder / "exported", *options, *PROCESSES, "2"],
        "Beam, 1 process, ONNX": [*beam, folder / "onnx", *options],
    }


def export(folder, encoder):
    import keras_bert

    model = keras_bert.heads.classifier(encoder, labels=["negative", "positive"])
    keras_bert.save(model, folder / "model.keras")
    keras_bert.export(model, folder / "exported")
    keras_bert.export(model, folder / "onnx", format="onnx")


def run(command):
    """Run a program; return its time in seconds and the memory of its largest process in MB."""
    start = time.perf_counter()
    subprocess.run(
        list(map(str, command)), check=True, stdout=subprocess.DEVNULL, stderr=sys.stderr
    )
    seconds = time.perf_counter() - start
    return seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def speed(folder, texts, rounds):
    import keras_bert

    export(folder, keras_bert.load("minilm"))
    file = write(folder / "in.jsonl", texts)
    times: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, command in commands(folder, file, folder / "out").items():
            times.setdefault(name, []).append(run(command)[0])
    rates = {name: len(texts) / statistics.median(seconds) for name, seconds in times.items()}
    for name, rate in rates.items():
        ratio = rate / rates["keras-bert predict"]
        print(f"{name:25} {rate:6.0f} rows/s  {ratio:.2f}x")


def memory(folder, name):
    """Print the peak memory for two numbers of rows; each program needs a new process of this."""
    from keras_bert import BertEncoder, Preprocessor

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "so"]
    encoder = BertEncoder(
        vocab_size=len(words), hidden_size=8, num_hidden_layers=1, num_attention_heads=1,
        intermediate_size=8, preprocessor=Preprocessor(words),
    )  # fmt: skip
    export(folder, encoder)
    for count in (100_000, 1_000_000):
        file = write(folder / "in.jsonl", ("so good" if n % 2 else "bad" for n in range(count)))
        seconds, peak = run(commands(folder, file, folder / "out")[name])
        print(f"{name:25} {count:9,} rows  {count / seconds:6.0f} rows/s  {peak:6.0f} MB")


def write(path, texts):
    with open(path, "w", encoding="utf-8") as file:
        for number, text in enumerate(texts):
            file.write(json.dumps({"id": number, "text": text}) + "\n")
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shared", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", metavar="PROGRAM", help="such as 'keras-bert predict'")
    args = parser.parse_args()
    print(f"{os.cpu_count()} cores: {' '.join(processor.instruction_sets())}")
    with tempfile.TemporaryDirectory() as name:
        if args.memory:
            memory(pathlib.Path(name), args.memory)
            return
        lines = (args.shared / "data/sst2/train.tsv").read_text(encoding="utf-8").splitlines()
        texts = [line.split("\t")[0] for line in lines[1 : args.rows + 1]]
        speed(pathlib.Path(name), texts, args.rounds)


if __name__ == "__main__":
    main()
