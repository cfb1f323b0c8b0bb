"""Reranking: scores of documents for a query, by a model that reads both texts at once.

Source: Nogueira and Cho (2019), Passage re-ranking with BERT.
"""

import dataclasses
import typing

import numpy as np

from keras_bert.data.examples import Examples
from keras_bert.runtime.arguments import LONG_TEXTS, check_one_of
from keras_bert.tasks.classification.task import Regression, metrics_of_numbers
from keras_bert.tasks.embedding import metrics as embedding_metrics
from keras_bert.tasks.embedding.data import EmbeddingExamples
from keras_bert.tasks.embedding.retrieval import RetrievalData
from keras_bert.tasks.embedding.task import read_rows
from keras_bert.tasks.reranking.data import RankingExamples
from keras_bert.tasks.reranking.pairs import EncodedPairs
from keras_bert.tasks.reranking.pipeline import RerankingPipeline, ranked
from keras_bert.tasks.task import HeadStart, Options
from keras_bert.tasks.text import READ_OPTIONS
from keras_bert.text.text_windows import max_per_text

_NO_DOCUMENTS = (
    "reranking needs text_pair (--text-pair), the column of the document. For questions and their "
    "contexts or a search, read the task retrieval and use RankingExamples.of_retrieval"
)
_METRICS = ("mrr@10", "ndcg@10", "map@100", "recall@1", "recall@10")


@dataclasses.dataclass(frozen=True)
class RerankingOptions(Options):
    """Options of training.

    loss: A key of `LOSSES` or one of its losses. Default: `"multiple_negatives"` if all documents
        are relevant, `"listnet"` if most queries have documents with different scores, and else
        `"binary_cross_entropy"`.
    num_negatives: For `"multiple_negatives"`: documents of other queries per list, by default 4.
    long_texts: `"window"` reads long documents in parts, in answers only.
    """

    loss: typing.Any = None
    num_negatives: int | None = None
    long_texts: str | None = None


class Reranking(Regression):
    """Reranking: the score of a document for a query."""

    name = "reranking"
    data = (RankingExamples,)
    reads: typing.ClassVar = {"reranking": (*READ_OPTIONS, "negatives")}
    default_label = None
    lower_is_better = ()
    baselines: typing.ClassVar = {"mrr@10": "first_search_mrr@10"}
    training_options = RerankingOptions
    pipeline = RerankingPipeline
    input_names = ("query", "document")
    head_fields = ("dropout", "activation")
    same_heads = ("regression",)
    answers_texts = False
    hub_tag = "text-ranking"
    meanings: typing.ClassVar = {"score": "a higher one is better"}
    head_start: HeadStart | None = None
    has_teachers = True

    def head_function(self):
        from keras_bert.tasks.reranking.head import reranker

        return reranker

    def inputs_of(self, output):
        return self.input_names

    def spec_of_head(self, model):
        return dataclasses.replace(super().spec_of_head(model), pairs=True)

    def options_of_head(self, head):
        options = super().options_of_head(head)
        # A cross-encoder whose config names no activation has a sigmoid.
        return options if head.pairs else options | {"activation": "sigmoid"}

    def describe(self, output):
        return "A BERT model that scores how well a document answers a query."

    def fits(self, examples):
        return isinstance(examples, RankingExamples)

    def convert(self, examples):
        """Return rows of texts, or pairs of texts with scores, as `RankingExamples`."""
        if isinstance(examples, EmbeddingExamples):
            return RankingExamples.of_rows(examples)
        if isinstance(examples, Examples):
            return RankingExamples.of_pairs(examples)
        if isinstance(examples, RetrievalData):
            raise ValueError(
                f"{examples.source}: to rerank the documents of a search, use "
                "RankingExamples.of_retrieval"
            )
        return examples

    def read(self, name, data, options):
        """Read rows of a query, a document and a score, or of a query, a positive and negatives."""
        if options["text_pair"] is None:
            raise ValueError(_NO_DOCUMENTS)
        if options["label"] is not None and options["negatives"]:
            raise ValueError(
                "give label (--label), the column of the scores, or negatives, not both"
            )
        examples = RankingExamples.of_rows(read_rows(data, options | {"score_range": None}))
        names = {"query": options["text"], "document": options["text_pair"]}
        return dataclasses.replace(examples, columns=(examples.columns or {}) | names)

    def read_in_parts(self, name, path, options):
        if options["text_pair"] is None:
            raise ValueError(_NO_DOCUMENTS)
        options = {name: value for name, value in options.items() if name != "negatives"}
        for part in super().read_in_parts(name, path, options):
            documents = [[text] for text in part.text_pairs]
            yield RankingExamples(part.texts, documents, source=part.source, rows=part.rows)

    def of_texts(self, model, texts, source):
        if len(texts) < 2:
            raise ValueError(f"give a query and its documents, or --input; received {len(texts)}")
        query, *documents = texts
        return RankingExamples([query], [documents], source=source)

    def columns_of(self, examples, output):
        return examples.pairs()

    def is_labeled(self, examples):
        return examples.scores is not None

    def check_targets(self, output, examples):
        """Any score is valid."""

    def build(self, encoder, train):
        return self.head_function()(encoder)

    def model_of_logits(self, model):
        from keras_bert.tasks.reranking.head import with_logits

        return with_logits(model)

    def model_of_batches(self, model):
        from keras_bert.tasks.reranking.head import of_lists

        return of_lists(model)

    def compile_options(self, output, encoded):
        return {"loss": encoded.loss}

    def default_batch_size(self, encoded):
        """Return the number of lists that have 32 documents."""
        return max(1, super().default_batch_size(encoded) // encoded.texts_per_row)

    def encode(self, model, examples, max_length, options):
        """Return each pair of a query and a document as a sequence: `EncodedPairs`."""
        long_texts = options.long_texts or model.output.long_texts
        check_one_of("long_texts", long_texts, LONG_TEXTS)
        return EncodedPairs(model.tokenizer, examples, max_length, long_texts == "window")

    def encode_training(self, model, examples, max_length, options):
        """Return the lists of documents that the loss compares: `EncodedLists`."""
        from keras_bert.tasks.reranking import lists

        if options.long_texts not in (None, "truncate"):
            raise ValueError('long_texts must be "truncate" in training; pass it to the pipeline')
        loss = lists.make_loss(options, examples)
        rows = lists.lists_of(examples, loss, options.num_negatives)
        return lists.EncodedLists(model.tokenizer, rows, max_length, loss)

    def decode(self, model, examples, encoded, outputs, options):
        """Return the scores of the documents of each query, a list of float32 (documents,)."""
        scores = np.reshape(outputs, -1).astype(np.float32)
        scores = max_per_text(encoded.text_of, scores)
        ends = np.cumsum(list(map(len, examples.documents)))
        return np.split(scores, ends[:-1])

    def metric_names(self, output, examples):
        if _has_lists(examples):
            return _METRICS
        if embedding_metrics.are_labels(examples.flat_scores()):
            return embedding_metrics.OF_LABELS
        return ("spearman",)

    def score(self, output, examples, answers):
        """Return the metrics of the ranked documents, or of single documents.

        With `missed`, `first_search_mrr@10` is the MRR of the documents in the order of the data.
        """
        if _has_lists(examples):
            return _ranking_metrics(examples, answers)
        scores = np.array(examples.flat_scores())
        predicted = np.concatenate(answers)
        if embedding_metrics.are_labels(scores.tolist()):
            return embedding_metrics.of_scored_labels(predicted, scores)
        return {"spearman": metrics_of_numbers(scores, predicted)["spearman"]}

    def check_labeled(self, examples):
        super().check_labeled(examples)
        if _has_lists(examples):
            if not any(grade > 0 for grades in _grades_of_lists(examples) for grade in grades):
                raise ValueError(
                    f"{examples.source}: no list of documents has a relevant one, with a score "
                    "above 0, so there is nothing to score"
                )
        elif len(set(examples.flat_scores())) == 1:
            raise ValueError(
                f"{examples.source}: all documents have the score {examples.flat_scores()[0]:g}, "
                "so there is nothing to score. Add other documents of the queries, such as those "
                "of RankingExamples.of_retrieval"
            )

    def results(self, output, examples, answers, top_k=None, **options):
        rows = zip(examples.documents, answers, strict=True)
        return [ranked(texts, scores, top_k) for texts, scores in rows]

    def rows(self, output, examples, answers, probabilities=False):
        """Yield the score of each document, in the order of the data."""
        rows = zip(examples.queries, examples.documents, answers, strict=True)
        for query, documents, scores in rows:
            for document, score in zip(documents, scores.tolist(), strict=True):
                yield {"score": score, "query": query, "document": document}

    def signatures(self, predict, output, preprocessor, max_sequence_length):
        from keras_bert.tasks.reranking import serving

        return serving.reranker(predict, output, preprocessor, max_sequence_length)


def _has_lists(examples):
    """Return True to score the order of the documents, and False to score each one alone."""
    lists = sum(len(texts) > 1 for texts in examples.documents)
    return examples.missed is not None or lists > len(examples) / 2


def _grades_of_lists(examples):
    """Return the grades of all documents of each query, also of those that were not found.

    A query whose only document is given has no grades, since there is no order to score.
    """
    if examples.missed is not None:
        rows = zip(examples.scores, examples.missed, strict=True)
        return [[*scores, *missed] for scores, missed in rows]
    return [scores if len(scores) > 1 else [] for scores in examples.scores]


def _ranking_metrics(examples, answers):
    """Return the metrics of lists with a relevant document, see `embedding_metrics`."""
    in_order = []
    relevant = []
    all_scores = []
    for scores, grades in zip(answers, _grades_of_lists(examples), strict=True):
        grade_of = {index: grade for index, grade in enumerate(grades) if grade > 0}
        if grade_of:
            relevant.append(grade_of)
            all_scores.append(scores)
            in_order.append(np.arange(len(scores)))
    metrics = embedding_metrics.of_ranking(in_order, relevant, all_scores)
    metrics = {name: metrics[name] for name in _METRICS}
    if examples.missed is not None:
        first = embedding_metrics.of_ranking(in_order, relevant)
        metrics["first_search_mrr@10"] = first["mrr@10"]
    return metrics
