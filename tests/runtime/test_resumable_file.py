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


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_killed_process_is_continued(tmp_path):
    path, lines = tmp_path / "out.txt", ["하나", "two", "three", "four"]
    path.write_text("old\n")
    process = multiprocessing.get_context("spawn").Process(
        target=write, args=(path, {"a": 1}, lines), kwargs={"fail": 3}
    )
    process.start()
    process.join()
    assert process.exitcode == 9
    assert path.read_text() == "old\n", "the file is replaced when it is complete"
    assert write(path, {"a": 1}, lines) == 2
    assert path.read_text(encoding="utf-8") == "하나\ntwo\nthree\nfour\n"
    assert names(tmp_path) == ["out.txt"]


STATE, PART = ".out.txt.partial.json", ".out.txt.partial"


def state_of(text):
    return lambda folder: (folder / STATE).write_text(text)


def link_to_a_device(folder):
    (folder / STATE).unlink()
    (folder / STATE).symlink_to("/dev/zero")


def pipe(folder):
    (folder / STATE).unlink()
    os.mkfifo(folder / STATE)


# What is wrong with a state -> a function that damages it.
DAMAGES = {
    "other settings": state_of('{"settings": {"a": 2}, "size": 4, "state": 1}'),
    "no JSON": state_of("["),
    **{
        f"size {size}": state_of(f'{{"settings": {{}}, "size": {size}, "state": 1}}')
        for size in ("1e999", "-5", "true", '"1"', "1.5")
    },
    "short file": lambda folder: (folder / PART).write_text("o"),
    "device": link_to_a_device,
    "pipe": pipe,
    "large state": lambda folder: os.truncate(folder / STATE, 2**40),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_broken_state_begins_anew(tmp_path, damage):
    path = tmp_path / "out.txt"
    with pytest.raises(KeyboardInterrupt), ResumableFile(path, {}) as file:
        file.write("old")
        file.commit(1)
        raise KeyboardInterrupt
    DAMAGES[damage](tmp_path)
    assert write(path, {}, ["one", "two"]) == 0
    assert path.read_text() == "one\ntwo\n"
    assert names(tmp_path) == ["out.txt"]


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
    assert names(tmp_path) == ["out.txt"]


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
