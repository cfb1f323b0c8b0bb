"""Questions, contexts and answers from files in SQuAD's JSON format, also used by KorQuAD 1.0."""

import collections
import dataclasses
import io
import itertools
import operator
import pathlib
import warnings

from keras_bert.data.examples import TaskData, check_count, check_strings, summary
from keras_bert.data.label_columns import is_missing
from keras_bert.data.tables import read_columns
from keras_bert.data.text_files import check_limit, json_rows, open_utf8
from keras_bert.runtime import budget
from keras_bert.runtime.arguments import as_list
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.reading import json_value
from keras_bert.runtime.warn import level_of_caller

# Characters that are searched for answers which are not at their start. A search takes about
# 3 ns per character.
_MAX_SEARCHED = 2**30


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
    row_fields = ("questions", "contexts", "answers", "ids")

    def __post_init__(self):
        columns: dict[str, list] = {
            "questions": check_strings(self.source, "questions", self.questions),
            "contexts": check_strings(self.source, "contexts", self.contexts),
        }
        if self.answers is not None:
            columns["answers"] = as_list(f"{self.source}: answers", self.answers)
        if self.ids is not None:
            ids = as_list(f"{self.source}: ids", self.ids)
            # A question without an id has its number, as where no question has one.
            columns["ids"] = [str(number if id is None else id) for number, id in enumerate(ids, 1)]
        for name, column in columns.items():
            check_count(self.source, name, column, "questions", len(columns["questions"]))
            object.__setattr__(self, name, column)
        if self.answers is not None:
            self._locate_answers(columns["answers"])

    def _locate_answers(self, column):
        """Correct the starts of the answers, and count the answers with another start or none."""
        answers = []
        moved = 0
        lost = 0
        limit = max(_MAX_SEARCHED, budget.EXPANSION * sum(map(len, set(self.contexts))))
        searched = 0  # characters
        questions = zip(self.contexts, column, strict=True)
        for number, (context, stated_answers) in enumerate(questions, 1):
            location = f"{self.source}, question {number}"
            located = []
            for text, stated_start in _checked_answers(location, stated_answers):
                start = stated_start
                if start < 0 or not context.startswith(text, start):
                    searched += len(context)
                    if searched > limit:
                        raise ValueError(
                            f"{location}: too many answers of long contexts are not at their "
                            "start. Correct answer_start, the index of the first character"
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

    def counts(self):
        counts = {"lost_answers": self.lost_answers, "moved_answers": self.moved_answers}
        return {name: count for name, count in counts.items() if count}

    def sample_of_texts(self, count):
        return list(self.contexts[:count])

    def __len__(self):
        return len(self.questions)

    def __repr__(self):
        return summary(self, len(self), [] if self.answers is None else ["answers"])


def _checked_answers(location, answers):
    """Return the answers of a question, pairs of a text and its start as an int."""
    try:
        if isinstance(answers, (str, dict)):
            raise TypeError
        pairs = [(text, operator.index(start)) for text, start in answers]
    except (TypeError, ValueError):
        pairs = [("", 0)]
    if not all(isinstance(text, str) and text for text, _ in pairs):
        raise ValueError(
            f"{location}: the answers must be a list of pairs of a non-empty text and its start; "
            f"received {shown(answers)}. For no answer, give an empty list"
        )
    return pairs


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

    A question has no answer if `is_impossible` is true (SQuAD 2.0), or its list of answers is
    empty or has only empty texts. `plausible_answers` are ignored. The id of a question is its `id`
    or its `guid`.
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

    >>> import json, tempfile
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
    squad = _parse(path, content)
    questions = _questions_of(path, _get(str(path), squad, "data", list))
    if characters is None:
        characters = str(squad.get("version")).startswith("KorQuAD")
    return _read_questions(path, itertools.islice(questions, limit), labeled, characters)


def read_table(table, *, limit=None, characters=None):
    """Read `Questions` from a table with the columns question and context.

    The other columns are optional: answers, or answer and answer_start; is_impossible; id or guid.
    """
    optional = ("id", "guid", "answers", "answer", "answer_start", "is_impossible")
    columns = read_columns(table, ("question", "context"), optional, limit, "Questions")
    labeled = "answers" in columns or {"answer", "answer_start"} <= set(columns)
    if "answer" in columns and not labeled:
        warnings.warn(
            "the answers in the table are not read, because it has no column answer_start, the "
            "index of their first character in the context",
            stacklevel=level_of_caller(),
        )
    questions = []
    for number, values in enumerate(zip(*columns.values(), strict=True), 1):
        row = dict(zip(columns, values, strict=True))
        questions.append((f"the table, row {number}", row, row))
    return _read_questions("the table", questions, labeled, bool(characters))


def _read_questions(source, questions, labeled, characters):
    """Return `Questions` from the location, the JSON of the context and that of each question."""
    columns = collections.defaultdict(list)
    for location, paragraph, question in questions:
        columns["questions"].append(_get(location, question, "question", str))
        columns["contexts"].append(_get(location, paragraph, "context", str))
        columns["ids"].append(question.get("id", question.get("guid")))  # KLUE's key is guid
        if labeled:
            columns["answers"].append(_answers(location, question))
    if not columns:
        raise ValueError(f"{source} contains no questions")
    if all(id is None for id in columns["ids"]):
        del columns["ids"]
    return Questions(**columns, source=str(source), characters=characters)


def _parse(path, content):
    """Return the JSON of a file in SQuAD's format; rows are returned as its `data`."""
    first, _, rest = content.strip().partition("\n")
    if first.rstrip().endswith("}") and rest.lstrip().startswith("{"):  # JSON Lines
        rows = json_rows(path, io.StringIO(content, newline="\n"))
        return {"data": [row for _, row in rows]}
    try:
        squad = json_value(content)
    except ValueError as error:
        raise ValueError(
            f"{path} is not JSON ({error}). Question answering takes SQuAD's JSON, or JSON Lines "
            "with question, context and answers"
        ) from error
    if isinstance(squad, dict) and "question" in squad:  # a single row
        squad = [squad]
    return {"data": squad} if isinstance(squad, list) else squad


def _questions_of(path, articles):
    """Yield the location, the JSON with the context, and the JSON of each question.

    In place of an article, there can be a question with its context.
    """
    for article_number, article in enumerate(articles, 1):
        if isinstance(article, dict) and "question" in article:
            yield f"{path}, item {article_number}", article, article
            continue
        title = article.get("title", article_number) if isinstance(article, dict) else ""
        article_location = f"{path}, article {shown(title)}"
        paragraphs = _get(article_location, article, "paragraphs", list)
        for paragraph_number, paragraph in enumerate(paragraphs, 1):
            location = f"{article_location}, paragraph {paragraph_number}"
            for number, question in enumerate(_get(location, paragraph, "qas", list), 1):
                yield f"{location}, question {number}", paragraph, question


def _answers(location, row):
    """Return the text and the start of each answer of a question.

    `answers` is a list of objects, or an object of lists. In place of it, a row can have one
    `answer` and its `answer_start`. A text that is missing or empty is no answer.
    """
    is_impossible = row.get("is_impossible")
    if is_missing(is_impossible):
        is_impossible = False
    if is_impossible not in (True, False):
        raise ValueError(
            f"{location}: is_impossible must be true or false; received {shown(is_impossible)}"
        )
    if is_impossible:
        return []
    try:
        if isinstance(row.get("answers"), str):
            raise ValueError
        if "answers" not in row and "answer" in row:
            # pandas has floats in a column with missing values.
            answer = row["answer"]
            return [] if is_missing(answer) else [(answer, int(row["answer_start"]))]
        answers = row["answers"]
        if isinstance(answers, dict):
            if any(isinstance(answers[key], str) for key in ("text", "answer_start")):
                raise ValueError
            pairs = list(zip(answers["text"], answers["answer_start"], strict=True))
        else:
            pairs = [(answer["text"], answer["answer_start"]) for answer in answers]
        return [(text, start) for text, start in pairs if not is_missing(text)]
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            f"{location} needs 'answers', a list of objects with text and answer_start, or an "
            f"object of such lists; received {shown(row.get('answers'))}"
        ) from None


def _get(location, item, key, kind):
    """Return the value of a required key of a JSON object."""
    value = item.get(key) if isinstance(item, dict) else None
    if not isinstance(value, kind):
        raise ValueError(
            f"{location}: must have the key {key!r} with a {kind.__name__}; received {shown(value)}"
        )
    return value
