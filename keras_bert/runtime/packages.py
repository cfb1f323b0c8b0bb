"""Packages that only some functions need, and the errors if they are not installed."""

import contextlib
import importlib
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import shlex
import sys
from collections.abc import Iterator
from typing import Any

_BACKENDS = ("tensorflow", "jax", "torch")


def import_tensorflow(feature: str) -> Any:
    """Return the module `tensorflow`.

    Args:
        feature: What needs it, for the error.

    Raises:
        ImportError: If TensorFlow is not installed.
    """
    with advise_on_backend(feature):
        import tensorflow
    return tensorflow


def import_extra(module: str, extra: str, feature: str) -> Any:
    """Return a module of a package that an extra installs.

    Args:
        module: Its name.
        extra: The extra.
        feature: What needs it, for the error.

    Raises:
        ImportError: If the package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(f"{feature} needs {error.name}; run: {install_command(extra)}") from error


def install_command(extra: str = "") -> str:
    """Return the command that installs an extra from where keras_bert came from."""
    extras = f"[{extra}]" if extra else ""
    root = pathlib.Path(__file__).parents[2]
    if (root / "pyproject.toml").is_file():  # a clone
        return f"pip install -e {shlex.quote(f'{root}{extras}')}"
    return f"pip install {shlex.quote(f'keras3-bert{extras}{_source()}')}"


def _source() -> str:
    """Return " @ " and the address that pip installed keras_bert from.

    For a package index, or a file or folder that is gone, it is "".
    """
    try:
        text = importlib.metadata.distribution("keras3-bert").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return ""
    if text is None:
        return ""
    origin = json.loads(text)
    repository = origin.get("vcs_info")
    if repository is not None:
        return f" @ {repository['vcs']}+{origin['url']}@{repository['commit_id']}"
    if _is_gone(origin["url"]):
        return ""
    return f" @ {origin['url']}"


def _is_gone(url: str) -> bool:
    """Return whether a URL is that of a file or folder that no longer exists."""
    import urllib.request  # slow to import

    scheme, _, path = url.partition("://")
    return scheme == "file" and not os.path.exists(urllib.request.url2pathname(path))


@contextlib.contextmanager
def advise_on_backend(feature: str) -> Iterator[None]:
    """Replace the error of a missing backend by one with the command that installs it.

    Args:
        feature: What needs it, for the error.

    Raises:
        ImportError: In place of a `ModuleNotFoundError` for a backend.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in _BACKENDS:
            raise
        raise ImportError(_advice(feature, error.name)) from error


def _advice(feature: str, missing: str) -> str:
    backend = os.environ.get("KERAS_BACKEND")
    if keras := sys.modules.get("keras"):
        backend = keras.backend.backend()  # it may come from Keras' own file of settings
    installed = [name for name in _BACKENDS if importlib.util.find_spec(name)]
    name = "TensorFlow" if missing == "tensorflow" else missing
    advice = f"{feature} needs {name}; run: {install_command(missing)}"
    if installed and backend not in installed:
        advice += f", or set KERAS_BACKEND={installed[0]}"
    return advice
