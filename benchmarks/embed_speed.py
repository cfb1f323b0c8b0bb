"""Question: how fast are texts embedded on a CPU, compared with sentence-transformers?

MiniLM embeds sentences of SST-2 and paragraphs of Wikipedia, in batches of 32 sorted by length, in
keras_bert (float32 and bfloat16) and in sentence-transformers (float32, and bfloat16 weights). Each
round is a new process. Its first call is timed, with building the graph and without loading the
model, and then the second call. Figures are medians of the rounds, which alternate.

    python benchmarks/embed_speed.py ../shared --sentences 10000 --paragraphs 2000

`--float32` leaves out bfloat16, for processors without its instructions.

Needs torch and sentence-transformers.
"""

import argparse
import importlib.metadata
import json
import lzma
import os
import pathlib
import statistics
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

LIBRARIES = ("keras_bert", "keras_bert bfloat16", "peer", "peer bfloat16")


def read_texts(shared, sentences, paragraphs):
    from keras_bert.data import tabular

    sst2 = tabular.read(shared / "data" / "sst2" / "train.tsv", text="sentence", limit=sentences)
    with lzma.open(shared / "corpus" / "en_wiki.txt.xz", "rt", encoding="utf-8") as file:
        lines = [line.strip() for line in file if line.strip()][:paragraphs]
    return {f"{sentences:,} sentences": sst2.texts, f"{paragraphs:,} paragraphs": lines}


def ours(precision=None):
    import keras_bert

    return keras_bert.pipeline("minilm", precision=precision)


def theirs(dtype):
    import sentence_transformers
    import torch

    import keras_bert.hub.resolve

    torch.set_num_threads(os.cpu_count())
    source = str(keras_bert.hub.resolve.find("minilm"))
    model = sentence_transformers.SentenceTransformer(source, device="cpu").to(
        dtype
    )  # mean pooling
    model.max_seq_length = 512
    return lambda texts: model.encode(texts, batch_size=32, normalize_embeddings=True)


def measure(library, texts):
    """Print the seconds of the first and of the second call."""
    if library.startswith("keras_bert"):
        embed = ours("bfloat16" if "bfloat16" in library else None)
    else:
        import torch

        embed = theirs(torch.bfloat16 if "bfloat16" in library else torch.float32)
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        embed(texts)
        seconds.append(time.perf_counter() - start)
    print(json.dumps(seconds))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shared", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sentences", type=int, default=10_000)
    parser.add_argument("--paragraphs", type=int, default=2000)
    parser.add_argument("--float32", action="store_true")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    texts = read_texts(args.shared, args.sentences, args.paragraphs)
    libraries = [name for name in LIBRARIES if not (args.float32 and "bfloat16" in name)]
    numbers = ["--sentences", str(args.sentences), "--paragraphs", str(args.paragraphs)]
    if args.measure:
        library, title = args.measure
        return measure(library, texts[title])
    from keras_bert.runtime.processor import instruction_sets

    for name in ("tensorflow", "torch", "sentence-transformers"):
        print(name, importlib.metadata.version(name))
    print(f"{os.cpu_count()} cores: {' '.join(instruction_sets())}")
    for title, rows in texts.items():
        seconds = {name: [] for name in libraries}
        for _ in range(args.rounds):
            for name in libraries:
                command = [sys.executable, __file__, str(args.shared), *numbers]
                command += ["--measure", name, title]
                result = subprocess.run(command, capture_output=True, text=True, check=True)
                seconds[name].append(json.loads(result.stdout.splitlines()[-1]))
        for call, word in enumerate(("first", "second")):
            rate = {
                name: len(rows) / statistics.median(each[call] for each in values)
                for name, values in seconds.items()
            }
            print(
                f"{title}, {word} call: "
                + ", ".join(f"{name} {value:.0f}/s" for name, value in rate.items())
            )
            for name in libraries:
                if name.startswith("peer"):
                    continue
                print(f"    {name} / peer: {rate[name] / rate['peer']:.2f}")
    return None


if __name__ == "__main__":
    main()
