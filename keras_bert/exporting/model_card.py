"""Model cards: the `README.md` that `export` writes next to the versions of a model.

A card lists the inputs and outputs that the SavedModel file declares. It starts with the YAML
header of Hugging Face's model cards.
"""

import dataclasses
import hashlib
import json
import numbers
import pathlib
import re

from keras_bert.exporting.agreement import Agreement
from keras_bert.hub.named_source import published_license
from keras_bert.runtime.escaping import markdown, printable
from keras_bert.runtime.files import atomic_write
from keras_bert.tasks import registry

CARD_FILE = "README.md"

_DEFAULT = "serving_default"
_MAX_LABELS = 60
_MAX_CHARACTERS = 100  # of a label or a value

# Inputs and outputs are listed in this order.
_MEANINGS = {
    "text": "UTF-8",
    "text_pair": "second text, UTF-8",
    "prompt_name": 'name of a prompt that comes before the text, "" for none',
    "question": "UTF-8",
    "context": "text that holds the answer, UTF-8",
    "choices": "possible continuations, the same number for each text",
    "inputs": "texts, UTF-8",
    "input_word_ids": "token ids",
    "input_mask": "1 for tokens, 0 for padding",
    "input_type_ids": "0 for the first text, 1 for the second",
    "masked_lm_positions": "positions to predict; 0 for padding",
    "token": "word as written in the text",
    "tag": "label of the word",
    "label": "most probable label",
    "choice": "index of the best choice",
    "answer": 'span of the context; "" if there is no answer',
    "score": "probability",
    "probabilities": "of each label, in the order of the labels below",
    "chosen": "True if the probability is at least 0.5",
    "candidates": "tokens for each [MASK], best first",
    "scores": "probabilities of the candidates",
    "embedding": "vector of the text",
    "start": "first byte in the UTF-8 text",
    "end": "byte after the last",
    "count": "number of words; the rest of each row is padding",
    "logits": "before the softmax",
    "start_logits": "of an answer that starts here, before the softmax",
    "end_logits": "of an answer that ends here, before the softmax",
    "pooled_output": "vector of each text",
    "sequence_output": "vector of each token",
}
# Entries of metrics.json that are not metrics.
_SOURCES = {"model": "started from", "train": "trained on", "dev": "evaluated on"}
_NOT_METRICS = ("train_seconds", "examples_per_second", "stopped")

_TEMPLATE = """\
---
{header}
---

# {name}

{description} This is version {version}.

{signatures}

{labels}

## Model

{model}

{metrics}

{usage}

{license}
"""
_LICENSE = """\
## License

License of the weights that training started from{source}: {license}.
The training data may have a license of its own."""
# The metrics come with the model, and its author can write any name there.
_CLAIMED_LICENSE = """\
## License

According to its metrics, training started from {source}, which has the license {license}.
The training data may have a license of its own."""
_USAGE = """\
## Usage

In Python, with TensorFlow only, from this folder:

```python
import tensorflow as tf

served = tf.saved_model.load("{version}").signatures["serving_default"]
answers = served(**{{{inputs}}})
```

With TensorFlow Serving: run `docker compose up` in this folder. It serves REST on port 8501 and \
gRPC on port 8500 of this machine.

```sh
{curl}
```

Without Docker, for local testing only: `keras-bert serve .` answers the same requests."""
_UNKNOWN_LICENSE = "unknown. Check it before you redistribute this model"
_MARK = "<!-- Written by keras_bert.export, which keeps your version if you edit this file: {} -->"
_ANY_MARK = re.compile(rb"<!-- Written by keras_bert\.export, .*: ([0-9a-f]{16}) -->")


@dataclasses.dataclass(frozen=True)
class ModelInfo:
    """Facts about a model that its SavedModel does not hold; `None` if unknown.

    task: name of the task; `None` for an encoder, a preprocessor or a model without a head
    description: first sentence of the card
    hub_tag: Hugging Face's name of the task, or `None`
    has_weights: False for a preprocessor, which has no metrics
    max_sequence_length: tokens of the longest sequence that the encoder receives
    metrics: dict, as `keras_bert.finetune` returns
    license: license of the weights that training started from
    precision: dtype of the matmuls
    agreement: `agreement.Agreement` with float32
    prompts, default_prompt, long_texts: as in `layers.TaskOutput`
    """

    task: str | None = None
    description: str = "A Keras model that takes strings."
    hub_tag: str | None = None
    has_weights: bool = True
    labels: list[str] | None = None
    parameters: int | None = None
    max_sequence_length: int | None = None
    metrics: dict | None = None
    license: str | None = None
    precision: str | None = None
    agreement: Agreement | None = None
    prompts: dict[str, str] = dataclasses.field(default_factory=dict)
    default_prompt: str | None = None
    long_texts: str = "truncate"


def write(version, info):
    """Write the card of a version. Return False if a card that the user edited was kept.

    `version` is the folder of the SavedModel in the model folder, named by its number.
    """
    version = pathlib.Path(version).resolve()
    file = version.parent / CARD_FILE
    if file.exists() and not (file.is_file() and _is_unedited(file.read_bytes())):
        return False
    size = sum(path.stat().st_size for path in version.rglob("*") if path.is_file())
    text = _render(version.parent.name, version.name, info, _signatures(version), size)
    content = text.encode("utf-8", "surrogateescape")  # the folder's name may not be UTF-8
    with atomic_write(file) as temporary:
        temporary.write_bytes(content + b"\n" + _MARK.format(_digest(content)).encode() + b"\n")
    return True


def _signatures(version):
    """Return {name: (inputs, outputs)} of a SavedModel, lists of `tf.TensorSpec`."""
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    file = pathlib.Path(version, "saved_model.pb")
    try:
        graphs = saved_model_pb2.SavedModel.FromString(file.read_bytes()).meta_graphs
    except DecodeError as error:
        raise OSError(f"{file} is not a SavedModel: {error}") from error
    signatures = graphs[0].signature_def if graphs else {}
    names = [name for name in signatures if not name.startswith("__")]  # of the initializer
    return {
        name: (_specs(signatures[name].inputs), _specs(signatures[name].outputs))
        for name in sorted(names, key=lambda name: (name != _DEFAULT, name))
    }


def _specs(tensors):
    import tensorflow as tf

    order = {name: number for number, name in enumerate(_MEANINGS)}
    return [
        tf.TensorSpec(tf.TensorShape(tensors[name].tensor_shape), tensors[name].dtype, name)
        for name in sorted(tensors, key=lambda name: (order.get(name, len(order)), name))
    ]


def _render(name, version, info, signatures, size):
    """Return the text of a card; `signatures` are from `_signatures`, `size` is in bytes."""
    from huggingface_hub import ModelCardData

    header = ModelCardData(
        license=printable(info.license).lower() if info.license else None,
        library_name="keras_bert",
        pipeline_tag=info.hub_tag,
        tags=["bert", "tensorflow", "saved-model"],
    )
    usage = ""
    if _DEFAULT in signatures:
        specs = signatures[_DEFAULT][0]
        inputs = ", ".join(f"{spec.name!r}: {_tensor(spec)}" for spec in specs)
        from keras_bert.exporting import tf_serving

        curl = tf_serving.curl(name, specs)
        usage = _USAGE.format(version=version, inputs=inputs, curl=curl)
    text = _TEMPLATE.format(
        header=header.to_yaml(),
        name=_escape(name),
        description=info.description,
        version=version,
        signatures="\n\n".join(
            _signature(key, inputs, outputs, info.task)
            for key, (inputs, outputs) in signatures.items()
        ),
        labels=_labels(info.labels) + prompts_section(info.prompts, info.default_prompt),
        model=_model(info, size),
        metrics=metrics_section(info.metrics) if info.has_weights else "",
        usage=usage,
        license=license_section(info.metrics, info.license),
    )
    return re.sub(r"\n{3,}", "\n\n", text)


def _signature(name, inputs, outputs, task):
    rows = [
        (kind, code(spec.name), spec.dtype.name, _shape(spec.shape), _meaning(spec.name, task))
        for kind, specs in (("input", inputs), ("output", outputs))
        for spec in specs
    ]
    table = _table(("", "name", "type", "shape", "meaning"), rows)
    return f"## Signature {code(name)}\n\n{table}"


def _meaning(name, task):
    of_task = registry.by_name(task).meanings if task else {}
    return of_task.get(name, _MEANINGS.get(name, ""))


def _shape(shape):
    if shape.rank is None:
        return "any"
    sizes = ["any" if size is None else str(size) for size in shape]
    if sizes and sizes[0] == "any":
        sizes[0] = "batch"
    return f"({', '.join(sizes)})"


def _labels(labels):
    if not labels:
        return ""
    rows = [(str(index), _escape(label)) for index, label in enumerate(labels[:_MAX_LABELS])]
    text = f"## Labels\n\n{_table(('index', 'label'), rows)}"
    more = len(labels) - len(rows)
    return f"{text}\n\nand {more:,} more, in `assets/labels.txt` of the version." if more else text


def prompts_section(prompts, default_prompt):
    """Return the section of a card with the prompts of an embedder, or an empty string."""
    if not prompts:
        return ""
    rows = [
        (
            _escape(name) + " (default)" * (name == default_prompt),
            _escape(json.dumps(text, ensure_ascii=False), limit=10_000),
        )
        for name, text in prompts.items()
    ]
    table = _table(("name", "text that comes before the input"), rows)
    return f"## Prompts\n\n{table}"


def _model(info, size):
    rows = [("size of the version", f"{size / 1e6:,.1f} MB")]
    if info.parameters is not None:
        rows.append(("parameters", f"{info.parameters:,}"))
    if info.precision is not None:
        rows.append(("precision", info.precision))
    if info.agreement is not None:
        rows.append(("compared with float32", str(info.agreement)))
    if info.max_sequence_length is not None:
        rest = longer_texts(info.task, info.long_texts)
        length = f"{info.max_sequence_length} tokens including [CLS] and [SEP]; {rest}"
        rows.append(("longest input", length))
    return _table(("", ""), rows)


def longer_texts(task, long_texts):
    """Return what a model does with texts over its limit; both are as in `layers.TaskOutput`."""
    if task and registry.by_name(task).reads_windows:
        return "longer texts are split into windows"
    if long_texts == "window":
        return "longer texts are read in overlapping windows, whose answers are averaged"
    return "longer texts are truncated"


def metrics_section(metrics):
    """Return the section of a card with the metrics of a run, a dict or `None`."""
    rows = [
        (_escape(_SOURCES.get(key, key)), _source(value) if key in _SOURCES else _metric(value))
        for key, value in (metrics or {}).items()
        if isinstance(value, (numbers.Real, str)) and key not in _NOT_METRICS
    ]
    return "## Metrics\n\n" + (_table(("metric", "value"), rows) if rows else "Not recorded.")


def license_section(metrics, license):
    """Return the section of a card with the license, a string or `None`."""
    source = (metrics or {}).get("model")
    if license is None and isinstance(source, str):
        claimed = published_license(source)
        if claimed is not None:
            return _CLAIMED_LICENSE.format(source=_source(source), license=_escape(claimed))
    return _LICENSE.format(
        source=f" ({_source(source)})" if source else "",
        license=_escape(license) if license else _UNKNOWN_LICENSE,
    )


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


def code(name):
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
