"""Nothing beside the weights is ignored: a file to which a library gives a meaning has an effect.

A folder with such a file gives another model, or is refused, or a warning says that it is ignored.
"""

import json
import warnings

import pytest

import keras_bert
from keras_bert import heads
from tests import tiny

_LORA = {"peft_type": "LORA", "r": 2, "base_model_name_or_path": "base"}
_DENSE = {"in_features": 8, "out_features": 8, "bias": True}
_POOLING = {"word_embedding_dimension": 8, "pooling_mode_cls_token": True}
# Options of sentence-transformers that change the vectors.
_OPTIONS = [
    {"max_seq_length": 5}, {"do_lower_case": False, "tokenizer_args": {"model_max_length": 5}},
    {"processor_kwargs": {"do_lower_case": False}}, {"config_args": {"hidden_act": "relu"}},
    {"config_kwargs": {"layer_norm_eps": 0.1}}, {"model_args": {"add_pooling_layer": False}},
    {"processing_kwargs": {"text": {"max_length": 5}}}, {"query_length": 5},
    {"query_expansion": {"length": 5}}, {"tokenizer_name_or_path": "klue/bert-base"},
    {"an_option_of_tomorrow": 1},
]  # fmt: skip
# File -> its content, in a folder of transformers.
_FILES = {
    "1_Pooling/config.json": _POOLING,
    "2_Dense/config.json": _DENSE,
    "2_LayerNorm/config.json": {"dimension": 8},
    "3_CNN/config.json": {"in_word_embedding_dimension": 8, "out_channels": 4},
    "modules.json": [{"idx": 0, "name": "0", "path": "", "type": "mine.Module"}],
    "tokenizer_config.json": {"do_lower_case": False, "strip_accents": False},
    "added_tokens.json": {"good film": 18},
    "special_tokens_map.json": {"unk_token": "good"},
    "sentence_xlm-roberta_config.json": {"max_seq_length": 5},
    "vocab.txt": "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nfilm\ngood\n",
    "adapter_config.json": _LORA,
    "quantize_config.json": {"bits": 4},
    "quant_config.json": {"w_bit": 4},
    "bert_config.json": {"hidden_act": "relu"},
}
# Files that only matter for generation, training or people, so that silence is right.
_WITHOUT_EFFECT = {
    "generation_config.json": {"max_length": 20},
    "trainer_state.json": {"global_step": 500},
    "README.md": "# A model\n",
    # sentence-transformers reads it only beside modules.json.
    "config_sentence_transformers.json": {
        "prompts": {"query": "so "}, "default_prompt_name": "query",
    },
}  # fmt: skip


def _answers(path):
    """Return what a pipeline gets from a folder: ids, the pooling and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = keras_bert.load(path, task="auto")
    preprocessor = heads.find_encoder(model).preprocessor
    ids = preprocessor.python_tokenizer.tokenize(["Good film", "good film"])
    said = [str(warning.message) for warning in caught if warning.category is UserWarning]
    pooling = heads.find_encoder(model).pooling
    return json.dumps([ids, preprocessor.max_sequence_length, pooling, said])


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A folder of an encoder, and what it answers."""
    path = tmp_path_factory.mktemp("plain") / "model"
    encoder = tiny.encoder(num_hidden_layers=1, vocab_size=len(tiny.PIECES) + 2)
    keras_bert.save(encoder, path, format="huggingface")
    return path, _answers(path)


def _folder_with(plain, tmp_path, name, content):
    source, _ = plain
    for file in source.iterdir():
        if file.name != "tokenizer.json" or name not in ("vocab.txt", "tokenizer_config.json"):
            (tmp_path / file.name).write_bytes(file.read_bytes())
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return tmp_path


def _has_effect(plain, folder):
    try:
        return _answers(folder) != plain[1]
    except ValueError:
        return True


@pytest.mark.parametrize("name", _FILES)
def test_a_file_has_an_effect(plain, tmp_path, name):
    assert _has_effect(plain, _folder_with(plain, tmp_path, name, _FILES[name]))


@pytest.mark.parametrize("options", _OPTIONS, ids=str)
def test_an_option_has_an_effect(plain, tmp_path, options):
    file = "sentence_bert_config.json"
    assert _has_effect(plain, _folder_with(plain, tmp_path, file, options))


@pytest.mark.parametrize("name", _WITHOUT_EFFECT)
def test_other_files_change_nothing(plain, tmp_path, name):
    assert not _has_effect(plain, _folder_with(plain, tmp_path, name, _WITHOUT_EFFECT[name]))
