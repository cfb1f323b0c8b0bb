"""Errors for folders that hold another model: what it is, and how to use it.

Source: huggingface/transformers, models/auto/configuration_auto.py (model types and classes).
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_bert.checkpoints import families, huggingface_heads, json_schema
from keras_bert.checkpoints.families import FAMILIES, classes_of
from keras_bert.checkpoints.folder import read_optional_json
from keras_bert.runtime.escaping import shown
from keras_bert.untrusted.errors import invalid

# Model type without "-" and "_", which is also how classes and tensors are called -> the difference
# to BERT.
OTHER_ARCHITECTURES = {
    "robertaprelayernorm": "normalizes before its layers",
    "xlmroberta": "has RoBERTa's positions, and SentencePiece",
    "camembert": "has RoBERTa's positions, and SentencePiece",
    "albert": "has layers that share their weights, and SentencePiece",
    "deberta": "has relative positions",
    "mpnet": "has relative positions",
    "modernbert": "has rotary positions and gated layers",
    "nomicbert": "has rotary positions and gated layers",
    "jinabert": "has linear biases in place of positions",
    "mobilebert": "has bottlenecks in its layers",
    "squeezebert": "has grouped convolutions",
    "convbert": "has convolutions beside its attention",
    "longformer": "has sliding windows of attention",
    "bigbird": "has sparse attention",
    "layoutlm": "has embeddings of the places of words on a page",
    "megatronbert": "normalizes before its layers",
    "bertgeneration": "has a decoder",
    "ernie": "can have embeddings of tasks",
    "nezha": "has relative positions",
    "roformer": "has rotary positions",
    "xlnet": "has relative positions, and SentencePiece",
    "gpt2": "is a decoder",
    "mt5": "has relative positions, and SentencePiece",
    "t5": "has relative positions, and SentencePiece",
}
_BERT_CLASS = re.compile(r"(TF|Flax)?Bert(Model|For|LMHead|PreTrained)")
# Files of byte-level BPE, fastBPE and SentencePiece. BERT's are vocab.txt and tokenizer.json.
_OTHER_TOKENIZERS = ("vocab.json", "merges.txt", "bpe.codes", "sentencepiece.*", "*piece.model",
                     "tokenizer*.model")  # fmt: skip
_USE = "Use it with transformers, or choose a BERT, as in keras_bert.load('base')"
_GRAPH = (
    "is a graph, which has no Keras model. Run it with keras_bert.pipeline(folder, trusted=True) "
    "or keras-bert predict --trusted, or load the checkpoint from which it was made"
)
_ARCHIVE = "is an archive. Unpack it there, and load the folder"
# Pattern of files -> what they are, and what to do. They are looked for in this order.
_FILES = {
    "*.fp16.safetensors": "is a variant of the weights. Rename it to model.safetensors",
    "*.gguf": "is for llama.cpp. Load the checkpoint from which it was made",
    "*.msgpack": "has weights of Flax. Convert them with transformers 4, "
    "BertModel.from_pretrained(folder, from_flax=True).save_pretrained(new_folder)",
    "*.ot": "has weights for rust-bert. Load the checkpoint from which it was made",
    "*.mlmodel": "is for Core ML. Load the checkpoint from which it was made",
    "*.mlpackage": "is for Core ML. Load the checkpoint from which it was made",
    "weights.npz": "has weights for MLX. Load the checkpoint from which it was made",
    "config.cfg": "is of a spaCy pipeline. Use it with spaCy",
    "*-model.pt": "is a model of flair. Use it with flair, or save its transformer with "
    "model.embeddings.model.save_pretrained(new_folder)",
    "*.pt": "is a file of PyTorch. Save the weights with torch.save(model.state_dict(), "
    "'pytorch_model.bin') beside config.json",
    "*.pth": "is a file of PyTorch. Save the weights with torch.save(model.state_dict(), "
    "'pytorch_model.bin') beside config.json",
    "*.ckpt": "is a file of PyTorch Lightning. Save the weights of its BERT with save_pretrained",
    "onnx/*.onnx": _GRAPH,
    "*.onnx": _GRAPH,
    "openvino/*.xml": _GRAPH,
    "*.xml": _GRAPH,
    "*.tflite": "is a graph, which has no Keras model. Run it with LiteRT, or load the checkpoint "
    "from which it was made",
    "model.json": "is for TensorFlow.js. Load the checkpoint from which it was made",
    **dict.fromkeys(("*.tar", "*.tar.*", "*.tgz", "*.zip", "*.7z"), _ARCHIVE),
}


def check_config(file: Path, config: Mapping[str, Any], is_converted: bool = False) -> None:
    """Raise a `ValueError` if config.json, or a tokenizer beside it, is that of another model.

    Configs of 2018 and 2019 have no `model_type`. `is_converted` is True for the config that
    `families` made of another one.
    """
    model_type = config.get("model_type")
    names = classes_of(config)
    code_of = config.get("auto_map")
    code = code_of.get("AutoModel") if isinstance(code_of, dict) else None
    for value in filter(None, [model_type, *names]):
        if value != "bert" and not _BERT_CLASS.match(str(value)):
            _check_family(file, str(value))
    json_schema.check(file, config, {"model_type": ("bert", *FAMILIES)}, advice=_USE)
    if code:
        raise ValueError(
            f"{file}: the code of {shown(code)} computes this model. If that is a BERT, load a "
            "copy of the folder without auto_map in config.json"
        )
    quantization = config.get("quantization_config")
    if quantization:
        method = quantization.get("quant_method") if isinstance(quantization, dict) else None
        rule = "quantization_config must be empty, since quantized weights are not read"
        advice = "Use it with transformers, or load the checkpoint from which it was made"
        raise invalid(file, rule, method or quantization, advice)
    tokenizers = [
        tokenizer.name
        for pattern in _OTHER_TOKENIZERS
        for tokenizer in sorted(file.parent.glob(pattern))
    ]
    if is_converted and tokenizers:
        rule = "the tokenizer must be WordPiece, whose file is vocab.txt"
        raise ValueError(f"{file.parent}: {rule}, received {tokenizers[0]}. {_USE}")
    if model_type is not None:
        return
    others = [name for name in names if not _BERT_CLASS.match(name)] + tokenizers
    if config.get("embedding_size") not in (None, config.get("hidden_size")):
        others.append("embedding_size")
    if not names and config.get("pad_token_id") not in (None, 0):
        others.append("pad_token_id")  # RoBERTa's positions begin after it
    others += [key for key in ("dim", "n_layers", "n_heads") if key in config]  # of DistilBERT
    if others:
        raise ValueError(
            f"{file}: must have a model_type, since {shown(others[0])} is not of BERT. Add that of "
            f"the model, one of bert, {', '.join(FAMILIES)}; other models are not read"
        )


def check_prefix(file: Path, prefix: str) -> None:
    """Raise a `ValueError` if tensors have the prefix of another model, such as "roberta."."""
    for part in prefix.split("."):
        if part != "bert":
            _check_family(file, part)


def _check_family(file: Path, name: str) -> None:
    """Raise a `ValueError` for a model type, a class or a prefix of tensors of another model."""
    plain = re.sub(r"[-_]|^(TF|Flax)", "", name).lower()
    for architecture, difference in OTHER_ARCHITECTURES.items():
        if plain.startswith(architecture):
            raise ValueError(f"{file}: {shown(name)} is not a BERT: it {difference}. {_USE}")
    for family in FAMILIES:
        if plain.startswith(family):
            raise ValueError(
                f"{file}: must have the model_type {shown(family)} beside {shown(name)}. Add it to "
                "config.json"
            )


def read_config_of_graph(path: Path) -> dict[str, Any]:
    """Return the config, with BERT's keys, in the folder of a graph of another library.

    The graph can be of any model with BERT's sizes and one of its heads. Raise a `ValueError` for
    others, such as decoders and models of images.
    """
    file = path / "config.json"
    content = read_optional_json(file)
    family = families.find(content)
    config = families.bert_config(file, family, content)
    class_name = families.bert_class(config)
    sizes = [config.get(key) for key in ("vocab_size", "max_position_embeddings")]
    has_head = class_name is None or class_name in huggingface_heads.ARCHITECTURES
    if content and (None in sizes or not has_head):
        check_config(file, config, is_converted=family is not families.BERT)
    return config


def check_files(path: Path) -> None:
    """Raise a `ValueError` for a folder without a checkpoint that has files of other libraries."""
    for pattern, advice in _FILES.items():
        for file in sorted(path.glob(pattern)):
            if advice == _GRAPH:
                read_config_of_graph(path)
            raise ValueError(f"{path} has no checkpoint of BERT: {shown(file.name)} {advice}")


def check_file(file: Path) -> None:
    """Raise a `ValueError` for a file of another library."""
    for pattern, advice in _FILES.items():
        if file.match(pattern):
            raise ValueError(f"{file} {advice}")
