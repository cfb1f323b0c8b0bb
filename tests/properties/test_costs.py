"""Ten times the work costs about ten times the time and memory."""

import pathlib
import tempfile
import time
import tracemalloc
import types

import numpy as np
import pytest

import keras_bert
from keras_bert.checkpoints.added_tokens import AddedToken
from keras_bert.data import packing
from keras_bert.tasks import head_start
from keras_bert.tasks.embedding import metrics as embedding_metrics
from keras_bert.tasks.embedding import nearest
from keras_bert.tasks.embedding.pipeline import EmbeddingPipeline
from keras_bert.tasks.embedding.retrieval import RetrievalData
from keras_bert.tasks.embedding.task import relevant_texts
from keras_bert.text.encoded_texts import EncodedTexts
from keras_bert.text.python_tokenizer import PythonTokenizer
from tests import tiny

MOST = 13  # times the cost of a tenth of the work
REPEATS = 3
FOLDER = tempfile.TemporaryDirectory(prefix="keras_bert-costs-")
TOKENIZER = PythonTokenizer(tiny.PIECES)


def tokenize(text):
    """Tokenize with empty caches."""
    return PythonTokenizer(tiny.PIECES).tokenize_with_offsets(text)


def with_added_tokens(count=1, **options):
    names = [f"<x{index}>" for index in range(count)]
    tokens = [AddedToken(name, normalized=False, **options) for name in names]
    return PythonTokenizer([*tiny.PIECES, *names], added_tokens=tokens)


STRIPPED = with_added_tokens(lstrip=True, rstrip=True)


def table(rows):
    texts = [text for _, text in tiny.ROWS] * (rows // len(tiny.ROWS))
    labels = [label for label, _ in tiny.ROWS] * (rows // len(tiny.ROWS))
    return {"text": texts, "label": labels}


def retrieval(documents):
    corpus = {str(index): f"good film {index}" for index in range(documents)}
    queries = {str(index): f"so good {index}" for index in range(documents)}
    return queries, corpus, {name: {name} for name in queries}


def class_of_documents(documents):
    """Return a corpus of one class, whose documents are relevant to each other."""
    corpus = {str(index): f"good film {index}" for index in range(documents)}
    return corpus, corpus, dict.fromkeys(corpus, set(corpus))


def score_retrieval(arguments):
    data = RetrievalData(*arguments)
    best = [list(data.corpus)[:5]] * len(data.queries)
    embedding_metrics.of_ranking(best, list(data.relevant.values()))


def class_of_texts(count):
    texts = [f"good film {index}" for index in range(count)]
    pairs = zip(texts, texts[1:] + texts[:1], strict=True)
    return keras_bert.EmbeddingExamples(list(pairs), classes=["film"] * count)


def score_texts(examples):
    relevant = relevant_texts(examples)
    embedding_metrics.of_ranking([["good film 0"]] * len(relevant), list(relevant.values()))


def answers_of_a_query(count):
    pairs = [(query, f"{query} {index}") for query in ("good", "bad") for index in range(count)]
    return keras_bert.EmbeddingExamples(pairs)


def mine(examples):
    def encode(texts, **options):
        return np.random.default_rng(0).normal(size=(len(texts), 16)).astype(np.float32)

    EmbeddingPipeline.mine_negatives(types.SimpleNamespace(encode=encode), examples, margin=0)


def labeled_vectors(labels):
    rows = np.random.default_rng(0).normal(size=(20_000, 16))
    output = types.SimpleNamespace(labels=range(labels))
    return output, rows, np.arange(20_000) % labels, np.ones(20_000)


def columns(count):
    """Return a row with many columns, as a file of CSV."""
    names = [f"column {index}" for index in range(count)]
    return write(
        f"{count}.csv", ",".join(["text", "label", *names]) + "\na,b" + ",c" * count + "\n"
    )


def lines(rows):
    return write(f"{rows}.jsonl", '{"text": "so good", "label": "good"}\n' * rows)


def write(name, content):
    path = pathlib.Path(FOLDER.name, name)
    path.write_text(content)
    return path


# Of each kind of work: its size, a function that prepares it, and the function that is measured.
WORK = {
    "tokens of texts": (
        100, lambda n: [f"good film {index} 한국어" for index in range(10 * n)],
        PythonTokenizer(tiny.PIECES).tokenize,
    ),
    "characters of a word": (20_000, lambda n: "b" * n, tokenize),
    "characters of a Chinese word": (
        500, lambda n: "中文" * n, tokenize
    ),
    "accents of a character": (2_000, lambda n: "e" + "\u0301" * n, tokenize),
    "capital sigmas": (500, lambda n: "Σ " * n, tokenize),
    "added tokens in a text": (
        6_000, lambda n: "<x0> " * n, STRIPPED.tokenize_with_offsets
    ),
    "spaces around an added token": (
        20_000, lambda n: " " * n + "<x0>" + " " * n, STRIPPED.tokenize_with_offsets
    ),
    "spaces after added tokens": (
        600, lambda n: ("<x0>" + " " * 20) * n,
        with_added_tokens(rstrip=True).tokenize_with_offsets,
    ),
    "rows of encoded texts": (
        500, lambda n: ["good film 한국어"] * n, lambda texts: EncodedTexts(TOKENIZER, [texts], 16)
    ),
    "rows of a table": (640, table, lambda table: keras_bert.read(table)),
    "labels": (
        300,
        lambda n: {"text": ["good"] * n, "label": [f"label {index}" for index in range(n)]},
        lambda table: keras_bert.read(table),
    ),
    "labels of a head": (
        600, labeled_vectors, lambda arguments: head_start.fit_labels(*arguments)
    ),
    "columns of a file": (5_000, columns, lambda path: keras_bert.read(path)),
    "rows of a file": (500, lines, lambda path: keras_bert.read(path)),
    "documents": (300, retrieval, lambda data: RetrievalData(*data)),
    "documents of a class": (200, class_of_documents, score_retrieval),
    "texts of a class": (200, class_of_texts, score_texts),
    "answers of a query to mine": (200, answers_of_a_query, mine),
    "vectors to search": (
        20_000,
        lambda n: np.random.default_rng(0).normal(size=(n, 16)).astype(np.float32),
        lambda vectors: nearest.top_k(vectors[:8], vectors, 5),
    ),
    "sequences to pack": (
        2_000,
        lambda n: np.random.default_rng(0).integers(3, 60, n),
        lambda lengths: packing.packed_shape(
            lengths, [packing.plan_batches(lengths, 32, 0)], 64
        ),
    ),
}  # fmt: skip


def seconds(function, work):
    """Return the least time of several calls; other programs on the machine only add to it."""
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        function(work)
        times.append(time.process_time() - start)
    return min(times)


def memory(function, work):
    """Return the most bytes that a call uses at a time."""
    tracemalloc.start()
    try:
        function(work)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", WORK)
def test_ten_times_the_work_costs_at_most_about_twelve_times_as_much(name):
    size, prepare, function = WORK[name]
    function(prepare(10))  # tables that are made once
    small = prepare(size)
    large = prepare(10 * size)
    noise = 0.003  # seconds
    assert seconds(function, large) <= MOST * (seconds(function, small) + noise)
    assert memory(function, large) <= MOST * (memory(function, small) + 100_000)


def test_added_tokens_cost_as_they_are_many():
    text = "good <x7> film " * 300
    small, large = (
        seconds(lambda tokenizer: tokenizer.tokenize_with_offsets(text), with_added_tokens(count))
        for count in (30, 300)
    )
    assert large <= MOST * small


@pytest.mark.parametrize("offsets", [False, True])
def test_caches_of_a_tokenizer_have_a_limit_in_bytes(offsets, monkeypatch):
    """Long words fill a cache as fast as many short ones do."""
    monkeypatch.setattr("keras_bert.text.python_tokenizer._MAX_CACHED", 2**18)
    tokenizer = PythonTokenizer(tiny.PIECES)
    read = tokenizer.tokenize_with_offsets if offsets else lambda text: tokenizer.tokenize([text])
    words = [("b" if offsets else "中") * 150 + str(number) for number in range(1_000)]
    short = [f"{number}good" for number in range(2_000)]

    def run(texts):
        for text in texts:
            read(text)

    tracemalloc.start()
    try:
        for texts in (words, short, words):
            run(texts)
            assert tracemalloc.get_traced_memory()[0] < 4 * 2**18
    finally:
        tracemalloc.stop()
