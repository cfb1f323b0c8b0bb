"""Retrieval data: queries, a corpus, and which documents are relevant to which query."""

import collections
import copy
import dataclasses
import numbers
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from keras_bert.data.examples import TaskData, check_prompts, check_score, check_strings, summary
from keras_bert.data.text_files import json_rows, numbered_lines, open_utf8
from keras_bert.runtime.arguments import as_path
from keras_bert.runtime.escaping import printable, shown
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks.question_answering import data as squad
from keras_bert.untrusted import links


@dataclasses.dataclass(frozen=True, repr=False)
class RetrievalData(TaskData):
    """Queries, a corpus, and the relevant documents of each query, to score an embedder on.

    Queries without a relevant document are not scored.

    Attributes:
        queries: Id -> text.
        corpus: Id -> text.
        relevant: Id of a query -> {id of a document: grade}, with grades above 0, or a set or
            list of ids, whose grade is 1. A document that is not in the corpus counts as missed. A
            query that is not in `queries` is left out.
        source: Where the data comes from, for messages.
        prompts: Text before each query, and text before each document, or `None`.
        unknown_documents: Number of relevant documents that are not in the corpus.
        unknown_queries: Number of queries with relevant documents that are not in `queries`.

    Ids are strings; integers become strings. As in BEIR, a query does not find the document with
    its own id, such as an argument that searches for its counterargument, unless it is relevant.

    Raises:
        ValueError: If no query has a relevant document in the corpus, or an id occurs twice.

    Example:

    >>> RetrievalData({"q": "Who wrote it?"}, {"d": "Ada wrote it."}, {"q": {"d": 1}})
    <RetrievalData: 1 item, from the queries>
    """

    queries: dict[str, str]
    corpus: dict[str, str]
    relevant: Mapping[str, dict[str, float] | set[str] | list[str]]
    source: str = "the queries"
    prompts: tuple[str, str] | None = None
    unknown_documents: int = dataclasses.field(init=False, default=0)
    unknown_queries: int = dataclasses.field(init=False, default=0)

    def __post_init__(self):
        for name in ("queries", "corpus", "relevant"):
            if not isinstance(getattr(self, name), Mapping):
                raise ValueError(
                    f"{self.source}: {name} must be a dict; received {shown(getattr(self, name))}"
                )
            with_ids = _with_ids(f"{self.source}: {name}", getattr(self, name))
            object.__setattr__(self, name, with_ids)
        for name in ("queries", "corpus"):
            check_strings(self.source, name, list(getattr(self, name).values()))
        relevant = {}
        unknown_documents = 0
        unknown_queries = 0
        # Queries of a class can share their documents. A copy for each query would take the square
        # of the size of the class.
        grades_of: dict[int, dict[str, float]] = {}
        unknown_of: dict[int, int] = {}
        for query, documents in self.relevant.items():
            key = id(documents)
            if key not in grades_of:
                grades = self._grades(query, documents)
                grades_of[key] = grades
                unknown_of[key] = sum(document not in self.corpus for document in grades)
            if grades_of[key] and query not in self.queries:
                unknown_queries += 1
                continue
            relevant[query] = grades_of[key]
            unknown_documents += unknown_of[key]
        count = sum(map(len, relevant.values()))
        if not count:
            raise ValueError(f"{self.source}: no query has a relevant document")
        if unknown_documents == count:
            document = next(document for grades in relevant.values() for document in grades)
            raise ValueError(
                f"{self.source}: no relevant document is in the corpus, such as {shown(document)}. "
                "Check the ids"
            )
        object.__setattr__(self, "relevant", relevant)
        object.__setattr__(self, "unknown_documents", unknown_documents)
        object.__setattr__(self, "unknown_queries", unknown_queries)

    def _grades(self, query, documents: Any):
        """Return {id of a document: grade} of a query, with grades above 0."""
        where = f"{self.source}: the documents of the query {shown(query)}"
        if isinstance(documents, (str, bytes)) or not isinstance(documents, Iterable):
            raise ValueError(f"{where} must be a list or a dict; received {shown(documents)}")
        if not isinstance(documents, Mapping):
            documents = dict.fromkeys(documents, 1)
        grades = {
            document: check_score(f"{self.source}: grades", grade)
            for document, grade in _with_ids(where, documents).items()
        }
        return {document: grade for document, grade in grades.items() if grade > 0}

    def counts(self):
        names = ("unknown_documents", "unknown_queries")
        counts = {name: getattr(self, name) for name in names}
        return {name: count for name, count in counts.items() if count}

    @classmethod
    def of_questions(cls, questions):
        """Return `Questions` as questions that search for their context."""
        # Queries and documents have different ids, see the class.
        queries = {f"q{number}": text for number, text in enumerate(questions.questions)}
        id_of_context = {
            text: f"d{number}" for number, text in enumerate(dict.fromkeys(questions.contexts))
        }
        relevant = {
            query: {id_of_context[context]: 1.0}
            for query, context in zip(queries, questions.contexts, strict=True)
        }
        corpus = {id: text for text, id in id_of_context.items()}
        return cls(queries, corpus, relevant, source=questions.source)

    def with_prompts(self, query, corpus):
        """Return a copy with a text before each query, and one before each document.

        The texts are such as "query: ", not the names of a model's prompts.
        """
        check_prompts(self, query, corpus)
        prompted = copy.copy(self)  # a new object would not know the queries that were left out
        object.__setattr__(prompted, "prompts", (query, corpus))
        return prompted

    def prompted_rows(self, default):
        """Return a row for each query and each document; `default` is the prompt without own ones.

        Example:

        >>> RetrievalData({"q": "a"}, {"d": "b"}, {"q": {"d"}}).prompted_rows("text: ")
        [('text: a',), ('text: b',)]
        """
        before_query, before_document = self.prompts or (default, default)
        queries = [(before_query + text,) for text in self.queries.values()]
        return queries + [(before_document + text,) for text in self.corpus.values()]

    def __getitem__(self, rows):
        raise TypeError("RetrievalData cannot be sliced. Give fewer queries and documents")

    def sample_of_texts(self, count):
        return [*self.queries.values(), *self.corpus.values()][:count]

    def __len__(self):
        return sum(bool(documents) for documents in self.relevant.values())

    def __repr__(self):
        return summary(self, len(self), [])


def _with_ids(where, values):
    """Return a dict with strings as keys, for strings and integers."""
    with_ids = {_id(where, key): value for key, value in values.items()}
    if len(with_ids) < len(values):
        raise ValueError(f"{where}: an id occurs as a string and as an integer. Write it one way")
    return with_ids


def _id(where, value):
    """Return an id, a string or an integer, as a string."""
    if isinstance(value, bool) or not isinstance(value, (str, numbers.Integral)):
        raise ValueError(f"{where}: ids must be strings or integers; received {shown(value)}")
    return value if isinstance(value, str) else str(int(value))


def read(path, split="test"):
    """Read a folder in the format of BEIR or TREC, or a file in SQuAD's format.

    A folder holds `corpus.jsonl` and `queries.jsonl` (keys `_id`, `text`, and optionally `title`,
    which precedes the text), or `corpus.tsv` and `queries.tsv` (id and text), and the relevant
    documents: `qrels/<split>.tsv` (columns query, document and grade, with or without a header) or
    `qrels.txt` (TREC's columns query, 0, document and grade), which has no splits.

    Returns:
        `RetrievalData`.

    Raises:
        ValueError: If a line is not valid, or a link in the folder leads out of it.
        OSError: If a file is missing or cannot be read.
    """
    path = as_path("data", path)
    if not path.is_dir():
        return RetrievalData.of_questions(squad.read(path, labeled=False))
    links.check(path)
    queries = _texts(path, "queries")
    beir = path / "qrels" / f"{split}.tsv"
    trec = path / "qrels.txt"
    if beir.exists():
        relevant = _qrels(beir, (0, 1, 2), queries)
    elif trec.exists():
        relevant = _qrels(trec, (0, 2, 3), queries)
        if split != "test":
            warnings.warn(
                f"{trec} has no splits, so split={shown(split)} was not used. For splits, write "
                f"{beir}",
                stacklevel=level_of_caller(),
            )
    else:
        splits = printable(", ".join(sorted(file.stem for file in path.glob("qrels/*.tsv"))), 200)
        if not splits:
            raise FileNotFoundError(f"{path}: no relevance judgments. Add {beir} or qrels.txt")
        raise FileNotFoundError(f"{beir}: no such file; the splits of this folder are: {splits}")
    return RetrievalData(queries, _texts(path, "corpus"), relevant, str(path))


def _texts(folder, name):
    """Return {id: text} of a TSV or JSON Lines file."""
    file = folder / f"{name}.tsv"
    rows = _tsv_texts
    if not file.exists():
        file = folder / f"{name}.jsonl"
        rows = _json_texts
    text_of: dict[str, str] = {}
    with open_utf8(file) as stream:
        for where, id, text in rows(file, stream):
            if id in text_of:
                raise ValueError(f"{where}: the id {shown(id)} occurs twice")
            text_of[id] = text
    return text_of


def _tsv_texts(file, stream):
    """Yield the location, the id and the text of each line."""
    for number, line in numbered_lines(file, stream):
        id, tab, text = line.partition("\t")
        if not tab:
            raise ValueError(f"{file}, line {number}: must have an id, a tab and a text")
        yield f"{file}, line {number}", id, text


def _json_texts(file, stream):
    """Yield the location, the id, and the title and text of each row."""
    for where, row in json_rows(file, stream):
        id = _id(f"{file}, {where}: _id", row.get("_id"))
        parts = [row.get("title") or "", row.get("text")]
        if not all(isinstance(value, str) for value in parts):
            raise ValueError(f"{file}, {where}: title and text must be strings")
        yield f"{file}, {where}", id, " ".join(filter(None, parts))


def _qrels(file, columns, queries):
    """Return {query: {document: grade}} of a file, which may have a header.

    A first line that begins with the id of a query is no header.
    """
    relevant: dict[str, dict[str, str]] = collections.defaultdict(dict)
    with open_utf8(file) as stream:
        for number, line in numbered_lines(file, stream):
            row = line.split("\t") if "\t" in line else line.split()
            if not line.strip():
                continue
            try:
                query, document, grade = (row[column] for column in columns)
                relevant[query][document] = check_score("grade", grade)
            except (IndexError, ValueError):
                is_header = number == 1 and len(row) > columns[-1] and row[0] not in queries
                if not is_header:
                    raise ValueError(
                        f"{file}, line {number}: must have a query, a document and a grade; "
                        f"received {shown(line)}"
                    ) from None
    return dict(relevant)
