"""The pipeline of rerankers."""

import dataclasses
import warnings

import numpy as np

from keras_bert.runtime.arguments import LONG_TEXTS, as_integer
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks import results
from keras_bert.tasks.inputs import SOURCE, check_not_given, check_texts, listed
from keras_bert.tasks.pipeline import Pipeline
from keras_bert.tasks.reranking.data import RankingExamples


class RerankingPipeline(Pipeline):
    """Pipeline of `heads.reranker`."""

    options = ("top_k",)
    data = (RankingExamples,)
    long_texts_options = LONG_TEXTS
    reads_pairs_in_windows = True

    def rank(self, query, documents, *, top_k=None, batch_size=None):
        """Return the documents in the order in which they answer the query, the best one first.

        Args:
            query: A string.
            documents: A list of strings. The pipeline cuts long ones; with `long_texts="window"` it
                reads them in parts, and the score is that of the best part.
            top_k: Number of documents to return; `None` for all.
            batch_size: Documents per batch. Defaults to that of the pipeline.

        Returns:
            A list of dicts: `index` in `documents`, `score`, a float in the precision of float32,
            and `text`. Documents of the same score stay in their order.

        Raises:
            ValueError: If a text is not a string, or `top_k` is below 1.
        """
        if top_k is not None:
            as_integer("top_k", top_k, 1)
        check_texts([query], "query")
        texts, is_single = listed(documents, "documents")
        if is_single:
            raise ValueError("documents must be a list of strings; received one string")
        texts = [str(text) for text in check_texts(texts, "document")]  # NumPy has its own class
        if not texts:
            return results.Results([])
        examples = RankingExamples([query], [texts], source=SOURCE)
        (scores,) = self._answers_with_warning(examples, batch_size)
        return results.Results(ranked(texts, scores, top_k))

    def as_teacher(self, examples):
        """Return the data with the scores of this model, for the loss `"margin_mse"`.

        Args:
            examples: `keras_bert.RankingExamples`.

        Returns:
            `RankingExamples`. Their scores are logits, since those of a sigmoid hardly differ
            between good documents. Queries without documents are left out, with a warning.

        Raises:
            ValueError: If the model is an export, or no query has documents.
        """
        self._check_data(examples)
        examples = _with_documents(examples)
        teacher = RerankingPipeline(
            self.predictor.with_logits(), batch_size=self.batch_size, long_texts=self.long_texts
        )
        scores = [row.tolist() for row in teacher._answers_with_warning(examples)]
        self.counts.update(teacher.counts)
        return dataclasses.replace(examples, scores=scores, missed=None)

    def _rows(self, inputs=None, text_pair=None, query=None, document=None, **others):
        check_not_given(**others)
        for first, second in ((inputs, query), (text_pair, document)):
            if first is not None and second is not None:
                raise ValueError("give a query and its documents once, by position or by name")
        queries = inputs if query is None else query
        documents = text_pair if document is None else document
        if documents is None:
            return super()._rows(queries)
        if isinstance(queries, str) and not isinstance(documents, str):
            documents, _ = listed(documents, "document")
            queries = [queries] * len(documents)
        return super()._rows(queries, document=documents)

    def _examples(self, rows):
        queries, documents = map(list, zip(*rows, strict=True))
        return RankingExamples(queries, [[text] for text in documents], source=SOURCE)

    def _run_rows(self, rows, call):
        if call.options:
            raise ValueError("top_k applies to rank and to RankingExamples; each pair has a score")
        rankings = super()._run_rows(rows, call)
        return results.Results([{"score": ranking[0]["score"]} for ranking in rankings])

    def _sequences(self, examples):
        return sum(map(len, examples.documents))

    def _mistakes(self, examples, answers):
        """Return the queries whose first document does not have the highest grade."""
        if not any(len(documents) > 1 for documents in examples.documents):
            raise ValueError(
                f"{examples.source}: each query has one document, so its order has no errors. "
                "Use evaluate"
            )
        mistakes = []
        for index, scores in enumerate(answers):
            if not len(scores):  # the first search found no document
                continue
            grades = np.array(examples.scores[index])
            best = scores.argmax()
            if grades[best] < grades.max():
                mistakes.append(
                    {
                        "query": examples.queries[index],
                        "expected": examples.documents[index][grades.argmax()],
                        "document": examples.documents[index][best],
                        "score": float(scores[best]),
                    }
                )
        return sorted(mistakes, key=lambda mistake: -mistake["score"])


def _with_documents(examples):
    """Return the queries that have documents. A first search may find none."""
    rows = [row for row, texts in enumerate(examples.documents) if texts]
    if len(rows) == len(examples):
        return examples
    advice = "To train on them, give RankingExamples.of_retrieval add_relevant=True"
    if not rows:
        raise ValueError(f"{examples.source}: no query has documents. {advice}")
    warnings.warn(
        f"{examples.source}: {len(examples) - len(rows)} of {len(examples)} queries were left out, "
        f"because they have no documents. {advice}",
        stacklevel=level_of_caller(),
    )
    queries = [examples.queries[row] for row in rows]
    documents = [examples.documents[row] for row in rows]
    return dataclasses.replace(
        examples, queries=queries, documents=documents, scores=None, missed=None
    )


def ranked(texts, scores, top_k=None):
    """Return the documents of a query as dicts, the best one first."""
    order = np.argsort(-scores, kind="stable")[:top_k]
    return [
        {"index": int(index), "score": float(scores[index]), "text": texts[index]}
        for index in order
    ]
