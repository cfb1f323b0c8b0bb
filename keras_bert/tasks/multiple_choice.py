"""The task of choosing the best of several continuations: SWAG, section 4.4 of the paper.

A task module, see `texts`.
"""

import csv
import dataclasses
import itertools
import json
import pathlib
import sys

import keras
import numpy as np

from keras_bert import heads
from keras_bert.data.batching import REDUCTION
from keras_bert.data.tabular import FORMATS, Examples, allow_long_fields, check_limit, not_utf8
from keras_bert.tasks.classification import EncodedTexts, softmax

HEADS = ("multiple_choice",)
MAX_LENGTH = 128


@dataclasses.dataclass(frozen=True)
class Choices:
    """Beginnings, each with the same number of continuations.

    Attributes:
        texts: what comes before.
        choices: for each text its continuations, at least two.
        labels: the index of the right one, from 0, or `None`.
        source: where they come from, for messages.
        first: number of the first item there, if these are a part.

    Raises:
        ValueError: the columns differ in length, a text is no string, a row has another number
            of choices, or a label is none of them.

    Example:

    >>> len(Choices(["She opened"], [["the door.", "the sky."]], [0]))
    1
    """

    texts: list[str]
    choices: list[list[str]]
    labels: list[int] | None = None
    source: str = "the choices"
    first: int = 1

    def __post_init__(self):
        for name in ("choices", "labels"):
            column = getattr(self, name)
            if column is not None and len(column) != len(self.texts):
                raise ValueError(
                    f"{self.source}: {name} must be as many as the texts, {len(self.texts)}; "
                    f"received {len(column)}"
                )
        count = len(self.choices[0]) if self.choices else 2
        rows = zip(self.texts, self.choices, strict=True)
        for index, (text, choices) in enumerate(rows):
            label = 0 if self.labels is None else self.labels[index]
            _check(f"{self.source}, item {self.first + index}", text, choices, label, count)

    def __len__(self):
        return len(self.texts)


def _check(place, text, choices, label, count):
    """Raises for an item that has not so many choices, or is wrong in another way."""
    if isinstance(choices, str):  # whose letters would be the choices
        raise ValueError(f"{place}: the choices must be a list; received {choices!r:.80}")
    for item in (text, *choices):
        if not isinstance(item, str):
            raise ValueError(f"{place}: texts must be strings; received {item!r:.80}")
    if len(choices) != count or count < 2:
        raise ValueError(
            f"{place}: must have {max(count, 2)} choices, as the first; received {len(choices)}"
        )
    if not isinstance(label, (int, np.integer)) or not 0 <= label < count:
        raise ValueError(
            f"{place}: the label must be a number from 0 to {count - 1}; received {label!r}"
        )


def read(path, **options):
    r"""Reads choices from a file.

    JSON Lines with the keys `text`, `choices` (a list) and `label` (the index of the right one,
    from 0), or SWAG's own CSV with the columns `sent1`, `sent2` (how each ending begins),
    `ending0`, `ending1`, ... and `label`.

    Args:
        path: the file.
        format: `"csv"` or `"jsonl"`; default: by the file's ending.
        limit: read no more than so many rows.
        labelled: whether the label is wanted.

    Returns:
        The `Choices`.

    Raises:
        ValueError: the format is another, or something is missing or of the wrong kind; the
            message names file and line.
        OSError: the file cannot be read.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "endings.jsonl")
    ...     _ = file.write_text('{"text": "a", "choices": ["b", "c"], "label": 1}\n')
    ...     read(file).labels
    [1]
    """
    parts = list(read_in_parts(path, size=sys.maxsize, **options))
    return parts[0]


def read_in_parts(path, *, format=None, limit=None, labelled=True, size=10_000):
    r"""Reads choices from a file of any size, a part at a time.

    Args: as for `read`, and
        size: rows a part.

    Yields:
        `Choices`; at least one.

    Raises:
        ValueError, OSError: as for `read`.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "endings.jsonl")
    ...     _ = file.write_text('{"text": "a", "choices": ["b", "c"], "label": 1}\n' * 3)
    ...     [len(part) for part in read_in_parts(file, size=2)]
    [2, 1]
    """
    path = pathlib.Path(path)
    format = format or FORMATS.get(path.suffix.lower(), "jsonl")
    if format not in ("csv", "jsonl"):
        raise ValueError(f"{path}: the format must be csv or jsonl (--format); received {format!r}")
    rows = _swag_rows if format == "csv" else _json_rows
    check_limit(limit)
    first, count = 1, None
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            wanted = itertools.islice(rows(path, file), limit)
            while part := list(itertools.islice(wanted, size)):
                places, texts, choices, labels = map(list, zip(*part, strict=True))
                labels = _numbers(places, labels) if labelled else None
                count = count or len(choices[0])
                # Here, where it is known on which line of the file an item stands.
                for row in zip(places, texts, choices, labels or [0] * len(part), strict=True):
                    _check(*row, count)
                yield Choices(texts, choices, labels, str(path), first)
                first += len(part)
    except UnicodeDecodeError as error:
        raise not_utf8(path) from error
    if first == 1:
        raise ValueError(f"{path}: holds no rows")


def _numbers(places, labels):
    for place, label in zip(places, labels, strict=True):
        if not str(label).isdecimal():
            raise ValueError(f"{place}: the label must be a number from 0; received {label!r}")
    return [int(label) for label in labels]


def _json_rows(path, file):
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{place}: is not JSON ({error})") from error
        if not isinstance(row, dict) or not isinstance(row.get("choices"), list):
            raise ValueError(f"{place}: must be a JSON object with a list `choices`")
        yield place, row.get("text"), row["choices"], row.get("label")


def _swag_rows(path, file):
    allow_long_fields()
    rows = csv.DictReader(file, strict=True)
    try:
        names = rows.fieldnames or []
        _check_swag_columns(path, names)
        # By their numbers: a file may have them in any order.
        endings = sorted((name for name in names if _is_ending(name)), key=lambda n: int(n[6:]))
        for row in rows:
            # `line_num` is where the row ends: fields may span lines, and blank lines are none.
            place = f"{path}, line {rows.line_num}"
            if None in row or None in row.values():
                raise ValueError(f"{place}: must have {len(names)} fields, as the first row has")
            begin = row["sent2"]
            yield (
                place,
                row["sent1"],
                [f"{begin} {row[name]}" for name in endings],
                row.get("label"),
            )
    except csv.Error as error:
        raise ValueError(f"{path}, after line {rows.line_num}: {error}") from error


def _is_ending(name):
    return name.startswith("ending") and name[6:].isdecimal()


def _check_swag_columns(path, names):
    """Raises for a file that has not the columns of SWAG, each once and all of the endings."""
    if not names:  # an empty file, which holds no rows
        return
    numbers = sorted(int(name[6:]) for name in names if _is_ending(name))
    twice = sorted({name for name in names if names.count(name) > 1 and name})
    if twice:
        raise ValueError(f"{path}: has two columns {twice[0]!r}")
    if not {"sent1", "sent2"} <= set(names) or not numbers or numbers != list(range(len(numbers))):
        found = ", ".join(name[:40] for name in names[:20])
        raise ValueError(
            f"{path}: must have the columns sent1, sent2, ending0, ending1, ... without a gap; "
            f"received {found}"
        )


def build(encoder, train):
    """Puts a fresh `heads.multiple_choice` on an encoder.

    Args:
        encoder: a `BertEncoder`.
        train: `Choices` with labels.

    Returns:
        The model.

    Raises:
        ValueError: there are no labels.
    """
    if train.labels is None:
        raise ValueError(f"{train.source}: has no labels to learn from")
    return heads.multiple_choice(encoder)


def compile_options(model):
    """The loss of the task, as keyword arguments of `model.compile`."""
    return {
        "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=REDUCTION),
        "weighted_metrics": [keras.metrics.SparseCategoricalAccuracy("accuracy")],
    }


class EncodedChoices:
    """Choices as ids: each a pair of the text and one continuation.

    Args:
        preprocessor: the `Preprocessor` of the encoder.
        examples: `Choices`.
        max_length: positions of the longest sequence.

    Attributes:
        lengths: positions of the longest of each example's sequences, int (n,).
        truncated: how many sequences were cut.
        without_pieces: how many texts and continuations are empty or invisible.
    """

    def __init__(self, preprocessor, examples, max_length):
        self.max_length = max_length
        self._count = len(examples.choices[0])
        self._labels = None if examples.labels is None else np.array(examples.labels, np.int32)
        texts = [text for text in examples.texts for _ in range(self._count)]
        choices = [choice for choices in examples.choices for choice in choices]
        self._encoded = EncodedTexts(preprocessor, Examples(texts, choices), max_length)
        self.lengths = self._encoded.lengths.reshape(-1, self._count).max(axis=1)
        self.truncated = self._encoded.truncated
        repeated, alone = self._encoded.empty  # each text stands before all of its continuations
        self.without_pieces = repeated // self._count + alone

    def __len__(self):
        return len(self.lengths)

    def batch(self, rows, length):
        """A dict of three int32 arrays (batch, choices, length), targets and weights (batch,)."""
        rows = np.asarray(rows)
        flat = (rows[:, None] * self._count + np.arange(self._count)).ravel()
        inputs, _, _ = self._encoded.batch(flat, length)
        inputs = {
            key: value.reshape(len(rows), self._count, length) for key, value in inputs.items()
        }
        if self._labels is None:
            return inputs, None, None
        return inputs, self._labels[rows], np.ones(len(rows), np.float32)


def encode(model, examples, max_length):
    """Choices as ids.

    Args:
        model: from `build`.
        examples: `Choices`.
        max_length: positions at which sequences are cut.

    Returns:
        The `EncodedChoices`.
    """
    return EncodedChoices(heads.find_encoder(model).preprocessor, examples, max_length)


def decode(model, examples, encoded, outputs):
    """Probabilities of the choices, a list of arrays, from a list of logits (choices,)."""
    return [softmax(np.asarray(logits, np.float32)) for logits in outputs]


def score(model, examples, answers):
    """`accuracy`, and `majority`, that of always taking the most frequent place; 0 to 1."""
    chosen = np.array([row.argmax() for row in answers])
    return {
        "accuracy": float(np.mean(chosen == examples.labels)),
        "majority": float(np.bincount(examples.labels).max() / len(examples)),
    }


def metric_names(model, examples):
    """The names that `score` will give, but for `majority`."""
    return ("accuracy",)


def header(model):
    """The first line of a file of answers."""
    return "choice\tscore"


def lines(model, examples, answers):
    """The lines of a file of answers: index of the best choice, from 0, and its probability."""
    for row in answers:
        yield f"{row.argmax()}\t{row.max():.4f}"


def records(model, examples, answers):
    """The answers by name, for other files than TSV: a dict for each, `choice` and `score`."""
    for row in answers:
        yield {"choice": int(row.argmax()), "score": float(row.max())}
