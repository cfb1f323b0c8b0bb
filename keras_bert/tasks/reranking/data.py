"""The data of reranking: queries, each with documents and their relevance."""

import dataclasses
import typing

from keras_bert.data.examples import (
    Examples,
    TaskData,
    check_count,
    check_score,
    check_strings,
    summary,
)
from keras_bert.runtime.arguments import as_integer, as_list, check_type
from keras_bert.tasks.embedding.data import EmbeddingExamples
from keras_bert.tasks.embedding.retrieval import RetrievalData


@dataclasses.dataclass(frozen=True, repr=False)
class RankingExamples(TaskData):
    """Queries, each with documents to rank.

    Attributes:
        queries: The queries.
        documents: For each query its documents, a list of strings.
        scores: For each document of each query its relevance, or `None`: 1 for relevant and 0 for
            others, grades such as 0 to 3, or the scores of a teacher. A higher score is better.
        source: Where the texts come from, for messages.
        missed: For each query the grades of its relevant documents that are not in `documents`, for
            the metrics; or `None` if all are in it. A query can then have no documents.
        columns: The names of the columns that `read` was given, by argument; or `None`.
        rows: For each document a dict with all columns of its row in the file; or `None`.

    Raises:
        ValueError: If a list differs in length from another one, a query has no documents, a text
            is not a string or a score not a number.

    Example:

    >>> RankingExamples(["Who wrote it?"], [["Ada wrote it.", "It is red."]], [[1, 0]])
    <RankingExamples: 1 item with scores, from the queries>
    """

    queries: list[str]
    documents: list[list[str]]
    scores: list[list[float]] | None = None
    source: str = "the queries"
    missed: list[list[float]] | None = None
    columns: dict | None = None
    rows: list[dict] | None = None
    row_fields = ("queries", "documents", "scores", "missed")

    def __post_init__(self):
        source = self.source
        queries = check_strings(source, "queries", self.queries)
        lists = as_list(f"{source}: documents", self.documents)
        check_count(source, "documents", lists, "queries", len(queries))
        documents = []
        for row, texts in enumerate(lists, 1):
            documents.append(check_strings(source, f"documents of row {row}", texts))
            if not documents[-1] and self.missed is None:
                raise ValueError(f"{source}, row {row}: the query has no documents")
        object.__setattr__(self, "queries", queries)
        object.__setattr__(self, "documents", documents)
        for name in ("scores", "missed"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, self._checked_scores(name))

    def _checked_scores(self, name):
        """Return the lists of numbers of an attribute."""
        lists = as_list(f"{self.source}: {name}", getattr(self, name))
        check_count(self.source, name, lists, "queries", len(self.queries))
        checked = []
        for row, scores in enumerate(lists, 1):
            where = f"{self.source}, row {row}: {name}"
            checked.append([check_score(where, score) for score in as_list(where, scores)])
            count = len(self.documents[row - 1])
            if name == "scores" and len(checked[-1]) != count:
                raise ValueError(
                    f"{where} must have a score for each of the {count} documents; received "
                    f"{len(checked[-1])}"
                )
        return checked

    @classmethod
    def of_pairs(cls, examples: Examples) -> "RankingExamples":
        """Return `Examples` of pairs of query and document, grouped by query.

        Scores, or labels that are numbers, are the relevance. With them, a document that a query
        has twice counts once, with its best score.

        Example:

        >>> pairs = Examples(["q", "q"], text_pairs=["a", "b"], scores=[1, 0])
        >>> RankingExamples.of_pairs(pairs).documents
        [['a', 'b']]
        """
        check_type("examples", examples, Examples)
        if examples.text_pairs is None or examples.label_sets is not None:
            raise ValueError(f"{examples.source} must have pairs of query and document with scores")
        scores = examples.scores if examples.labels is None else examples.labels
        documents: dict[str, list[str]] = {}
        score_of_text: dict[str, dict[str, float]] = {}
        for index, (query, document) in enumerate(zip(*examples.text_columns(), strict=True)):
            documents.setdefault(query, []).append(document)
            if scores is not None:
                score = check_score(f"{examples.location(index)}: scores", scores[index])
                of_query = score_of_text.setdefault(query, {})
                of_query[document] = max(of_query.get(document, score), score)
        if scores is not None:
            documents = {query: list(of_query) for query, of_query in score_of_text.items()}
        return cls(
            list(documents),
            list(documents.values()),
            None if scores is None else [[*row.values()] for row in score_of_text.values()],
            source=examples.source,
            columns=examples.columns,
        )

    @classmethod
    def of_rows(cls, examples: EmbeddingExamples) -> "RankingExamples":
        """Convert rows of a query, a positive and negatives, or scored pairs.

        Such rows come from `keras_bert.read(..., "embedding")` and from `mine_negatives`. A
        positive has the score 1, a negative 0, and empty negatives are left out. Rows with scores
        of their documents keep these.

        Example:

        >>> RankingExamples.of_rows(EmbeddingExamples([("q", "yes", "no")])).scores
        [[1.0, 0.0]]
        """
        check_type("examples", examples, EmbeddingExamples)
        if examples.vectors is not None or examples.classes is not None:
            raise ValueError(f"{examples.source} must be rows of query, positive and negatives")
        if examples.scores is not None:
            pairs = Examples(
                [query for query, _ in examples.texts],
                text_pairs=[document for _, document in examples.texts],
                scores=examples.scores,
                source=examples.source,
            )
            return dataclasses.replace(cls.of_pairs(pairs), columns=examples.columns)
        documents = [list(row[1:]) for row in examples.texts]
        scores = examples.document_scores
        if scores is None:
            # A cell without a negative is empty.
            documents = [
                [positive, *(text for text in negatives if text.strip() and text != positive)]
                for positive, *negatives in documents
            ]
            scores = [[1.0] + [0.0] * (len(texts) - 1) for texts in documents]
        return cls(
            [row[0] for row in examples.texts],
            documents,
            scores,
            source=examples.source,
            columns=examples.columns,
        )

    @classmethod
    def of_retrieval(
        cls,
        data: RetrievalData,
        retriever: typing.Any,
        top_k: int = 50,
        *,
        add_relevant: bool = False,
    ) -> "RankingExamples":
        """Return the best documents of a first search, with their grades, to be reranked.

        Args:
            data: Queries and a corpus. Queries without a relevant document are left out, and for
                each query the document with its id, unless it is relevant. Equal texts are one
                document with the best of their grades.
            retriever: The `keras_bert.pipeline` of an embedder, or `"bm25"`, which uses the library
                bm25s.
            top_k: Number of documents per query.
            add_relevant: If True, add the relevant documents that the search did not find, to train
                on them. If False, these count as missed in the metrics.

        Returns:
            `RankingExamples`.
        """
        from keras_bert.tasks.reranking import first_search

        check_type("data", data, RetrievalData)
        top_k = as_integer("top_k", top_k, 1)
        document_ids = list(data.corpus)
        documents = list(data.corpus.values())
        relevant: typing.Any = data.relevant  # dicts of grades, see `RetrievalData`
        query_ids = [id for id in data.queries if relevant.get(id)]
        queries = [data.queries[id] for id in query_ids]
        indices_per_query = first_search.find(
            retriever, documents, queries, top_k + 1, data.prompts
        )
        texts_per_query = []
        scores = []
        missed = []
        for query_id, indices in zip(query_ids, indices_per_query, strict=True):
            grades = relevant[query_id]
            ids = [document_ids[index] for index in indices]
            ids = [id for id in ids if id != query_id or id in grades][:top_k]
            grade_of_text, missed_grades = _grades_of_texts(grades, data.corpus)
            texts = list(dict.fromkeys(data.corpus[id] for id in ids))
            not_found = [text for text in grade_of_text if text not in texts]
            if add_relevant:
                texts += not_found
            texts_per_query.append(texts)
            scores.append([grade_of_text.get(text, 0.0) for text in texts])
            missed.append(missed_grades + [grade_of_text[text] for text in not_found])
        return cls(
            queries,
            texts_per_query,
            scores,
            source=data.source,
            missed=None if add_relevant else missed,
        )

    def sample_of_texts(self, count):
        texts: list[str] = []
        for query, documents in zip(self.queries, self.documents, strict=True):
            texts += [query, *documents]
            if len(texts) >= count:
                break
        return texts[:count]

    def __getitem__(self, rows):
        """Return some of the queries, without the attribute `rows`, which is about documents."""
        return dataclasses.replace(super().__getitem__(rows), rows=None)

    def __len__(self):
        return len(self.queries)

    def __repr__(self):
        return summary(self, len(self), [] if self.scores is None else ["scores"])

    def pairs(self) -> list[list[str]]:
        """Return two lists of equal length: the query and the text of each document."""
        queries: list[str] = []
        for query, documents in zip(self.queries, self.documents, strict=True):
            queries += [query] * len(documents)
        return [queries, [text for documents in self.documents for text in documents]]

    def flat_scores(self) -> list[float]:
        """Return the score of each document."""
        return [score for scores in self.scores or () for score in scores]


def _grades_of_texts(grades, corpus):
    """Return {text: grade} of relevant documents, and the grades of those not in the corpus."""
    grade_of_text: dict[str, float] = {}
    unknown = []
    for id, grade in grades.items():
        if id not in corpus:
            unknown.append(grade)
        else:
            text = corpus[id]
            grade_of_text[text] = max(grade_of_text.get(text, 0.0), grade)
    return grade_of_text, unknown
