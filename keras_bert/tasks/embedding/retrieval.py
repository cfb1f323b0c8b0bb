"""Retrieval data: queries, a corpus, and which documents are relevant to which query."""

import collections
import dataclasses
import pathlib
import warnings
from collections.abc import Mapping

from keras_bert.data.examples import TaskData, check_prompts, check_score, check_strings, summary
from keras_bert.data.text_files import json_rows, numbered_lines, open_utf8
from keras_bert.runtime.escaping import printable
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
            list of ids, whose grade is 1.
        source: Where the data comes from, for messages.
        has_prompts: True if the texts include their prompts, see `with_prompts`.

    Raises:
        ValueError: If a relevant id is unknown, or no query has a relevant document.

    Example:

    >>> RetrievalData({"q": "Who wrote it?"}, {"d": "Ada wrote it."}, {"q": {"d": 1}})
    <RetrievalData: 1 item, from the queries>
    """

    queries: dict[str, str]
    corpus: dict[str, str]
    relevant: Mapping[str, dict[str, float] | set[str] | list[str]]
    source: str = "the queries"
    has_prompts: bool = False

    def __post_init__(self):
        for name in ("queries", "corpus"):
            texts = getattr(self, name)
            if not isinstance(texts, dict):
                raise ValueError(f"{self.source}: {name} must be a dict; received {texts!r:.80}")
            check_strings(self.source, name, list(texts.values()))
            if not texts:
                raise ValueError(f"{self.source}: there are no texts in {name}")
        if not isinstance(self.relevant, dict) or not all(
            isinstance(documents, (dict, set, list, tuple)) for documents in self.relevant.values()
        ):
            raise ValueError(
                f"{self.source}: relevant must be a dict of dicts or sets, such as "
                f"{{'q': {{'d': 1}}}}; received {self.relevant!r:.80}"
            )
        relevant = {}
        for query, documents in self.relevant.items():
            grades = documents if isinstance(documents, dict) else dict.fromkeys(documents, 1)
            relevant[query] = {
                document: value
                for document, grade in grades.items()
                if (value := check_score(f"{self.source}: grades", grade)) > 0
            }
        object.__setattr__(self, "relevant", relevant)
        if not any(self.relevant.values()):
            raise ValueError(f"{self.source}: no query has a relevant document")
        for query, documents in self.relevant.items():
            if query not in self.queries:
                raise ValueError(
                    f"{self.source}: the query {query!r:.80} of the relevant documents is not in "
                    "queries"
                )
            for document in documents:
                if document not in self.corpus:
                    raise ValueError(
                        f"{self.source}: the document {document!r:.80} of the query {query!r:.80} "
                        "is not in the corpus"
                    )

    @classmethod
    def of_questions(cls, questions):
        """Return `Questions` as questions that search for their context."""
        numbers = {
            text: str(number) for number, text in enumerate(dict.fromkeys(questions.contexts))
        }
        queries = {str(number): text for number, text in enumerate(questions.questions)}
        relevant = {
            str(number): {numbers[context]: 1.0}
            for number, context in enumerate(questions.contexts)
        }
        corpus = {number: text for text, number in numbers.items()}
        return cls(queries, corpus, relevant, source=questions.source)

    def with_prompts(self, query, corpus):
        """Return the data with a text before each query, and one before each document.

        The texts are such as "query: ", not the names of a model's prompts.
        """
        check_prompts(self, query, corpus)
        return dataclasses.replace(
            self,
            queries={key: query + text for key, text in self.queries.items()},
            corpus={key: corpus + text for key, text in self.corpus.items()},
            has_prompts=True,
        )

    def __len__(self):
        return sum(bool(documents) for documents in self.relevant.values())

    def __repr__(self):
        return summary(self, len(self), [])


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
    path = pathlib.Path(path)
    if not path.is_dir():
        return RetrievalData.of_questions(squad.read(path, labeled=False))
    links.check(path)
    beir, trec = path / "qrels" / f"{split}.tsv", path / "qrels.txt"
    if not trec.exists() and not beir.exists():
        splits = ", ".join(sorted(file.stem for file in path.glob("qrels/*.tsv")))
        splits = printable(splits, 200)
        advice = f"the splits of this folder are {splits}" if splits else "qrels has no .tsv file"
        raise FileNotFoundError(f"{beir}: no such file; {advice}")
    if beir.exists():
        relevant = _qrels(beir, (0, 1, 2))
    else:
        relevant = _qrels(trec, (0, 2, 3))
        if split != "test":
            warnings.warn(
                f"{trec} has the relevant documents of all queries, so split={split!r:.80} was not "
                f"used. For splits, write {beir.name} to {beir.parent}",
                stacklevel=level_of_caller(),
            )
    return RetrievalData(_texts(path, "queries"), _texts(path, "corpus"), relevant, str(path))


def _texts(folder, name):
    """Return {id: text} of a JSON Lines or TSV file."""
    found: dict[str, str] = {}
    file = folder / f"{name}.tsv"
    if file.exists():
        with open_utf8(file) as stream:
            for number, line in numbered_lines(file, stream):
                identifier, tab, text = line.partition("\t")
                if not tab:
                    raise ValueError(f"{file}, line {number}: must have an id, a tab and a text")
                _add(found, identifier, text, f"{file}, line {number}")
        return found
    file = folder / f"{name}.jsonl"
    with open_utf8(file) as stream:
        for where, row in json_rows(file, stream):
            parts = [row.get("title") or "", row.get("text")]
            if not all(isinstance(part, str) for part in (row.get("_id"), *parts)):
                raise ValueError(f"{file}, {where}: _id and text must be strings")
            _add(found, row["_id"], " ".join(filter(None, parts)), f"{file}, {where}")
    return found


def _add(found, identifier, text, where):
    if identifier in found:
        raise ValueError(f"{where}: the id {identifier!r:.80} occurs twice")
    found[identifier] = text


def _is_header(row, column):
    """Return True if a row has text in the column of the grade."""
    if column >= len(row):
        return False
    try:
        check_score("grade", row[column])
    except ValueError:
        return True
    return False


def _qrels(file, columns):
    """Return {query: {document: grade}} of a file, with grades above 0. It may have a header."""
    relevant: dict[str, dict[str, float]] = collections.defaultdict(dict)
    with open_utf8(file) as stream:
        for number, line in numbered_lines(file, stream):
            row = line.split("\t") if "\t" in line else line.split()
            if not line.strip() or number == 1 and _is_header(row, columns[-1]):
                continue
            try:
                query, document, grade = (row[column] for column in columns)
                grade = check_score("grade", grade)
            except (IndexError, ValueError):
                raise ValueError(
                    f"{file}, line {number}: must have a query, a document and a grade; received "
                    f"{line!r:.80}"
                ) from None
            if grade > 0:
                relevant[query][document] = grade
    return dict(relevant)
