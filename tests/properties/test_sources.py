"""Sources agree: the same content gives the same data, warnings and errors from every source."""

import csv
import dataclasses
import json
import re
import warnings

import numpy as np
import pytest

import keras_bert
from keras_bert.tasks import registry

NFD = "\u1112\u1161\u11ab\u1100\u116e\u11a8"
TEXTS = [" spaced ", "", 'with "quotes", and commas', "line\nbreak", NFD, "-100", "NaN", "1.50"]
# Fields of data that say where they come from.
_PLACES = ("source", "locations", "rows", "columns", "first")


@dataclasses.dataclass
class Content:
    """Rows of one table, the options of `read`, and a part of the error that they cause."""

    columns: dict
    options: dict = dataclasses.field(default_factory=dict)
    error: str | None = None
    typed: bool = False  # True if text files cannot hold the types of the cells


def column(*labels):
    return {"text": TEXTS[: len(labels)], "label": list(labels)}


_PAIRS = {"text": "text", "text_pair": "other"}
_RANKED = {"text": ["q", "q", "r"], "other": ["a", " b", ""]}
CONTENTS = {
    "classification": {
        "spaces": Content(column("bug ", " bug", "bill", "bug", NFD, "x\u3000", "y", "1.50")),
        "integers": Content(column(1, 0, -1, 1)),
        "missing": Content(column("a", None, "b", "", "  ", "a")),
        "missing integers": Content(column(1, None, 0)),
        "whole floats": Content(column(1.0, 2.0)),
        "booleans": Content(column(True, False)),
        "no label": Content({"text": TEXTS}, {"label": None}),
        "fractions": Content(column(0.83, 1.0), error="regression"),
        "no column": Content({"text": TEXTS}, error="no column 'label'|no key 'label'"),
        "only missing": Content(column(None, ""), error="no row has a label"),
        "numbers as texts": Content({"text": [1, 2], "label": [0, 1]}, error="texts", typed=True),
        "control": Content(column("a\x07b", "c"), error="control characters"),
        "forms": Content(column(NFD, "\ud55c\uad6d"), error="normalization"),
    },
    "pair": {"pairs": Content({**column("a", "b "), "other": ["", None]}, _PAIRS)},
    "multi_label": {
        "names": Content(column("x, y", "y", "", " y,x")),
        "missing": Content(column("x, y", None, "", "y")),
        "lists": Content(column(["x ", "y"], [" y"], []), typed=True),
        "vectors": Content(column([1, 0, 1], [0, 1, 1])),
        "floats": Content(column([1.0, 0.0], [0.25, 0.5])),
        "columns": Content(
            {"text": TEXTS[:3], "b": [1, 0, -1], "a": [0.0, 1.0, -1]}, {"label": ["b", "a"]}
        ),
        "soft columns": Content(
            {"text": TEXTS[:2], "b": [0.83, 0], "a": [0.0, 1.0]}, {"label": ["b", "a"]}
        ),
        "above 1": Content(column([1.5, 0.0], [0.0, 1.0]), error="from 0 to 1"),
        "wrong column": Content(
            {"text": TEXTS[:2], "b": [2, 0]}, {"label": ["b"]}, error="must hold 0 or 1"
        ),
    },
    "regression": {
        "numbers": Content(column(1, 2.5, "3", -4e3)),
        "missing": Content(column(1.0, None), error="scores must be numbers"),
        "word": Content(column("1", "high"), error="scores must be numbers; received 'high'"),
    },
    "embedding": {
        "pairs": Content(
            {"text": ["a", "b"], "other": ["c ", "d"], "n": ["e", "f"]},
            {**_PAIRS, "negatives": "n"},
        ),
        "lists of negatives": Content(
            {"text": ["a", "b"], "other": ["c", "d"], "n": [["e", "f"], ["g", "h"]]},
            {**_PAIRS, "negatives": "n"},
            typed=True,
        ),
        "scores": Content(
            {"text": ["a", "b"], "other": ["c", "d"], "label": [0, 0.5]},
            {**_PAIRS, "label": "label"},
        ),
        "classes": Content({"text": ["a", "b"], "label": ["x ", " x"]}, {"label": "label"}),
    },
    "reranking": {
        "twice": Content(
            {"text": ["q", "q", "r"], "other": ["a", "a", "b"], "label": [0, 1, 1]},
            {**_PAIRS, "label": "label"},
        ),
        "scores": Content({**_RANKED, "label": [1, 0, 2]}, {**_PAIRS, "label": "label"}),
    },
    "tagging": {
        "spaces": Content(
            {"sentence": [1, 1, 2], "word": ["Ann", "left", NFD], "tag": ["B-PER", "O ", " B-PER"]}
        ),
        "unknown": Content(
            {"sentence": [1, 1, 1], "word": ["Ann", "a", "b"], "tag": ["PER", "O", "-"]}
        ),
        "integers": Content({"sentence": [1, 1], "word": ["Ann", "a"], "tag": [1, -100]}),
        "no tag": Content(
            {"sentence": [1, 1], "word": ["Ann", "a"], "tag": ["O", None]}, error="is empty"
        ),
        "lists": Content(
            {"words": [["Ann", "left"], ["a"]], "tags": [["B-PER", "O "], ["-"]]}, typed=True
        ),
    },
    "question_answering": {
        "lists": Content(
            {"question": ["who", "what"], "context": ["it was Ada", NFD],
             "answers": [{"text": ["Ada"], "answer_start": [7]}, {"text": [], "answer_start": []}]},
            typed=True,
        ),
        "impossible": Content(
            {"question": ["who"], "context": ["it was Ada"], "is_impossible": [True],
             "answers": [{"text": [], "answer_start": []}]},
            typed=True,
        ),
    },
    "multiple_choice": {
        "lists": Content(
            {"text": ["a", NFD], "choices": [["b", "c"], ["d", ""]], "label": [1, 0]}, typed=True
        ),
        "text": Content(
            {"text": ["a"], "choices": [["b", "c"]], "label": ["1"]}, typed=True
        ),
        "whole floats": Content(
            {"text": ["a", "b"], "choices": [["b", "c"]] * 2, "label": [1.0, 0.0]}, typed=True
        ),
        "swag": Content(
            {"sent1": ["a", ""], "sent2": ["b", NFD], "ending0": ["c", "d "],
             "ending1": ["e", "f"], "label": [1, 0]},
        ),
        "out of range": Content(
            {"text": ["a"], "choices": [["b", "c"]], "label": [2]}, error="label", typed=True
        ),
    },
}  # fmt: skip
CONTENTS["sparse_embedding"] = {"pairs": CONTENTS["embedding"]["pairs"]}
CASES = [(name, case) for name, cases in CONTENTS.items() for case in cases]


def _rows(columns):
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _json_lines(columns, folder):
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in _rows(columns)), encoding="utf-8")
    return path


def _csv(columns, folder):
    path = folder / "a.csv"
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows([row[name] for name in columns] for row in _rows(columns))
    return path


def _tsv(columns, folder):
    path = folder / "a.tsv"
    rows = [columns, *([row[name] for name in columns] for row in _rows(columns))]
    lines = ["\t".join("" if cell is None else str(cell) for cell in row) for row in rows]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def _frame(columns, folder):
    return pytest.importorskip("pandas").DataFrame(columns)


def _frame_of_arrays(columns, folder):
    pandas = pytest.importorskip("pandas")
    cells = {
        name: [np.array(cell) if isinstance(cell, list) else cell for cell in column]
        for name, column in columns.items()
    }
    return pandas.DataFrame(cells, index=range(7, 7 + len(next(iter(columns.values())))))


def _hub(columns, folder):
    return pytest.importorskip("datasets").Dataset.from_dict(columns)


def _parquet(columns, folder):
    pytest.importorskip("pyarrow")
    _frame(columns, folder).to_parquet(folder / "a.parquet")
    return pytest.importorskip("pandas").read_parquet(folder / "a.parquet")


def _excel(columns, folder):
    pytest.importorskip("openpyxl")
    _frame(columns, folder).to_excel(folder / "a.xlsx", index=False)
    return pytest.importorskip("pandas").read_excel(folder / "a.xlsx")


TEXT_FILES = {"csv": _csv, "tsv": _tsv, "excel": _excel}
SOURCES = {
    "dict": lambda columns, folder: columns,
    "rows": lambda columns, folder: _rows(columns),
    "jsonl": _json_lines,
    "frame": _frame,
    "arrays": _frame_of_arrays,
    "hub": _hub,
    "parquet": _parquet,
    **TEXT_FILES,
}


def is_whole(cell):
    return isinstance(cell, float) and cell.is_integer()


def _can_hold(source, task, content):
    """Return True if a source can hold a content, and the task reads that source."""
    is_swag = "sent1" in content.columns
    if source == "jsonl":  # a line of JSON is a sentence, or has choices
        return (task != "tagging" or content.typed) and not is_swag
    if source == "tsv" and is_swag:
        return False
    if source in TEXT_FILES and content.typed:
        return False
    cells = [cell for column in content.columns.values() for cell in column]
    if source == "tsv":
        is_broken = any("\n" in cell for cell in cells if isinstance(cell, str))
        return task != "tagging" and not is_broken  # a .tsv file of tags has CoNLL columns
    # pandas reads the text NaN of Excel as an empty cell, and whole floats as integers.
    if source == "excel" and any(cell in ("NaN", "a\x07b") or is_whole(cell) for cell in cells):
        return False
    mixed = any(len({type(cell) for cell in column}) > 1 for column in content.columns.values())
    return source not in ("hub", "parquet", "excel") or not mixed


def _without_places(text):
    """Return a message without the name of the source, the row and the type of a value."""
    text = re.sub(r"(\S*/a\.\w+|the table)", "SOURCE", text)
    text = re.sub(r"(row|line|item|sentence) \d+(, (row|word) \d+)?", "PLACE", text)
    return re.sub(r"received ['\"]?([^'\"]*)['\"]?", r"received \1", text)


def _reading(source, task, content, folder):
    """Return the data, and the warnings; or the error."""
    data = SOURCES[source](content.columns, folder)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            examples = keras_bert.read(data, task, **content.options)
        except ValueError as error:
            return _without_places(str(error)), str(error)
    fields = [field.name for field in dataclasses.fields(examples) if field.name not in _PLACES]
    values = {name: getattr(examples, name) for name in fields}
    messages = sorted(_without_places(str(warning.message)) for warning in caught)
    return {**values, "counts": examples.counts(), "warnings": messages}, None


def test_every_task_that_reads_tables_has_contents():
    names = {name for task in registry.TASKS for name in task.reads}
    assert names - set(CONTENTS) <= {"retrieval", "next_sentence"}  # a folder; as "pair"


LIBRARIES = {"hub": "datasets", "parquet": "pyarrow", "excel": "openpyxl"}


@pytest.mark.parametrize(
    "sources",
    [
        pytest.param([source for source in SOURCES if source not in LIBRARIES], id="installed"),
        pytest.param(list(LIBRARIES), id="of other libraries", marks=pytest.mark.peers),
    ],
)
@pytest.mark.parametrize(("task", "case"), CASES)
def test_the_same_content_gives_the_same_data(task, case, sources, tmp_path):
    content = CONTENTS[task][case]
    wanted, error = _reading("dict", task, content, tmp_path)
    assert (error is None) == (content.error is None)
    if content.error:
        assert re.search(content.error, error)
    for source in sources:
        if source in LIBRARIES:
            pytest.importorskip(LIBRARIES[source])
        if not _can_hold(source, task, content):
            continue
        found, error = _reading(source, task, content, tmp_path)
        if content.error is None:
            assert found == wanted, source
        else:
            assert error is not None, source
            assert re.search(content.error, error), source
