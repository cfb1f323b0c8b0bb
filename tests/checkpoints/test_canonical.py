"""Checks of configs and names in the canonical form."""

import pytest

from keras_bert.checkpoints import canonical


def test_a_config_with_more_layers_than_tensors_is_an_error():
    config = dict.fromkeys(canonical.SIZES, 2) | {"num_hidden_layers": 3_000_000}
    with pytest.raises(ValueError, match="num_hidden_layers must be .* at most 1, .*3000000"):
        canonical.check_sizes("config.json", config, {"kernel": (2, 2)})


def test_an_activation_gets_the_name_in_the_format():
    names = {"gelu": "gelu_new"}
    assert canonical.to_source_activation("gelu_new", names, format="mine") == "gelu"


def test_an_unsupported_activation_names_the_alternative():
    with pytest.raises(ValueError, match='received .gelu.*hidden_act="gelu_new"'):
        canonical.to_source_activation("gelu", {"gelu": "gelu_new"}, format="mine")


def test_one_error_lists_all_problems():
    with pytest.raises(ValueError, match=r"^a\.bin: must hold all; missing \(2\): x, y$"):
        canonical.raise_if("a.bin", "must hold all", {"missing": ["x", "y"], "unknown": []})
    canonical.raise_if("a.bin", "must hold all", {"missing": []})
