"""Tests of the files that hold the state of a training run."""

import pytest

from keras_bert.training import state_file


def test_check_settings_names_the_nested_setting():
    saved, current = {"model": {"layers": 2}}, {"model": {"layers": 4}}
    message = r"^state\.npz belongs to a run with model\.layers=2; this run has 4; delete it$"
    with pytest.raises(ValueError, match=message):
        state_file.check_settings("state.npz", saved, current, "delete it")
    state_file.check_settings("state.npz", saved, saved, "delete it")


def test_check_settings_knows_former_names():
    saved, current = {"accumulate": 2}, {"gradient_accumulation_steps": 2}
    state_file.check_settings("state.npz", saved, current, "delete it")
    with pytest.raises(ValueError, match="gradient_accumulation_steps=2; this run has 1"):
        current = {"gradient_accumulation_steps": 1}
        state_file.check_settings("state.npz", saved, current, "delete it")
