"""Checkpoints are atomic, restore every bit, and only the newest ones are kept."""

import os
import stat
import time

import keras
import numpy as np
import pytest

from keras_bert.training import run_state
from keras_bert.training.run_state import Checkpoints
from tests.machine import slowness
from tests.security import memory


def variables(*values, dtype="float32"):
    return [keras.Variable(value, dtype=dtype) for value in values]


def values(found):
    return [keras.ops.convert_to_numpy(variable) for variable in found]


def save(folder, *numbers, step=1, settings=None, keep=3):
    checkpoints = Checkpoints(folder, settings or {}, keep=keep)
    checkpoints.save(variables(*numbers), {"history": [{"step": step}]}, step)
    return checkpoints


def steps(folder):
    """Return the step of the newest checkpoint and the names of all files."""
    progress = Checkpoints(folder, {}).restore(variables([0.0]))
    return progress["history"][0]["step"], sorted(file.name for file in folder.iterdir())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int32", "uint32"])
def test_every_bit_is_restored(dtype, tmp_path):
    numbers = np.random.default_rng(0).normal(size=(3, 4)) * 1000
    saved = variables(np.abs(numbers), dtype=dtype)
    progress = {"place": [1, 2], "text": "한", "history": []}
    Checkpoints(tmp_path, {}).save(saved, progress)
    empty = variables(np.zeros((3, 4)), dtype=dtype)
    assert Checkpoints(tmp_path, {}).restore(empty) == progress
    assert values(saved)[0].tobytes() == values(empty)[0].tobytes()


def test_no_checkpoint(tmp_path):
    assert Checkpoints(tmp_path / "new", {}).restore(variables([1.0])) is None
    (tmp_path / "notes.txt").write_text("mine")
    assert Checkpoints(tmp_path, {}).restore(variables([1.0])) is None


def test_newest_checkpoints_are_kept(tmp_path):
    for step in (9, 10, 99, 100, 123456789):
        save(tmp_path, [1.0], step=step, keep=2)
    assert steps(tmp_path) == (123456789, ["step-00000100.npz", "step-123456789.npz"])


def test_data_is_synced_before_the_rename(tmp_path, monkeypatch):
    done = []
    fsync, replace = os.fsync, os.replace

    def recording_fsync(number):
        status = os.fstat(number)
        done.append(("fsync", "folder" if stat.S_ISDIR(status.st_mode) else status.st_size > 0))
        fsync(number)

    def rename(source, target):
        done.append(("replace", os.path.basename(target)))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", recording_fsync)
    monkeypatch.setattr(os, "replace", rename)
    save(tmp_path, [1.0])
    assert done == [("fsync", True), ("replace", "step-00000001.npz"), ("fsync", "folder")]


def test_temporary_file_is_not_a_checkpoint(tmp_path):
    save(tmp_path, [1.0])
    (tmp_path / ".step-00000003.0a1b2c3d.npz").write_bytes(b"half")
    assert steps(tmp_path)[0] == 1
    save(tmp_path, [1.0], step=2)
    assert steps(tmp_path) == (2, ["step-00000001.npz", "step-00000002.npz"])


@pytest.mark.parametrize("share", [0, 0.3, 0.99])
def test_broken_checkpoint_raises_and_the_previous_one_is_usable(share, tmp_path):
    for step in (1, 2):
        checkpoints = save(tmp_path, np.full(1000, step), step=step)
    newest = checkpoints.files()[-1]
    newest.write_bytes(newest.read_bytes()[: int(share * newest.stat().st_size)])
    found = variables(np.zeros(1000))
    with pytest.raises(ValueError, match=r"step-00000002.npz is broken .*; delete it"):
        checkpoints.restore(found)
    assert not values(found)[0].any()
    newest.unlink()
    checkpoints.restore(found)
    assert (values(found)[0] == 1).all()


def test_any_flipped_bit_raises_or_changes_nothing(tmp_path):
    """This includes the headers, which NumPy parses."""
    checkpoints = save(tmp_path, [1.0, 2.0])
    (file,) = checkpoints.files()
    whole, errors = file.read_bytes(), 0
    found = variables([0.0, 0.0])
    for place in range(len(whole)):
        content = bytearray(whole)
        content[place] ^= 1 << place % 8
        file.write_bytes(content)
        try:
            progress = checkpoints.restore(found)
        except ValueError as error:
            assert "step-00000001.npz is broken (" in str(error), place
            errors += 1
        else:
            assert progress == {"history": [{"step": 1}]}, place
            assert values(found)[0].tolist() == [1.0, 2.0], place
            found[0].assign([0.0, 0.0])
    assert errors > len(whole) / 2  # most flips raise


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([[0.0, 0.0, 0.0]], r"has shape \(3,\), received \(2,\)"),
        ([[0.0, 0.0], [0.0]], "holds 1 variables, not 2"),
    ],
)
def test_variables_of_another_model_raise(found, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        save(tmp_path, [1.0, 2.0]).restore(variables(*found))


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        ({"seed": 0}, {"seed": 1}, "seed=0; this run has 1"),
        ({"seed": 0}, {}, "seed=0; this run has None"),
        ({}, {"lengths": (1, 2)}, r"lengths\.0=None; this run has 1; "),
        ({"model": {"a": 1}}, {"model": {"a": 2}}, r"model\.a=1; this run has 2"),
        ({"a": 5}, {"a": {}}, "a=5; this run has None"),
    ],
)
def test_other_settings_raise_with_their_name(before, now, message, tmp_path):
    save(tmp_path, [1.0], settings=before)
    found = variables([0.0])
    with pytest.raises(ValueError, match=message):
        Checkpoints(tmp_path, now).restore(found)
    assert values(found)[0] == 0


def test_many_settings_below_a_long_name():
    saved = {"a" * 100_000: {str(number): 0 for number in range(20_000)}}
    memory.reset_peak()
    before = memory.resident()
    start = time.process_time()
    with pytest.raises(ValueError, match="belongs to a run with a{200}"):
        run_state.check_settings("state.npz", saved, {}, "delete it")
    assert memory.peak() - before < 100e6
    assert time.process_time() - start < 2 * slowness()


def test_the_folder_may_be_below_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    save(tmp_path / "run" / "checkpoints", [1.0])
    assert steps(tmp_path / "disk" / "checkpoints") == (1, ["step-00000001.npz"])
