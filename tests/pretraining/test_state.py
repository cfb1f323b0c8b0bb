"""Checkpoints are atomic, restore every bit, and only the newest ones are kept."""

import os
import stat

import keras
import numpy as np
import pytest

from keras_bert.pretraining.state import Checkpoints


def variables(*values, dtype="float32"):
    return [keras.Variable(value, dtype=dtype) for value in values]


def files(folder):
    return sorted(file.name for file in (folder / "checkpoints").iterdir())


def values(found):
    return [keras.ops.convert_to_numpy(variable) for variable in found]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int32", "uint32"])
def test_every_bit_is_restored(dtype, tmp_path):
    numbers = np.random.default_rng(0).normal(size=(3, 4)) * 1000
    saved = variables(np.abs(numbers), dtype=dtype)
    Checkpoints(tmp_path, {}).save(3, saved, {"place": [1, 2], "text": "한"})
    empty = variables(np.zeros((3, 4)), dtype=dtype)
    assert Checkpoints(tmp_path, {}).restore(empty) == (3, {"place": [1, 2], "text": "한"})
    for a, b in zip(values(saved), values(empty), strict=True):
        assert a.tobytes() == b.tobytes()
    assert empty[0].dtype == dtype


def test_no_checkpoint(tmp_path):
    assert Checkpoints(tmp_path / "new", {}).restore(variables([1.0])) is None
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "notes.txt").write_text("mine")
    assert Checkpoints(tmp_path, {}).restore(variables([1.0])) is None


def test_newest_checkpoints_are_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path, {}, keep=2)
    for step in (9, 10, 99, 100, 123456789):
        checkpoints.save(step, variables([float(step)]), {})
    assert files(tmp_path) == ["step-00000100.npz", "step-123456789.npz"]
    found = variables([0.0])
    assert checkpoints.restore(found)[0] == 123456789
    assert values(found)[0] == np.float32(123456789)


def test_keep_is_at_least_one(tmp_path):
    with pytest.raises(ValueError, match="^keep must be at least 1; received 0$"):
        Checkpoints(tmp_path, {}, keep=0)


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
    Checkpoints(tmp_path, {}).save(1, variables([1.0]), {})
    assert done == [("fsync", True), ("replace", "step-00000001.npz"), ("fsync", "folder")]


def test_failed_save_keeps_earlier_checkpoints(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path, {}, keep=1)
    checkpoints.save(1, variables([1.0]), {})

    def full(stream, **arrays):
        stream.write(b"half of it")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", full)
        with pytest.raises(OSError, match="No space left"):
            checkpoints.save(2, variables([2.0]), {})
    assert files(tmp_path) == ["step-00000001.npz"]
    assert checkpoints.restore(variables([0.0]))[0] == 1


def test_temporary_file_is_not_a_checkpoint(tmp_path):
    checkpoints = Checkpoints(tmp_path, {})
    checkpoints.save(1, variables([1.0]), {})
    (tmp_path / "checkpoints" / ".step-00000003.0a1b2c3d.npz").write_bytes(b"half")
    assert checkpoints.restore(variables([0.0]))[0] == 1
    checkpoints.save(2, variables([2.0]), {})
    assert files(tmp_path) == ["step-00000001.npz", "step-00000002.npz"]


@pytest.mark.parametrize("share", [0, 0.3, 0.99])
def test_broken_checkpoint_raises_and_the_previous_one_is_usable(share, tmp_path):
    checkpoints = Checkpoints(tmp_path, {})
    for step in (1, 2):
        checkpoints.save(step, variables(np.full(1000, step)), {})
    newest = tmp_path / "checkpoints" / "step-00000002.npz"
    newest.write_bytes(newest.read_bytes()[: int(share * newest.stat().st_size)])
    found = variables(np.zeros(1000))
    with pytest.raises(ValueError, match=r"step-00000002.npz is broken .*; delete it to resume"):
        checkpoints.restore(found)
    assert not values(found)[0].any()
    newest.unlink()
    assert checkpoints.restore(found)[0] == 1
    assert (values(found)[0] == 1).all()


def test_flipped_bit_raises(tmp_path):
    checkpoints = Checkpoints(tmp_path, {})
    checkpoints.save(1, variables(np.full(1000, 1.0)), {})
    file = tmp_path / "checkpoints" / "step-00000001.npz"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"is broken \(Bad CRC-32"):
        checkpoints.restore(variables(np.zeros(1000)))


def test_any_flipped_bit_raises_or_changes_nothing(tmp_path):
    """This includes the headers, which NumPy parses."""
    checkpoints = Checkpoints(tmp_path, {})
    checkpoints.save(1, variables([1.0, 2.0]), {})
    file = tmp_path / "checkpoints" / "step-00000001.npz"
    whole, errors = file.read_bytes(), 0
    for place in range(len(whole)):
        for bit in (1, 64):
            content = bytearray(whole)
            content[place] ^= bit
            file.write_bytes(content)
            found = variables([0.0, 0.0])
            try:
                step, _ = checkpoints.restore(found)
            except ValueError as error:
                assert "step-00000001.npz is broken (" in str(error), (place, bit)
                errors += 1
            else:
                assert step == 1 and values(found)[0].tolist() == [1.0, 2.0], (place, bit)
    assert errors > len(whole)  # most flips raise


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([[0.0, 0.0, 0.0]], r"has shape \(3,\), received \(2,\)"),
        ([[0.0, 0.0], [0.0]], "holds 1 variables, not 2"),
        ([], "holds 1 variables, not 0"),
    ],
)
def test_variables_of_another_model_raise(found, message, tmp_path):
    Checkpoints(tmp_path, {}).save(1, variables([1.0, 2.0]), {})
    with pytest.raises(ValueError, match=message):
        Checkpoints(tmp_path, {}).restore(variables(*found))


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        (
            {"seed": 0},
            {"seed": 1},
            "belongs to a run with seed=0; this run has 1; use another folder",
        ),  # fmt: skip
        ({"seed": 0}, {}, "seed=0; this run has None"),
        ({}, {"lengths": (1, 2)}, r"lengths\.0=None; this run has 1; "),
        ({"model": {"a": 1}}, {"model": {"a": 2}}, r"model\.a=1; this run has 2"),
    ],
)
def test_other_settings_raise_with_their_name(before, now, message, tmp_path):
    Checkpoints(tmp_path, before).save(1, variables([1.0]), {})
    found = variables([0.0])
    with pytest.raises(ValueError, match=message):
        Checkpoints(tmp_path, now).restore(found)
    assert values(found)[0] == 0


def test_settings_are_compared_as_json(tmp_path):
    Checkpoints(tmp_path, {"lengths": (1, 2), "rate": 1e-4}).save(1, variables([1.0]), {})
    again = Checkpoints(tmp_path, {"lengths": [1, 2], "rate": 1e-4})
    assert again.restore(variables([0.0])) == (1, {})


def test_a_linked_folder_of_checkpoints_is_refused(tmp_path):
    """A link in a folder of somebody else leads to another folder of the user."""
    own_folder = tmp_path / "own"
    Checkpoints(own_folder, {}).save(1, variables([1.0]), {})
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "checkpoints").symlink_to(own_folder / "checkpoints")
    checkpoints = Checkpoints(folder, {}, keep=1)
    for call in (
        checkpoints.exist,
        lambda: checkpoints.restore(variables([1.0])),
        lambda: checkpoints.save(2, variables([1.0]), {}),
    ):
        with pytest.raises(ValueError, match="checkpoints must not be a link; delete it"):
            call()
    assert files(own_folder) == ["step-00000001.npz"]


def test_the_output_folder_may_be_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    Checkpoints(tmp_path / "run", {}).save(1, variables([1.0]), {})
    assert Checkpoints(tmp_path / "run", {}).restore(variables([0.0])) == (1, {})
    assert files(tmp_path / "disk") == ["step-00000001.npz"]
