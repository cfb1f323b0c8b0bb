"""KerasHub and KerasNLP: BertBackbone and the tasks on it, in presets and memory.

Source: keras-team/keras-hub, src/models/bert (config), src/utils/preset_utils.py (files);
keras-team/keras, src/saving/saving_lib.py (names in weights files).
"""

import dataclasses
import fnmatch
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.checkpoints import canonical, folder, json_schema, name_tables
from keras_bert.checkpoints.canonical import Checkpoint
from keras_bert.model_spec import UNIT_LENGTH, HeadSpec, ModelSpec
from keras_bert.untrusted import containers
from keras_bert.untrusted.errors import invalid

FORMAT = "keras_hub"

_MODEL_FILE = "model.weights.h5"
_TASK_FILE = "task.weights.h5"
# Sources are a file and a name in it. Files name layers by class and number.
_MODEL = f"{_MODEL_FILE}:layers"
_TASK = f"{_TASK_FILE}:layers"
_LAYER = f"{_MODEL}/transformer_encoder_{{i}}"
TABLE = name_tables.table(
    {
        "embeddings/word_embeddings": f"{_MODEL}/reversible_embedding",
        "embeddings/position_embeddings": f"{_MODEL}/position_embedding",
        "embeddings/token_type_embeddings": f"{_MODEL}/embedding",
        "embeddings/layer_norm": f"{_MODEL}/layer_normalization",
        "layer_{i}/attention/qkv": f"{_LAYER}/_self_attention_layer/{{qkv}}_dense",
        "layer_{i}/attention/output": f"{_LAYER}/_self_attention_layer/output_dense",
        "layer_{i}/attention_layer_norm": f"{_LAYER}/_self_attention_layer_norm",
        "layer_{i}/intermediate": f"{_LAYER}/_feedforward_intermediate_dense",
        "layer_{i}/output": f"{_LAYER}/_feedforward_output_dense",
        "layer_{i}/output_layer_norm": f"{_LAYER}/_feedforward_layer_norm",
        "pooler/dense": f"{_MODEL}/dense",
        "masked_lm/transform": f"{_TASK}/masked_lm_head/_intermediate_dense",
        "masked_lm/layer_norm": f"{_TASK}/masked_lm_head/_intermediate_layer_norm",
        "masked_lm/output_bias": f"{_TASK}/masked_lm_head/vars/0",
        "classifier": f"{_TASK}/dense",
    },
    variables={name: "vars/0" for name in ("kernel", "gamma", "embeddings")}
    | {name: "vars/1" for name in ("bias", "beta")},
    layouts=name_tables.BY_HEAD,
)
# Sources in memory are the `path` of a variable.
_BLOCK = "transformer_layer_{i}"
_MEMORY_TABLE = name_tables.table(
    {
        "embeddings/word_embeddings": "token_embedding",
        "embeddings/position_embeddings": "position_embedding",
        "embeddings/token_type_embeddings": "segment_embedding",
        "embeddings/layer_norm": "embeddings_layer_norm",
        "layer_{i}/attention/qkv": f"{_BLOCK}/self_attention_layer/{{qkv}}",
        "layer_{i}/attention/output": f"{_BLOCK}/self_attention_layer/attention_output",
        "layer_{i}/attention_layer_norm": f"{_BLOCK}/self_attention_layer_norm",
        "layer_{i}/intermediate": f"{_BLOCK}/feedforward_intermediate_dense",
        "layer_{i}/output": f"{_BLOCK}/feedforward_output_dense",
        "layer_{i}/output_layer_norm": f"{_BLOCK}/feedforward_layer_norm",
        "pooler/dense": "pooled_dense",
        "masked_lm/transform": "mlm_head/intermediate_dense",
        "masked_lm/layer_norm": "mlm_head/intermediate_layer_norm",
        "masked_lm/output_bias": "mlm_head/output_bias",
        "classifier": "logits",
    },
    layouts=name_tables.BY_HEAD,
)
TASKS = {
    "BertTextClassifier": "classification",
    "BertMaskedLM": "masked_tokens",
    "BertTextEmbedder": "embedding",
}
_POOLINGS = ("mean", "cls", "max")  # of BertTextEmbedder

# The first layer has no number in a file. The other names are those of earlier versions of Keras.
_SPELLINGS = (
    (r"^layers/transformer_encoder/", "layers/transformer_encoder_0/"),
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
# Head -> module and class in KerasHub.
_TASK_CLASSES = {
    "classifier": ("bert_text_classifier", "BertTextClassifier"),
    "masked_lm": ("bert_masked_lm", "BertMaskedLM"),
    "embedding": ("bert_text_embedder", "BertTextEmbedder"),
}
_VOCABULARY = "assets/tokenizer/vocabulary.txt"
_TOKENIZER_SCHEMA = {
    "lowercase": json_schema.FLAG,
    "strip_accents": json_schema.FLAG,
    "split": True,
    "suffix_indicator": "##",
    "oov_token": "[UNK]",
    "special_tokens": ([],),
    "special_tokens_in_strings": False,
}


def read(path: Path, ignore: Collection[str] = ()) -> Checkpoint:
    """Read a preset that `save_to_preset` wrote.

    It holds config.json and model.weights.h5; optionally task.json of a task in `TASKS`,
    task.weights.h5 with the weights of its head, tokenizer.json and its vocabulary.
    """
    file = path / "config.json"
    config = to_canonical_config(file, _config_of(file, {"BertBackbone"})[1])
    vocabulary = folder.read_optional_vocabulary(path / _VOCABULARY, config["vocab_size"])
    tokenizer = _read_tokenizer(path, vocabulary, config["max_position_embeddings"])
    spec = ModelSpec(config, vocabulary, tokenizer)
    arrays = _read_arrays(path / _MODEL_FILE)
    has_task_file = folder.has_file(path / _TASK_FILE)

    def read_part(heads: bool) -> Checkpoint:
        if not heads:
            patterns = ignore
            if has_task_file:  # the other patterns may be for tensors of the head
                patterns = [pattern for pattern in ignore if fnmatch.filter(arrays, pattern)]
            weights = _weights_of(path, arrays, config, patterns)
            return Checkpoint(FORMAT, str(path), spec, weights)
        head = _read_head(path, config["hidden_dropout_prob"])
        weights_of_head = {}
        if has_task_file and head.task is not None:
            weights_of_head = _read_arrays(path / _TASK_FILE)
        elif head.task != "embedding":  # the other heads have weights
            head = HeadSpec()
        weights = _weights_of(path, arrays | weights_of_head, config, ignore)
        with_head = dataclasses.replace(spec, pooling=_pooling_of_encoder(head), head=head)
        return Checkpoint(FORMAT, str(path), with_head, weights)

    return canonical.with_head_or_problem(read_part)


def _config_of(file: Path, class_names: Collection[str]) -> tuple[str, dict[str, Any]]:
    """Return the class and the config of the object in a file, without keys that are null."""
    content = folder.read_json(file)
    name = str(content["class_name"])
    if name not in class_names:
        raise invalid(file, f"class_name must be one of {', '.join(class_names)}", name)
    return name, {key: value for key, value in content["config"].items() if value is not None}


def to_canonical_config(source: object, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the arguments of BertBackbone to those of `BertEncoder`."""
    ours = {theirs: key for key, theirs in _CONFIG.items()}
    config = json_schema.renamed(source, arguments, ours)
    config["attention_probs_dropout_prob"] = config.get("hidden_dropout_prob", 0.1)
    config["hidden_act"] = "gelu"
    silent = {"name", "trainable", "dtype"}
    return canonical.read_config(source, config, ACTIVATIONS, silent)


def to_source_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of BertBackbone."""
    canonical.check_is_bert(config, format=FORMAT)
    canonical.to_source_activation(config["hidden_act"], ACTIVATIONS, format=FORMAT)
    canonical.check_layer_norm_eps(config["layer_norm_eps"], "BertBackbone", format=FORMAT)
    return {theirs: config[key] for key, theirs in _CONFIG.items()}


def _read_head(path: Path, rate_of_encoder: float) -> HeadSpec:
    """Return the head in task.json. `rate_of_encoder` is the dropout rate of the encoder."""
    file = path / "task.json"
    if not file.is_file():
        return HeadSpec()
    name, config = _config_of(file, TASKS)
    return _head_of(file, TASKS[name], config, rate_of_encoder)


def _head_of(
    source: object, task: str, config: Mapping[str, Any], rate_of_encoder: float
) -> HeadSpec:
    """Return the head for the config of a model of KerasHub."""
    if task == "embedding":
        return _embedder(source, config)
    # The answers of our classifier are the softmax of its logits.
    json_schema.check(source, config, {"activation": ("linear", "softmax")})
    rate = config.get("dropout")
    is_own_rate = task == "classification" and rate != rate_of_encoder
    multi_label = False if config.get("activation") == "softmax" else None
    return HeadSpec(task, multi_label=multi_label, dropout=rate if is_own_rate else None)


def _embedder(source: object, config: Mapping[str, Any]) -> HeadSpec:
    """Return the head of a BertTextEmbedder, which compares vectors by their dot product."""
    schema = {"pooling_mode": _POOLINGS, "normalize": json_schema.FLAG}
    json_schema.check(source, config, schema)
    mode = config.get("pooling_mode", "mean")
    if config.get("normalize", True):  # the dot product is the cosine
        return HeadSpec("embedding", pooling=(mode,), layers=(UNIT_LENGTH,))
    return HeadSpec("embedding", pooling=(mode,), similarity="dot")


def _pooling_of_encoder(head: HeadSpec) -> str | None:
    return head.pooling[0] if head.pooling else None


def _read_arrays(file: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a file, whose names begin with that of the file."""
    arrays = {}
    for name, array in containers.read_hdf5(file).items():
        if _IGNORED.fullmatch(name):
            continue
        for pattern, replacement in _SPELLINGS:
            name = re.sub(pattern, replacement, name)
        arrays[f"{file.name}:{name}"] = array
    return arrays


def _weights_of(
    path: Path, arrays: dict[str, np.ndarray], config: Mapping[str, Any], ignore: Collection[str]
) -> Mapping[str, np.ndarray]:
    arrays = canonical.without_ignored(path, arrays, ignore)
    integers = {array.dtype.name for array in arrays.values() if array.dtype.kind in "iu"}
    if integers:
        rule = "the weights must be floats, not those of a quantized model"
        advice = "Save the preset of the model as it was before `quantize`, and load that"
        raise invalid(path, rule, ", ".join(sorted(integers)), advice)
    shapes = {name: array.shape for name, array in arrays.items()}
    return name_tables.read_weights(path, TABLE, config, shapes, arrays.__getitem__)


def _read_tokenizer(path: Path, vocabulary: list[str] | None, limit: int) -> dict[str, Any]:
    """Read the tokenizer options; preprocessor.json has the sequence length."""
    file = path / "tokenizer.json"
    lowercase = vocabulary is not None and folder.is_lowercase(vocabulary)
    config = _config_of(file, {"BertTokenizer"})[1] if folder.has_file(file) else {}
    json_schema.check(file, config, _TOKENIZER_SCHEMA)
    preprocessor_file = path / "preprocessor.json"
    preprocessor = folder.read_optional_json(preprocessor_file).get("config") or {}
    json_schema.check(preprocessor_file, preprocessor, {"truncate": "round_robin"})
    length = preprocessor.get("sequence_length")
    return {
        "lowercase": config.get("lowercase", lowercase),
        "strip_accents": config.get("strip_accents", False),
        "split_cjk": True,
        "sequence_length": length if type(length) is int and 0 < length <= limit else None,
    }


def write(checkpoint: Checkpoint, path: Path) -> None:
    """Write a preset for `from_preset`: the inverse of `read`.

    With a classifier, a masked LM or a pooling, the folder is also a preset of that task. KerasHub
    supports no other heads, only tanh GELU and a `layer_norm_eps` of 1e-12, and always splits
    ideographs.
    """
    spec = checkpoint.spec
    config = to_source_config(spec.encoder)
    head = _supported_head(checkpoint)
    tensors = name_tables.to_source(TABLE, spec.encoder, checkpoint.weights, format=FORMAT)
    _write_weights(path, tensors, head)
    backbone = _object("bert_backbone", "BertBackbone", config)
    folder.write_json(path / "config.json", backbone)
    folder.write_json(path / "metadata.json", _VERSIONS)
    tokenizer = None
    if spec.vocabulary is not None:
        tokenizer = _write_tokenizer(path, spec.tokenizer, spec.vocabulary)
    # A preset without a task may have any class of preprocessors; all read `sequence_length`.
    module, name = _TASK_CLASSES[head or "classifier"]
    preprocessor = None
    length = spec.tokenizer.get("sequence_length")
    if tokenizer is not None and (head or length):
        limit = spec.encoder["max_position_embeddings"]
        options = {
            "tokenizer": tokenizer,
            "config_file": "preprocessor.json",
            "sequence_length": length or limit,
            "truncate": "round_robin",
        }
        preprocessor = _object(f"{module}_preprocessor", f"{name}Preprocessor", options)
        folder.write_json(path / "preprocessor.json", preprocessor)
    if head is None:
        return
    task: dict[str, Any] = {"backbone": backbone, "preprocessor": preprocessor}
    if head == "classifier":
        task["num_classes"] = len(checkpoint.weights["classifier/bias"])
        rate = config["dropout"] if spec.head.dropout is None else spec.head.dropout
        task |= {"activation": "linear", "dropout": rate}
    if head == "embedding" and spec.embedding is not None:
        task["pooling_mode"] = spec.embedding.pooling[0]
        task["normalize"] = spec.embedding.layers == (UNIT_LENGTH,)
    folder.write_json(path / "task.json", _object(module, name, task))


def _supported_head(checkpoint: Checkpoint) -> str | None:
    """Return the head of a checkpoint, or raise an error if KerasHub does not support it."""
    heads = checkpoint.groups - {"pooler"}
    task = checkpoint.spec.head.task
    if task not in (None, *TASKS.values()):
        rule = "the head must be a classifier, a masked LM or an embedder"
        raise ValueError(f"{FORMAT}: {rule}, received {task}; save its encoder alone")
    if "pooler" not in checkpoint.groups:
        raise ValueError(f"{FORMAT}: BertBackbone must have a pooler, received none")
    extra = heads - _TASK_CLASSES.keys()
    if extra or len(heads) > 1:
        dropped = ", ".join(sorted(extra or heads - {"masked_lm"}))
        raise ValueError(
            f"{FORMAT}: a preset has one head, a classifier or a masked LM, received "
            f"{', '.join(sorted(heads))}; drop {dropped}"
        )
    embedding = checkpoint.spec.embedding
    if not heads and embedding is not None and set(embedding.pooling) <= set(_POOLINGS):
        return "embedding"
    return next(iter(heads), None)


def _write_weights(path: Path, tensors: Mapping[str, np.ndarray], head: str | None) -> None:
    import h5py

    has_weights = head in canonical.OPTIONAL_GROUPS
    for file_name in (_MODEL_FILE, _TASK_FILE) if has_weights else (_MODEL_FILE,):
        with h5py.File(path / file_name, "w") as file:
            for source, array in tensors.items():
                owner, _, name = source.partition(":")
                name = name.replace("/transformer_encoder_0/", "/transformer_encoder/")
                if owner == file_name:
                    file.create_dataset(name, data=np.ascontiguousarray(array))
            if file_name == _TASK_FILE:  # KerasHub warns if the optimizer has no variables
                file.create_dataset("optimizer/vars/0", data=np.int64(0))
                file.create_dataset("optimizer/vars/1", data=np.float32(5e-5))


def _write_tokenizer(
    path: Path, options: Mapping[str, Any], vocabulary: list[str]
) -> dict[str, Any]:
    """Write the tokenizer, and return its serialized form."""
    if not options["split_cjk"]:
        raise invalid(FORMAT, "split_cjk must be true, as in BertTokenizer", False)
    if options["strip_accents"] and not options["lowercase"]:
        raise invalid(FORMAT, "strip_accents must be false if lowercase is false", True)
    if options.get("added_tokens"):
        rule = "BertTokenizer does not match added tokens as Hugging Face does"
        token = options["added_tokens"][0].content
        raise invalid(FORMAT, rule, token, canonical.USE_KERAS)
    (path / _VOCABULARY).parent.mkdir(parents=True)
    folder.write_vocabulary(path / _VOCABULARY, vocabulary)
    config = {"config_file": "tokenizer.json", "vocabulary": None}
    config |= {key: options[key] for key in ("lowercase", "strip_accents")}
    tokenizer = _object("bert_tokenizer", "BertTokenizer", config)
    folder.write_json(path / "tokenizer.json", tokenizer)
    return tokenizer


def _object(module: str, name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the serialized form of a KerasHub object."""
    return {
        "module": f"keras_hub.src.models.bert.{module}",
        "class_name": name,
        "config": {"name": module, "trainable": True, **config},
        "registered_name": f"keras_hub>{name}",
    }


def from_model(model: Any) -> Checkpoint:
    """Convert a `BertBackbone`, or a model of a task in `TASKS`, to a `Checkpoint`.

    The weights are copied. The vocabulary is that of the model's preprocessor, if it has one.
    """
    kind = type(model).__name__
    task = TASKS.get(kind)
    if task is None and kind != "BertBackbone":
        raise ValueError(f"the model must be a BertBackbone, {' or '.join(TASKS)}; received {kind}")
    backbone = model if task is None else model.backbone
    config = to_canonical_config(model.name, backbone.get_config())
    variables = {variable.path: variable for variable in model.weights}
    shapes = {path: tuple(variable.shape) for path, variable in variables.items()}
    weights = name_tables.read_weights(
        model.name, _MEMORY_TABLE, config, shapes, lambda path: np.array(variables[path].numpy())
    )
    options = folder.default_tokenizer(lowercase=True)
    vocabulary = None
    preprocessor = None if task is None else model.preprocessor
    if preprocessor is not None:
        tokenizer = preprocessor.tokenizer
        vocabulary = list(tokenizer.get_vocabulary())
        options |= {
            "lowercase": tokenizer.lowercase,
            "strip_accents": tokenizer.strip_accents,
            "sequence_length": preprocessor.sequence_length,
        }
    head = HeadSpec()
    if task is not None:
        head = _head_of(model.name, task, model.get_config(), config["hidden_dropout_prob"])
    spec = ModelSpec(config, vocabulary, options, _pooling_of_encoder(head), head)
    return Checkpoint(FORMAT, model.name, spec, dict(weights))


def to_backbone(checkpoint: Checkpoint, backbone: Any = None) -> Any:
    """Copy the encoder of a checkpoint with a pooler to a `keras_hub.models.BertBackbone`.

    If `backbone` is `None`, a new one is created. Heads are ignored.
    """
    config = to_source_config(checkpoint.spec.encoder)
    if backbone is None:
        import keras_hub

        backbone = keras_hub.models.BertBackbone(**config)
    encoder = canonical.without_heads(checkpoint.weights)
    tensors = name_tables.to_source(_MEMORY_TABLE, checkpoint.spec.encoder, encoder, format=FORMAT)
    variables = {variable.path: variable for variable in backbone.weights}
    name_tables.assign(variables, tensors, source=backbone.name)
    return backbone
