"""The TensorFlow Model Garden: object-based checkpoints.

Source: tensorflow/models official/nlp: configs/encoders.py, tools/export_tfhub_lib.py.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from keras_bert.checkpoints import bundle, canonical, folder, google, model_garden_graph
from keras_bert.checkpoints.canonical import Checkpoint
from keras_bert.runtime import reading
from keras_bert.runtime.words import words
from keras_bert.untrusted.errors import invalid

FORMAT = "model_garden"
FILES = (
    "bert_config.json or params.yaml with the .index and .data files of a TensorFlow 2 checkpoint"
)
_MAX_DEPTH = 50  # of YAML; the parser takes quadratic time
_MAX_YAML = 2**17  # bytes; the largest experiment of the Model Garden has 2**13

# As in Google's code, `official.modeling.activations.gelu` is the tanh approximation.
ACTIVATIONS = google.ACTIVATIONS
# configs/encoders.py -> Google's keys.
_YAML_KEYS = {
    "num_layers": "num_hidden_layers",
    "hidden_activation": "hidden_act",
    "dropout_rate": "hidden_dropout_prob",
    "attention_dropout_rate": "attention_probs_dropout_prob",
}
_SILENT_KEYS = google.SILENT_KEYS | words(
    """
    backward_compatible return_all_encoder_outputs return_attention_scores
    return_word_embeddings
    """
)


def matches(path: Path) -> bool:
    """Return True if the folder has an object-based checkpoint."""
    return bundle.holds_graph(path)


def read_config(path: Path) -> dict[str, Any]:
    """Read bert_config.json or params.yaml as keyword arguments of `BertEncoder`.

    The folder has bert_config.json with Google's keys, params.yaml from the Model Garden's
    trainer, or bert_encoder.yaml with the `encoder` section of params.yaml.
    """
    files = [path / name for name in ("bert_config.json", "params.yaml", "bert_encoder.yaml")]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        raise FileNotFoundError(
            f"{path}: must hold bert_config.json, with the keys of google-research/bert, or "
            "params.yaml, from the Model Garden's trainer; the checkpoint does not store the "
            "activation"
        )
    content = folder.read_json(file) if file.suffix == ".json" else _read_yaml(file)
    return canonical.read_config(file, content, activations=ACTIVATIONS, silent=_SILENT_KEYS)


def _read_yaml(file: Path) -> dict[str, Any]:
    """Read the encoder section of the trainer's parameters, with Google's keys."""
    import yaml

    try:
        text = reading.read_bytes(file, _MAX_YAML).decode("utf-8")
        _check_yaml(text)
        content = yaml.safe_load(text)
    except Exception as error:  # yaml raises many types for a value that its tag does not fit
        raise invalid(file, "must be YAML in UTF-8", error) from error
    for key in ("task", "model", "encoder"):
        if isinstance(content, dict) and key in content:
            content = content[key]
    encoder = content if isinstance(content, dict) else {"type": content}
    options = encoder.get("bert")
    if not isinstance(options, dict) or encoder.get("type", "bert") != "bert":
        raise invalid(file, "the encoder must be of type 'bert'", encoder.get("type"))
    return {_YAML_KEYS.get(str(key), str(key)): value for key, value in options.items()}


def _check_yaml(text: str) -> None:
    """Raise a `ValueError` for YAML that takes long to parse."""
    import yaml

    depth = 0
    for event in yaml.parse(text):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("an alias, which can expand to any size")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise ValueError(f"more than {_MAX_DEPTH} nested values")


def read(path: Path, ignore: Collection[str] = ()) -> Checkpoint:
    """Read a checkpoint of one of the Model Garden's BERT models.

    Supports `BertEncoder`, `BertEncoderV2`, `BertPretrainerV2`, `BertClassifier`,
    `BertTokenClassifier` and `BertSpanLabeler`. Optimizer state and counters are ignored. The
    folder has a config as for `read_config`, a checkpoint as `bundle.find` finds it, and
    optionally vocab.txt.

    If a head has its own pooler, as the next-sentence head of a pretrainer does, that pooler is
    used. It was trained, while the encoder's pooler kept its initial weights.
    """
    tensors = bundle.read(bundle.find(path))
    if not tensors.is_object_based:
        raise ValueError(
            f"{tensors.prefix}: must be an object-based checkpoint (TensorFlow 2), received a "
            "name-based one"
        )
    config = read_config(path)
    variables = model_garden_graph.find_variables(tensors)
    weights = model_garden_graph.read_weights(tensors, variables, config, ignore=ignore)
    vocabulary, tokenizer = google.read_tokenizer(path, config)
    return Checkpoint(
        format=FORMAT,
        path=str(path),
        config=config,
        weights=weights,
        vocabulary=vocabulary,
        tokenizer=tokenizer,
    )
