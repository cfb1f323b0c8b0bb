"""Atomic writes, permissions, temporary folders and folder locks."""

import errno
import os
import stat
import time

import pytest

import keras_bert
from keras_bert.runtime.files import (
    FolderLockedError,
    atomic_write,
    exclusive_lock,
    remove_stale_temporaries,
    temporary_folder,
)
from tests import tiny


@pytest.mark.parametrize("durable", [False, True])
def test_file_is_replaced_when_the_block_ends(durable, tmp_path):
    file = tmp_path / "a.b.txt"
    file.write_text("before")
    with atomic_write(file, durable) as temporary:
        assert temporary.parent == tmp_path
        assert temporary.suffix == ".txt" and temporary.name[0] == "."
        temporary.write_text("after")
        assert file.read_text() == "before"
    assert file.read_text() == "after"
    with pytest.raises(KeyboardInterrupt), atomic_write(str(file), durable) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert file.read_text() == "after"
    assert list(tmp_path.iterdir()) == [file]


def test_errors_name_the_file_of_the_caller(tmp_path):
    file = tmp_path / "words.txt"
    file.write_text("before")
    with pytest.raises(OSError, match="No space left on device") as found, atomic_write(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert found.value.filename == str(file)
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError) as found, atomic_write(tmp_path / "folder") as temporary:
        temporary.touch()
    assert found.value.filename == str(tmp_path / "folder")
    with pytest.raises(FileNotFoundError) as found, atomic_write(tmp_path / "copy"):
        (tmp_path / "other").read_text()
    assert found.value.filename == str(tmp_path / "other")
    assert file.read_text() == "before"


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "Can't write data (time = Fri\n, error message = 'No space left')"),
        OSError("Unable to flush file\n(errno = 28, 'No space left on device')"),
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
    ],
)
def test_a_full_disk_names_the_file(tmp_path, error):
    """Such errors of h5py and safetensors have no file name, and may have several lines."""
    expected = pytest.raises(OSError, match=r"^\[Errno \d+\] .*words\.txt'$")
    with expected as found, atomic_write(tmp_path / "words.txt"):
        raise error
    assert "\n" not in str(found.value) and not any(tmp_path.iterdir())
    expected = pytest.raises(OSError, match=r"^\[Errno \d+\] ")
    with expected as found, temporary_folder(tmp_path, ".new-"):
        raise error
    assert found.value.filename == str(tmp_path) and not any(tmp_path.iterdir())


def test_only_stale_temporaries_are_removed(tmp_path):
    kept = [tmp_path / name for name in (".a.txt", ".b.0123abcd.txt", "a.txt", ".a.0123abcd.png")]
    for file in (*kept, tmp_path / ".a.0123abcd.txt"):
        file.touch()
    remove_stale_temporaries(tmp_path / "a.txt")
    assert sorted(tmp_path.iterdir()) == sorted(kept)


def write_words(folder):
    with atomic_write(folder / "words") as temporary:
        temporary.write_text("one")


def write_folder(folder):
    with temporary_folder(folder, ".new-") as temporary:
        write_words(temporary)
        temporary.rename(folder / "folder")


def write_keras(folder):
    keras_bert.save(tiny.encoder(num_hidden_layers=1), folder / "new" / "model.keras")


@pytest.mark.parametrize("umask", [0o027, 0o022], ids=oct)
@pytest.mark.parametrize("write", [write_words, write_folder, write_keras])
def test_permissions_follow_the_umask(write, umask, tmp_path):
    before = os.umask(umask)
    try:
        write(tmp_path)
    finally:
        os.umask(before)
    written = sorted(tmp_path.rglob("*"))
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in written}
    assert modes == {path: (0o777 if path.is_dir() else 0o666) & ~umask for path in written}
    assert written


def test_temporary_folders_of_killed_processes_are_deleted_after_a_day(tmp_path):
    old, new, other = (tmp_path / name for name in (".new-0123abcd", ".new-4567cdef", ".new-text"))
    for folder in (old, new, other):
        (folder / "part").mkdir(parents=True)
    hour = 3600
    for folder, hours in ((old, 25), (new, 23), (other, 25)):
        os.utime(folder, (time.time() - hours * hour,) * 2)
    with temporary_folder(tmp_path, ".new-"):
        assert not old.exists() and new.exists() and other.exists()


def test_temporary_folder_is_deleted_unless_it_is_renamed(tmp_path):
    with temporary_folder(tmp_path, ".new-") as one, temporary_folder(tmp_path, ".new-") as other:
        assert one.parent == tmp_path and one.name.startswith(".new-") and one != other
        (one / "a").touch()
        (other / "b").touch()
        one.rename(tmp_path / "kept")
    assert list(tmp_path.iterdir()) == [tmp_path / "kept"]
    with pytest.raises(KeyboardInterrupt), temporary_folder(tmp_path, ".new-"):
        raise KeyboardInterrupt
    assert list(tmp_path.rglob("*")) == [tmp_path / "kept", tmp_path / "kept" / "a"]


@pytest.mark.parametrize("keep", [True, False])
def test_lock_is_exclusive(keep, tmp_path):
    with exclusive_lock(tmp_path, "writing", keep=keep):
        with (
            pytest.raises(FolderLockedError, match="reading there"),
            exclusive_lock(tmp_path, "reading"),
        ):
            pass
        assert len(list(tmp_path.iterdir())) == 1
    assert len(list(tmp_path.iterdir())) == keep
    with exclusive_lock(tmp_path, "writing"):
        pass
    assert len(list(tmp_path.iterdir())) == 1  # keep=True is the default
