"""A file is the one before or the new one, never a part of one."""

import errno
import os
import stat

import pytest

from keras_bert.runtime.files import alone, sweep, whole


@pytest.mark.parametrize("durable", [False, True])
def test_it_appears_at_the_end(durable, tmp_path):
    file = tmp_path / "a.b.txt"
    file.write_text("before")
    with whole(file, durable) as beside:
        assert beside.parent == tmp_path and beside.suffix == ".txt" and beside.name[0] == "."
        beside.write_text("after")
        assert file.read_text() == "before"
    assert file.read_text() == "after"
    assert list(tmp_path.iterdir()) == [file]


def test_an_error_leaves_the_one_before(tmp_path):
    file = tmp_path / "words"
    file.write_text("before")
    with pytest.raises(KeyboardInterrupt), whole(str(file)) as beside:
        beside.write_text("half")
        raise KeyboardInterrupt
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]


def test_a_full_disk_is_an_error_with_the_name_of_the_file(tmp_path):
    file = tmp_path / "words.txt"
    file.write_text("before")
    with pytest.raises(OSError, match="No space left on device") as found, whole(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert found.value.filename == str(file)
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder") as found, whole(tmp_path / "folder") as beside:
        beside.touch()
    assert found.value.filename == str(tmp_path / "folder")  # and not the one beside it
    with pytest.raises(FileNotFoundError) as found, whole(tmp_path / "copy"):
        (tmp_path / "other").read_text()
    assert found.value.filename == str(tmp_path / "other")
    assert file.read_text() == "before"


def test_what_the_killed_left_is_swept(tmp_path):
    kept = [tmp_path / name for name in (".a.txt", ".b.0123abcd.txt", "a.txt", ".a.0123abcd.png")]
    for file in (*kept, tmp_path / ".a.0123abcd.txt"):
        file.touch()
    sweep(tmp_path / "a.txt")
    assert sorted(tmp_path.iterdir()) == sorted(kept)


def test_two_writers_do_not_meet(tmp_path):
    file = tmp_path / "words"
    with whole(file) as one, whole(file) as other:
        assert one != other
        one.write_text("one")
        other.write_text("other")
    assert file.read_text() == "one"


def test_it_has_the_permissions_of_any_new_file(tmp_path):
    before = os.umask(0o027)
    try:
        with whole(tmp_path / "words") as beside:
            beside.write_text("one")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "words").stat().st_mode) == 0o640


def test_a_folder_that_is_not_there(tmp_path):
    with (
        pytest.raises(FileNotFoundError),
        whole(tmp_path / "nowhere" / "words") as beside,
    ):
        beside.write_text("one")


@pytest.mark.parametrize("keep", [True, False])
def test_a_folder_is_held_by_one(keep, tmp_path):
    with alone(tmp_path, "writing", keep=keep):
        with pytest.raises(ValueError, match="reading there"), alone(tmp_path, "reading"):
            pass
        assert len(list(tmp_path.iterdir())) == 1
    assert len(list(tmp_path.iterdir())) == keep
    with alone(tmp_path, "writing"):
        pass
    assert len(list(tmp_path.iterdir())) == 1  # the default
