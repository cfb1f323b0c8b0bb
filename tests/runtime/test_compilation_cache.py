"""JAX keeps compiled programs on disk, and works where it cannot."""

import os
import time

import keras
import pytest

from keras_bert.runtime import compilation_cache

jax = pytest.importorskip("jax")

PROGRAM = """
import keras_bert, jax
from tests import tiny
vector = keras_bert.pipeline(tiny.encoder(), pooling="mean")("so good")
print("folder", jax.config.jax_compilation_cache_dir)
"""


@pytest.fixture
def run(python, monkeypatch, tmp_path):
    """Function that embeds a text in a new process, with settings of the environment."""

    def run(**settings):
        # An empty folder is no choice of the user.
        settings = {"JAX_COMPILATION_CACHE_DIR": "", "KERAS_BERT_CACHE": tmp_path, **settings}
        code = f"import os; os.environ.update({ {k: str(v) for k, v in settings.items()}!r})"
        return python("-c", code + PROGRAM, backend="jax")

    return run


def files(folder):
    return {path.name for path in folder.rglob("*") if "forward" in path.name}


@pytest.mark.slow
def test_programs_are_kept_unless_that_is_turned_off(run, tmp_path):
    run(KERAS_BERT_COMPILATION_CACHE=0)
    assert not (tmp_path / "jax").exists()
    run(JAX_COMPILATION_CACHE_DIR=tmp_path / "other")
    assert not (tmp_path / "jax").exists()
    assert files(tmp_path / "other")
    assert f"folder {tmp_path / 'jax'}" in run()
    programs = files(tmp_path / "jax")
    assert programs
    run()
    assert files(tmp_path / "jax") == programs
    (tmp_path / "file").write_text("")
    output = run(KERAS_BERT_CACHE=tmp_path / "file")
    assert "compiled programs are not kept" in output and "KERAS_BERT_CACHE" in output


@pytest.fixture
def enable(monkeypatch, tmp_path):
    """Function that sets up the cache in this process, in a new folder, and returns the folder."""
    folders, sizes = "jax_compilation_cache_dir", "jax_compilation_cache_max_size"
    before = {name: jax.config.values[name] for name in (folders, sizes)}
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    monkeypatch.setenv("KERAS_BERT_CACHE", str(tmp_path))
    jax.config.update(folders, None)

    def enable():
        compilation_cache.enable.__wrapped__()
        return jax.config.values[folders]

    yield enable
    for name, value in before.items():
        jax.config.update(name, value)


def test_a_user_without_a_home_folder(enable, monkeypatch, capsys):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(compilation_cache, "cache_folder", no_home)
    assert enable() is None
    assert "compiled programs are not kept: Could not determine" in capsys.readouterr().err


def write_programs(folder, contents):
    """Write files as a process that was killed an hour ago."""
    killed = time.time() - 3600
    for name, content in contents.items():
        (folder / name).write_text(content)
        os.utime(folder / name, (killed, killed))


def test_incomplete_programs_are_deleted(enable, tmp_path):
    folder = tmp_path.joinpath(enable())
    contents = {"a-cache": "x", "b-cache": "", "b-atime": "x", "c-cache": "x", "c-atime": "x"}
    contents["d-atime"] = "x"
    write_programs(folder, contents)
    jax.config.update("jax_compilation_cache_dir", None)
    enable()
    assert sorted(path.name for path in folder.glob("*-*")) == ["c-atime", "c-cache"]


def test_a_program_that_another_process_is_writing_is_kept(enable, tmp_path):
    folder = tmp_path.joinpath(enable())
    (folder / "a-cache").write_text("x")
    jax.config.update("jax_compilation_cache_dir", None)
    enable()
    assert (folder / "a-cache").is_file()


def test_the_size_that_the_user_chose(enable, monkeypatch, tmp_path):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_MAX_SIZE", "-1")
    jax.config.update("jax_compilation_cache_max_size", -1)
    folder = enable()
    assert jax.config.values["jax_compilation_cache_max_size"] == -1
    write_programs(tmp_path.joinpath(folder), {"a-cache": "x"})  # JAX writes no a-atime
    jax.config.update("jax_compilation_cache_dir", None)
    assert enable() == folder
    assert tmp_path.joinpath(folder, "a-cache").is_file()
