"""KerasHub and KerasNLP: presets and models of BertBackbone, BertTextClassifier and BertMaskedLM.

Source: keras-team/keras-hub, src/models/bert (config, layers), src/utils/preset_utils.py (files);
keras-team/keras, src/saving/saving_lib.py (names in weights files).
"""

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.checkpoints import canonical, folder, name_tables
from keras_bert.checkpoints.canonical import Checkpoint
from keras_bert.checkpoints.name_tables import Layout, rule
from keras_bert.runtime import reading
from keras_bert.untrusted import containers

FORMAT = "keras_hub"
FILES = "config.json with model.weights.h5"

# Canonical name -> `path` of the variables of a model in memory.
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
TASKS = {"BertTextClassifier": "classification", "BertMaskedLM": "masked_tokens"}

# Layer in memory -> file and name in the file. Files name layers by class and number.
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
# Names in files of earlier versions of Keras, as (pattern, replacement).
_SPELLINGS = (
    (r"/_(query|key|value|output)_dense/", r"/\1_dense/"),
    (r"^layers/token_and_position_embedding/(token|position)_embedding/", r"layers/\1_embedding/"),
    (r"^layers/token_embedding/", "layers/reversible_embedding/"),
)
_IGNORED = re.compile(r"optimizer/vars/\d+|(.*/)?seed_generator(_\d+)?/vars/0")

# The only activation of BertBackbone.
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
# Versions whose file layout is written.
_VERSIONS = {"keras_version": "3.15.1", "keras_hub_version": "0.32.0"}


def matches(path: str | Path) -> bool:
    """Return True if the folder has the files of this format."""
    path = Path(path)
    return (path / "config.json").is_file() and (path / _MODEL_FILE).is_file()


def read_config(path: str | Path) -> dict[str, Any]:
    """Read config.json as keyword arguments of `BertEncoder`."""
    file = Path(path) / "config.json"
    found = folder.read_json(file)
    if found.get("class_name") != "BertBackbone" or not isinstance(found.get("config"), dict):
        raise ValueError(
            f"{file}: class_name must be 'BertBackbone', received {found.get('class_name')!r:.80}"
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
        silent={"name", "trainable", "dtype"},
    )


def _to_source_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of BertBackbone."""
    canonical.to_source_activation(config["hidden_act"], ACTIVATIONS, format=FORMAT)
    canonical.check_layer_norm_eps(config["layer_norm_eps"], "BertBackbone", format=FORMAT)
    return {theirs: config[key] for key, theirs in _CONFIG.items()}


def read(path: str | Path, ignore: Collection[str] = ()) -> Checkpoint:
    """Read a preset that `save_to_preset` wrote.

    It holds config.json and model.weights.h5; optionally task.json and task.weights.h5 of a
    classifier or a masked LM, tokenizer.json and its vocabulary.
    """
    path = Path(path)
    config = read_config(path)
    files = [path / _MODEL_FILE]
    task = _read_task(path)
    if task is not None and (path / _TASK_FILE).is_file():
        files.append(path / _TASK_FILE)
    vocabulary, tokenizer = _read_tokenizer(path, config)  # before the slow weights
    weights = _read_weights(files, config, ignore)
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
    if found.get("class_name") not in [*TASKS]:  # the value may have no hash
        raise ValueError(
            f"{file}: class_name must be one of {', '.join(TASKS)}, received "
            f"{found.get('class_name')!r:.80}"
        )
    inner = found.get("config")
    if isinstance(inner, dict) and inner.get("activation") not in (None, "linear"):
        raise ValueError(
            f"{file}: activation must be 'linear', received {inner['activation']!r:.80}"
        )
    return TASKS[found["class_name"]]


def _read_weights(
    files: list[Path], config: Mapping[str, Any], ignore: Collection[str]
) -> Mapping[str, np.ndarray]:
    import h5py

    with contextlib.ExitStack() as stack:
        datasets: dict[tuple[str, str], Any] = {}
        for file in files:
            reading.check_not_lfs_pointer(file)
            with _one_line_errors(file):
                opened = stack.enter_context(h5py.File(file, "r"))
                names = containers.check_hdf5(opened, file.stat().st_size)
                datasets |= _datasets(file, opened, names)
        canonical.check_sizes(files[0], config, {str(k): d.shape for k, d in datasets.items()})
        source_of = {
            _location(source): source
            for entry in name_tables.expand(TABLE, config)
            for source in entry.sources
        }
        # Unknown datasets keep their names, so that the error lists them.
        found = {source_of.get(key, ":".join(key)): item for key, item in datasets.items()}
        found = canonical.without_ignored(files[0].parent, found, ignore)
        shapes = {name: dataset.shape for name, dataset in found.items()}

        def load(name: str) -> np.ndarray:
            with _one_line_errors(files[0].parent):
                return np.asarray(found[name][()])

        return name_tables.read_weights(files[0].parent, TABLE, config, shapes, load)


@contextlib.contextmanager
def _one_line_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # h5py raises many types
        raise ValueError(
            f"{path}: must hold complete HDF5 files, received {reading.one_line(error)}"
        ) from error


def _datasets(file: Path, opened: Any, names: Iterable[str]) -> dict[tuple[str, str], Any]:
    """Return (name of the file, current name in the file) -> dataset."""
    found: dict[tuple[str, str], Any] = {}
    for source in names:
        if _IGNORED.fullmatch(source):
            continue
        name = source
        for pattern, replacement in _SPELLINGS:
            name = re.sub(pattern, replacement, name)
        if (file.name, name) in found:
            raise ValueError(f"{name} must occur once, received two spellings of it")
        found[file.name, name] = opened[source]
    return found


def _location(source: str) -> tuple[str, str]:
    """Return file and name in the file of a variable, given its path in a model in memory."""
    *layers, leaf = source.split("/")
    first, rest = layers[0], "/".join(layers[1:])
    if match := re.fullmatch(r"transformer_layer_(\d{1,9})", first):
        number = int(match[1])
        file, name = _MODEL_FILE, "layers/transformer_encoder" + (f"_{number}" if number else "")
    else:
        file, name = _IN_FILE[first]
    return file, "/".join([name, *([_IN_LAYER[rest]] if rest else []), _VARS[leaf]])


def _read_tokenizer(
    path: Path, config: Mapping[str, Any]
) -> tuple[list[str] | None, dict[str, Any]]:
    """Read the vocabulary and the options; preprocessor.json has the sequence length."""
    file = path / "tokenizer.json"
    vocabulary_file = path / "assets" / "tokenizer" / "vocabulary.txt"
    vocabulary = folder.read_optional_vocabulary(vocabulary_file, config["vocab_size"])
    lowercase = vocabulary is not None and folder.is_lowercase(vocabulary)
    options: dict[str, Any] = {"lowercase": lowercase, "strip_accents": False, "split": True}
    if file.is_file():
        found = folder.read_json(file)
        inner = found.get("config")
        if found.get("class_name") != "BertTokenizer" or not isinstance(inner, dict):
            raise ValueError(
                f"{file}: class_name must be 'BertTokenizer', received "
                f"{found.get('class_name')!r:.80}"
            )
        for key in options:
            value = inner.get(key, options[key])
            if not isinstance(value, bool):
                raise ValueError(f"{file}: {key} must be true or false, received {value!r:.80}")
            options[key] = value
        if not options["split"]:
            raise ValueError(f"{file}: split must be true, received false")
        if inner.get("suffix_indicator", "##") != "##":
            raise ValueError(
                f"{file}: suffix_indicator must be '##', received {inner['suffix_indicator']!r:.80}"
            )
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
    """Write a preset for `from_preset`: the inverse of `read`.

    With a classifier or a masked LM, the folder is also a preset of that task. KerasHub supports
    no other heads, only tanh GELU and a `layer_norm_eps` of 1e-12, and always splits ideographs.
    """
    path = Path(path)
    config = _to_source_config(checkpoint.config)
    head = _supported_head(checkpoint)
    tensors = name_tables.to_source(TABLE, checkpoint.config, checkpoint.weights, format=FORMAT)
    _write_weights(path, tensors, head)
    backbone = _object("bert_backbone", "BertBackbone", config)
    folder.write_json(path / "config.json", backbone)
    parameters = sum(
        array.size for name, array in tensors.items() if _location(name)[0] == _MODEL_FILE
    )
    folder.write_json(path / "metadata.json", {**_VERSIONS, "parameter_count": parameters})
    preprocessor = None
    if checkpoint.vocabulary is not None:
        preprocessor = _write_tokenizer(path, checkpoint, checkpoint.vocabulary, head)
    task: dict[str, Any] = {"backbone": backbone, "preprocessor": preprocessor}
    if head == "classifier":
        task["num_classes"] = len(checkpoint.weights["classifier/bias"])
        task |= {"activation": "linear", "dropout": config["dropout"]}
        written = _object("bert_text_classifier", "BertTextClassifier", task)
        folder.write_json(path / "task.json", written)
    elif head == "masked_lm":
        folder.write_json(path / "task.json", _object("bert_masked_lm", "BertMaskedLM", task))


def _supported_head(checkpoint: Checkpoint) -> str | None:
    """Return the head of a checkpoint, or raise an error if KerasHub does not support it."""
    heads = checkpoint.groups - {"pooler"}
    if checkpoint.task not in (None, *TASKS.values(), "embedding"):
        raise ValueError(
            f"{FORMAT}: the head must be a classifier or a masked LM, received {checkpoint.task}; "
            "save its encoder alone"
        )
    if "pooler" not in checkpoint.groups:
        raise ValueError(f"{FORMAT}: BertBackbone must have a pooler, received none")
    if checkpoint.multi_label:
        raise ValueError(f"{FORMAT}: classes must exclude each other, received a multi-label model")
    if len(heads) > 1 or heads - {"classifier", "masked_lm"}:
        extra = heads - {"classifier", "masked_lm"} or heads - {"masked_lm"}
        raise ValueError(
            f"{FORMAT}: a preset has one head, a classifier or a masked LM, received "
            f"{', '.join(sorted(heads))}; drop {', '.join(sorted(extra))}"
        )
    return next(iter(heads), None)


def _write_weights(path: Path, tensors: Mapping[str, np.ndarray], head: str | None) -> None:
    import h5py

    for file in (_MODEL_FILE, *([_TASK_FILE] if head else [])):
        with h5py.File(path / file, "w") as opened:
            for source, array in tensors.items():
                its_file, name = _location(source)
                if its_file == file:
                    opened.create_dataset(name, data=np.ascontiguousarray(array))
            if file == _TASK_FILE:  # KerasHub warns if the optimizer has no variables.
                opened.create_dataset("optimizer/vars/0", data=np.int64(0))
                opened.create_dataset("optimizer/vars/1", data=np.float32(5e-5))


def _write_tokenizer(
    path: Path, checkpoint: Checkpoint, vocabulary: list[str], head: str | None
) -> dict[str, Any] | None:
    """Write tokenizer and preprocessor, and return the preprocessor of a task."""
    options = checkpoint.tokenizer
    if not options["split_cjk"]:
        raise ValueError(
            f"{FORMAT}: split_cjk must be true, because BertTokenizer always splits ideographs; "
            "received false"
        )
    if options["strip_accents"] and not options["lowercase"]:
        raise ValueError(
            f"{FORMAT}: strip_accents must be false if lowercase is false, received true"
        )
    if options.get("added_tokens"):
        raise ValueError(
            f"{FORMAT}: BertTokenizer does not match added tokens as Hugging Face does; received "
            f"{options['added_tokens'][0].content!r:.80}. Use format='huggingface'"
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
    if head is None:
        return None
    module, name = {
        "classifier": ("bert_text_classifier_preprocessor", "BertTextClassifierPreprocessor"),
        "masked_lm": ("bert_masked_lm_preprocessor", "BertMaskedLMPreprocessor"),
    }[head]
    length = options["sequence_length"] or checkpoint.config["max_position_embeddings"]
    preprocessor = _object(
        module,
        name,
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
    """Return the serialized form of a KerasHub object."""
    return {
        "module": f"keras_hub.src.models.bert.{module}",
        "class_name": name,
        "config": {"name": module, "trainable": True, **config},
        "registered_name": f"keras_hub>{name}",
    }


def from_backbone(backbone: Any) -> Checkpoint:
    """Convert a `BertBackbone`, `BertTextClassifier` or `BertMaskedLM` to a `Checkpoint`.

    The weights are copied. The vocabulary is that of the model's preprocessor, if it has one.
    """
    task = TASKS.get(type(backbone).__name__)
    model, backbone = backbone, backbone.backbone if task else backbone
    if type(backbone).__name__ != "BertBackbone":
        raise ValueError(
            f"the model must be a BertBackbone, {' or '.join(TASKS)}; received "
            f"{type(backbone).__name__}"
        )
    config = _to_canonical_config(model.name, backbone.get_config())
    variables = {variable.path: variable for variable in model.weights}
    weights = name_tables.read_weights(
        model.name,
        TABLE,
        config,
        {path: tuple(variable.shape) for path, variable in variables.items()},
        lambda path: np.array(variables[path].numpy()),
    )
    tokenizer = getattr(getattr(model, "preprocessor", None), "tokenizer", None)
    options = folder.default_tokenizer(lowercase=True)
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
    """Copy the encoder of a checkpoint with a pooler to a `keras_hub.models.BertBackbone`.

    If `backbone` is `None`, a new one is created. Heads are ignored.
    """
    config = _to_source_config(checkpoint.config)
    if backbone is None:
        import keras_hub

        backbone = keras_hub.models.BertBackbone(**config)
    encoder = {
        name: array
        for name, array in checkpoint.weights.items()
        if canonical.group_of(name) not in canonical.OPTIONAL_GROUPS - {"pooler"}
    }
    tensors = name_tables.to_source(TABLE, checkpoint.config, encoder, format=FORMAT)
    variables = {variable.path: variable for variable in backbone.weights}
    name_tables.assign(variables, tensors, source=backbone.name)
    return backbone
