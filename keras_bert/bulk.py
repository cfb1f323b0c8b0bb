"""Run an exported model over millions of texts with Apache Beam. Needs the extra `beam`.

A row is a dict. `ReadRows` reads rows, `Predict` adds the answers of a model, and `WriteRows`
writes the rows. A row that cannot be read or answered becomes a `Rejected`, with the reason. If the
model itself fails, for example for lack of memory, the pipeline fails and no row is rejected.
"""

import json
import os
import pathlib
import typing
from collections.abc import Iterable, Mapping

import apache_beam as beam
import numpy as np
from apache_beam.coders import BytesCoder
from apache_beam.io import filesystems, parquetio
from apache_beam.metrics import Metrics
from apache_beam.ml.inference.base import ModelHandler, RunInference

from keras_bert.exporting import graph_folder
from keras_bert.pipelines.factory import pipeline
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.reading import json_value
from keras_bert.tasks import registry

FORMATS = {".txt": "text", ".jsonl": "jsonl", ".parquet": "parquet"}


class Rejected(typing.NamedTuple):
    """A row without an answer.

    Attributes:
        row: The row: a dict, or a line that is not a row.
        reason: What is wrong with it.
    """

    row: typing.Any
    reason: str


class ReadRows(beam.PTransform):
    """Read rows from text files, JSON Lines or Parquet.

    A line of a text file is the row `{"text": line}`. A line of JSON Lines that is not an object is
    a `Rejected`.

    Args:
        pattern: Path of the files, such as `"reviews/*.jsonl"` or `"gs://bucket/reviews.parquet"`.
        format: `"text"`, `"jsonl"` or `"parquet"`. Defaults to the format of the extension.

    Raises:
        ValueError: If the format is unknown.
    """

    def __init__(self, pattern: str | os.PathLike, format: str | None = None) -> None:
        super().__init__()
        self._pattern = str(pattern)
        self._format = _format_of(pattern, format)

    def expand(self, root):
        if self._format == "parquet":
            return root | parquetio.ReadFromParquet(self._pattern)
        # Bytes, because one invalid line must not fail all others.
        lines = root | beam.io.ReadFromText(self._pattern, coder=BytesCoder())
        return lines | beam.FlatMap(_rows_of_line, self._format)


class Predict(beam.PTransform):
    """Add the answers of a model to rows.

    The answers are the outputs of the SavedModel's `serving_default`, such as `label`, `score` and
    `probabilities`, without their padding. An answer gets the prefix `predicted_` if the row has a
    column of this name. The counters `predicted` and `rejected` count the rows.

    Args:
        model: A folder that `keras_bert.export` wrote, in any format.
        **options: Keyword arguments of `ExportHandler`.

    Returns:
        A tuple of two PCollections: the answered rows, dicts, and the others, `Rejected`s.

    Example:

        rows = pipeline | ReadRows("reviews.jsonl")
        predicted, rejected = rows | Predict("exported", keep=["id"], trusted=True)
    """

    def __init__(self, model: str | os.PathLike, **options: typing.Any) -> None:
        super().__init__()
        self.handler = ExportHandler(model, **options)

    def expand(self, rows):
        answered = rows | RunInference(self.handler)
        return tuple(answered | beam.Partition(_part_of, 2))


class ExportHandler(ModelHandler):
    """Beam's model handler of an exported model, for `RunInference`.

    It takes dicts and returns, in their order, dicts with the answers or `Rejected`s.

    Args:
        model: A folder that `keras_bert.export` wrote, in any format.
            Each worker process loads it once.
        columns: Dict from an input of the model to the column of the rows, such as
            `{"text": "sentence"}`. By default, columns have the names of the inputs.
        keep: Names of the columns to keep, such as `["id"]`. Defaults to all.
        batch_size: Rows per call of the model. The model sorts them by length.
        trusted: Must be True for a SavedModel, which is a program. Use it only for models that you
            trust. ONNX and OpenVINO folders of `keras_bert.export` do not need it.
    """

    def __init__(
        self,
        model: str | os.PathLike,
        *,
        columns: Mapping[str, str] | None = None,
        keep: Iterable[str] | None = None,
        batch_size: int = 512,
        trusted: bool = False,
    ) -> None:
        super().__init__(min_batch_size=batch_size, max_batch_size=batch_size)
        self._path = str(model)
        self._trusted = trusted
        self._columns = dict(columns or {})
        self._keep = None if keep is None else list(keep)

    def load_model(self):
        if graph_folder.find_graph(self._path):
            return _GraphModel(self._path, self._trusted)
        return _SavedModel(self._path, self._trusted)

    def get_metrics_namespace(self):
        return "keras_bert"

    def run_inference(self, batch, model, inference_args=None):
        answers = list(batch)
        inputs_by_index = {}
        for index, row in enumerate(batch):
            if isinstance(row, Rejected):
                continue
            try:
                inputs_by_index[index] = self._inputs(row, model.inputs)
            except ValueError as error:
                answers[index] = Rejected(row, str(error))
        answered = _answers(model, list(inputs_by_index.values()))
        for index, answer in zip(inputs_by_index, answered, strict=True):
            row = batch[index]
            if isinstance(answer, Rejected):
                answers[index] = Rejected(row, answer.reason)
            else:
                answers[index] = self._joined(row, answer)
        return answers

    def _inputs(self, row, names):
        """Return the inputs of the model for a row; raise a `ValueError` if one is missing."""
        if not isinstance(row, dict):
            raise ValueError(f"a row must be a dict; received {shown(row)}")
        inputs = {}
        for name in names:
            column = self._columns.get(name, name)
            if column not in row:
                raise ValueError(f"the row has no {column!r}; it has {', '.join(map(str, row))}")
            value = row[column]
            kind = list if name == "choices" else str
            if not isinstance(value, kind):
                raise ValueError(f"{column!r} must be a {kind.__name__}; received {shown(value)}")
            inputs[name] = value
        return inputs

    def columns_of(self, row):
        """Return the names of the columns of an answered row, and an example of the answers."""
        model = self.load_model()
        [answer] = model([_sample(model)])
        kept = self._joined(row, {})
        joined = self._joined(row, answer)
        return list(joined), {name: joined[name] for name in joined if name not in kept}

    def _joined(self, row, answer):
        if self._keep is not None:
            row = {name: row[name] for name in self._keep if name in row}
        renamed = {f"predicted_{name}" if name in row else name: answer[name] for name in answer}
        return row | renamed


def _sample(model):
    """Return a row that every model can answer."""
    return {name: ["a", "b"] if name == "choices" else "a [MASK]" for name in model.inputs}


def _answers(model, rows):
    """Return the answers for rows; `Rejected` for rows that the model cannot answer.

    If the model cannot answer a sample either, the rows are not the reason. The error is then
    raised, so that Beam tries the whole batch again or stops.
    """
    if not rows:
        return []
    try:
        return model(rows)
    except Exception as error:  # whatever fails, the other rows must not be lost
        model([_sample(model)])  # raises an error if the rows are not the reason
        if len(rows) == 1:
            return [Rejected(rows[0], f"{type(error).__name__}: {error}")]
        half = len(rows) // 2
        return [*_answers(model, rows[:half]), *_answers(model, rows[half:])]


class _SavedModel:
    """The signature `serving_default` of a SavedModel, for lists of dicts."""

    def __init__(self, path, trusted):
        from keras_bert.server import models

        locations = models.find(path)
        if len(locations) != 1:
            raise ValueError(f"{path} must hold one exported model; it holds {len(locations)}")
        model = models.load(locations[0].folder, trusted=trusted)
        self._signature = model.signature("serving_default")
        self.inputs = list(self._signature.inputs)

    def __call__(self, rows):
        from keras_bert.server import rest

        arrays, _ = rest.read_inputs({"instances": rows}, self._signature.inputs)
        outputs = self._signature(arrays)
        columns = {name: rest.to_lists(name, array) for name, array in outputs.items()}
        if "count" in columns:  # of a tagger: the number of words of each text
            counts = columns.pop("count")
            for name, rows_of_words in columns.items():
                columns[name] = [
                    row[:count] for row, count in zip(rows_of_words, counts, strict=True)
                ]
        if "weights" in columns:  # of a sparse embedder: 0 after the last term
            counts = [np.count_nonzero(row) for row in columns["weights"]]
            for name in ("ids", "weights"):
                columns[name] = [
                    row[:count] for row, count in zip(columns[name], counts, strict=True)
                ]
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


class _GraphModel:
    """An ONNX or OpenVINO folder, for lists of dicts. It answers like a SavedModel of its head."""

    def __init__(self, path, trusted):
        self._pipeline: typing.Any = pipeline(path, trusted=trusted)
        if not registry.by_name(self._pipeline.task).answers_texts:
            raise ValueError(
                f"the folder must have a task with one answer per text; {path} has "
                f"{self._pipeline.task}. Use the exported SavedModel"
            )
        self.inputs = list(self._pipeline.columns)

    def __call__(self, rows):
        texts = [tuple(row[name] for name in self.inputs) for row in rows]
        if len(self.inputs) == 1:
            texts = [text for (text,) in texts]
        task = registry.by_name(self._pipeline.task)
        if task.has_probabilities:
            return [self._classes(ranked) for ranked in self._pipeline(texts, top_k=None)]
        answers = self._pipeline(texts)
        return task.served_rows(answers)

    def _classes(self, ranked):
        """Return the outputs for a list of labels with their scores, the best one first."""
        scores = {answer["label"]: answer["score"] for answer in ranked}
        output = self._pipeline.output
        probabilities = [scores[label] for label in output.labels]
        if output.multi_label:
            chosen = [score >= 0.5 for score in probabilities]
            return {"probabilities": probabilities, "chosen": chosen}
        return {**ranked[0], "probabilities": probabilities}


def _part_of(row, _):
    """Return 0 for an answered row, 1 for a rejected one, and count it."""
    is_rejected = isinstance(row, Rejected)
    Metrics.counter("keras_bert", "rejected" if is_rejected else "predicted").inc()
    return int(is_rejected)


class WriteRows(beam.PTransform):
    """Write rows as JSON Lines or Parquet, in one file or more. A file appears when it is complete.

    Args:
        path: Path of the files without the number and the extension, such as `"out/predicted"`.
        schema: A `pyarrow.Schema` for Parquet, see `parquet_schema`. `None`: write JSON Lines.
    """

    def __init__(self, path: str | os.PathLike, schema: typing.Any = None) -> None:
        super().__init__()
        self._path = str(path)
        self._schema = schema

    def expand(self, rows):
        if self._schema is None:
            lines = rows | beam.Map(_as_json)
            return lines | beam.io.WriteToText(self._path, file_name_suffix=".jsonl")
        rows = rows | beam.Map(_as_schema, self._schema)
        return rows | parquetio.WriteToParquet(
            self._path, self._schema, file_name_suffix=".parquet"
        )


def parquet_schema(
    predict: Predict, pattern: str | os.PathLike, format: str | None = None
) -> typing.Any:
    """Return the schema of answered rows, a `pyarrow.Schema`.

    Columns of Parquet files keep their types. Columns of JSON Lines become strings; values that are
    not strings are written as JSON.

    Args:
        predict: The `Predict`. Its model is loaded to see the types of the answers.
        pattern, format: As for `ReadRows`. Only the first file is read, and of JSON Lines only its
            first row.

    Raises:
        ValueError: If there is no such file, or its first line is not a row.
    """
    import pyarrow
    from pyarrow import parquet

    filesystem = filesystems.FileSystems
    [match] = filesystem.match([str(pattern)], [1])
    if not match.metadata_list:
        raise ValueError(f"there is no file {pattern}")
    format = _format_of(pattern, format)
    with filesystem.open(match.metadata_list[0].path) as file:
        if format == "parquet":
            types = {field.name: field.type for field in parquet.read_schema(file)}
        else:
            row = next(iter(_rows_of_line(file.readline().rstrip(b"\r\n"), format)), None)
            if not isinstance(row, dict):
                raise ValueError(f"the first line of {pattern} is not a row: {shown(row, 200)}")
            types = dict.fromkeys(row, pyarrow.string())
    names, answers = predict.handler.columns_of(types)
    known = pyarrow.Table.from_pylist([answers]).schema
    return pyarrow.schema(
        [(name, known.field(name).type if name in answers else types[name]) for name in names]
    )


def _format_of(pattern, format):
    format = format or FORMATS.get(pathlib.PurePath(str(pattern)).suffix.lower())
    if format not in FORMATS.values():
        raise ValueError(
            f"the format of {pattern} must be one of {', '.join(FORMATS.values())}; received "
            f"{format!r}"
        )
    return format


def _rows_of_line(line, format):
    """Yield the row of a line, bytes; nothing for an empty line of JSON Lines."""
    if format == "jsonl" and not line.strip():
        return
    try:
        text = line.decode("utf-8")
        row = json_value(text) if format == "jsonl" else {"text": text}
        if not isinstance(row, dict):
            raise ValueError("the line is not a JSON object")
        if "\\u" in text:  # escapes can be single surrogates, which have no UTF-8
            json.dumps(row, ensure_ascii=False).encode("utf-8")
    except ValueError as error:
        row = Rejected(line.decode("utf-8", "replace"), f"{type(error).__name__}: {error}")
    yield row


def _as_json(row):
    if isinstance(row, Rejected):
        row = row._asdict()
    return json.dumps(row, ensure_ascii=False, default=str)


def _as_schema(row, schema):
    """Return a row with the columns of a `pyarrow.Schema`."""
    import pyarrow

    columns = {}
    for field in schema:
        value = row.get(field.name)
        if field.type == pyarrow.string() and not isinstance(value, (str, type(None))):
            value = json.dumps(value, ensure_ascii=False, default=str)
        columns[field.name] = value
    return columns
