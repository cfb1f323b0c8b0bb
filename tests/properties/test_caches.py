"""Nothing is believed from a cache that another user can write: no model, vector, program.

The method `use` returns the message of a reader that refuses the cache.
"""

import os
import shutil

import keras
import pytest

import keras_bert
from keras_bert.hub import resolve
from keras_bert.runtime import compilation_cache
from tests import tiny
from tests.cli.shared import run

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="POSIX permissions"),
    pytest.mark.usefixtures("eager"),
]


class Archive:
    """Models from zip archives."""

    def __init__(self, folder, request):
        keras_bert.save(tiny.encoder(num_hidden_layers=1), folder / "bert", format="huggingface")
        self._file = shutil.make_archive(str(folder / "bert"), "zip", folder / "bert")
        resolve.find(self._file)

    def use(self):
        with pytest.raises(OSError, match="another user") as caught:
            resolve.find(self._file)
        return str(caught.value)


class Vectors:
    """Vectors of the texts that `keras-bert search` reads."""

    def __init__(self, folder, request):
        self._capsys = request.getfixturevalue("capsys")
        head = keras_bert.heads.embedder(tiny.encoder(num_hidden_layers=1))
        keras_bert.save(head, folder / "model.keras")
        (folder / "a.txt").write_text("so good\nbad film\n")
        self._arguments = ["search", folder / "a.txt", "so", "--model", folder / "model.keras"]
        self.use()

    def use(self):
        assert run(*self._arguments) == 0
        return self._capsys.readouterr().err


class Programs:
    """Programs that JAX compiled."""

    def __init__(self, folder, request):
        jax = pytest.importorskip("jax")
        self._capsys = request.getfixturevalue("capsys")
        patch = request.getfixturevalue("monkeypatch")
        patch.setattr(keras.backend, "backend", lambda: "jax")
        patch.setitem(jax.config.values, "jax_compilation_cache_dir", None)
        patch.setattr(jax.config, "update", lambda name, value: None)
        self.use()

    def use(self):
        compilation_cache.enable.__wrapped__()
        return self._capsys.readouterr().err


def of_another_user(folder):
    os.chown(folder, 12345, -1)


def link_of_another_user(folder):
    moved = folder.with_name("moved")
    folder.rename(moved)
    folder.symlink_to(moved)
    os.chown(folder, 12345, -1, follow_symlinks=False)


def for_the_group(folder):
    folder.chmod(0o770)


def for_all(folder):
    folder.chmod(0o1777)


@pytest.mark.parametrize("subject", [Archive, Vectors, Programs])
@pytest.mark.parametrize("share", [of_another_user, link_of_another_user, for_the_group, for_all])
def test_a_cache_that_another_user_can_write(tmp_path, monkeypatch, request, subject, share):
    if "another" in share.__name__ and os.getuid():
        pytest.skip("only root can give a folder to another user")
    cache = tmp_path / "cache"
    monkeypatch.setenv("KERAS_BERT_CACHE", str(cache))
    before = os.umask(0o002)  # the default of some systems
    request.addfinalizer(lambda: os.umask(before))
    used = subject(tmp_path, request)
    folders = {cache, *(path for path in cache.rglob("*") if path.is_dir())}
    assert not any(folder.stat().st_mode & 0o022 for folder in folders)
    [folder] = {path for path in cache.iterdir() if path.name != ".locks"}
    for shared in (folder, cache):
        share(shared)
        assert f"another user can write to {shared}" in used.use()
        shared.chmod(0o755)
        os.chown(shared, os.getuid(), -1, follow_symlinks=False)
        os.chown(shared, os.getuid(), -1)
