"""Tests of the files that hold the state of a training run."""

import time

import pytest

from keras_bert.training import state_file
from tests.security import memory


def test_check_settings_names_the_nested_setting():
    saved, current = {"model": {"layers": 2}}, {"model": {"layers": 4}}
    message = r"^state\.npz belongs to a run with model\.layers=2; this run has 4; delete it$"
    with pytest.raises(ValueError, match=message):
        state_file.check_settings("state.npz", saved, current, "delete it")
    state_file.check_settings("state.npz", saved, saved, "delete it")


def test_many_settings_below_a_long_name():
    saved = {"a" * 100_000: {str(number): 0 for number in range(20_000)}}
    memory.reset_peak()
    before = memory.resident()
    start = time.process_time()
    with pytest.raises(ValueError, match="belongs to a run with a{200}"):
        state_file.check_settings("state.npz", saved, {}, "delete it")
    assert memory.peak() - before < 100e6
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("saved", "is_equal"),
    [({"a": []}, True), ({}, True), ({"a": {"b": None}}, True), ({"a": 5}, False)],
)
def test_a_missing_setting_equals_no_settings(saved, is_equal):
    if is_equal:
        state_file.check_settings("state.npz", saved, {"a": {}}, "delete it")
    else:
        with pytest.raises(ValueError, match="with a=5"):
            state_file.check_settings("state.npz", saved, {"a": {}}, "delete it")
