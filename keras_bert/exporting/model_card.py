"""Model cards: the `README.md` that `export` writes into an ONNX folder, or next to SavedModels.

A card lists the inputs and outputs that the file declares. It starts with the YAML header of
Hugging Face's model cards.
"""

import dataclasses
import hashlib
import json
import numbers
import pathlib
import re
import typing

from keras_bert.exporting import file_templates
from keras_bert.exporting.model_comparison import Agreement
from keras_bert.hub.named_source import published_license
from keras_bert.model_spec import HeadSpec
from keras_bert.runtime.escaping import markdown, printable
from keras_bert.runtime.files import atomic_write
from keras_bert.tasks import registry

CARD_FILE = "README.md"

_MAX_LABELS = 60
_MAX_CHARACTERS = 100  # of a label or a value
# Entries of metrics.json that are not metrics.
_SOURCES = {"model": "started from", "train": "trained on", "dev": "evaluated on"}
_NOT_METRICS = ("train_seconds", "examples_per_second", "stopped")

_UNKNOWN_LICENSE = "unknown. Check it before you redistribute this model"
_MARK = "<!-- Written by keras_bert.export, which keeps your version if you edit this file: {} -->"
_ANY_MARK = re.compile(rb"<!-- Written by keras_bert\.export, .*: ([0-9a-f]{16}) -->")


@dataclasses.dataclass(frozen=True)
class ModelInfo:
    """Facts about a model that its files do not hold; `None` if unknown.

    output: `layers.TaskOutput`, or a `HeadSpec` without a task for a model without a head
    description: first sentence of the card of a model without a head
    hub_tag: Hugging Face's name of its task, or `None`
    max_sequence_length: tokens of the longest sequence that the encoder receives
    metrics: dict, as `keras_bert.finetune` returns
    license: license of the weights that training started from
    precision: dtype of the matmuls
    agreement: `model_comparison.Agreement` with float32
    labels_file: where a reader finds the labels that the card leaves out; `None`: it lists all
    """

    output: typing.Any = dataclasses.field(default_factory=HeadSpec)
    description: str = "A Keras model that takes strings."
    hub_tag: str | None = None
    parameters: int | None = None  # of a preprocessor, which has no metrics
    max_sequence_length: int | None = None
    metrics: dict | None = None
    license: str | None = None
    precision: str | None = None
    agreement: Agreement | None = None
    labels_file: str | None = "`assets/labels.txt` of the version"


def write(version, info, functions):
    """Write the card of a version. Return False if a card that the user edited was kept.

    `version` is the folder of the SavedModel in the model folder, named by its number. `functions`
    are its signatures, a dict of `tf.function`s.
    """
    from keras_bert.exporting import tf_serving

    version = pathlib.Path(version).resolve()
    file = version.parent / CARD_FILE
    if file.exists() and not (file.is_file() and _is_unedited(file.read_bytes())):
        return False
    tables = {}
    for key, function in functions.items():
        inputs = {spec.name: spec for spec in function.input_signature}
        outputs = function.get_concrete_function().structured_outputs
        tables[f"Signature {_code(key)}"] = [
            (kind, name, spec.dtype.name, _axes(spec.shape))
            for kind, specs in (("input", inputs), ("output", outputs))
            for name, spec in specs.items()
        ]
    name, number = version.parent.name, version.name
    inputs = functions["serving_default"].input_signature
    usage = file_templates.fill(
        "saved_model_usage.md",
        version=number,
        inputs=", ".join(f"{spec.name!r}: {_tensor(spec)}" for spec in inputs),
        curl=tf_serving.curl(name, inputs),
    )
    content = render(name, info, tables, version, usage).encode("utf-8", "surrogateescape")
    with atomic_write(file) as temporary:
        temporary.write_bytes(content + b"\n" + _MARK.format(_digest(content)).encode() + b"\n")
    return True


def _axes(shape):
    """Return the names of the axes of a `tf.TensorShape`; `None` for an unknown rank."""
    if shape.rank is None:
        return None
    sizes = ["any" if size is None else str(size) for size in shape]
    return ["batch", *sizes[1:]] if sizes[:1] == ["any"] else sizes


def render(name, info, tables, folder, usage):
    """Return the text of a card.

    `tables` is {title: [("input" or "output", name, dtype, names of the axes)]}. `folder` holds the
    files of the model. `usage` is a section.
    """
    from huggingface_hub import ModelCardData

    task = registry.by_name(info.output.task) if info.output.task else None
    header = ModelCardData(
        license=printable(info.license).lower() if info.license else None,
        library_name="keras_bert",
        pipeline_tag=task.hub_tag if task else info.hub_tag,
        tags=["bert"],
    )
    size = sum(path.stat().st_size for path in pathlib.Path(folder).rglob("*") if path.is_file())
    meanings = json.loads(file_templates.fill("meanings.json")) | (task.meanings if task else {})
    source = _source_model(info.metrics)
    text = file_templates.fill(
        "card.md",
        header=header.to_yaml(),
        name=_escape(name),
        description=task.describe(info.output) if task else info.description,
        signatures="\n\n".join(
            f"## {title}\n\n{_tensors(tensors, meanings)}" for title, tensors in tables.items()
        ),
        labels=_labels(info.output.labels, info.labels_file),
        prompts=_prompts(info.output),
        model=_model(info, size),
        metrics="" if info.parameters is None else _metrics(info),
        usage=usage.rstrip("\n"),
        source="" if source is None else f" ({_source(source)})",
        license=_license(source, info.license),
    )
    return re.sub(r"\n{3,}", "\n\n", text)


def _tensors(tensors, meanings):
    rows = []
    for kind, name, dtype, axes in tensors:
        shape = "any" if axes is None else f"({', '.join(axes)})"
        rows.append((kind, _code(name), dtype, shape, meanings.get(name, "")))
    return _table(("", "name", "type", "shape", "meaning"), rows)


def _labels(labels, labels_file):
    if not labels:
        return ""
    shown = labels if labels_file is None else labels[:_MAX_LABELS]
    rows = [(str(index), _escape(label)) for index, label in enumerate(shown)]
    text = f"## Labels\n\n{_table(('index', 'label'), rows)}"
    more = len(labels) - len(rows)
    return f"{text}\n\nand {more:,} more, in {labels_file}." if more else text


def _prompts(output):
    if not output.prompts:
        return ""
    rows = []
    for name, text in output.prompts.items():
        text = _escape(json.dumps(text, ensure_ascii=False), limit=10_000)
        rows.append((_escape(name) + " (default)" * (name == output.default_prompt), text))
    return f"## Prompts\n\n{_table(('name', 'text that comes before the input'), rows)}"


def _model(info, size):
    rows = [("size of the files", f"{size / 1e6:,.1f} MB")]
    if info.parameters is not None:
        rows.append(("parameters", f"{info.parameters:,}"))
    if info.precision is not None:
        rows.append(("precision", info.precision))
    if info.agreement is not None:
        rows.append(("compared with float32", str(info.agreement)))
    if info.max_sequence_length is not None:
        length = f"{info.max_sequence_length} tokens including [CLS] and [SEP]"
        rows.append(("longest input", f"{length}; {_longer_texts(info.output)}"))
    return _table(("", ""), rows)


def _longer_texts(output):
    """Return what a model does with texts over its limit."""
    if output.task and registry.by_name(output.task).reads_windows:
        return "longer texts are split into windows"
    if output.long_texts == "window":
        return "longer texts are read in overlapping windows, whose answers are averaged"
    return "longer texts are truncated"


def _metrics(info):
    rows = [
        (_escape(_SOURCES.get(key, key)), _source(value) if key in _SOURCES else _metric(value))
        for key, value in (info.metrics or {}).items()
        if isinstance(value, (numbers.Real, str)) and key not in _NOT_METRICS
    ]
    title = "## Metrics before quantization" if info.precision == "int8" else "## Metrics"
    table = _table(("metric", "value"), rows) if rows else "Not recorded."
    return f"{title}\n\n{table}"


def _source_model(metrics):
    """Return the name of the model that training started from, or `None`."""
    source = (metrics or {}).get("model")
    return source if isinstance(source, str) else None


def _license(source, license):
    if license:
        return _escape(license)
    claimed = None if license is not None or source is None else published_license(source)
    if claimed is None:
        return _UNKNOWN_LICENSE
    # The author of the metrics can write any name there.
    return f"{_escape(claimed)}, if the name in the metrics is true"


def _metric(value):
    is_float = isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral)
    return f"{value:.4g}" if is_float else _escape(value)


def _source(value):
    """Return the name of a model or file, without folders, which may be private."""
    value = str(value)
    if "://" not in value and not value.startswith("hf:"):
        value = re.split(r"[/\\]", value.rstrip("/\\"))[-1]
    return _escape(value)


def _tensor(spec):
    """Return a Python expression for a tensor with one row."""
    sizes = [size or 1 for size in spec.shape or ()]
    if spec.dtype != "string":
        return f"tf.ones({sizes}, tf.{spec.dtype.name})"
    return f'tf.fill({sizes}, "your text")' if len(sizes) != 1 else 'tf.constant(["your text"])'


def _escape(value, limit=_MAX_CHARACTERS):
    """Return one line of text, cut to `limit` characters, for a cell of a Markdown table."""
    text = str(value)
    if not text.strip():
        return "(spaces)" if text else "(empty)"
    return markdown(text, limit)


def _code(name):
    """Return a name as code in Markdown, or escaped if it has unusual characters."""
    return f"`{name}`" if re.fullmatch(r"[\w./:-]+", name) else _escape(name)


def _table(title, rows):
    lines = [title, ("---",) * len(title), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _is_unedited(content):
    """Return True if `write` wrote this card. Changed line endings are not an edit."""
    text, _, last = content.replace(b"\r\n", b"\n").rstrip(b"\n").rpartition(b"\n")
    mark = _ANY_MARK.fullmatch(last)
    return mark is not None and mark[1].decode() == _digest(text)


def _digest(content):
    return hashlib.sha256(content.rstrip(b"\n")).hexdigest()[:16]
