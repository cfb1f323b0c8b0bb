"""Parameters of tests, of which some run only with the slow tests."""

import importlib.util

import pytest

needs_tensorflow = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed"
)


def fast(names, *chosen):
    """Return all names as parameters. Those that are not chosen are slow."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name not in chosen)) for name in names]


def slow(*values):
    """Return a slow row of parameters."""
    return pytest.param(*values, marks=pytest.mark.slow)
