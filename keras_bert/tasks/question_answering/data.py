"""Questions, contexts and answers from files in SQuAD's JSON format, also used by KorQuAD 1.0."""

import collections
import dataclasses
import io
import itertools
import json
import numbers
import pathlib
import warnings

import numpy as np

from keras_bert.data.examples import TaskData, check_count, check_list, check_strings, summary
from keras_bert.data.tables import read_columns
from keras_bert.data.text_files import check_limit, json_rows, open_utf8
from keras_bert.runtime.reading import json_value
from keras_bert.runtime.warn import level_of_caller

# Characters that are searched for answers which are not at their start. A search takes about
# 3 ns per character.
_MAX_SEARCHED = 2**30
_MAX_SEARCHES = 100  # of each context on average, if that is more

_TYPES = {dict: "an object", list: "a list", str: "a string", int: "an integer", bool: "a bool"}


@dataclasses.dataclass(frozen=True, repr=False)
class Questions(TaskData):
    """Questions, the contexts that answer them and, optionally, their answers.

    An answer whose text is not at its start position is moved to the nearest occurrence in the
    context. If the text does not occur in the context, its start becomes -1: the answer counts
    when answers are scored, and is not used in training.

    Attributes:
        questions: The questions.
        contexts: One context per question; questions may share a context.
        answers: For each question its acceptable answers, pairs of a text and the index of its
            first character in the context; empty if the context does not answer the question.
            `None` if the answers are unknown.
        ids: An id per question, or `None`.
        source: Where the questions come from, for messages.
        characters: Whether to score answers as in KorQuAD, see `QuestionAnswering.score`.
        moved_answers: Number of answers that were moved to another occurrence.
        lost_answers: Number of answers that do not occur in their context.

    Raises:
        ValueError: If the columns differ in length or hold values of a wrong type.

    Example:

    >>> examples = Questions(["Who?"], ["It was Ada."], [[("Ada", 0), ("Bob", 7)]])
    >>> examples.answers, examples.moved_answers, examples.lost_answers
    ([[('Ada', 7), ('Bob', -1)]], 1, 1)
    """

    questions: list[str]
    contexts: list[str]
    answers: list[list[tuple[str, int]]] | None = None
    ids: list[str] | None = None
    source: str = "the questions"
    characters: bool = False
    moved_answers: int = dataclasses.field(init=False, default=0)
    lost_answers: int = dataclasses.field(init=False, default=0)

    def __post_init__(self):
        for name in ("questions", "contexts", "answers", "ids"):
            column = getattr(self, name)
            if column is None and name in ("answers", "ids"):
                continue
            check_list(f"{self.source}: {name}", column)
            column = list(column)
            check_count(self.source, name, column, "questions", len(self.questions))
            if name == "ids":
                column = [str(id) if isinstance(id, numbers.Integral) else id for id in column]
            if name != "answers":
                check_strings(self.source, name, column)
            object.__setattr__(self, name, column)
        if self.answers is not None:
            self._locate_answers(self.answers)

    def _locate_answers(self, column):
        """Correct the starts of the answers, and count the answers with another start or none."""
        answers = []
        moved = 0
        lost = 0
        limit = max(_MAX_SEARCHED, _MAX_SEARCHES * sum(map(len, set(self.contexts))))
        searched = 0  # characters
        questions = zip(self.contexts, column, strict=True)
        for number, (context, stated_answers) in enumerate(questions, 1):
            located = []
            for text, stated_start in self._check_answers(number, stated_answers):
                start = int(stated_start)
                if start < 0 or not context.startswith(text, start):
                    searched += len(context)
                    if searched > limit:
                        raise ValueError(
                            f"{self.source}, question {number}: too many answers of long contexts "
                            "are not at their start. Correct answer_start, the index of the "
                            "answer's first character"
                        )
                    start = _find_nearest(context, text, start)
                located.append((text, start))
                if start < 0:
                    lost += 1
                elif start != stated_start:
                    moved += 1
            answers.append(located)
        object.__setattr__(self, "answers", answers)
        object.__setattr__(self, "moved_answers", moved)
        object.__setattr__(self, "lost_answers", lost)

    def _check_answers(self, number, answers):
        if isinstance(answers, (list, tuple)):
            pairs = [tuple(item) if isinstance(item, (list, tuple)) else item for item in answers]
            if all(_is_answer(pair) for pair in pairs):
                return pairs
        raise ValueError(
            f"{self.source}, question {number}: the answers must be a list of pairs of a "
            f"non-empty text and its start; received {answers!r:.80}"
        )

    def counts(self):
        counts = {"lost_answers": self.lost_answers, "moved_answers": self.moved_answers}
        return {name: count for name, count in counts.items() if count}

    def sample_of_texts(self, count):
        return list(self.contexts[:count])

    def __len__(self):
        return len(self.questions)

    def __repr__(self):
        return summary(self, len(self), [] if self.answers is None else ["answers"])


def _is_answer(pair):
    if not isinstance(pair, tuple) or len(pair) != 2:
        return False
    text, start = pair
    is_integer = isinstance(start, (int, np.integer)) and not isinstance(start, bool)
    return isinstance(text, str) and bool(text) and is_integer


def _find_nearest(context, text, start):
    """Return the index of the occurrence of a text nearest to `start`, or -1."""
    near = min(max(start, 0), len(context))
    after = context.find(text, near)
    # `rfind` takes quadratic time, so search forward in reversed strings.
    head = context[: near + len(text)]
    distance_from_end = head[::-1].find(text[::-1])
    before = -1 if distance_from_end < 0 else len(head) - distance_from_end - len(text)
    if before < 0 or after < 0:
        return max(before, after)
    return before if near - before <= after - near else after


def read(path, *, limit=None, labeled=True, characters=None):
    """Read a file in SQuAD's JSON format, or rows of questions.

    A question has no answer if `is_impossible` is true (SQuAD 2.0) or its list of answers is
    empty. `plausible_answers` are ignored. The id of a question is its `id` or its `guid`.

    Rows are lines or a list of objects, as Hugging Face writes SQuAD: with `question`, `context`
    and `answers`, such as `{"text": ["Ada"], "answer_start": [7]}`, or with `answer` and
    `answer_start`.

    Args:
        path: The file, UTF-8.
        limit: Maximum number of questions to read.
        labeled: Whether to read answers. If False, the file may lack them.
        characters: Whether to score answers as in KorQuAD. By default, True if the `version` in
            the file starts with "KorQuAD".

    Returns:
        The `Questions`. The questions of one paragraph share their context.

    Raises:
        ValueError: If the file does not have that format or holds no questions. The message names
            the article, the paragraph and the question, or the row.
        OSError: If the file cannot be read.

    Source: Rajpurkar et al. (2016 and 2018), SQuAD; Lim et al. (2019), KorQuAD 1.0.

    Example:

    >>> import tempfile
    >>> question = {"id": "q1", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 7}]}
    >>> paragraph = {"context": "It was Ada.", "qas": [question]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "train.json")
    ...     _ = file.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    ...     read(file).answers
    [[('Ada', 7)]]
    """
    path = pathlib.Path(path)
    check_limit(limit)
    with open_utf8(path) as file:
        content = file.read()
    squad = None if _is_rows(path, content) else _parse(path, content)
    if isinstance(squad, dict) and "question" in squad:  # a single row
        squad = {"data": [squad]}
    if squad is None:
        items = _rows(path, json_rows(path, io.StringIO(content, newline="\n")))
    else:
        items = _questions(path, squad)
    columns = collections.defaultdict(list)
    for prefix, number, context, item in itertools.islice(items, limit):
        id = _id(f"{prefix} {number}", item, required=squad is not None)
        location = f"{prefix} {number if id is None else repr(id):.80}"
        columns["ids"].append(id)
        columns["questions"].append(_get(location, item, "question", str))
        columns["contexts"].append(context)
        if labeled:
            columns["answers"].append(_answers(location, item))
    if not columns:
        raise ValueError(f"{path} contains no questions")
    if None in columns["ids"]:
        del columns["ids"]
    if characters is None:
        characters = squad is not None and str(squad.get("version")).startswith("KorQuAD")
    return Questions(**columns, source=str(path), characters=characters)


def read_table(table, *, limit=None, characters=None):
    """Read `Questions` from a table: question, context and, if they exist, answers and id.

    In place of answers, a table may have the columns answer and answer_start.
    """
    optional = ("id", "answers", "answer", "answer_start")
    values = read_columns(table, ("question", "context"), optional, limit, "Questions")
    answers = None
    if "answers" in values:
        answers = [
            _answer_pairs(f"the table, row {number}", row)
            for number, row in enumerate(values["answers"], 1)
        ]
    elif "answer" in values and "answer_start" in values:
        rows = zip(values["answer"], values["answer_start"], strict=True)
        answers = [
            _single_answer(f"the table, row {number}", *row) for number, row in enumerate(rows, 1)
        ]
    elif "answer" in values:
        warnings.warn(
            "the answers in the table are not read, because it has no column answer_start, the "
            "index of their first character in the context",
            stacklevel=level_of_caller(),
        )
    return Questions(
        values["question"],
        values["context"],
        answers,
        values.get("id"),
        source="the table",
        characters=bool(characters),
    )


def _is_rows(path, content):
    """Return True if JSON has a question per line or per item of a list."""
    if path.suffix.lower() in (".jsonl", ".ndjson") or content.lstrip().startswith("["):
        return True
    first, _, rest = content.strip().partition("\n")
    return rest.startswith("{") and first.rstrip().endswith("}")


def _parse(path, content):
    try:
        return json_value(content)
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error})") from error


def _rows(path, rows):
    """Yield the location, a number, the context and the JSON of each question of rows."""
    for row_name, row in rows:
        location = f"{path}, {row_name}"
        context = _get(location, row, "context", str)
        yield f"{location}, question", 1, context, row


def _questions(path, squad):
    """Yield the location, the number, the context and the JSON of each question of SQuAD."""
    for article_number, article in enumerate(_get(str(path), squad, "data", list), 1):
        if isinstance(article, dict) and "question" in article and "paragraphs" not in article:
            yield from _rows(path, [(f"item {article_number}", article)])
            continue
        title = article.get("title") if isinstance(article, dict) else None
        name = title if isinstance(title, str) else article_number
        article_location = f"{path}, article {name!r:.80}"
        paragraphs = _get(article_location, article, "paragraphs", list)
        for paragraph_number, paragraph in enumerate(paragraphs, 1):
            location = f"{article_location}, paragraph {paragraph_number}"
            context = _get(location, paragraph, "context", str)
            questions = _get(location, paragraph, "qas", list)
            for question_number, question in enumerate(questions, 1):
                yield f"{location}, question", question_number, context, question


def _id(location, item, required):
    """Return the id of a question as a string. The id may be an integer; KLUE's key is `guid`."""
    if not isinstance(item, dict):
        _get(location, item, "id", str)  # raises the error
    key = "guid" if "guid" in item and "id" not in item else "id"
    if key not in item and not required:
        return None
    if type(item.get(key)) is int:
        return str(item[key])
    return _get(location, item, key, str)


def _answers(location, item):
    if "is_impossible" in item and _get(location, item, "is_impossible", bool):
        return []
    if "answers" not in item and "answer" in item and "answer_start" in item:
        return _single_answer(location, item["answer"], item["answer_start"])
    if "answers" not in item:
        raise ValueError(f"{location} has no key 'answers'")
    return _answer_pairs(location, item["answers"])


def _single_answer(location, text, start):
    """Return the answers of a row with the columns answer and answer_start."""
    is_missing = text is None or text != text  # NaN
    if is_missing or text == "":
        return []
    start = _as_list(start)
    if isinstance(start, float) and start.is_integer():
        start = int(start)  # pandas has floats in a column with missing values
    return _answer_pairs(location, [{"text": text, "answer_start": start}])


def _answer_pairs(location, answers):
    """Return the text and the start of each answer, from a list of objects or an object of lists.

    Tables hold the lists as NumPy arrays.
    """
    if isinstance(answers, dict):
        _check_keys(location, answers)
        if isinstance(answers["text"], str):
            return _answer_pairs(location, [answers])
        texts = _as_list(answers["text"])
        starts = _as_list(answers["answer_start"])
        if len(texts) != len(starts):
            raise ValueError(
                f"{location}: 'text' and 'answer_start' must have the same length; received "
                f"{len(texts)} and {len(starts)}"
            )
        answers = [
            {"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)
        ]
    answers = _as_list(answers)
    if not isinstance(answers, list):
        raise ValueError(
            f"{location}: 'answers' must be a list, or an object with the lists text and "
            f"answer_start; received {answers!r:.80}"
        )
    pairs = []
    for answer in answers:
        _check_keys(f"{location}, answer", answer)
        text = _get(f"{location}, answer", answer, "text", str)
        if not text:
            raise ValueError(
                f"{location}: the text of an answer must not be empty; a question without an "
                "answer has an empty list of answers"
            )
        pairs.append((text, _get(f"{location}, answer", answer, "answer_start", int)))
    return pairs


def _check_keys(location, answer):
    for key in ("text", "answer_start"):
        if not isinstance(answer, dict) or key not in answer:
            raise ValueError(f"{location} has no key {key!r:.80}")


def _as_list(value):
    return value.tolist() if hasattr(value, "tolist") else value


def _get(location, item, key, type_):
    """Return the value of a required key, checked for its type."""
    if not isinstance(item, dict):
        raise ValueError(
            f"{location}: must be an object with the key {key!r:.80}; received {_show(item)}"
        )
    if key not in item:
        raise ValueError(f"{location} has no key {key!r:.80}")
    if type(item[key]) is not type_:
        raise ValueError(
            f"{location}: {key!r:.80} must be {_TYPES[type_]}; received {_show(item[key])}"
        )
    return item[key]


def _show(value):
    return json.dumps(value)[:80]
