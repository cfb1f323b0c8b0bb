"""What Linux can test of the file systems and terminals of Windows and macOS."""

import io
import os
import pathlib
import sys
import types
import zipfile

import pytest

import keras_bert
from keras_bert import heads
from keras_bert.runtime import files, terminal
from keras_bert.runtime.resumable_file import ResumableFile
from keras_bert.untrusted import archives
from tests import tiny


def is_open(path):
    """Return True if this process has a file open, or a file in a folder."""
    path = pathlib.Path(path).absolute()
    for link in pathlib.Path("/proc/self/fd").iterdir():
        try:
            target = pathlib.Path(os.readlink(link))
        except OSError:
            continue
        if path == target or path in target.parents:
            return True
    return False


@pytest.fixture
def windows_files(monkeypatch):
    """Files as on Windows, where folders are not replaced, nor open files renamed or deleted."""
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc")

    def wrap(name):
        function = getattr(os, name)

        def wrapped(*paths, **options):
            # shutil.rmtree passes names in a folder that it has open, which is Linux's own way.
            if "dir_fd" not in options:
                for path in paths:
                    if is_open(path):
                        raise PermissionError(13, "The process cannot access the file", str(path))
                if len(paths) == 2 and os.path.isdir(paths[1]):
                    raise FileExistsError(17, "File exists", str(paths[1]))
            return function(*paths, **options)

        monkeypatch.setattr(os, name, wrapped)

    for name in ("rename", "replace", "unlink"):
        wrap(name)


def test_folders_that_cannot_be_opened(windows_files, tmp_path, monkeypatch):
    opened = os.open

    def open_file(path, *args):
        if os.path.isdir(path):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *args)

    monkeypatch.setattr(os, "open", open_file)
    for text in ("before", "after"):
        with files.atomic_write(tmp_path / "file", durable=True) as temporary:
            temporary.write_text(text)
    assert (tmp_path / "file").read_text() == "after"
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


@pytest.mark.parametrize("keep", [True, False])
def test_locks(windows_files, tmp_path, keep):
    for _ in range(2):
        with (
            files.exclusive_lock(tmp_path, "training", keep=keep),
            pytest.raises(files.FolderLockedError),
            files.exclusive_lock(tmp_path, "training"),
        ):
            pass


def test_resumable_files(windows_files, tmp_path):
    for text in ("before", "after"):
        with ResumableFile(tmp_path / "answers", {}) as file:
            file.write(text)
            file.commit({})
    assert (tmp_path / "answers").read_text() == "after\n"


def test_saves_and_exports(windows_files, tmp_path):
    model = heads.classifier(tiny.encoder(num_hidden_layers=1), labels=["a", "b"])
    (tmp_path / "theirs").mkdir()
    keras_bert.save(model, tmp_path / "theirs", format="huggingface")
    for _ in range(2):
        keras_bert.save(model, tmp_path / "ours.keras")
    served = tmp_path / "served"
    (served / "1").mkdir(parents=True)
    (served / "README.md").write_text("version 1")
    assert keras_bert.export(model, served) == served / "2"
    assert (served / "2" / "saved_model.pb").is_file()
    assert b"\r" not in (served / "compose.yaml").read_bytes()
    for name in ("theirs", "ours.keras"):
        loaded = keras_bert.load(tmp_path / name, task="auto")
        assert list(heads.find_output(loaded).labels) == ["a", "b"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["model/NUL"], "must stay inside the folder"),
        (["con.txt"], "must stay inside the folder"),
        (["aux /vocab.txt"], "must stay inside the folder"),
        (["lpt1.tar.gz"], "must stay inside the folder"),
        (["vocab.txt", "Vocab.TXT"], "names of entries must be unique"),
    ],
)
def test_names_in_archives(tmp_path, names, message):
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as file:
        for name in names:
            file.writestr(name, "a")
    with pytest.raises(ValueError, match=message):
        archives.unpack(tmp_path / "model.zip", tmp_path / "model")


def test_redirected_output_is_utf8_on_windows(monkeypatch):
    output = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    monkeypatch.setattr(sys, "stdout", output)
    terminal.use_utf8()
    assert output.encoding == "cp1252"
    monkeypatch.setattr(terminal, "os", types.SimpleNamespace(name="nt"))
    terminal.use_utf8()
    print("한국어", flush=True)
    assert output.buffer.getvalue() == "한국어\n".encode()
