"""The model card: a page beside the versions of a model, and the index of a folder of models.

What a card says of inputs and outputs is read from the SavedModel that was written.
"""

import hashlib
import numbers
import pathlib
import re
import typing
import unicodedata
import urllib.parse

import tensorflow as tf

from keras_bert.exporting import tf_serving
from keras_bert.runtime.files import atomic_write

CARD_FILE = "README.md"
# An index keeps its table between these; what is outside is its owner's.
INDEX_BEGIN = "<!-- The table is written by keras_bert.export. -->"
INDEX_END = "<!-- End of the table. -->"

_SEAL = "<!-- Written by keras_bert.export, which leaves it alone once it was changed: {} -->"
_DEFAULT = "serving_default"
_MOST_LABELS = 60
_LONGEST = 100  # characters of a label or value

_TASKS = {
    None: "A Keras model that takes strings.",
    "classifier": "A BERT that gives each text one of its labels.",
    "label_sets": "A BERT that gives each text any number of its labels.",
    "next_sentence": "A BERT that tells whether a text follows another.",
    "regressor": "A BERT that gives each text a number.",
    "embedder": "A BERT that makes of each text a vector to compare it by.",
    "tagger": "A BERT that gives each word of a text a tag.",
    "span_selector": "A BERT that answers a question with words of a text.",
    "multiple_choice": "A BERT that chooses which of several texts follows.",
    "masked_lm": "A BERT that fills in what is hidden behind [MASK].",
    "encoder": "A BERT that turns ids into vectors: a reusable SavedModel, to train on, too.",
    "preprocess": "A BERT's preprocessor, from texts to ids: a reusable SavedModel.",
}
# In the order in which they are listed.
_MEANINGS = {
    "text": "UTF-8",
    "masked_lm.text": "UTF-8, with [MASK] where words are to be filled in",
    "multiple_choice.text": "UTF-8, what the choices follow",
    "text_pair": "the second text, UTF-8",
    "question": "UTF-8",
    "context": "the text that it is about, UTF-8",
    "choices": "texts that could follow, as many for each text",
    "inputs": "texts, UTF-8",
    "input_word_ids": "ids of the pieces",
    "input_mask": "1 at pieces, 0 at padding",
    "input_type_ids": "0 in the first text, 1 in the second",
    "masked_lm_positions": "places in the row to be filled in; 0 for none",
    "token": "the word as it stands in the text",
    "tag": "its label",
    "label": "the most probable label",
    "choice": "number of the best one, from 0",
    "answer": 'words of the context; "" for none',
    "score": "probability of that",
    "regressor.score": "the number",
    "probabilities": "of each label, in the order below",
    "multiple_choice.probabilities": "of each choice",
    "chosen": "whether its probability is at least one half",
    "candidates": "pieces for each [MASK], the best first",
    "scores": "their probabilities",
    "embedding": "the vector",
    "start": "where it begins, in bytes of the UTF-8 text",
    "end": "the byte after its last",
    "count": "how many words are real; behind them each list is filled up",
    "logits": "before the softmax",
    "start_logits": "that the answer starts here, before the softmax",
    "end_logits": "that it ends here, before the softmax",
    "pooled_output": "a vector for each text",
    "sequence_output": "a vector for each piece",
}
TOKENIZER_OPTIONS = {
    "lowercase": "lower case",
    "strip_accents": "accents stripped",
    "split_cjk": "CJK ideographs split",
}
# What `finetune` writes into metrics.json beside the metrics.
_RUN = {"model": "started from", "train": "trained on", "dev": "scored on"}
_NOT_METRICS = ("train_seconds", "examples_per_second", "stopped")


class About(typing.NamedTuple):
    """What is known of a model beyond its SavedModel; `None` where nothing is.

    Attributes:
        task: a key of the table of tasks above; `None` for a model of your own.
        labels: list of strings.
        parameters: their number.
        config: of the encoder, with Google's keys.
        tokenizer: its options and `pieces`, the size of its vocabulary.
        longest: pieces of the longest text that is not cut.
        metrics: dict, such as `train.finetune` gives.
        license: of the source weights.
    """

    task: str | None = None
    labels: list[str] | None = None
    parameters: int | None = None
    config: dict | None = None
    tokenizer: dict | None = None
    longest: int | None = None
    metrics: dict | None = None
    license: str | None = None


class Signature(typing.NamedTuple):
    """Inputs and outputs, lists of named `tf.TensorSpec`."""

    inputs: list
    outputs: list


def signatures(version):
    """The signatures of a SavedModel, read from its file.

    Args:
        version: its folder.

    Returns:
        dict of `Signature`s, `serving_default` first.

    Raises:
        OSError: there is no SavedModel, or one that cannot be read.

    Example:

    >>> signatures("no-such-folder")
    Traceback (most recent call last):
    ...
    FileNotFoundError: [Errno 2] No such file or directory: 'no-such-folder/saved_model.pb'
    """
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    file = pathlib.Path(version, "saved_model.pb")
    try:
        graphs = saved_model_pb2.SavedModel.FromString(file.read_bytes()).meta_graphs
    except DecodeError as error:
        raise OSError(f"{file} is no SavedModel: {error}") from error
    found = {
        name: Signature(_specs(definition.inputs), _specs(definition.outputs))
        for name, definition in (graphs[0].signature_def.items() if graphs else ())
        if not name.startswith("__")  # the initializer's
    }
    return dict(sorted(found.items(), key=lambda item: (item[0] != _DEFAULT, item[0])))


def _specs(tensors):
    order = [name.rpartition(".")[2] for name in _MEANINGS]

    def place(name):
        return order.index(name) if name in order else len(order), name

    return [
        tf.TensorSpec(
            tf.TensorShape(tensors[name].tensor_shape), tf.as_dtype(tensors[name].dtype), name
        )
        for name in sorted(tensors, key=place)
    ]


def render(name, version, about, found, size):
    """The text of a card.

    Args:
        name: the model's.
        version: its number.
        about: an `About`.
        found: from `signatures`.
        size: bytes of the version.

    Returns:
        Markdown.

    Example:

    >>> text = tf.TensorSpec([None], tf.string, name="text")
    >>> score = tf.TensorSpec([None], tf.float32, name="score")
    >>> page = render("stars", 3, About("regressor"), {"serving_default": ([text], [score])}, 10**7)
    >>> print(page[:46])
    # stars
    <BLANKLINE>
    A BERT that gives each text a number.
    """
    found = {key: Signature(*value) for key, value in found.items()}
    parts = [f"# {escape(name)}\n\n{_TASKS[about.task]} This is version {version}."]
    parts += [_signature(key, signature, about.task) for key, signature in found.items()]
    parts += [_labels(about.labels), _model(about, size)]
    if about.task != "preprocess":  # it learned nothing
        parts.append(_training(about.metrics))
    if _DEFAULT in found:
        parts.append(_serving(name, version, found[_DEFAULT].inputs))
    parts.append(_license(about))
    return "\n\n".join(part for part in parts if part) + "\n"


def _signature(name, signature, task):
    rows = [
        (kind, _code(spec.name), spec.dtype.name, _shape(spec.shape), _meaning(spec.name, task))
        for kind, specs in (("input", signature.inputs), ("output", signature.outputs))
        for spec in specs
    ]
    if not any(row[-1] for row in rows):
        rows = [row[:-1] for row in rows]
    title = ("", "name", "type", "shape", "")[: len(rows[0])] if rows else ()
    return f"## Signature {_code(name)}\n\n{_table(title, rows)}"


def _meaning(name, task):
    if task is None:
        return ""
    return _MEANINGS.get(f"{task}.{name}", _MEANINGS.get(name, ""))


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
    rows = [(str(index), escape(label)) for index, label in enumerate(labels[:_MOST_LABELS])]
    more = len(labels) - len(rows)
    text = f"## Labels\n\n{_table(('', 'label'), rows)}"
    return text + (f"\n\nand {more:,} more, in `assets/labels.txt` of the version." if more else "")


def _model(about, size):
    config, tokenizer = about.config or {}, about.tokenizer or {}
    rows = [("size of the version", f"{size / 1e6:,.1f} MB")]
    if about.parameters is not None:
        rows.append(("parameters", f"{about.parameters:,}"))
    for title, key in (
        ("layers", "num_hidden_layers"),
        ("width", "hidden_size"),
        ("attention heads", "num_attention_heads"),
        ("activation", "hidden_act"),
        ("positions", "max_position_embeddings"),
    ):
        if key in config:
            rows.append((title, escape(config[key])))
    if "pieces" in tokenizer:
        rows.append(("vocabulary", f"{tokenizer['pieces']:,} pieces"))
    for key, title in TOKENIZER_OPTIONS.items():
        if key in tokenizer:
            rows.append((title, "yes" if tokenizer[key] else "no"))
    if about.longest is not None:
        windows = about.task in ("tagger", "span_selector")
        rest = "longer texts go through in windows" if windows else "longer texts are cut"
        rows.append(("longest input", f"{about.longest} pieces with [CLS] and [SEP]; {rest}"))
    return f"## Model\n\n{_table(('', ''), rows)}"


def _training(metrics):
    rows = [
        (escape(_RUN.get(key, key)), _value(value, is_source=key in _RUN))
        for key, value in (metrics or {}).items()
        if isinstance(value, (numbers.Real, str)) and key not in _NOT_METRICS
    ]
    if not rows:
        return "## Metrics\n\nNone are known."
    return f"## Metrics\n\n{_table(('', ''), rows)}"


def _value(value, is_source):
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral):
        return f"{value:.4g}"
    # Of a path the name alone: where it lies on somebody's disk is nobody's business.
    if is_source and isinstance(value, str) and "://" not in value and not value.startswith("hf:"):
        value = re.split(r"[/\\]", value.rstrip("/\\"))[-1]
    return escape(value)


def _serving(name, version, inputs):
    call = _call(inputs)
    joined = " Requests of several clients share batches." if tf_serving.can_join(inputs) else ""
    return f"""\
## How to serve it

With TensorFlow alone, in this folder:

```python
import tensorflow as tf

served = tf.saved_model.load("{version}").signatures["{_DEFAULT}"]
{call}
```

With TensorFlow Serving: `docker compose up` in this folder starts the official image on it
(`{tf_serving.COMPOSE_FILE}`, `{tf_serving.MODELS_FILE}`, `{tf_serving.BATCHING_FILE}`), REST on \
port 8501 and gRPC on 8500 of this machine.{joined}

```sh
{tf_serving.curl(name, inputs)}
```

At the desk: `keras-bert serve .` answers the same requests without Docker, and has a page to try
texts on."""


def _call(inputs):
    """The call of `served` in Python; names that cannot be written as arguments are strings."""
    if all(spec.name.isidentifier() for spec in inputs):
        values = [f"{spec.name}={_tensor(spec)}" for spec in inputs]
    else:
        values = [f"**{{{spec.name!r}: {_tensor(spec)}}}" for spec in inputs]
    if len(values) > 1:  # a line each
        values = ["", *(f"    {value}," for value in values), ""]
    return "served(" + "\n".join(values) + ")"


def _tensor(spec):
    """An expression for a tensor that the input takes."""
    sizes = [size or 1 for size in spec.shape or ()]
    if spec.dtype != tf.string:
        return f"tf.ones({sizes}, tf.{spec.dtype.name})"
    return f'tf.fill({sizes}, "your text")' if len(sizes) != 1 else 'tf.constant(["your text"])'


def _license(about):
    source = (about.metrics or {}).get("model")
    started = f" ({_value(source, is_source=True)})" if source else ""
    if about.license:
        text = f"{escape(about.license)}."
    else:
        text = (
            "not known to keras\\_bert.\nLook at the page or the LICENSE file that they came with "
            "before you pass this model on."
        )
    what = f"Of the weights that training started from{started}"
    return f"## Licence\n\n{what}: {text}\nThe training data has terms of its own."


def escape(value):
    r"""Any string as text of a Markdown table's cell.

    Args:
        value: what `str` takes.

    Returns:
        A string of one line, in which nothing is markup; what has no picture is written as
        Python writes it, and what is very long is cut.

    Example:

    >>> escape("<b>|한국_어\n")
    '\\<b\\>\\|한국\\_어\\\\n'
    """
    text = str(value)
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}…"
    text = "".join(_visible(character) for character in text)
    if not text.strip():
        return f"({'empty' if not text else 'spaces'})"
    return re.sub(r"([\\`*_\[\]<>|~$&#])", r"\\\1", text)


def _visible(character):
    category = unicodedata.category(character)
    turns = unicodedata.bidirectional(character) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI",
                                                     "RLI", "FSI", "PDI")  # fmt: skip
    if category in ("Cc", "Cs", "Zl", "Zp") or turns:
        return character.encode("unicode_escape", "surrogatepass").decode()
    return character


def _code(name):
    return f"`{name}`" if re.fullmatch(r"[\w./:-]+", name) else escape(name)


def _table(title, rows):
    lines = [title, ("---",) * len(title), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write(version, about):
    """Writes the card of a version beside it, unless somebody has changed the one there.

    Args:
        version: the SavedModel's folder, named by its number, in the model folder.
        about: an `About`.

    Returns:
        Whether it was written.

    Raises:
        OSError: the SavedModel cannot be read, or the folder not be written.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, CARD_FILE).write_text("mine")
    ...     write(pathlib.Path(folder, "1"), About())
    False
    """
    version = pathlib.Path(version).resolve()
    file = version.parent / CARD_FILE
    if file.exists() and not (file.is_file() and is_ours(_read(file))):
        return False
    size = sum(path.stat().st_size for path in version.rglob("*") if path.is_file())
    text = render(version.parent.name, version.name, about, signatures(version), size)
    _replace(file, seal(text))
    return True


def seal(text):
    """A card's text with a last line that shows whether it was changed since.

    Example:

    >>> is_ours(seal("text")), is_ours(seal("text").replace("text", "mine")), is_ours("mine")
    (True, False, False)
    """
    text = text.rstrip("\n")
    return f"{text}\n\n{_SEAL.format(_digest(text))}\n"


def is_ours(content):
    """Whether a card is as `seal` left it; the ends of its lines do not matter."""
    text, _, last = content.replace("\r\n", "\n").rstrip("\n").rpartition("\n")
    return last == _SEAL.format(_digest(text.rstrip("\n")))


def _digest(text):
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def index(folder):
    r"""Brings the table of a folder's models up to date, if its README.md has a place for one.

    Args:
        folder: holds model folders, or folders of them, such as an encoder's pair.

    Returns:
        Whether there is such a place: the lines `INDEX_BEGIN` and `INDEX_END`.

    Raises:
        OSError: the page cannot be written.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = pathlib.Path(folder, CARD_FILE)
    ...     _ = page.write_text(f"# Mine\n{INDEX_BEGIN}\n{INDEX_END}\nThe end.\n")
    ...     index(folder), page.read_text().splitlines()[2]
    (True, '| model | version | input | answer | MB |')
    """
    folder = pathlib.Path(folder)
    page = folder / CARD_FILE
    if not page.is_file():
        return False
    before, begin, rest = _read(page).partition(INDEX_BEGIN)
    _, end, after = rest.partition(INDEX_END)
    if not (begin and end):
        return False
    rows = [_row(model, folder) for model in _models(folder)] or [("none yet", "", "", "", "")]
    table = _table(("model", "version", "input", "answer", "MB"), rows)
    content = f"{before}{INDEX_BEGIN}\n{table}\n{INDEX_END}{after}"
    if content != _read(page):
        _replace(page, content)
    return True


def _models(folder):
    for child in sorted(folder.iterdir()):
        if not child.is_dir() or child.name.startswith("."):
            continue
        if _newest(child):
            yield child
        else:
            yield from (path for path in sorted(child.iterdir()) if _newest(path))


def _newest(folder):
    """The newest version in a model folder, `None` in another."""
    found = [path for path in folder.glob("[0-9]*/saved_model.pb") if path.parent.name.isdecimal()]
    return max((path.parent for path in found), key=lambda path: int(path.name), default=None)


def _row(model, folder):
    version = _newest(model)
    name = model.relative_to(folder).as_posix()
    title = escape(name)
    if (model / CARD_FILE).is_file():
        title = f"[{title}]({urllib.parse.quote(f'{name}/{CARD_FILE}')})"
    try:
        default = signatures(version).get(_DEFAULT, Signature([], []))
    except OSError:
        return title, version.name, "cannot be read", "", ""
    size = sum(path.stat().st_size for path in version.rglob("*") if path.is_file())
    names = (", ".join(_code(spec.name) for spec in specs) for specs in default)
    return title, version.name, *names, f"{size / 1e6:,.1f}"


def _read(file):
    return file.read_bytes().decode("utf-8", "surrogateescape")


def _replace(file, content):
    with atomic_write(file) as beside:
        beside.write_bytes(content.encode("utf-8", "surrogateescape"))
