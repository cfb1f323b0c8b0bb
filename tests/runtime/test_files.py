"""Atomic writes and folder locks."""

import errno
import os
import stat

import pytest

from keras_bert.runtime.files import (
    FolderLockedError,
    atomic_write,
    exclusive_lock,
    remove_stale_temporaries,
)


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
    assert list(tmp_path.iterdir()) == [file]


def test_error_keeps_the_old_file(tmp_path):
    file = tmp_path / "words"
    file.write_text("before")
    with pytest.raises(KeyboardInterrupt), atomic_write(str(file)) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_cannot_be_locked_as_a_folder(tmp_path):
    (tmp_path / "run").write_text("")
    match = "run must be a folder; it is a file"
    with (
        pytest.raises(NotADirectoryError, match=match),
        exclusive_lock(tmp_path / "run", "writing"),
    ):
        pass


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


def test_only_stale_temporaries_are_removed(tmp_path):
    kept = [tmp_path / name for name in (".a.txt", ".b.0123abcd.txt", "a.txt", ".a.0123abcd.png")]
    for file in (*kept, tmp_path / ".a.0123abcd.txt"):
        file.touch()
    remove_stale_temporaries(tmp_path / "a.txt")
    assert sorted(tmp_path.iterdir()) == sorted(kept)


def test_two_writers_use_two_temporaries(tmp_path):
    file = tmp_path / "words"
    with atomic_write(file) as one, atomic_write(file) as other:
        assert one != other
        one.write_text("one")
        other.write_text("other")
    assert file.read_text() == "one"


def test_permissions_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        with atomic_write(tmp_path / "words") as temporary:
            temporary.write_text("one")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "words").stat().st_mode) == 0o640


def test_missing_folder_is_an_error(tmp_path):
    with (
        pytest.raises(FileNotFoundError),
        atomic_write(tmp_path / "nowhere" / "words") as temporary,
    ):
        temporary.write_text("one")


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
