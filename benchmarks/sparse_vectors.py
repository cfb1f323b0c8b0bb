"""Question: how good is search by sparse vectors, and how fast are training and search?

A sparse embedder starts from MiniLM with a new masked-LM head, or from the masked-LM checkpoint
`--model`. It is trained for one epoch on questions of SQuAD and their paragraphs, with in-batch
negatives and FLOPS regularization. sentence-transformers trains a `SparseEncoder` on the same rows
with the same recipe and weights. A process per library and seed, in turns. Figures are means and
standard deviations over the seeds.

The questions of other articles search among all their paragraphs, MRR@10: sparse vectors, MiniLM's
vectors, BM25, and sums of two of them. Each one's scores of a query are scaled to 0 to 1.

    .venv-peers/bin/python benchmarks/sparse_vectors.py ../shared

`--korean` uses first sentences and paragraphs of Korean Wikipedia. Without `--model`, the encoder
is a small one with random weights, as in `embedding_quality.py`. The dense one is trained, too.
`--train 16 --queries 20 --paragraphs 50 --length 32 --batch 8 --seeds 1` shows that the script
works.

Needs torch, sentence-transformers and bm25s.
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

RATE = 2e-5
WEIGHTS = {"document_regularizer_weight": 3e-3, "query_regularizer_weight": 5e-3}
TIMED = 100  # queries whose latency is measured


def squad_pairs(shared, limit):
    """Return rows to train on, and rows to search."""
    import keras_bert

    parts = []
    for name in ("train", "dev"):
        path = shared / f"data/squad11/{name}.json"
        squad = keras_bert.read(path, "question_answering")
        parts.append(list(dict.fromkeys(zip(squad.questions, squad.contexts, strict=True))))
    return parts[0][:limit], parts[1]


def korean_pairs(shared, limit):
    import embedding_quality

    rows = []
    for text in embedding_quality.wikipedia(shared, "ko", 3 * limit + 3000):
        first, dot, rest = text.partition(". ")
        if dot and len(rest) > 40:
            rows.append((first, rest))
    return rows[:-1000][:limit], rows[-1000:]


def make_data(args, folder):
    """Write the model and the rows; return the dense pipeline."""
    import embedding_quality

    import keras_bert
    from keras_bert import heads

    read = korean_pairs if args.korean else squad_pairs
    train, dev = read(args.shared, args.train)
    # The paragraphs of the first rows, and some of their queries.
    corpus = list(dict.fromkeys(text for _, text in dev))[: args.paragraphs]
    dev = [row for row in dev if row[1] in set(corpus)]
    dev = dev[:: max(len(dev) // args.queries, 1)][: args.queries]
    if args.model is not None:
        model = keras_bert.load(args.model, task="masked_tokens")
    elif args.korean:
        texts = [text for row in train for text in row]
        model = heads.masked_lm(embedding_quality.korean_encoder(texts))
    else:
        model = heads.masked_lm(keras_bert.load("minilm"))
    keras_bert.save(model, folder / "model", format="huggingface")
    data = {"train": train, "dev": dev, "corpus": corpus}
    (folder / "data.json").write_text(json.dumps(data), encoding="utf-8")
    dense = keras_bert.load("minilm")
    if args.korean:
        dense, _ = keras_bert.finetune(
            heads.find_encoder(model), keras_bert.EmbeddingExamples(train), epochs=3,
            learning_rate=3e-4, batch_size=64, show_progress=False,
        )  # fmt: skip
    return keras_bert.pipeline(dense, task="embedding"), data


def of_ours(folder, data, args):
    """Train and encode with keras_bert; return sparse vectors and seconds."""
    import keras_bert
    from keras_bert import EmbeddingExamples

    model, metrics = keras_bert.finetune(
        keras_bert.load(folder / "model", task="masked_tokens"), EmbeddingExamples(data["train"]),
        task="sparse_embedding", epochs=1, batch_size=args.batch, learning_rate=args.rate,
        max_length=args.length, seed=args.seeds, show_progress=False, **WEIGHTS,
    )  # fmt: skip
    encode = keras_bert.pipeline(model).encode
    return metrics["train_seconds"], encode


def of_peer(folder, data, args):
    """The same with sentence-transformers."""
    from datasets import Dataset
    from scipy import sparse
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder import (
        SparseEncoderTrainer,
        SparseEncoderTrainingArguments,
        losses,
    )

    model = SparseEncoder(str(folder / "model"), device="cpu")
    model.max_seq_length = args.length
    columns = zip(("query", "document"), zip(*data["train"], strict=True), strict=True)
    loss = losses.SpladeLoss(model, losses.SparseMultipleNegativesRankingLoss(model), **WEIGHTS)
    arguments = SparseEncoderTrainingArguments(
        output_dir=str(folder / "peer"), num_train_epochs=1, per_device_train_batch_size=args.batch,
        learning_rate=args.rate, warmup_ratio=0.1, weight_decay=0.01, seed=args.seeds,
        save_strategy="no", report_to="none", disable_tqdm=True, use_cpu=True,
        batch_sampler="no_duplicates",
    )  # fmt: skip
    trainer = SparseEncoderTrainer(
        model=model, args=arguments, loss=loss,
        train_dataset=Dataset.from_dict({name: list(column) for name, column in columns}),
    )  # fmt: skip
    start = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - start

    def encode(texts):
        vectors = model.encode(texts, show_progress_bar=False, save_to_cpu=True)
        return sparse.csr_array(vectors.to_dense().numpy())

    return seconds, encode


def run_worker(library, folder, args):
    """Train, encode the corpus, search, and write the scores of the queries."""
    import numpy as np

    from keras_bert.tasks.sparse_embedding import inverted_index

    data = json.loads((folder / "data.json").read_text(encoding="utf-8"))
    train = of_ours if library == "ours" else of_peer
    train_seconds, encode = train(folder, data, args)
    encode(data["corpus"][:32])
    start = time.perf_counter()
    corpus = encode(data["corpus"])
    encode_seconds = time.perf_counter() - start
    queries = encode([query for query, _ in data["dev"]])
    index = corpus.tocsc()
    start = time.perf_counter()
    for row in range(min(TIMED, queries.shape[0])):
        inverted_index.top_k(queries[[row]], index)
    search_seconds = (time.perf_counter() - start) / min(TIMED, queries.shape[0])
    scores = (queries @ corpus.T).toarray()
    np.save(folder / f"{library}-{args.seeds}.npy", scores)
    return {
        "train": train_seconds,
        "texts per second": len(data["corpus"]) / encode_seconds,
        "search ms": 1000 * search_seconds,
        "query terms": queries.nnz / queries.shape[0],
        "document terms": corpus.nnz / corpus.shape[0],
    }


def in_process(library, folder, seed, args):
    """Return the result of a worker in a new process."""
    command = [sys.executable, __file__, str(folder), "--worker", library, "--seeds", str(seed)]
    for name in ("rate", "length", "batch"):
        command += [f"--{name}", str(getattr(args, name))]
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def bm25_scores(data, korean):
    """Return the scores of BM25, floats (queries, paragraphs)."""
    import bm25s
    import embedding_quality
    import numpy as np

    def tokens(texts):
        if korean:
            return [embedding_quality.syllable_pairs(text) for text in texts]
        return bm25s.tokenize(texts, stopwords="en", return_ids=False, show_progress=False)

    index = bm25s.BM25()
    index.index(tokens(data["corpus"]), show_progress=False)
    queries = tokens([query for query, _ in data["dev"]])
    return np.array([index.get_scores(query) for query in queries])


def mrr_of(scores, data):
    import numpy as np

    from keras_bert.tasks.embedding import metrics

    place = {text: index for index, text in enumerate(data["corpus"])}
    relevant = [{place[text]: 1.0} for _, text in data["dev"]]
    ranking = np.argsort(-scores, axis=1, kind="stable")[:, : metrics.DEPTH]
    return metrics.of_ranking(ranking, relevant)["mrr@10"]


def scaled(scores):
    """Return the scores of each query, scaled to 0 to 1."""
    low = scores.min(axis=1, keepdims=True)
    high = scores.max(axis=1, keepdims=True)
    return (scores - low) / (high - low + 1e-9)


def mean_of(values):
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.3f} ± {spread:.3f}"


def print_figures(folder, data, dense, bm25, results):
    import numpy as np

    print(f"dense: MRR@10 {mrr_of(dense, data):.3f}")
    print(f"BM25: MRR@10 {mrr_of(bm25, data):.3f}")
    print(f"dense + BM25: MRR@10 {mrr_of(scaled(dense) + scaled(bm25), data):.3f}")
    for library, rows in results.items():
        scores = [np.load(folder / f"{library}-{seed}.npy") for seed in range(len(rows))]
        figures = {name: mean_of([row[name] for row in rows]) for name in rows[0]}
        sums = {
            "sparse": scores,
            "sparse + dense": [scaled(one) + scaled(dense) for one in scores],
            "sparse + BM25": [scaled(one) + scaled(bm25) for one in scores],
        }
        for name, values in sums.items():
            print(f"{library}, {name}: MRR@10 {mean_of([mrr_of(one, data) for one in values])}")
        print(f"{library}: {', '.join(f'{name} {figures[name]}' for name in figures)}", flush=True)
    seconds = {library: [row["train"] for row in rows] for library, rows in results.items()}
    ratio = statistics.mean(seconds["peer"]) / statistics.mean(seconds["ours"])
    print(f"training: {ratio:.2f}x the speed of sentence-transformers")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shared", type=pathlib.Path, help="folder with data/ and corpus/")
    parser.add_argument("--model", help="masked-LM checkpoint to start from")
    parser.add_argument("--train", type=int, default=20_000, help="rows to train on")
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--paragraphs", type=int, help="paragraphs to search (default: all)")
    parser.add_argument("--rate", type=float, help="peak learning rate")
    parser.add_argument("--length", type=int, default=256, help="tokens of the longest text")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--korean", action="store_true")
    parser.add_argument("--worker", choices=("ours", "peer"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(run_worker(args.worker, args.shared, args)))
        return
    args.rate = args.rate or (3e-4 if args.korean else RATE)
    from keras_bert.runtime import processor

    print(f"instruction sets: {' '.join(processor.instruction_sets())}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        embed, data = make_data(args, folder)
        print(f"{len(data['train'])} rows to train on, {len(data['dev'])} queries, "
              f"{len(data['corpus'])} paragraphs", flush=True)  # fmt: skip
        queries = embed.encode([query for query, _ in data["dev"]])
        dense = embed.similarity(queries, embed.encode(data["corpus"]))
        bm25 = bm25_scores(data, args.korean)
        results = {"ours": [], "peer": []}
        for seed in range(args.seeds):
            for library in sorted(results, reverse=bool(seed % 2)):
                result = in_process(library, folder, seed, args)
                results[library].append(result)
                print(f"{library}, seed {seed}: {json.dumps(result)}", flush=True)
        print_figures(folder, data, dense, bm25, results)


if __name__ == "__main__":
    main()
