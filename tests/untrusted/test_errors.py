"""Panics of libraries that are written in Rust."""

import pytest
import safetensors

from keras_bert.checkpoints import tensor_files
from keras_bert.untrusted import errors


class PanicException(BaseException):
    """Like that of PyO3, which cannot be imported."""


def panic(*_, **__):
    raise PanicException("index out of bounds:\n the len is 3 but the index is 7\x1b[2J")


def test_a_panic_is_a_value_error_of_one_line():
    with (
        pytest.raises(ValueError, match=r"a\.json: broken, received index out of") as caught,
        errors.panics_as_value_errors("a.json"),
    ):
        panic()
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, MemoryError, KeyError])
def test_other_exceptions_pass(kind):
    with pytest.raises(kind), errors.panics_as_value_errors("a.json"):
        raise kind


def test_a_panic_of_safetensors(tmp_path, monkeypatch):
    (tmp_path / "a.safetensors").write_bytes(bytes(20))
    monkeypatch.setattr(safetensors, "safe_open", panic)
    with pytest.raises(ValueError, match=r"a\.safetensors: broken"):
        tensor_files.read(tmp_path / "a.safetensors")
