"""How the tests of tasks train."""

import keras
import pytest

from tests import tiny


@pytest.fixture
def eager():
    """Run compiled models eagerly on TensorFlow, whose graphs take longer than a few steps."""
    if keras.backend.backend() != "tensorflow":
        yield
        return
    with tiny.eagerly():
        yield
