"""Canonical form, detection, assignment and vocabulary files."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from keras_bert import checkpoints
from keras_bert.checkpoints import canonical, folder, name_tables

CONFIG = dict(zip(canonical.SIZES, (11, 4, 2, 2, 6, 8, 2), strict=True))

ONLY_IN_HUGGINGFACE = canonical.OPTIONAL_WEIGHTS | {
    "embeddings/projection/kernel", "embeddings/projection/bias",
}  # fmt: skip


@pytest.mark.parametrize(
    "module", [each for each in checkpoints.FORMATS.values() if hasattr(each, "TABLE")]
)
def test_tables(module):
    entries = name_tables.expand(module.TABLE, CONFIG | {"embedding_size": 3}, labels=3)
    lacking = canonical.OPTIONAL_GROUPS - {canonical.group_of(entry.name) for entry in entries}
    assert set(module.TABLE) == {
        name
        for name in canonical.SHAPES
        if canonical.group_of(name) not in lacking
        and (name not in ONLY_IN_HUGGINGFACE or module.FORMAT == "huggingface")
    }
    sources = [source for entry in entries for source in entry.sources]
    assert len(sources) == len(set(sources))
    for entry in entries:
        array = np.arange(np.prod(entry.shape), dtype="float32").reshape(entry.shape)
        parts = entry.split(array)
        assert [part.shape for part in parts] == [entry.source_shape] * len(entry.sources)
        np.testing.assert_array_equal(entry.join(parts), array)


def touch(path, *names):
    for name in names:
        (path / name).touch()


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("bert_config.json", "bert_model.ckpt.index"), "google"),
        (("bert_config.json", "model.ckpt-100.index"), "google"),
        (("config.json", "model.safetensors"), "huggingface"),
        (("config.json", "model.safetensors.index.json"), "huggingface"),
        (("config.json", "pytorch_model.bin"), "huggingface"),
        (("config.json", "pytorch_model.bin", "bert_config.json"), "huggingface"),
    ],
)
def test_detect(tmp_path, names, expected):
    touch(tmp_path, *names)
    assert checkpoints.detect(tmp_path) == expected
    assert checkpoints.detect(str(tmp_path)) == expected


def test_detect_rejects_two_checkpoints(tmp_path):
    names = ("config.json", "model.safetensors", "bert_config.json", "bert_model.ckpt.index")
    touch(tmp_path, *names)
    with pytest.raises(ValueError, match="Pass format='google' or format='huggingface'"):
        checkpoints.detect(tmp_path)
    assert checkpoints.detect(tmp_path, "google") == "google"


def test_detect_errors_for_empty_and_missing_folders(tmp_path):
    with pytest.raises(ValueError, match="found an empty folder"):
        checkpoints.detect(tmp_path)
    with pytest.raises(FileNotFoundError, match="absent: must be the folder.*nothing there"):
        checkpoints.detect(tmp_path / "absent")
    touch(tmp_path, "file")
    with pytest.raises(ValueError, match=r"model\.safetensors.*found file"):
        checkpoints.detect(tmp_path)
    with pytest.raises(FileNotFoundError, match="received a file"):
        checkpoints.detect(tmp_path / "file")


def test_detect_names_the_checkpoints_in_a_folder(tmp_path):
    for name in ("checkpoint-500", "checkpoint-1000", "runs"):
        (tmp_path / name).mkdir()
        if name != "runs":
            touch(tmp_path / name, "config.json", "model.safetensors")
    with pytest.raises(ValueError, match="with one: checkpoint-1000, checkpoint-500. Pass one"):
        checkpoints.detect(tmp_path)


class Variable:
    def __init__(self, *shape):
        self.shape = shape
        self.value = None

    def assign(self, value):
        assert self.value is None, "assigned twice"
        self.value = value


def test_assign_lists_all_problems_and_assigns_nothing():
    variables = {"a": Variable(2), "c": Variable(1), "masked_lm/d": Variable(1)}
    weights = {"a": np.ones(2), "masked_lm/x": np.ones(1), "y": np.ones(1)}
    message = r"folder: .*missing \(2\): c, masked_lm/d; unused \(1\): y$"
    with pytest.raises(ValueError, match=message):
        checkpoints.assign(variables, weights, source="/some/folder", ignore=["masked_lm/"])
    assert all(variable.value is None for variable in variables.values())


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"[PAD]\na\n##b\n", ["[PAD]", "a", "##b"]),
        (b"[PAD]\na", ["[PAD]", "a"]),  # no newline at the end
        (b"[PAD]\r\na\r\n", ["[PAD]", "a"]),
        (b"a\n\nb\n", ["a", "", "b"]),  # the last line end starts no token
        (b" a\t\nb c\n", ["a", "b c"]),
        (b"a\nb\na\n", ["a", "b", "a"]),
        (b"\n", [""]),
        ("a\u2028b\nc\x85d\ne\x0bf\x0cg\x1ch\ni\rj\n".encode(),
         ["a\u2028b", "c\x85d", "e\x0bf\x0cg\x1ch", "i\rj"]),
        ("\u2028\n\xa0\nx\n".encode(), ["", "", "x"]),  # stripped, as by Google
    ],
)  # fmt: skip
def test_read_vocabulary_matches_google(tmp_path, data, expected):
    file = tmp_path / "vocab.txt"
    file.write_bytes(data)
    assert folder.read_vocabulary(file) == expected


@pytest.mark.parametrize("data", [b"a\n\nb\n\n", b"a\n\nb\n \r\n\n", b"\xef\xbb\xbfa\n\nb\n"])
def test_empty_lines_at_the_end_and_byte_order_marks_are_dropped(tmp_path, data):
    (tmp_path / "vocab.txt").write_bytes(data)
    assert folder.read_vocabulary(tmp_path / "vocab.txt") == ["a", "", "b"]


def test_vocabulary_errors(tmp_path):
    file = tmp_path / "vocab.txt"
    with pytest.raises(FileNotFoundError, match="vocab.txt"):
        folder.read_vocabulary(file)
    file.touch()
    with pytest.raises(ValueError, match="vocab.txt: must have one token per line"):
        folder.read_vocabulary(file)
    file.write_bytes("a\nb\né\n".encode("latin-1"))
    with pytest.raises(ValueError, match="vocab.txt: .* UTF-8, received byte 0xe9 in line 3"):
        folder.read_vocabulary(file)


def test_a_token_with_white_space_around_it_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="without white space around it, received 'c '"):
        folder.write_vocabulary(tmp_path / "vocab.txt", ["[PAD]", "a b", "c "])


@pytest.mark.parametrize(
    ("vocabulary", "cased"),
    [
        (["[PAD]", "[CLS]", "[unused1]", "the", "##s", "été"], False),
        (["[CLS]", "the", "Paris"], True),
        (["[CLS]", "the", "Été"], True),
        (["[CLS]", "the", "##S"], False),
        (["the", "\U0001d400", "中", "한"], False),  # str.lower does not change a mathematical A
        ([], False),
    ],
)
def test_is_lowercase(vocabulary, cased):
    assert folder.is_lowercase(vocabulary) is not cased


def read_config(**found):
    return canonical.read_config(
        Path("some/config.json"),
        {**CONFIG, **found},
        activations={"gelu": "gelu", "tanh_gelu": "gelu_new"},
        silent={"known"},
    )


def test_config_has_exactly_the_keys_of_the_encoder():
    config = read_config(known=1, model_type="bert", hidden_act="tanh_gelu", layer_norm_eps=1e-5)
    assert tuple(config) == canonical.CONFIG_KEYS
    assert config == {
        **CONFIG,
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "initializer_range": 0.02,
        "layer_norm_eps": 1e-5,
        "embedding_size": None,
        "pooler_act": "tanh",
    }
    json.dumps(config)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"model_type": "cat"}, "model_type must be 'bert' for a BERT encoder, received 'cat'"),
        ({"embedding_size": 3}, "embedding_size must be 4 "),
        ({"num_key_value_heads": 1}, "num_key_value_heads must be 2 "),
        ({"hidden_act": "quick_gelu"}, "hidden_act must be one of "),
        ({"hidden_act": "leaky_relu"}, "hidden_act must be one of "),
        ({"hidden_act": ["gelu"]}, "hidden_act must be one of "),
        ({"hidden_size": 0}, "hidden_size must be a positive integer, received 0"),
        ({"hidden_size": "8"}, "hidden_size must be a positive integer, received '8'"),
        ({"num_hidden_layers": True}, "num_hidden_layers must be a positive integer"),
        ({"layer_norm_eps": None}, "layer_norm_eps must be a number of at least 0, received None"),
        ({"hidden_dropout_prob": -1}, "hidden_dropout_prob must be a number of at least 0"),
    ],
)
def test_config_errors(found, message):
    with pytest.raises(ValueError, match="^some.config.json: .*" + re.escape(message)):
        read_config(**found)


def test_keys_that_change_nothing_are_listed_in_one_warning():
    with pytest.warns(UserWarning, match="config.json: ignored .*: emb_size, padding$") as caught:
        config = read_config(known=1, padding="x", emb_size=None, quantization_config=None)
    assert len(caught) == 1
    assert tuple(config) == canonical.CONFIG_KEYS


@pytest.mark.parametrize("value", [None, "neutral"])
def test_neutral_values_need_no_warning(value):
    found = canonical.NEUTRAL_VALUES if value else dict.fromkeys(canonical.NEUTRAL_VALUES)
    equal = {"embedding_size": CONFIG["hidden_size"]} if value else {"embedding_size": None}
    assert tuple(read_config(**found, **equal)) == canonical.CONFIG_KEYS


def test_activations_are_those_of_keras():
    from keras.src.activations import ALL_OBJECTS_DICT

    # Keras' `leaky_relu` has another slope than PyTorch's; `glu` halves the width.
    others = {"gelu", "leaky_relu", "glu"}
    assert set(canonical.KERAS_ACTIVATIONS) == set(ALL_OBJECTS_DICT) - others
    for name in canonical.KERAS_ACTIVATIONS:
        assert read_config(hidden_act=name)["hidden_act"] == name
