"""KerasHub and KerasNLP: presets of BertBackbone, BertTextClassifier and BertMaskedLM.

Source: keras-team/keras-hub, src/models/bert (config, layers), src/utils/preset_utils.py (files);
keras-team/keras, src/saving/saving_lib.py (names in the weights' files).
"""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.checkpoints import canonical, containers, folder
from keras_bert.checkpoints.canonical import Checkpoint, Layout, rule

FORMAT = "keras_hub"
FILES = "config.json with model.weights.h5"

# Canonical name -> `path` of the variables of a live model.
_LAYER = "transformer_layer_{i}"
_ATTENTION = f"{_LAYER}/self_attention_layer"
TABLE = {
    "embeddings/word_embeddings/embeddings": rule("token_embedding/embeddings"),
    "embeddings/position_embeddings/embeddings": rule("position_embedding/embeddings"),
    "embeddings/token_type_embeddings/embeddings": rule("segment_embedding/embeddings"),
    "embeddings/layer_norm/gamma": rule("embeddings_layer_norm/gamma"),
    "embeddings/layer_norm/beta": rule("embeddings_layer_norm/beta"),
    "layer_{i}/attention/qkv/kernel": rule(
        f"{_ATTENTION}/query/kernel",
        f"{_ATTENTION}/key/kernel",
        f"{_ATTENTION}/value/kernel",
        layout=Layout.HEADS_OUT,
    ),
    "layer_{i}/attention/qkv/bias": rule(
        f"{_ATTENTION}/query/bias",
        f"{_ATTENTION}/key/bias",
        f"{_ATTENTION}/value/bias",
        layout=Layout.HEADS_OUT,
    ),
    "layer_{i}/attention/output/kernel": rule(
        f"{_ATTENTION}/attention_output/kernel", layout=Layout.HEADS_IN
    ),
    "layer_{i}/attention/output/bias": rule(f"{_ATTENTION}/attention_output/bias"),
    "layer_{i}/attention_layer_norm/gamma": rule(f"{_LAYER}/self_attention_layer_norm/gamma"),
    "layer_{i}/attention_layer_norm/beta": rule(f"{_LAYER}/self_attention_layer_norm/beta"),
    "layer_{i}/intermediate/kernel": rule(f"{_LAYER}/feedforward_intermediate_dense/kernel"),
    "layer_{i}/intermediate/bias": rule(f"{_LAYER}/feedforward_intermediate_dense/bias"),
    "layer_{i}/output/kernel": rule(f"{_LAYER}/feedforward_output_dense/kernel"),
    "layer_{i}/output/bias": rule(f"{_LAYER}/feedforward_output_dense/bias"),
    "layer_{i}/output_layer_norm/gamma": rule(f"{_LAYER}/feedforward_layer_norm/gamma"),
    "layer_{i}/output_layer_norm/beta": rule(f"{_LAYER}/feedforward_layer_norm/beta"),
    "pooler/dense/kernel": rule("pooled_dense/kernel"),
    "pooler/dense/bias": rule("pooled_dense/bias"),
    "masked_lm/transform/kernel": rule("mlm_head/intermediate_dense/kernel"),
    "masked_lm/transform/bias": rule("mlm_head/intermediate_dense/bias"),
    "masked_lm/layer_norm/gamma": rule("mlm_head/intermediate_layer_norm/gamma"),
    "masked_lm/layer_norm/beta": rule("mlm_head/intermediate_layer_norm/beta"),
    "masked_lm/output_bias": rule("mlm_head/output_bias"),
    "classifier/kernel": rule("logits/kernel"),
    "classifier/bias": rule("logits/bias"),
}
TASKS = {"BertTextClassifier": "classifier", "BertMaskedLM": "masked_lm"}

# Live layer -> where Keras keeps it in a file: by class and number there, not by name.
_MODEL_FILE, _TASK_FILE = "model.weights.h5", "task.weights.h5"
_IN_FILE = {
    "token_embedding": (_MODEL_FILE, "layers/reversible_embedding"),
    "position_embedding": (_MODEL_FILE, "layers/position_embedding"),
    "segment_embedding": (_MODEL_FILE, "layers/embedding"),
    "embeddings_layer_norm": (_MODEL_FILE, "layers/layer_normalization"),
    "pooled_dense": (_MODEL_FILE, "layers/dense"),
    "logits": (_TASK_FILE, "layers/dense"),
    "mlm_head": (_TASK_FILE, "layers/masked_lm_head"),
}
_IN_LAYER = {
    "self_attention_layer/query": "_self_attention_layer/query_dense",
    "self_attention_layer/key": "_self_attention_layer/key_dense",
    "self_attention_layer/value": "_self_attention_layer/value_dense",
    "self_attention_layer/attention_output": "_self_attention_layer/output_dense",
    "self_attention_layer_norm": "_self_attention_layer_norm",
    "feedforward_intermediate_dense": "_feedforward_intermediate_dense",
    "feedforward_output_dense": "_feedforward_output_dense",
    "feedforward_layer_norm": "_feedforward_layer_norm",
    "intermediate_dense": "_intermediate_dense",
    "intermediate_layer_norm": "_intermediate_layer_norm",
}
_VARS = dict.fromkeys(("kernel", "gamma", "embeddings", "output_bias"), "vars/0")
_VARS |= dict.fromkeys(("bias", "beta"), "vars/1")
# Ways in which the same place was spelled by earlier versions of Keras.
_SPELLINGS = (
    (r"/_(query|key|value|output)_dense/", r"/\1_dense/"),
    (r"^layers/token_and_position_embedding/(token|position)_embedding/", r"layers/\1_embedding/"),
    (r"^layers/token_embedding/", "layers/reversible_embedding/"),
)
_IGNORED = re.compile(r"optimizer/vars/\d+|(.*/)?seed_generator(_\d+)?/vars/0")

# The backbone has these built in.
ACTIVATIONS = {"gelu": "gelu_new"}
_CONFIG = {
    "vocab_size": "vocabulary_size",
    "hidden_size": "hidden_dim",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "intermediate_size": "intermediate_dim",
    "hidden_dropout_prob": "dropout",
    "max_position_embeddings": "max_sequence_length",
    "type_vocab_size": "num_segments",
}
# The layout written here is that of these versions.
_VERSIONS = {"keras_version": "3.15.1", "keras_hub_version": "0.32.0"}


def matches(path: str | Path) -> bool:
    """Whether the folder looks like this format; nothing is read."""
    path = Path(path)
    return (path / "config.json").is_file() and (path / _MODEL_FILE).is_file()


def read_config(path: str | Path) -> dict[str, Any]:
    """Reads config.json as keyword arguments of `BertEncoder`.

    Args:
        path: The folder.

    Returns:
        Exactly the keys of `canonical.CONFIG_KEYS`.

    Raises:
        FileNotFoundError: If there is no config.json.
        ValueError: If it is broken, or of another model.

    Example:
        >>> import tempfile
        >>> sizes = {_CONFIG.get(key, key): 8 for key in canonical.SIZES}
        >>> with tempfile.TemporaryDirectory() as path:
        ...     found = {"class_name": "BertBackbone", "config": {**sizes, "dropout": 0.2}}
        ...     folder.write_json(Path(path, "config.json"), found)
        ...     config = read_config(path)
        >>> config["hidden_size"], config["hidden_act"], config["attention_probs_dropout_prob"]
        (8, 'gelu_new', 0.2)
    """
    file = Path(path) / "config.json"
    found = folder.read_json(file)
    if found.get("class_name") != "BertBackbone" or not isinstance(found.get("config"), dict):
        raise ValueError(
            f"{file}: class_name must be 'BertBackbone', received {found.get('class_name')!r}"
        )
    return _to_canonical_config(file, found["config"])


def _to_canonical_config(source: Any, found: Mapping[str, Any]) -> dict[str, Any]:
    ours = {theirs: key for key, theirs in _CONFIG.items()}
    config = {ours.get(key, key): value for key, value in found.items()}
    config["attention_probs_dropout_prob"] = config.get("hidden_dropout_prob", 0.1)
    return canonical.read_config(
        source,
        {**config, "hidden_act": "gelu"},
        activations=ACTIVATIONS,
        dropped={"name", "trainable", "dtype"},
        required_values={},
    )


def _to_source_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The backbone's arguments, or an error where it cannot compute the same."""
    canonical.to_source_activation(config["hidden_act"], ACTIVATIONS, format=FORMAT)
    if config["layer_norm_eps"] != canonical.DEFAULTS["layer_norm_eps"]:
        raise ValueError(
            f"{FORMAT}: layer_norm_eps must be 1e-12, which BertBackbone has built in, received "
            f"{config['layer_norm_eps']}"
        )
    return {theirs: config[key] for key, theirs in _CONFIG.items()}


def read(path: str | Path) -> Checkpoint:
    """Reads a preset's folder, as `save_to_preset` writes it.

    Args:
        path: The folder: config.json, model.weights.h5; task.json and task.weights.h5 of a
            classifier or a masked LM, tokenizer.json and its vocabulary may be missing.

    Returns:
        The `Checkpoint`.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is broken, or does not hold exactly what the config calls for.
    """
    path = Path(path)
    config = read_config(path)
    files = [path / _MODEL_FILE]
    task = _read_task(path)
    if task is not None and (path / _TASK_FILE).is_file():
        files.append(path / _TASK_FILE)
    vocabulary, tokenizer = _read_tokenizer(path, config)  # before the weights, which are large
    weights = _read_weights(files, config)
    return Checkpoint(
        format=FORMAT,
        path=str(path),
        config=config,
        weights=weights,
        vocabulary=vocabulary,
        tokenizer=tokenizer,
        labels=None,
        task=task if len(files) == 2 else None,
    )


def _read_task(path: Path) -> str | None:
    file = path / "task.json"
    if not file.is_file():
        return None
    found = folder.read_json(file)
    if found.get("class_name") not in TASKS:
        raise ValueError(
            f"{file}: class_name must be one of {', '.join(TASKS)}, received "
            f"{found.get('class_name')!r}"
        )
    inner = found.get("config")
    if isinstance(inner, dict) and inner.get("activation") not in (None, "linear"):
        raise ValueError(f"{file}: activation must be 'linear', received {inner['activation']!r}")
    return TASKS[found["class_name"]]


def _read_weights(files: list[Path], config: Mapping[str, Any]) -> Mapping[str, np.ndarray]:
    import h5py

    with contextlib.ExitStack() as stack:
        datasets: dict[tuple[str, str], Any] = {}
        for file in files:
            with _one_line_errors(file):
                opened = stack.enter_context(h5py.File(file, "r"))
                names = containers.check_hdf5(opened, file.stat().st_size)
                datasets |= _datasets(file, opened, names)
        canonical.check_sizes(files[0], config, {str(k): d.shape for k, d in datasets.items()})
        source_of = {
            _place(source): source
            for entry in canonical.expand(TABLE, config)
            for source in entry.sources
        }
        # What the table does not know goes on under its own name, to be listed.
        found = {source_of.get(key, ":".join(key)): item for key, item in datasets.items()}
        shapes = {name: dataset.shape for name, dataset in found.items()}

        def load(name: str) -> np.ndarray:
            with _one_line_errors(files[0].parent):
                return np.asarray(found[name][()])

        return canonical.read_weights(files[0].parent, TABLE, config, shapes, load)


@contextlib.contextmanager
def _one_line_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # libhdf5 has many of its own
        raise ValueError(
            f"{path}: must hold whole HDF5 files, received {folder.one_line(error)}"
        ) from error


def _datasets(file: Path, opened: Any, names: Iterable[str]) -> dict[tuple[str, str], Any]:
    """(Name of the file, name in this version's spelling) -> dataset."""
    found: dict[tuple[str, str], Any] = {}
    for source in names:
        if _IGNORED.fullmatch(source):
            continue
        name = source
        for pattern, replacement in _SPELLINGS:
            name = re.sub(pattern, replacement, name)
        if (file.name, name) in found:
            raise ValueError(f"{name} must be there once, received two spellings of it")
        found[file.name, name] = opened[source]
    return found


def _place(source: str) -> tuple[str, str]:
    """File and name in it of a variable, given its path in a live model."""
    *layers, leaf = source.split("/")
    first, rest = layers[0], "/".join(layers[1:])
    if match := re.fullmatch(r"transformer_layer_(\d+)", first):
        number = int(match[1])
        file, name = _MODEL_FILE, "layers/transformer_encoder" + (f"_{number}" if number else "")
    else:
        file, name = _IN_FILE[first]
    return file, "/".join([name, *([_IN_LAYER[rest]] if rest else []), _VARS[leaf]])


def _read_tokenizer(
    path: Path, config: Mapping[str, Any]
) -> tuple[list[str] | None, dict[str, Any]]:
    """Vocabulary and options; the length is that of the preprocessor."""
    file = path / "tokenizer.json"
    options: dict[str, Any] = {"lowercase": False, "strip_accents": False, "split": True}
    vocabulary = None
    vocabulary_file = path / "assets" / "tokenizer" / "vocabulary.txt"
    if vocabulary_file.is_file():
        vocabulary = folder.read_vocabulary(vocabulary_file)
        folder.check_vocabulary_size(vocabulary_file, vocabulary, config["vocab_size"])
        options["lowercase"] = not folder.is_cased(vocabulary)
    if file.is_file():
        found = folder.read_json(file)
        inner = found.get("config")
        if found.get("class_name") != "BertTokenizer" or not isinstance(inner, dict):
            raise ValueError(
                f"{file}: class_name must be 'BertTokenizer', received {found.get('class_name')!r}"
            )
        for key in options:
            value = inner.get(key, options[key])
            if not isinstance(value, bool):
                raise ValueError(f"{file}: {key} must be true or false, received {value!r}")
            options[key] = value
        if not options["split"]:
            raise ValueError(f"{file}: split must be true, received false")
        if inner.get("suffix_indicator", "##") != "##":
            raise ValueError(f"{file}: suffix_indicator must be '##', received another")
    length = None
    if (path / "preprocessor.json").is_file():
        inner = folder.read_json(path / "preprocessor.json").get("config")
        length = inner.get("sequence_length") if isinstance(inner, dict) else None
    limit = config["max_position_embeddings"]
    return vocabulary, {
        "lowercase": options["lowercase"],
        "strip_accents": options["strip_accents"],
        "split_cjk": True,
        "sequence_length": length if type(length) is int and 0 < length <= limit else None,
    }


def write(checkpoint: Checkpoint, path: str | Path) -> None:
    """Writes a preset's folder, which `from_preset` takes; the way back from `read`.

    Args:
        checkpoint: What to write. With a classifier or a masked LM the folder is also a preset of
            that task.
        path: An empty folder.

    Raises:
        ValueError: If KerasHub cannot hold it: another activation than tanh gelu, a
            `layer_norm_eps` other than 1e-12, other heads, a tokenizer that keeps ideographs
            together.
    """
    import h5py

    path = Path(path)
    config = _to_source_config(checkpoint.config)
    heads = checkpoint.groups - {"pooler"}
    if checkpoint.task not in (None, *TASKS.values(), "embedder"):
        raise ValueError(
            f"{FORMAT}: the head must be a classifier or a masked LM, received {checkpoint.task}; "
            "its encoder alone can be saved"
        )
    if "pooler" not in checkpoint.groups:
        raise ValueError(f"{FORMAT}: BertBackbone must have a pooler, received none")
    if checkpoint.multi_label:
        raise ValueError(f"{FORMAT}: classes must exclude each other, received a multi-label model")
    if len(heads) > 1 or heads - set(TASKS.values()):
        extra = heads - set(TASKS.values()) or heads - {"masked_lm"}
        raise ValueError(
            f"{FORMAT}: a preset has one head, a classifier or a masked LM, received "
            f"{', '.join(sorted(heads))}; drop {', '.join(sorted(extra))}"
        )
    tensors = canonical.to_source(TABLE, checkpoint.config, checkpoint.weights, format=FORMAT)
    for file in (_MODEL_FILE, *([_TASK_FILE] if heads else [])):
        with h5py.File(path / file, "w") as opened:
            for source, array in tensors.items():
                its_file, name = _place(source)
                if its_file == file:
                    opened.create_dataset(name, data=np.ascontiguousarray(array))
            if file == _TASK_FILE:  # without the two KerasHub warns about the optimizer it makes
                opened.create_dataset("optimizer/vars/0", data=np.int64(0))
                opened.create_dataset("optimizer/vars/1", data=np.float32(5e-5))
    backbone = _object("bert_backbone", "BertBackbone", config)
    folder.write_json(path / "config.json", backbone)
    parameters = sum(
        array.size for name, array in tensors.items() if _place(name)[0] == _MODEL_FILE
    )
    metadata = {**_VERSIONS, "parameter_count": parameters}
    folder.write_json(path / "metadata.json", metadata)
    preprocessor = None
    if checkpoint.vocabulary is not None:
        preprocessor = _write_tokenizer(path, checkpoint, checkpoint.vocabulary, heads)
    if heads:
        (head,) = heads
        task: dict[str, Any] = {"backbone": backbone, "preprocessor": preprocessor}
        if head == "classifier":
            task["num_classes"] = len(checkpoint.weights["classifier/bias"])
            task |= {"activation": "linear", "dropout": config["dropout"]}
            written = _object("bert_text_classifier", "BertTextClassifier", task)
        else:
            written = _object("bert_masked_lm", "BertMaskedLM", task)
        folder.write_json(path / "task.json", written)


def _write_tokenizer(
    path: Path, checkpoint: Checkpoint, vocabulary: list[str], heads: set[str]
) -> dict[str, Any] | None:
    options = checkpoint.tokenizer
    if not options["split_cjk"]:
        raise ValueError(
            f"{FORMAT}: split_cjk must be true, its tokenizer splits ideographs always; received "
            "false"
        )
    if options["strip_accents"] and not options["lowercase"]:
        raise ValueError(
            f"{FORMAT}: strip_accents must be false where lowercase is, received true and false"
        )
    (path / "assets" / "tokenizer").mkdir(parents=True)
    folder.write_vocabulary(path / "assets" / "tokenizer" / "vocabulary.txt", vocabulary)
    tokenizer = _object(
        "bert_tokenizer",
        "BertTokenizer",
        {
            "config_file": "tokenizer.json",
            "vocabulary": None,
            "sequence_length": None,
            "lowercase": options["lowercase"],
            "strip_accents": options["strip_accents"],
            "split": True,
            "suffix_indicator": "##",
            "oov_token": "[UNK]",
            "special_tokens": None,
            "special_tokens_in_strings": False,
        },
    )
    folder.write_json(path / "tokenizer.json", tokenizer)
    if not heads:
        return None
    kind = "Text Classifier" if heads == {"classifier"} else "Masked LM"
    length = options["sequence_length"] or checkpoint.config["max_position_embeddings"]
    preprocessor = _object(
        f"bert_{kind.lower().replace(' ', '_')}_preprocessor",
        f"Bert{kind.replace(' ', '')}Preprocessor",
        {
            "tokenizer": tokenizer,
            "config_file": "preprocessor.json",
            "sequence_length": length,
            "truncate": "round_robin",
        },
    )
    folder.write_json(path / "preprocessor.json", preprocessor)
    return preprocessor


def _object(module: str, name: str, config: dict[str, Any]) -> dict[str, Any]:
    """A layer or model of KerasHub as Keras serializes it."""
    return {
        "module": f"keras_hub.src.models.bert.{module}",
        "class_name": name,
        "config": {"name": module, "trainable": True, **config},
        "registered_name": f"keras_hub>{name}",
    }


def from_backbone(backbone: Any) -> Checkpoint:
    """The weights of a live `keras_hub.models.BertBackbone`, or of a task on one.

    Args:
        backbone: A `BertBackbone`, a `BertTextClassifier` or a `BertMaskedLM`; its weights are
            copied.

    Returns:
        The `Checkpoint`; with a vocabulary where a task has a preprocessor.

    Raises:
        ValueError: If it is another kind of model.
    """
    task = TASKS.get(type(backbone).__name__)
    model, backbone = backbone, backbone.backbone if task else backbone
    if type(backbone).__name__ != "BertBackbone":
        raise ValueError(
            f"a BertBackbone, {' or '.join(TASKS)} is needed; received {type(backbone).__name__}"
        )
    config = _to_canonical_config(model.name, backbone.get_config())
    variables = {variable.path: variable for variable in model.weights}
    weights = canonical.read_weights(
        model.name,
        TABLE,
        config,
        {path: tuple(variable.shape) for path, variable in variables.items()},
        lambda path: np.array(variables[path].numpy()),
    )
    tokenizer = getattr(getattr(model, "preprocessor", None), "tokenizer", None)
    options = {"lowercase": True, "strip_accents": True, "split_cjk": True, "sequence_length": None}
    vocabulary = None
    if tokenizer is not None:
        vocabulary = list(tokenizer.get_vocabulary())
        options |= {
            "lowercase": tokenizer.lowercase,
            "strip_accents": tokenizer.strip_accents,
            "sequence_length": model.preprocessor.sequence_length,
        }
    return Checkpoint(FORMAT, model.name, config, weights, vocabulary, options, None, task)


def to_backbone(checkpoint: Checkpoint, backbone: Any = None) -> Any:
    """A live `keras_hub.models.BertBackbone` with the weights of a checkpoint's encoder.

    Args:
        checkpoint: With a pooler; its heads are left aside.
        backbone: One to fill; None: a new one, for which keras_hub must be installed.

    Returns:
        The `BertBackbone`.

    Raises:
        ValueError: If KerasHub cannot compute the same, or the sizes differ.
    """
    config = _to_source_config(checkpoint.config)
    if backbone is None:
        import keras_hub

        backbone = keras_hub.models.BertBackbone(**config)
    encoder = {
        name: array
        for name, array in checkpoint.weights.items()
        if name.partition("/")[0] not in canonical.OPTIONAL_GROUPS - {"pooler"}
    }
    tensors = canonical.to_source(TABLE, checkpoint.config, encoder, format=FORMAT)
    variables = {variable.path: variable for variable in backbone.weights}
    canonical.assign(variables, tensors, source=backbone.name)
    return backbone
