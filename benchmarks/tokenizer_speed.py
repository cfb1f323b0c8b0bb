"""Question: how fast is tokenization, compared with Hugging Face tokenizers with two threads?

Batches of 1,000 texts are tokenized by (a) the tokenizer in Python, on one thread, which starts
with empty caches in each round, (b) the same with the caches of the round, (c) the path of
records, which uses tensorflow-text where it gives the same ids, (d) the graph of core ops, (e)
`encode_batch_fast` of Hugging Face tokenizers. They alternate for each batch. The graph and Python
also tokenize one text of 100 words.

    python benchmarks/tokenizer_speed.py ../shared

Needs tokenizers, and a folder with data/, corpus/ and vocab/ (see benchmarks/README.md).
"""

import argparse
import lzma
import os
import pathlib
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["RAYON_NUM_THREADS"] = "2"

import tensorflow as tf
import tokenizers

from keras_bert.text.fast_tokenizer import tokenize_function
from keras_bert.text.python_tokenizer import PythonTokenizer
from keras_bert.text.tokenizer import WordPieceTokenizer

BATCH = 1000


def read_corpus(path, count):
    """Return the first `count` lines that are not empty."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        lines = (line.strip() for line in file)
        return [line for line, _ in zip(filter(None, lines), range(count), strict=False)]


def read_column(path, column, count):
    """Return a column of a TSV file, without the header."""
    with open(path, encoding="utf-8") as file:
        next(file)
        rows = (line.rstrip("\n").split("\t") for line in file)
        return [row[column] for row, _ in zip(rows, range(count), strict=False)]


def measure(name, texts, vocabulary_file, lowercase, rounds):
    """Print a line for one text collection and vocabulary."""
    vocabulary = vocabulary_file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    tokenizer = WordPieceTokenizer([line.strip() for line in vocabulary], lowercase=lowercase)
    fast = tokenize_function(tokenizer)
    peer = tokenizers.BertWordPieceTokenizer(
        str(vocabulary_file), lowercase=lowercase, strip_accents=lowercase
    )
    batches = [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]
    tensors = [tf.constant(batch) for batch in batches]
    in_python = [PythonTokenizer(tokenizer.vocabulary, lowercase=lowercase)]
    paths = {
        "Python": lambda i: in_python[-1].tokenize(batches[i]),
        "Python again": lambda i: in_python[-1].tokenize(batches[i]),
        "records": lambda i: fast(tensors[i]).flat_values,
        "core graph": lambda i: tokenizer.tokenize(tensors[i]).flat_values,
        "tokenizers": lambda i: peer._tokenizer.encode_batch_fast(
            batches[i], add_special_tokens=False
        ),
    }
    seconds = {path: [] for path in paths}
    pieces = 0
    for turn in range(rounds + 1):
        spent = dict.fromkeys(paths, 0.0)
        in_python.append(PythonTokenizer(tokenizer.vocabulary, lowercase=lowercase))
        for index in range(len(batches)):
            for path, run in paths.items():
                start = time.perf_counter()
                result = run(index)
                spent[path] += time.perf_counter() - start
                if turn == 0 and path == "core graph":
                    pieces += int(result.shape[0])
                del result  # otherwise the time to free it counts for the next path
        if turn:  # the first turn traces and warms up
            for path in paths:
                seconds[path].append(spent[path])
    median = {path: statistics.median(values) for path, values in seconds.items()}
    ratio = {
        path: statistics.median(
            b / a for a, b in zip(seconds[path], seconds["tokenizers"], strict=True)
        )
        for path in paths
    }
    rates = ", ".join(f"{path} {pieces / median[path] / 1e6:.2f}" for path in paths)
    print(
        f"{name} ({len(texts)} texts, {pieces} pieces): million pieces/s: {rates}; "
        + ", ".join(f"{path} {ratio[path]:.2f}x" for path in paths if path != "tokenizers")
    )
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shared", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--texts", type=int, default=8000)
    args = parser.parse_args()
    vocab, count = args.shared / "vocab", args.texts
    print(
        f"tensorflow {tf.__version__}, tokenizers {tokenizers.__version__}, "
        f"{os.cpu_count()} cores, medians of {args.rounds} rounds"
    )
    wiki = read_corpus(args.shared / "corpus" / "en_wiki.txt.xz", count)
    uncased = vocab / "bert-base-uncased-vocab.txt"
    tokenizer = measure("English Wikipedia, uncased", wiki, uncased, True, args.rounds)
    sst2 = read_column(args.shared / "data" / "sst2" / "train.tsv", 0, count)
    measure("SST-2, uncased", sst2, uncased, True, args.rounds)
    cased = vocab / "bert-base-multilingual-cased-vocab.txt"
    korean = read_corpus(args.shared / "corpus" / "ko_wiki.txt.xz", count)
    measure("Korean Wikipedia, multilingual cased", korean, cased, False, args.rounds)
    measure("Korean Wikipedia, KcBERT", korean, vocab / "kcbert-base-vocab.txt", False, args.rounds)

    words = " ".join(wiki).split()[:100]
    texts = [" ".join(words)]
    in_python = PythonTokenizer(tokenizer.vocabulary)
    for name, tokenize, batch in (
        ("core graph", tokenizer.tokenize, tf.constant(texts)),
        ("Python", in_python.tokenize, texts),
    ):
        milliseconds = []
        for _ in range(200):
            start = time.perf_counter()
            tokenize(batch)
            milliseconds.append((time.perf_counter() - start) * 1e3)
        print(f"one text of 100 words, {name}: {statistics.median(milliseconds[20:]):.2f} ms")


if __name__ == "__main__":
    main()
