"""Options of the module Transformer of sentence-transformers, which calls transformers.

Source: UKPLab/sentence-transformers, `base/modules/transformer.py`.
"""

from pathlib import Path
from typing import Any

from keras_bert.checkpoints import folder, json_schema
from keras_bert.untrusted.errors import invalid

FILE = "sentence_bert_config.json"
# The first of these files counts. Only old versions write the others.
FILES = (FILE, *(
    f"sentence_{name}_config.json"
    for name in ("roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
))  # fmt: skip
_OLDER_NAMES = {
    "model_args": "model_kwargs",
    "tokenizer_args": "processor_kwargs",
    "config_args": "config_kwargs",
}
_OF_DOWNLOADS = {
    "cache_dir", "local_files_only", "revision", "subfolder", "token", "trust_remote_code",
}  # fmt: skip
# Arguments of transformers that change no number.
_HARMLESS = {
    "config_kwargs": _OF_DOWNLOADS,
    "model_kwargs": {*_OF_DOWNLOADS, "attn_implementation", "device_map", "dtype", "torch_dtype"},
    "processor_kwargs": {*_OF_DOWNLOADS, "clean_up_tokenization_spaces", "use_fast"},
}
_REQUIRED_VALUES: dict[str, Any] = {
    "do_lower_case": json_schema.FLAG,
    "config_kwargs": {},
    "model_kwargs": {},
    "processor_kwargs": {},
    "processing_kwargs": {},
    "query_length": None,
    "document_length": None,
    "query_expansion": None,
    "tokenizer_name_or_path": None,
}
_OF_OUTPUTS = ("modality_config", "module_output_name", "transformer_task")
_OTHERS = ("max_seq_length", "unpad_inputs", *_OF_OUTPUTS)
# The vectors of the tokens, or the logits of a head.
_OUTPUTS = {"module_output_name": ("token_embeddings", "scores")}
_OUTPUTS_OF_TEXT = {"method": "forward", "method_output_name": ("last_hidden_state", "logits")}


def read(path: Path) -> dict[str, Any]:
    """Return the options in a folder, with their present names; an empty dict if there are none.

    Raise a `ValueError` for an option that would change token ids or what the encoder computes.
    """
    file, content = _find(path)
    options = json_schema.renamed(file, content, _OLDER_NAMES)
    for name, harmless in _HARMLESS.items():
        if isinstance(options.get(name), dict):
            options[name] = {key: options[name][key] for key in options[name].keys() - harmless}
    advice = "Move its values to tokenizer_config.json or config.json, and remove it"
    json_schema.check(file, options, _REQUIRED_VALUES, advice=advice)
    unknown = options.keys() - _REQUIRED_VALUES.keys() - set(_OTHERS)
    if unknown:
        raise invalid(file, "must have options of the module Transformer", min(unknown))
    return options


def check_outputs(path: Path) -> None:
    """Raise a `ValueError` if the next module gets other outputs than those of the encoder."""
    file, content = _find(path)
    json_schema.check(file, content, _OUTPUTS)
    modalities = content.get("modality_config") or {"text": {}}
    text = modalities.get("text") if isinstance(modalities, dict) else None
    if not isinstance(text, dict):
        raise invalid(file, "modality_config must have the options of text", modalities)
    json_schema.check(file, text, _OUTPUTS_OF_TEXT)


def _find(path: Path) -> tuple[Path, dict[str, Any]]:
    """Return the first file with options, and its content."""
    for name in FILES:
        content = folder.read_optional_json(path / name)
        if content:
            return path / name, content
    return path / FILE, {}
