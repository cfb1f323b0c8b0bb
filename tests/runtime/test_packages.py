"""Errors of missing packages: a command that installs from where keras_bert came from."""

import importlib.metadata
import json
import pathlib
import types

import pytest

from keras_bert.runtime import packages
from tests.conftest import ROOT

FILE = pathlib.Path(__file__).as_uri()  # in place of a wheel
GONE = "file:///no%20folder/keras_bert-0.1.0-py3-none-any.whl"
GIT = {"url": "https://example.com/x", "vcs_info": {"vcs": "git", "commit_id": "abc"}}


@pytest.mark.parametrize(
    "origin, command",
    [
        (None, "pip install 'keras3-bert[onnx]'"),
        ({"url": FILE}, f"pip install 'keras3-bert[onnx] @ {FILE}'"),
        ({"url": GONE}, "pip install 'keras3-bert[onnx]'"),
        (GIT, "pip install 'keras3-bert[onnx] @ git+https://example.com/x@abc'"),
    ],
)
def test_install_command_of_an_installed_package(origin, command, tmp_path, monkeypatch):
    text = None if origin is None else json.dumps(origin)
    distribution = types.SimpleNamespace(read_text=lambda name: text)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: distribution)
    path = tmp_path / "site-packages" / "keras_bert" / "runtime" / "packages.py"
    monkeypatch.setattr(packages, "__file__", str(path))
    assert packages.install_command("onnx") == command


def test_install_command_of_a_clone():
    assert packages.install_command("onnx") == f"pip install -e '{ROOT}[onnx]'"


def test_install_command_without_metadata(tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "__file__", str(tmp_path / "a" / "b" / "packages.py"))

    def missing(name):
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    assert packages.install_command() == "pip install keras3-bert"
