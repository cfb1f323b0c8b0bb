"""Question: what does a reranker add to a first search, and how fast is its training?

MiniLM finds 50 paragraphs for each question of SQuAD. A reranker that starts from MiniLM's weights
is trained on questions of other articles, each with its paragraph and hard negatives that MiniLM
mined, by ListNet for one epoch. sentence-transformers trains its `CrossEncoder` on the same rows
with the same recipe and weights; only the new head differs. A process per library and seed, in
turns. Figures are means and standard deviations over the seeds.

    .venv-peers/bin/python benchmarks/reranking.py ../shared

`--korean` trains small encoders with random weights on Korean Wikipedia: an embedder as in
`embedding_quality.py`, and a reranker of what BM25 finds.

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

LENGTH = 256  # tokens of the longest pair
BATCH = 8  # questions; of pairs in prediction, 32
RATE = 1e-4
CANDIDATES = 50
TIMED = 5  # queries whose latency is measured


def make_data(shared, folder, questions, queries, negatives):
    """Write the model, rows to train on, and what MiniLM finds for the dev questions."""
    import keras_bert
    from keras_bert import EmbeddingExamples, RankingExamples, RetrievalData

    bert = keras_bert.load("minilm")
    keras_bert.save(bert, folder / "minilm", format="huggingface")
    embed = keras_bert.pipeline(bert)
    squad = keras_bert.read(shared / "data/squad11/train.json", "question_answering")
    pairs = list(dict.fromkeys(zip(squad.questions, squad.contexts, strict=True)))
    mined = embed.mine_negatives(EmbeddingExamples(pairs), negatives, margin=0.0).texts
    rows = mined[:: max(len(mined) // questions, 1)][:questions]  # from all articles
    dev = RetrievalData.of_questions(
        keras_bert.read(shared / "data/squad11/dev.json", "question_answering")
    )
    chosen = list(dev.queries)[:: max(len(dev.queries) // queries, 1)][:queries]
    dev = RetrievalData({id: dev.queries[id] for id in chosen}, dev.corpus,
                        {id: dev.relevant[id] for id in chosen})  # fmt: skip
    found = RankingExamples.of_retrieval(dev, embed, CANDIDATES)
    data = {"train": rows, "queries": found.queries, "documents": found.documents,
            "scores": found.scores, "missed": found.missed}  # fmt: skip
    (folder / "data.json").write_text(json.dumps(data), encoding="utf-8")


def of_ours(folder, data, seed):
    """Train and score with keras_bert; return the metrics and seconds."""
    import keras_bert
    from keras_bert import EmbeddingExamples, RankingExamples

    train = RankingExamples.of_rows(EmbeddingExamples(data["train"]))
    bert = keras_bert.load(folder / "minilm")
    options = {
        "loss": "listnet",
        "epochs": 1,
        "batch_size": BATCH,
        "learning_rate": RATE,
        "max_length": LENGTH,
    }
    start = time.perf_counter()
    model, _ = keras_bert.finetune(bert, train, seed=seed, show_progress=False, **options)
    train_seconds = time.perf_counter() - start
    pipe = keras_bert.pipeline(model)
    pipe.rank(data["queries"][0], data["documents"][0])
    seconds = []
    for query, documents in list(zip(data["queries"], data["documents"], strict=True))[
        1 : TIMED + 1
    ]:
        start = time.perf_counter()
        pipe.rank(query, documents)
        seconds.append(time.perf_counter() - start)
    dev = RankingExamples(data["queries"], data["documents"], data["scores"], missed=data["missed"])
    scores = pipe.evaluate(dev)
    return {
        "mrr": scores["mrr@10"], "first": scores["first_search_mrr@10"],
        "ndcg": scores["ndcg@10"], "train": train_seconds,
        "rank": statistics.median(seconds),
    }  # fmt: skip


def of_peer(folder, data, seed):
    """The same with sentence-transformers."""
    import numpy as np
    from datasets import Dataset
    from sentence_transformers.cross_encoder import (
        CrossEncoder,
        CrossEncoderTrainer,
        CrossEncoderTrainingArguments,
        losses,
    )

    from keras_bert import RankingExamples
    from keras_bert.tasks.reranking.task import Reranking

    model = CrossEncoder(str(folder / "minilm"), num_labels=1, max_length=LENGTH, device="cpu")
    columns = {
        "query": [query for query, *_ in data["train"]],
        "docs": [documents for _, *documents in data["train"]],
        "labels": [[1.0] + [0.0] * (len(row) - 2) for row in data["train"]],
    }
    arguments = CrossEncoderTrainingArguments(
        output_dir=str(folder / "peer"), num_train_epochs=1, per_device_train_batch_size=BATCH,
        learning_rate=RATE, warmup_ratio=0.1, weight_decay=0.01, seed=seed, save_strategy="no",
        report_to="none", disable_tqdm=True, use_cpu=True,
    )  # fmt: skip
    trainer = CrossEncoderTrainer(
        model=model, args=arguments, loss=losses.ListNetLoss(model),
        train_dataset=Dataset.from_dict(columns),
    )  # fmt: skip
    start = time.perf_counter()
    trainer.train()
    train = time.perf_counter() - start
    answers = []
    seconds = []
    for query, documents in zip(data["queries"], data["documents"], strict=True):
        start = time.perf_counter()
        scores = model.predict([(query, document) for document in documents], batch_size=32,
                               show_progress_bar=False)  # fmt: skip
        seconds.append(time.perf_counter() - start)
        answers.append(np.asarray(scores))
    dev = RankingExamples(data["queries"], data["documents"], data["scores"], missed=data["missed"])
    scores = Reranking().metrics(None, dev, answers)
    return {
        "mrr": scores["mrr@10"], "first": scores["first_search_mrr@10"],
        "ndcg": scores["ndcg@10"], "train": train,
        "rank": statistics.median(seconds[1 : TIMED + 1]),
    }  # fmt: skip


def in_process(library, folder, seed):
    """Return the result of a worker in a new process."""
    command = [sys.executable, __file__, str(folder), "--worker", library, "--seeds", str(seed)]
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def print_results(library, rows):
    def mean(name):
        values = [row[name] for row in rows]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        return f"{statistics.mean(values):.3f} ± {spread:.3f}"

    print(
        f"{library}: MRR@10 {mean('first')} before, {mean('mrr')} after, nDCG@10 {mean('ndcg')}, "
        f"training {mean('train')} s, {CANDIDATES} documents {mean('rank')} s",
        flush=True,
    )


def korean(shared, limit, queries):
    """Print MRR@10 of BM25, and of BM25 with a reranker, on Korean Wikipedia."""
    import embedding_quality

    import keras_bert
    from keras_bert import EmbeddingExamples, RankingExamples, RetrievalData

    rows = []
    for text in embedding_quality.wikipedia(shared, "ko", 3 * limit):
        first, dot, rest = text.partition(". ")
        if dot and len(rest) > 40:
            rows.append((first, rest))
    dev = rows[-1000:]
    rows = rows[:-1000][:limit]

    def retrieval(pairs, count):
        corpus = {str(index): text for index, (_, text) in enumerate(pairs)}
        queries = {str(index): text for index, (text, _) in enumerate(pairs[:count])}
        return RetrievalData(queries, corpus, {id: {id} for id in queries})

    train = RankingExamples.of_retrieval(retrieval(rows, len(rows)), "bm25", 8, add_relevant=True)
    dev = RankingExamples.of_retrieval(retrieval(dev, queries), "bm25", CANDIDATES)
    bert = embedding_quality.korean_encoder([text for row in rows for text in row])
    print(f"{len(train)} queries to train on", flush=True)
    embedder, _ = keras_bert.finetune(
        bert, EmbeddingExamples(rows), epochs=3, learning_rate=3e-4, batch_size=64,
        show_progress=False,
    )  # fmt: skip
    bert = keras_bert.heads.find_encoder(embedder)
    model, _ = keras_bert.finetune(
        bert, train, loss="listnet", epochs=2, learning_rate=1e-4, batch_size=8, max_length=256,
        show_progress=False,
    )  # fmt: skip
    metrics = keras_bert.pipeline(model).evaluate(dev)
    print(f"BM25 {metrics['first_search_mrr@10']:.3f}, reranked {metrics['mrr@10']:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shared", type=pathlib.Path, help="folder with data/ and corpus/")
    parser.add_argument("--train", type=int, default=2000, help="questions to train on")
    parser.add_argument("--negatives", type=int, default=4, help="hard negatives per question")
    parser.add_argument("--queries", type=int, default=500, help="dev questions")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--korean", action="store_true")
    parser.add_argument("--worker", choices=("ours", "peer"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        data = json.loads((args.shared / "data.json").read_text(encoding="utf-8"))
        run = of_ours if args.worker == "ours" else of_peer
        print(json.dumps(run(args.shared, data, args.seeds)))
        return
    from keras_bert.runtime import processor

    print(f"instruction sets: {' '.join(processor.instruction_sets())}")
    if args.korean:
        korean(args.shared, args.train, args.queries)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        make_data(args.shared, folder, args.train, args.queries, args.negatives)
        results = {"ours": [], "peer": []}
        for seed in range(args.seeds):
            for library in sorted(results, reverse=bool(seed % 2)):
                result = in_process(library, folder, seed)
                results[library].append(result)
                print(f"{library}, seed {seed}: {json.dumps(result)}", flush=True)
        for library, rows in results.items():
            print_results(library, rows)
        seconds = {library: [row["train"] for row in rows] for library, rows in results.items()}
        ratio = statistics.mean(seconds["peer"]) / statistics.mean(seconds["ours"])
        print(f"training: {ratio:.2f}x the speed of sentence-transformers")


if __name__ == "__main__":
    main()
