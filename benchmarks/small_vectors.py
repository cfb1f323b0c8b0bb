"""Question: what do vectors of 8 bits and 1 bit cost in quality, and save in memory and time?

- Quality: the dev questions of SQuAD search the paragraphs of its dev and training data, and with
  `--distractors` the beginnings of paragraphs of Wikipedia. nDCG@10 of MiniLM's vectors of length
  1, also truncated to 256 and 128 numbers and scaled again: without rescoring, rescored with what
  is stored, and rescored with the float32 vectors. The ranges of int8 are those of all texts.
- Time: one query at a time in 100,000 random vectors, 10 results, the median of alternating rounds,
  beside sentence-transformers' `semantic_search` and the exact indexes of FAISS in the same run.

    .venv-peers/bin/python benchmarks/small_vectors.py ../shared

Needs torch, sentence-transformers and FAISS. The vectors are computed once and kept in `--cache`.
"""

import argparse
import itertools
import lzma
import os
import pathlib
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import numpy as np

import keras_bert
from keras_bert.runtime import processor
from keras_bert.tasks.embedding.nearest import (
    QuantizedVectors,
    calibrate,
    quantize,
    top_k,
    unit_length,
)
from keras_bert.tasks.question_answering import data as squad

TOP = 10
MULTIPLIERS = (2, 4, 10)
DIMS = (384, 256, 128)


def read(shared, distractors):
    """Return the questions, the texts to search, and the row of the text of each question."""
    dev = squad.read(shared / "data/squad11/dev.json")
    train = squad.read(shared / "data/squad11/train.json")
    texts = list(dict.fromkeys([*dev.contexts, *train.contexts]))
    with lzma.open(shared / "corpus/en_wiki.txt.xz", "rt", encoding="utf-8") as file:
        lines = (line.strip()[:300] for line in file)
        long_lines = (line for line in lines if len(line) >= 40)
        texts += itertools.islice(long_lines, distractors)
    row_of = {text: row for row, text in enumerate(texts)}
    return dev.questions, texts, np.array([row_of[text] for text in dev.contexts])


def embed(cache, name, texts):
    """Return the vectors of texts, from a file if it exists."""
    path = cache / f"{name}.npy"
    if not path.exists():
        np.save(path, keras_bert.pipeline("minilm").encode(texts, normalize=True))
    vectors = np.load(path)
    if len(vectors) != len(texts):
        raise ValueError(f"{path} has vectors of other texts. Delete it")
    return vectors


def ndcg(found, rows):
    """Return nDCG@10 for one relevant text per query."""
    hits = found == rows[:, None]
    return float((hits / np.log2(np.arange(TOP) + 2)).sum(axis=1).mean())


def measure_quality(queries, corpus, rows):
    print("nDCG@10 of precision, width and candidates per result")
    for dim in DIMS:
        short_queries = unit_length(queries[:, :dim])
        floats = unit_length(corpus[:, :dim])
        found, _ = top_k(short_queries, floats, TOP)
        print(f"{dim} float32: {ndcg(found, rows):.4f}", flush=True)
        stored = {name: QuantizedVectors.of(floats, name) for name in ("int8", "binary")}
        sample = np.random.default_rng(0).choice(len(floats), 1000, replace=False)
        stored["int8 calibrated on 1,000 texts"] = QuantizedVectors.of(
            floats, "int8", calibration=floats[sample]
        )
        for name, vectors in stored.items():
            found, _ = top_k(short_queries, vectors, TOP, rescore_multiplier=0)
            print(f"{dim} {name}, not rescored: {ndcg(found, rows):.4f}", flush=True)
            for multiplier in MULTIPLIERS:
                options = {"rescore_multiplier": multiplier}
                own = ""
                if name == "binary":
                    found, _ = top_k(short_queries, vectors, TOP, **options)
                    own = f"{ndcg(found, rows):.4f} with the stored signs, "
                found, _ = top_k(short_queries, vectors, TOP, originals=floats, **options)
                score = ndcg(found, rows)
                text = f"{dim} {name}, {multiplier}x: {own}{score:.4f} with float32"
                print(text, flush=True)


def our_searches(corpus, originals):
    """Return name -> (function of a query (1, width), bytes in memory). Originals are on disk."""
    int8 = QuantizedVectors.of(corpus, "int8")
    binary = QuantizedVectors.of(corpus, "binary")
    int8_bytes = int8.values.nbytes + int8.lengths.nbytes
    bits = binary.values.nbytes

    def search(vectors, **options):
        return lambda query: top_k(query, vectors, TOP, **options)

    return {
        "keras_bert float32, cosine": (search(corpus), corpus.nbytes),
        "keras_bert float32, dot": (search(corpus, kind="dot"), corpus.nbytes),
        "keras_bert int8": (search(int8), int8_bytes),
        "keras_bert int8, float32 on disk": (search(int8, originals=originals), int8_bytes),
        "keras_bert binary, not rescored": (search(binary, rescore_multiplier=0), bits),
        "keras_bert binary": (search(binary), bits),
        "keras_bert binary, float32 on disk": (search(binary, originals=originals), bits),
    }


def peer_searches(corpus, threads):
    import faiss
    import torch
    from sentence_transformers import util
    from sentence_transformers.util import quantization

    faiss.omp_set_num_threads(threads)
    torch.set_num_threads(threads)
    width = corpus.shape[1]
    tensor = torch.from_numpy(corpus)
    flat = faiss.IndexFlatIP(width)
    flat.add(corpus)
    scalar = faiss.IndexScalarQuantizer(
        width, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
    )
    scalar.train(corpus)
    scalar.add(corpus)
    bits = quantize(corpus, "ubinary")
    binary = faiss.IndexBinaryFlat(width)
    binary.add(bits)
    uint8 = quantize(corpus, "uint8")
    steps = faiss.IndexFlatIP(width)  # what semantic_search_faiss uses for uint8
    steps.add(uint8)

    def semantic_search(query):
        query = torch.from_numpy(query)
        return util.semantic_search(query, tensor, top_k=TOP, score_function=util.dot_score)

    def with_faiss(index, precision, **options):
        return lambda query: quantization.semantic_search_faiss(
            query, corpus_index=index, corpus_precision=precision, top_k=TOP,
            rescore_multiplier=4, **options,
        )  # fmt: skip

    return {
        "sentence-transformers semantic_search": (semantic_search, corpus.nbytes),
        "sentence-transformers semantic_search_faiss, uint8": (
            with_faiss(steps, "uint8", ranges=calibrate(corpus)), 4 * uint8.nbytes,
        ),
        "sentence-transformers semantic_search_faiss, ubinary": (
            with_faiss(binary, "ubinary"), bits.nbytes,
        ),
        "FAISS IndexFlatIP": (lambda query: flat.search(query, TOP), corpus.nbytes),
        "FAISS IndexScalarQuantizer, 8 bits": (
            lambda query: scalar.search(query, TOP), uint8.nbytes,
        ),
        "FAISS IndexBinaryFlat": (
            lambda query: binary.search(quantize(query, "ubinary"), TOP), bits.nbytes,
        ),
    }  # fmt: skip


def measure_time(queries, searches, rounds):
    times = {name: [] for name in searches}
    for search, _ in searches.values():
        search(queries[:1])
    for number in range(rounds):
        for name, (search, _) in searches.items():
            for row in range(10 * number, 10 * number + 10):
                start = time.perf_counter()
                search(queries[row : row + 1])
                times[name].append(1000 * (time.perf_counter() - start))
    medians = {name: statistics.median(values) for name, values in times.items()}
    reference = medians["sentence-transformers semantic_search"]
    print("Milliseconds per query, ratio to semantic_search, MB in memory")
    for name, (_, size) in searches.items():
        ratio = medians[name] / reference
        print(f"{name}: {medians[name]:.2f} ms, {ratio:.2f}, {size / 1e6:.1f} MB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("shared", type=pathlib.Path)
    parser.add_argument("--cache", type=pathlib.Path, default=pathlib.Path("/tmp/small_vectors"))
    parser.add_argument("--distractors", type=int, default=0, help="texts of Wikipedia")
    parser.add_argument("--count", type=int, default=100_000, help="random vectors")
    parser.add_argument(
        "--threads",
        type=int,
        default=os.cpu_count(),
        help="of the peers; 1 is faster on a busy CPU",
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=("quality", "time"))
    args = parser.parse_args()
    args.cache.mkdir(parents=True, exist_ok=True)
    print("processor:", ", ".join(processor.instruction_sets()))
    if args.only != "time":
        questions, texts, rows = read(args.shared, args.distractors)
        queries = embed(args.cache, "queries", questions)
        corpus = embed(args.cache, "corpus", texts)
        print(f"{len(queries):,} questions, {len(corpus):,} texts")
        measure_quality(queries, corpus, rows)
    if args.only != "quality":
        rng = np.random.default_rng(0)
        vectors = unit_length(rng.standard_normal((args.count, DIMS[0]), np.float32))
        path = args.cache / "random.npy"
        np.save(path, vectors)
        searches = our_searches(vectors, np.load(path, mmap_mode="r"))
        searches |= peer_searches(vectors, args.threads)
        noise = rng.standard_normal((10 * args.rounds, DIMS[0]), np.float32) / 40
        measure_time(vectors[: len(noise)] + noise, searches, args.rounds)


if __name__ == "__main__":
    main()
