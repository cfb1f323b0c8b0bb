"""Checks of configs and names in the canonical form."""

import re

import pytest

from keras_bert.checkpoints import canonical


def test_a_config_with_more_layers_than_tensors_is_an_error():
    config = dict.fromkeys(canonical.SIZES, 2) | {"num_hidden_layers": 3_000_000}
    message = (
        "config.json: num_hidden_layers must be a positive integer of at most 1, as large as the "
        "weights allow, received 3000000"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        canonical.check_sizes("config.json", config, {"kernel": (2, 2)})


def test_an_activation_gets_the_name_in_the_format():
    names = {"gelu": "gelu_new"}
    assert canonical.to_source_activation("gelu_new", names, format="mine") == "gelu"


def test_an_unsupported_activation_names_the_alternative():
    message = (
        "mine: hidden_act must be gelu_new, received 'gelu'; for weights from Google's code, whose "
        'gelu is gelu_new, load the model with hidden_act="gelu_new"'
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        canonical.to_source_activation("gelu", {"gelu": "gelu_new"}, format="mine")


def test_one_error_lists_all_problems():
    message = "a.bin: must hold all tensors; missing (2): x, y"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        canonical.raise_if("a.bin", "must hold all tensors", missing=["x", "y"], unknown=[])


def test_without_problems_there_is_no_error():
    canonical.raise_if("a.bin", "must hold all tensors", missing=[], unknown=[])
