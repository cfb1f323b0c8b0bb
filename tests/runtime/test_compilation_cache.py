"""JAX keeps compiled programs on disk, and works where it cannot."""

import pytest

pytest.importorskip("jax")

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
def test_programs_are_kept_and_found_again(run, tmp_path):
    assert f"folder {tmp_path / 'jax'}" in run()
    programs = files(tmp_path / "jax")
    assert programs
    run()
    assert files(tmp_path / "jax") == programs


@pytest.mark.slow
def test_the_cache_can_be_turned_off_or_moved(run, tmp_path):
    run(KERAS_BERT_COMPILATION_CACHE=0)
    assert not (tmp_path / "jax").exists()
    run(JAX_COMPILATION_CACHE_DIR=tmp_path / "other")
    assert not (tmp_path / "jax").exists()
    assert files(tmp_path / "other")


@pytest.mark.slow
def test_a_folder_that_cannot_be_written(run, tmp_path):
    (tmp_path / "file").write_text("")
    output = run(KERAS_BERT_CACHE=tmp_path / "file")
    assert "compiled programs are not kept" in output
    assert "KERAS_BERT_CACHE" in output
