"""Fixtures: a named model, and a web of local files."""

import hashlib
import shutil
import time
import types

import pytest

from keras_bert.hub import download, hub_source
from tests.hub.model_files import FILES, PACKAGE, add_source, no_hub


@pytest.fixture
def source(monkeypatch, tmp_path):
    """A named model in a package, an empty cache, and no Hub."""
    monkeypatch.setenv("KERAS_BERT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(download, "is_offline", lambda: False)

    def unreachable(repository, revision, files):
        raise OSError(f"Could not download {repository} from the Hugging Face Hub: no connection")

    monkeypatch.setattr(hub_source, "snapshot", unreachable)
    return add_source(
        monkeypatch,
        repository="someone/some-model",
        revision="0123abc",
        files=tuple(FILES),
        sha256={"model.safetensors": hashlib.sha256(b"weights").hexdigest()},
        package="some-package==1.0",
        package_folder=f"{PACKAGE}/model",
        archive=None,
    )


@pytest.fixture
def web(monkeypatch, tmp_path):
    """An empty cache, no Hub, and a web of files in a folder; `asked` lists the requests."""
    monkeypatch.setenv("KERAS_BERT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(download, "is_offline", lambda: False)
    monkeypatch.setattr(hub_source, "snapshot", no_hub)
    web = types.SimpleNamespace(folder=tmp_path / "web", asked=[], pause=0)
    original = download.fetch

    def fetch(url, path, *, sha256=None):
        if not path.is_file():
            web.asked.append(url)
            time.sleep(web.pause)
            file = web.folder / url.removeprefix("https://")
            if not file.is_file():
                raise OSError(f"{url} cannot be reached")
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, path)
        return original(url, path, sha256=sha256)

    monkeypatch.setattr(download, "fetch", fetch)
    web.google = web.folder / "storage.googleapis.com" / "bert_models" / "2018_10_18"
    return web
