"""Sparse embeddings: a weight for each token of the vocabulary, for search by terms.

Source: Formal et al. (2021), SPLADE v2.
"""

import dataclasses
import itertools
import typing

import numpy as np

from keras_bert.tasks.embedding import metrics as embedding_metrics
from keras_bert.tasks.embedding.data import EmbeddingExamples
from keras_bert.tasks.embedding.retrieval import RetrievalData
from keras_bert.tasks.embedding.task import (
    Embedding,
    check_sampling,
    check_scorable,
    read_rows,
    relevant_texts,
)
from keras_bert.tasks.inputs import prompt_of
from keras_bert.tasks.reranking.data import RankingExamples
from keras_bert.tasks.sparse_embedding import inverted_index
from keras_bert.tasks.sparse_embedding.pipeline import SparsePipeline
from keras_bert.tasks.task import Options, Task
from keras_bert.tasks.text import READ_OPTIONS

# A pair is always a query with its document, so the files have no labels.
_READ_OPTIONS = tuple(option for option in READ_OPTIONS if option != "label")


@dataclasses.dataclass(frozen=True)
class SparseOptions(Options):
    """Options of training.

    loss: A key of `rows.LOSSES` or a `losses.Splade`. Default: `"margin_mse"` for rows with scores
        of their documents, and else `"multiple_negatives_ranking"`.
    document_regularizer_weight: Factor of the FLOPS regularization of the documents, by default
        3e-5.
    query_regularizer_weight: The same for the queries, by default 5e-5.
    sampling: How the batches of several sets take turns: a value of `SAMPLINGS`.
    """

    loss: typing.Any = None
    document_regularizer_weight: float | None = None
    query_regularizer_weight: float | None = None
    sampling: str = "proportional"


class SparseEmbedding(Embedding):
    """Sparse embeddings: a weight for each token of the vocabulary."""

    name = "sparse_embedding"
    reads: typing.ClassVar = {"sparse_embedding": (*_READ_OPTIONS, "negatives")}
    training_options = SparseOptions
    pipeline = SparsePipeline
    reads_encoders = False
    weights_group = "masked_lm"
    head_fields = ("tied", "prompts", "default_prompt")
    has_teachers = False
    packs = False
    command_hint = "; use encode of keras_bert.pipeline"
    variable_outputs = frozenset(("ids", "weights"))
    meanings: typing.ClassVar = {
        "ids": "the terms in the vocabulary, the largest weight first",
        "weights": "0 after the last term of a text",
    }

    def head_function(self):
        from keras_bert.tasks.sparse_embedding.head import sparse_embedder

        return sparse_embedder

    def options_of_head(self, head):
        return Task.options_of_head(self, head)

    def vector_layers(self, model):
        return {}

    def describe(self, output):
        return "A BERT model that computes a sparse vector for each text, for search by terms."

    def convert(self, examples):
        """Return `RankingExamples` with the scores of a teacher as rows of texts."""
        if not isinstance(examples, RankingExamples):
            return examples
        if examples.scores is None:
            raise ValueError(
                f"{examples.source} has no scores. Make some with a reranker's as_teacher"
            )
        if {0, 1}.issuperset(examples.flat_scores()):
            raise ValueError(
                f"{examples.source} has the scores 0 and 1, which are labels and not the scores of "
                "a teacher. Call a reranker's as_teacher, or give EmbeddingExamples"
            )
        rows: list[tuple[str, ...]] = []
        scores: list[list[float]] = []
        columns = (examples.queries, examples.documents, examples.scores)
        for query, texts, values in zip(*columns, strict=True):
            # The rows must have equal lengths, so each further document makes a row.
            for other in range(1, len(texts)):
                rows.append((query, texts[0], texts[other]))
                scores.append([values[0], values[other]])
        if not rows:
            raise ValueError(f"{examples.source}: each query must have several documents")
        return EmbeddingExamples(rows, source=examples.source, document_scores=scores)

    def read(self, name, data, options):
        if options["text_pair"] is None:
            raise ValueError(f"{name} needs text_pair (--text-pair), the column of the document")
        return read_rows(data, options | {"label": None, "score_range": None})

    def build(self, encoder, train):
        return self.head_function()(encoder)

    def with_pretrained_head(self, model, encoder):
        """Return a sparse embedder with the head of a masked-LM model."""
        from keras_bert.tasks.sparse_embedding.head import of_masked_lm

        return of_masked_lm(model, encoder)

    def encode(self, model, examples, max_length, options):
        """Encode `EmbeddingExamples` or `RetrievalData`."""
        from keras_bert.tasks.sparse_embedding.rows import SparseRows, make_loss

        rows = examples.prompted_rows(prompt_of(model.output))
        if isinstance(examples, RetrievalData):
            return SparseRows(model.tokenizer, rows, max_length)
        check_sampling(examples, options.sampling)
        loss = make_loss(options, examples)
        encoded = SparseRows(model.tokenizer, rows, max_length, examples, loss, options.sampling)
        if encoded.without_tokens == len(rows) * len(rows[0]):
            raise ValueError(f"{examples.source}: no text has tokens")
        return encoded

    def decode(self, model, examples, encoded, outputs, options):
        """Return the vectors of each row, a list of sparse arrays (texts, vocab)."""
        return outputs

    def is_scorable(self, examples):
        return super().is_scorable(examples) and _is_retrieval(examples)

    def metric_names(self, output, examples):
        _check_retrieval(examples)
        return embedding_metrics.RETRIEVAL

    def score(self, output, examples, answers):
        """Return the metrics of the search, and the mean numbers of terms.

        The first text of each row is a query, and the distinct other texts of all rows are the
        corpus.
        """
        _check_retrieval(examples)
        vectors = inverted_index.stack(answers, answers[0].shape[-1])
        if isinstance(examples, RetrievalData):
            count = len(examples.queries)
            row_of_query = dict(zip(examples.queries, range(count), strict=True))
            row_of_document = dict(zip(examples.corpus, range(count, len(answers)), strict=True))
            relevant = examples.relevant
        else:
            row_of_query, row_of_document = _rows_of_texts(examples)
            relevant = relevant_texts(examples)
        queries = vectors[list(row_of_query.values())]
        documents = vectors[list(row_of_document.values())]
        index = documents.tocsc()

        def find(scored):
            scored_vectors = vectors[[row_of_query[key] for key in scored]]
            return inverted_index.top_k(scored_vectors, index, embedding_metrics.DEPTH + 1)

        metrics = embedding_metrics.of_search(row_of_query, row_of_document, relevant, find)
        return metrics | {
            "query_terms": queries.nnz / queries.shape[0],
            "document_terms": documents.nnz / documents.shape[0],
        }

    def served_rows(self, results):
        """Return the terms of each row of a `csr_array`, the largest weight first."""
        rows = []
        for start, end in itertools.pairwise(results.indptr):
            weights = results.data[start:end]
            order = np.lexsort((results.indices[start:end], -weights))
            ids = results.indices[start:end][order]
            rows.append({"ids": ids.tolist(), "weights": weights[order].tolist()})
        return rows

    def signatures(self, predict, output, preprocessor, max_sequence_length):
        from keras_bert.tasks.sparse_embedding import serving

        return serving.sparse_embedder(predict, output, preprocessor, max_sequence_length)

    def other_signatures(self, predict, output, preprocessor, max_sequence_length):
        return {}

    def length_of_rows(self, outputs):
        return int((outputs["weights"] > 0).sum(axis=1).max(initial=0))

    def add_onnx_head(self, graph, model, encoded):
        logits = graph.masked_lm(model, encoded)  # (batch, seq, vocab)
        largest = graph.node("Relu", encoded.pool("max", logits))
        weights = graph.node("Log", graph.node("Add", largest, graph.constant(1.0)))
        graph.node("Identity", weights, output="sentence_embedding")
        return {"sentence_embedding": ("batch_size", encoded.vocab_size)}

    def target(self, explained, target):
        """Explain the weight of a term."""
        raise ValueError(
            "attributions do not apply to sparse vectors. The method explain of the pipeline "
            "lists the terms"
        )


def _is_retrieval(examples):
    """Return True for queries with relevant documents."""
    names = ("scores", "vectors", "classes", "document_scores")
    return isinstance(examples, RetrievalData) or all(
        getattr(examples, name) is None for name in names
    )


def _check_retrieval(examples):
    check_scorable(examples)
    if not _is_retrieval(examples):
        raise ValueError(
            f"{examples.source}: sparse embedders are scored on a search. Give rows of a query and "
            "a document without scores, EmbeddingExamples, or RetrievalData"
        )


def _rows_of_texts(examples):
    """Return {text: row of its vector} of the first texts of all rows, and of the others."""
    vector_indices = np.arange(len(examples.texts) * len(examples.texts[0]))
    queries: dict[str, int] = {}
    documents: dict[str, int] = {}
    for texts, (first, *others) in zip(
        examples.texts, vector_indices.reshape(len(examples.texts), -1).tolist(), strict=True
    ):
        queries[texts[0]] = first
        documents |= zip(texts[1:], others, strict=True)
    return queries, documents
