"""Question: what do SimCSE, a small student, hard negatives and Korean training give?

Scores only, no speeds but that of the student. Peers are the model before, and BM25.

- `simcse`: MiniLM is trained on sentences of Wikipedia without labels (SimCSE, one epoch, batches
  of 64, rate 1e-5). Spearman on the dev data of STS-B.
- `student`: layers 0 and 5 of MiniLM imitate its vectors of sentences of Wikipedia (one epoch,
  batches of 64, rate 1e-4). Spearman on STS-B, MRR@10 on SQuAD, and the time of a short text.
- `tiny`: the same for an encoder of the size of `tiny` (2 layers of width 128) with random weights
  (four epochs, rate 1e-3).
- `negatives`: MiniLM is trained on questions and paragraphs of SQuAD, then with mined hard
  negatives (one epoch each, batches of 32, rate 2e-5). MRR@10 on other articles.
- `korsts`: a small encoder with random weights is trained on KorSTS (10 epochs of `CoSENT`).
  Spearman on its dev data, beside the overlap of syllable pairs.
- `kowiki`: the same encoder learns to find the paragraph that a first sentence belongs to. MRR@10,
  beside BM25 on syllable pairs.

    python benchmarks/embedding_quality.py ../shared
"""

import argparse
import collections
import lzma
import math
import os
import pathlib
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import numpy as np

import keras_bert
from keras_bert import EmbeddingExamples, RetrievalData
from keras_bert.data import tabular
from keras_bert.pretraining import vocabulary
from keras_bert.runtime import processor
from keras_bert.tasks.embedding import metrics as embedding_metrics
from keras_bert.tasks.question_answering import data as squad


def wikipedia(shared, language, count):
    """Return paragraphs of 40 to 600 characters."""
    with lzma.open(shared / f"corpus/{language}_wiki.txt.xz", "rt", encoding="utf-8") as file:
        paragraphs = []
        for line in file:
            if 40 <= len(line.strip()) <= 600:
                paragraphs.append(line.strip())
            if len(paragraphs) == count:
                break
    return paragraphs


def first_sentences(paragraphs):
    return [text.partition(". ")[0] for text in paragraphs]


def scored_pairs(path, text, text_pair, label, header, limit=None):
    read = tabular.read(
        path, format="tsv", text=text, text_pair=text_pair, label=label, header=header,
        kind="score", limit=limit,
    )  # fmt: skip
    return EmbeddingExamples.of_pairs(read)


def stsb(shared):
    return scored_pairs(shared / "data/stsb/dev.tsv", "6", "7", "5", False)


def squad_dev(shared):
    return RetrievalData.of_questions(squad.read(shared / "data/squad11/dev.json"))


def train(model, data, seed, **options):
    options = {"epochs": 1, "batch_size": 64, "show_progress": False, **options}
    return keras_bert.finetune(model, data, seed=seed, **options)[0]


def simcse(shared, seed, limit):
    texts = first_sentences(wikipedia(shared, "en", limit))
    bert, dev = keras_bert.load("minilm"), stsb(shared)
    yield "before", keras_bert.pipeline(bert).evaluate(dev)["spearman"]
    data = EmbeddingExamples.of_texts(texts)
    model = train(bert, data, seed, learning_rate=1e-5, max_length=64)
    yield f"after {len(texts)} sentences", keras_bert.pipeline(model).evaluate(dev)["spearman"]


def student(shared, seed, limit):
    teacher = keras_bert.pipeline("minilm")
    bert = keras_bert.load("minilm")
    texts = first_sentences(wikipedia(shared, "en", limit))
    small = keras_bert.heads.embedder(bert.keep_layers([0, 5]))
    yield from _scores("teacher", teacher, shared)
    yield from _scores("layers 0 and 5", keras_bert.pipeline(small), shared)
    data = teacher.as_teacher(texts)
    trained = train(small, data, seed, learning_rate=1e-4, max_length=256)
    yield from _scores("student", keras_bert.pipeline(trained), shared)


def tiny(shared, seed, limit):
    teacher, minilm = keras_bert.pipeline("minilm"), keras_bert.load("minilm")
    small = keras_bert.BertEncoder(
        vocab_size=minilm.bert_config["vocab_size"], hidden_size=128, num_hidden_layers=2,
        num_attention_heads=2, intermediate_size=512, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, preprocessor=minilm.preprocessor, pooling="mean",
    )  # fmt: skip
    model = keras_bert.heads.embedder(small, layers=[keras.layers.Dense(384)])
    data = teacher.as_teacher(first_sentences(wikipedia(shared, "en", limit)))
    trained = train(model, data, seed, epochs=4, learning_rate=1e-3, max_length=256)
    yield from _scores("teacher", teacher, shared)
    yield from _scores("student", keras_bert.pipeline(trained), shared)


def _scores(name, pipeline, shared):
    text = (
        "how do i find the right paragraph for a question that has about twenty words in it today"
    )
    pipeline(text)
    times = []
    for _ in range(50):
        start = time.perf_counter()
        pipeline(text)
        times.append(time.perf_counter() - start)
    yield f"{name}, STS-B", pipeline.evaluate(stsb(shared))["spearman"]
    yield f"{name}, SQuAD", pipeline.evaluate(squad_dev(shared))["mrr@10"]
    yield f"{name}, ms for a text", statistics.median(times) * 1000


def negatives(shared, seed, limit):
    bert, dev = keras_bert.load("minilm"), squad_dev(shared)
    yield "before", keras_bert.pipeline(bert).evaluate(dev)["mrr@10"]
    questions = squad.read(shared / "data/squad11/train.json", limit=limit)
    pairs = EmbeddingExamples(list(zip(questions.questions, questions.contexts, strict=True)))
    options = {"batch_size": 32, "learning_rate": 2e-5, "max_length": 256}
    model = train(bert, pairs, seed, **options)
    yield f"{len(pairs)} pairs", keras_bert.pipeline(model).evaluate(dev)["mrr@10"]
    mined = keras_bert.pipeline(model).mine_negatives(pairs, margin=0.0)
    model = train(bert, mined, seed, **options)
    name = f"{len(mined)} rows with a hard negative"
    yield name, keras_bert.pipeline(model).evaluate(dev)["mrr@10"]


def korean_encoder(texts):
    """Return a small encoder with random weights and a vocabulary of the texts."""
    found = vocabulary.train(texts, 4000, lowercase=False, strip_accents=False)
    preprocessor = keras_bert.Preprocessor(found, lowercase=False, strip_accents=False)
    return keras_bert.BertEncoder(
        vocab_size=len(found), hidden_size=256, num_hidden_layers=4, num_attention_heads=4,
        intermediate_size=1024, preprocessor=preprocessor, pooling="mean",
    )  # fmt: skip


def syllable_pairs(text):
    return [text[index : index + 2] for index in range(len(text) - 1)]


def korsts(shared, seed, limit):
    columns = ("sentence1", "sentence2", "score", True)
    folder = shared / "data/korsts"
    data = scored_pairs(folder / "sts-train.tsv", *columns, limit)
    dev = scored_pairs(folder / "sts-dev.tsv", *columns)
    overlap = []
    for row in dev.texts:
        one, two = (set(syllable_pairs(text)) for text in row)
        overlap.append(
            [[1.0, 0.0], [score := len(one & two) / len(one | two), math.sqrt(1 - score**2)]]
        )
    yield (
        "overlap of syllable pairs",
        embedding_metrics.of_scores(np.array(overlap), dev.scores)["spearman"],
    )
    bert = korean_encoder([text for row in data.texts for text in row])
    yield "random weights", keras_bert.pipeline(bert).evaluate(dev)["spearman"]
    model = train(bert, data, seed, epochs=10, batch_size=32, learning_rate=3e-4)
    yield f"trained on {len(data)} pairs", keras_bert.pipeline(model).evaluate(dev)["spearman"]


def bm25(queries, documents, k1=1.5, b=0.75):
    """Return the 100 best documents of each query; Robertson and Zaragoza (2009)."""
    counts = [collections.Counter(syllable_pairs(text)) for text in documents]
    sizes = np.array([count.total() for count in counts])
    index = collections.defaultdict(list)
    for number, count in enumerate(counts):
        for term, times in count.items():
            index[term].append((number, times))
    norm = k1 * (1 - b + b * sizes / sizes.mean())
    for query in queries:
        scores = np.zeros(len(documents))
        for term in set(syllable_pairs(query)) & index.keys():
            numbers, times = (np.array(column) for column in zip(*index[term], strict=True))
            weight = math.log(1 + (len(documents) - len(numbers) + 0.5) / (len(numbers) + 0.5))
            scores[numbers] += weight * times * (k1 + 1) / (times + norm[numbers])
        yield np.argsort(-scores)[: embedding_metrics.DEPTH]


def kowiki(shared, seed, limit):
    rows = []
    for text in wikipedia(shared, "ko", 3 * limit):
        first, dot, rest = text.partition(". ")
        if dot and len(rest) > 40:
            rows.append((first, rest))
    rows, dev = rows[:-1000], EmbeddingExamples(rows[-1000:])
    relevant = [{number: 1.0} for number in range(len(dev))]
    ranked = list(bm25([row[0] for row in dev.texts], dev.positives))
    yield "BM25 on syllable pairs", embedding_metrics.of_ranking(ranked, relevant)["mrr@10"]
    bert = korean_encoder([text for row in rows for text in row])
    yield "random weights", keras_bert.pipeline(bert).evaluate(dev)["mrr@10"]
    data = EmbeddingExamples(rows[:limit])
    model = train(bert, data, seed, epochs=3, learning_rate=3e-4)
    yield f"trained on {len(data)} pairs", keras_bert.pipeline(model).evaluate(dev)["mrr@10"]


TASKS = {
    "simcse": (simcse, 100_000), "student": (student, 100_000), "tiny": (tiny, 30_000),
    "negatives": (negatives, None),
    "korsts": (korsts, None), "kowiki": (kowiki, 20_000),
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shared", type=pathlib.Path, help="folder with data/ and corpus/")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--limit", type=int, help="rows of training data")
    args = parser.parse_args()
    print(f"instruction sets: {' '.join(processor.instruction_sets())}")
    for task in args.tasks.split(","):
        run, limit = TASKS[task]
        for seed in range(args.first_seed, args.first_seed + args.seeds):
            for name, value in run(args.shared, seed, args.limit or limit):
                print(f"{task}, seed {seed}, {name}: {value:.4f}", flush=True)


if __name__ == "__main__":
    main()
