"""Semantic search: find the paragraphs that answer a question, without training.

The corpus is a text file with one paragraph per line, or the manuals of examples/data. Vectors of a
file are kept in memory as one array, 1.5 KB per paragraph, and searched exactly. For a file from
the command line, see `keras-bert search`.

Command:   python examples/semantic_search.py
Time:      about 20 seconds on 2 CPU cores
Expected:  the right paragraph of 75 is found first for 0.74 of 225 questions, and among the first
           five for 0.89
"""

import argparse
import os
import pathlib

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

import keras_bert

DATA = pathlib.Path(__file__).parent / "data"
QUESTIONS = ["How do I clean it?", "What does a red light mean?", "Is it safe for children?"]


def main():
    """Embed the paragraphs, search, and score the search on questions with known paragraphs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=pathlib.Path, help="a text file, a paragraph per line")
    parser.add_argument("--query", action="append", help="a question; may be given several times")
    parser.add_argument("--model", default="minilm", help="name or path for keras_bert.load")
    parser.add_argument("--limit", type=int, help="use only the first paragraphs")
    args = parser.parse_args()

    manuals = [
        keras_bert.read(DATA / f"manual_{part}.json", "retrieval") for part in ("train", "dev")
    ]
    if args.corpus:
        lines = args.corpus.read_text(encoding="utf-8").splitlines()
        paragraphs = [line for line in lines if line.strip()]
    else:
        paragraphs = [text for manual in manuals for text in manual.corpus.values()]
    paragraphs = paragraphs[: args.limit]

    embed = keras_bert.pipeline(args.model, task="embedding")
    vectors = embed.encode(paragraphs)  # (paragraphs, 384)
    print(f"{len(paragraphs)} paragraphs, vectors of {vectors.nbytes / 1e6:.1f} MB")
    for query in args.query or QUESTIONS:
        print(query)
        (found,), (scores,) = keras_bert.search.top_k(embed.encode(query), vectors, k=3)
        for index, score in zip(found, scores, strict=True):
            print(f"  {score:.2f}  {paragraphs[index][:80]}")

    # The questions of examples/data belong to its manuals.
    if not args.corpus and not args.limit:
        questions = [text for manual in manuals for text in manual.queries.values()]
        owners = [
            manual.corpus[next(iter(manual.relevant[key]))]
            for manual in manuals
            for key in manual.queries
        ]
        found, _ = keras_bert.search.top_k(embed.encode(questions), vectors, k=5)
        hits = np.array(
            [
                [paragraphs[index] == owner for index in row]
                for row, owner in zip(found, owners, strict=True)
            ]
        )
        print(f"{len(questions)} questions: the right paragraph is first for", end=" ")
        print(f"{hits[:, 0].mean():.2f}, among the first five for {hits.any(axis=1).mean():.2f}")


if __name__ == "__main__":
    main()
