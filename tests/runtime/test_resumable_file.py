"""Files that a killed process continues."""

import json
import multiprocessing
import os

import pytest

from keras_bert.runtime.resumable_file import ResumableFile


def write(path, settings, lines, *, fail=None):
    """Write `lines` after those that are committed, one commit per line."""
    with ResumableFile(path, settings) as file:
        done = file.state or 0
        for number, line in enumerate(lines[done:], done + 1):
            file.write(line)
            if number == fail:
                os._exit(9)  # as a killed process, without closing the file
            file.commit(number)
        return done


def killed(path, settings, lines, fail):
    process = multiprocessing.get_context("spawn").Process(
        target=write, args=(path, settings, lines), kwargs={"fail": fail}
    )
    process.start()
    process.join()
    assert process.exitcode == 9


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_killed_process_is_continued(tmp_path):
    path, lines = tmp_path / "out.txt", ["하나", "two", "three", "four"]
    path.write_text("old\n")
    killed(path, {"a": 1}, lines, fail=3)
    assert path.read_text() == "old\n", "the file is replaced when it is complete"
    assert write(path, {"a": 1}, lines) == 2
    assert path.read_text(encoding="utf-8") == "하나\ntwo\nthree\nfour\n"
    assert names(tmp_path) == ["out.txt"]


@pytest.mark.parametrize("change", ["settings", "state", "short"])
def test_other_settings_and_broken_states_begin_anew(tmp_path, change):
    path, lines = tmp_path / "out.txt", ["one", "two", "three"]
    killed(path, {"a": 1}, lines, fail=3)
    if change == "state":
        (tmp_path / ".out.txt.partial.json").write_text("[")
    if change == "short":
        (tmp_path / ".out.txt.partial").write_text("o")
    assert write(path, {"a": 2 if change == "settings" else 1}, lines) == 0
    assert path.read_text() == "one\ntwo\nthree\n"


def test_state_stays_after_ctrl_c_but_not_after_wrong_input(tmp_path):
    path = tmp_path / "out.txt"
    for error in (KeyboardInterrupt, OSError, ValueError):
        with pytest.raises(error), ResumableFile(path, {}) as file:
            file.write("one")
            file.commit({"rows": 1})
            raise error
        left = [] if error is ValueError else [".out.txt.partial", ".out.txt.partial.json"]
        assert names(tmp_path) == left
    with ResumableFile(path, {}) as file:
        assert file.state is None


def test_a_commit_without_new_lines_covers_only_the_committed_lines(tmp_path):
    path = tmp_path / "out.txt"
    with pytest.raises(KeyboardInterrupt), ResumableFile(path, {}) as file:
        file.write("one")
        file.commit(1)
        file.write("uncommitted")
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt), ResumableFile(path, {}) as file:
        file.commit(1)
        raise KeyboardInterrupt
    with ResumableFile(path, {}) as file:
        assert file.state == 1
        file.write("two")
    assert path.read_text() == "one\ntwo\n"


def test_second_process_is_refused(tmp_path):
    path = tmp_path / "out.txt"
    with (
        ResumableFile(path, {}),
        pytest.raises(ValueError, match="another process writes"),
        ResumableFile(path, {}),
    ):
        pass
    assert json.dumps(names(tmp_path)) == '["out.txt"]'


@pytest.mark.parametrize("link", ["symlink_to", "hardlink_to"])
@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_link_in_a_folder_of_somebody_else_is_not_followed(tmp_path, link, is_resumed):
    """The partial file has a fixed name, so its place can hold a link to a file of the user."""
    own_file = tmp_path / "own"
    own_file.write_text("important")
    folder = tmp_path / "folder"
    folder.mkdir()
    getattr(folder / ".out.txt.partial", link)(own_file)
    if is_resumed:
        state = {"settings": {}, "size": 3, "state": 1}
        (folder / ".out.txt.partial.json").write_text(json.dumps(state))
    for _ in range(2):  # the lock is free again
        with pytest.raises(ValueError, match=r"\.partial must .*link.*delete it"):
            write(folder / "out.txt", {}, ["one"])
    assert own_file.read_text() == "important"
    (folder / ".out.txt.partial").unlink()
    write(folder / "out.txt", {}, ["one"])
    assert (folder / "out.txt").read_text() == "one\n"


@pytest.mark.parametrize("size", ["1e999", "-5", "true", '"1"', "1.5"])
def test_a_state_with_a_wrong_size_begins_anew(tmp_path, size):
    (tmp_path / ".out.txt.partial").write_text("another\n")
    state = f'{{"settings": {{}}, "size": {size}, "state": 1}}'
    (tmp_path / ".out.txt.partial.json").write_text(state)
    assert write(tmp_path / "out.txt", {}, ["one"]) == 0
    assert (tmp_path / "out.txt").read_text() == "one\n"


@pytest.mark.parametrize("kind", ["device", "pipe", "large"])
def test_a_state_that_is_no_small_file_is_not_read(tmp_path, kind):
    state_file = tmp_path / ".out.txt.partial.json"
    if kind == "device":
        state_file.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(state_file)
    else:
        state_file.touch()
        os.truncate(state_file, 2**40)
    assert write(tmp_path / "out.txt", {}, ["one"]) == 0
    assert names(tmp_path) == ["out.txt"]
