"""Downloads over connections that break and archives that lie: whole and checked, or nothing."""

import contextlib
import errno
import hashlib
import http.server
import io
import os
import pathlib
import signal
import stat
import struct
import subprocess
import sys
import threading
import time
import types
import zipfile

import pytest

from keras_bert.hub import download

BODY = bytes(range(256)) * 4000  # a million bytes, no two places alike within 256
SHA256 = hashlib.sha256(BODY).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """Gives one file, as well or as badly as `server.shelf` says."""

    def log_message(self, *arguments):
        """Says nothing."""

    def do_GET(self):  # noqa: N802
        shelf = self.server.shelf
        shelf.requests.append((self.path, self.headers.get("Range")))
        if self.path in shelf.redirects:
            self.send_response(302)
            self.send_header("Location", shelf.redirects[self.path])
            self.end_headers()
            return
        if self.path not in shelf.files:
            self.send_error(404)
            return
        body, start, status = shelf.files[self.path], 0, 200
        wanted = self.headers.get("Range")
        same = self.headers.get("If-Range") in (None, shelf.etag)
        if wanted and shelf.ranges and same:
            start, status = int(wanted.removeprefix("bytes=").removesuffix("-")), 206
        if status == 206 and start >= len(body):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(body)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(status)
        if shelf.etag:
            self.send_header("ETag", shelf.etag)
        if status == 206:
            first = start + shelf.shift
            self.send_header("Content-Range", f"bytes {first}-{len(body) - 1}/{len(body)}")
        if not shelf.silent:
            self.send_header("Content-Length", str(len(body) - start + shelf.surplus))
        for name, value in shelf.headers.items():
            self.send_header(name, value)
        self.end_headers()
        end = start + shelf.cuts.pop(0) if shelf.cuts else len(body)
        with contextlib.suppress(ConnectionError):
            for place in range(start, min(end, len(body)), shelf.step):
                self.wfile.write(body[place : min(place + shelf.step, end)])
                time.sleep(shelf.pause)
        self.close_connection = True


@pytest.fixture
def shelf(monkeypatch):
    """What a server on this machine gives, and how."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.shelf = types.SimpleNamespace(
            files={"/a.zip": BODY}, requests=[], redirects={}, headers={}, etag='"one"',
            ranges=True, cuts=[], surplus=0, shift=0, silent=False, step=2**16, pause=0,
            url=f"http://127.0.0.1:{server.server_port}/a.zip",
        )  # fmt: skip
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.shelf
        server.shutdown()
        thread.join()


def ranges(shelf):
    """What was asked for, request by request."""
    return [wanted for _, wanted in shelf.requests]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_download_is_whole_and_leaves_nothing_beside(shelf, tmp_path):
    path = tmp_path / "new" / "a.zip"
    assert download.fetch(shelf.url, path, sha256=SHA256) == path
    assert path.read_bytes() == BODY
    assert names(path.parent) == ["a.zip"]
    download.fetch(shelf.url, path, sha256=SHA256)
    assert ranges(shelf) == [None]  # what is there is not downloaded again


def test_a_cut_connection_is_taken_up_where_it_ended(shelf, tmp_path):
    shelf.cuts = [300_000, 1, 200_000]
    path = download.fetch(shelf.url, tmp_path / "a.zip")
    assert path.read_bytes() == BODY
    assert ranges(shelf) == [None, "bytes=300000-", "bytes=300001-", "bytes=500001-"]


def test_a_server_that_keeps_cutting_is_an_error_and_the_next_call_goes_on(shelf, tmp_path):
    path = tmp_path / "a.zip"
    shelf.cuts = [400_000, 0, 0, 0]
    with pytest.raises(OSError, match="ended after 400000 of 1024000 bytes") as caught:
        download.fetch(shelf.url, path)
    assert "\n" not in str(caught.value)
    assert names(tmp_path) == ["a.zip.part", "a.zip.part.json"]
    download.fetch(shelf.url, path)
    assert path.read_bytes() == BODY
    assert ranges(shelf)[-1] == "bytes=400000-"
    assert names(tmp_path) == ["a.zip"]


def test_a_server_without_ranges_starts_again(shelf, tmp_path):
    shelf.ranges, shelf.cuts = False, [300_000]
    path = download.fetch(shelf.url, tmp_path / "a.zip")
    assert path.read_bytes() == BODY


@pytest.mark.parametrize("new", [BODY[::-1], BODY[:1000]], ids=["as long", "shorter"])
def test_a_file_changed_meanwhile_is_not_mixed_with_the_old_one(shelf, tmp_path, new):
    shelf.cuts = [300_000, 0, 0, 0]
    with pytest.raises(OSError, match="the connection ended"):
        download.fetch(shelf.url, tmp_path / "a.zip")
    shelf.files, shelf.etag = {"/a.zip": new}, '"two"'
    assert download.fetch(shelf.url, tmp_path / "a.zip").read_bytes() == new


@pytest.mark.parametrize("etag", ["", 'W/"one"'])
def test_without_a_strong_etag_it_starts_again(shelf, tmp_path, etag):
    shelf.etag, shelf.cuts = etag, [300_000]
    assert download.fetch(shelf.url, tmp_path / "a.zip").read_bytes() == BODY
    assert ranges(shelf) == [None, None]


def test_another_address_does_not_go_on_from_it(shelf, tmp_path):
    shelf.cuts = [300_000, 0, 0, 0]
    with pytest.raises(OSError, match="the connection ended"):
        download.fetch(shelf.url, tmp_path / "a.zip")
    shelf.files["/b.zip"] = BODY[::-1]
    found = download.fetch(shelf.url.replace("a.zip", "b.zip"), tmp_path / "a.zip")
    assert found.read_bytes() == BODY[::-1]


def test_another_part_than_the_one_asked_for_is_not_taken(shelf, tmp_path):
    shelf.cuts, shelf.shift = [300_000], 1
    assert download.fetch(shelf.url, tmp_path / "a.zip").read_bytes() == BODY
    assert ranges(shelf) == [None, "bytes=300000-", None]


def test_a_part_that_is_whole_is_only_checked(shelf, tmp_path):
    (tmp_path / "a.zip.part").write_bytes(BODY)
    (tmp_path / "a.zip.part.json").write_text(f'{{"url": "{shelf.url}", "validator": "\\"one\\""}}')
    download.fetch(shelf.url, tmp_path / "a.zip", sha256=SHA256)
    assert ranges(shelf) == [f"bytes={len(BODY)}-"]
    assert names(tmp_path) == ["a.zip"]


@pytest.mark.parametrize("note", ["", "[]", "{", '{"url": 1}'])
def test_a_broken_note_costs_a_new_start(shelf, tmp_path, note):
    (tmp_path / "a.zip.part").write_bytes(b"something else")
    (tmp_path / "a.zip.part.json").write_text(note)
    assert download.fetch(shelf.url, tmp_path / "a.zip").read_bytes() == BODY


def test_a_kill_at_a_new_start_does_not_mix_it_with_the_old_one(shelf, tmp_path, monkeypatch):
    (tmp_path / "a.zip.part").write_bytes(b"of an older file")

    def killed(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(download, "_copy", killed)
        with pytest.raises(KeyboardInterrupt):
            download.fetch(shelf.url, tmp_path / "a.zip")
    assert download.fetch(shelf.url, tmp_path / "a.zip").read_bytes() == BODY


def test_wrong_bytes_are_refused_and_not_kept(shelf, tmp_path):
    shelf.files["/a.zip"] = BODY[:-1] + b"x"
    with pytest.raises(
        ValueError, match=f"a.zip must have the SHA-256 {SHA256}; received [0-9a-f]"
    ):
        download.fetch(shelf.url, tmp_path / "a.zip", sha256=SHA256)
    assert names(tmp_path) == []


def test_a_file_put_there_by_hand_is_checked_and_kept(shelf, tmp_path):
    (tmp_path / "a.zip").write_bytes(b"mine")
    with pytest.raises(ValueError, match="a.zip must have the SHA-256"):
        download.fetch(shelf.url, tmp_path / "a.zip", sha256=SHA256)
    assert (tmp_path / "a.zip").read_bytes() == b"mine"
    assert shelf.requests == []


@pytest.mark.parametrize("surplus", [1, -1])
def test_a_wrong_length_is_no_whole_file(shelf, tmp_path, surplus):
    shelf.surplus = surplus
    if surplus < 0:  # what lies beyond what was said is never read; the hash tells
        with pytest.raises(ValueError, match="must have the SHA-256"):
            download.fetch(shelf.url, tmp_path / "a.zip", sha256=SHA256)
    else:
        with pytest.raises(OSError, match="(ended after 1024000 of 1024001 bytes|shorter file)"):
            download.fetch(shelf.url, tmp_path / "a.zip")
    assert not (tmp_path / "a.zip").exists()


def test_a_length_there_must_be(shelf, tmp_path):
    shelf.silent = True
    with pytest.raises(OSError, match="must say how long the file is"):
        download.fetch(shelf.url, tmp_path / "a.zip", sha256=SHA256)
    assert names(tmp_path) == []


def test_a_compressed_answer_is_not_the_file(shelf, tmp_path):
    shelf.headers = {"Content-Encoding": "gzip"}
    with pytest.raises(OSError, match="must send the file as it is"):
        download.fetch(shelf.url, tmp_path / "a.zip")
    assert names(tmp_path) == []


def test_what_is_not_there(shelf, tmp_path):
    with pytest.raises(OSError, match=r"/no\.zip: the server answers 404"):
        download.fetch(shelf.url.replace("a.zip", "no.zip"), tmp_path / "a.zip")
    assert names(tmp_path) == []


def test_no_server_at_all(tmp_path):
    with pytest.raises(OSError, match=r"^http://127\.0\.0\.1:9/a\.zip cannot be reached") as caught:
        download.fetch("http://me:secret@127.0.0.1:9/a.zip?key=secret", tmp_path / "a.zip")
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_redirects(shelf, tmp_path):
    shelf.redirects["/b.zip"] = shelf.url
    address = shelf.url.replace("a.zip", "b.zip")
    assert download.fetch(address, tmp_path / "b.zip").read_bytes() == BODY
    for target in ("ftp://127.0.0.1/a.zip", "file:///etc/passwd"):
        shelf.redirects["/b.zip"] = target
        with pytest.raises(OSError, match="(is redirected to ftp|Redirection to url .file)"):
            download.fetch(address, tmp_path / "c.zip")
    request = types.SimpleNamespace(full_url="https://127.0.0.1/b.zip")
    with pytest.raises(OSError, match="which is not https"):
        download._Redirects().redirect_request(
            request, io.BytesIO(), 302, "", {}, "http://127.0.0.1/a"
        )


def test_no_room_is_seen_before_the_download(shelf, tmp_path, monkeypatch):
    free = types.SimpleNamespace(free=1000)
    monkeypatch.setattr(download.shutil, "disk_usage", lambda path: free)
    with pytest.raises(OSError, match="must have room for 1024000 bytes more; it has 1000"):
        download.fetch(shelf.url, tmp_path / "a.zip")
    assert names(tmp_path) == []


def test_a_disk_that_fills_up_is_one_line_and_what_came_is_kept(shelf, tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(download.os, "fsync", full)
        with pytest.raises(OSError, match=r"a\.zip\.part could not be written: No space left"):
            download.fetch(shelf.url, tmp_path / "a.zip")
    assert names(tmp_path) == ["a.zip.part", "a.zip.part.json"]
    download.fetch(shelf.url, tmp_path / "a.zip", sha256=SHA256)


def fetch_elsewhere(shelf, path):
    """A process that fetches."""
    program = (
        "import sys; from keras_bert import download\n"
        "with download.locked(sys.argv[2] + '.lock'):\n"
        "    download.fetch(sys.argv[1], sys.argv[2])\n"
    )
    command = [sys.executable, "-c", program, shelf.url, str(path)]
    return subprocess.Popen(
        command, cwd=pathlib.Path(__file__).parents[2], stderr=subprocess.PIPE, text=True
    )


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.01)


def test_a_killed_download_never_looks_complete(shelf, tmp_path):
    path, shelf.step, shelf.pause = tmp_path / "a.zip", 2**14, 0.05
    process = fetch_elsewhere(shelf, path)
    part = tmp_path / "a.zip.part"
    wait_for(lambda: process.poll() is not None or part.is_file() and part.stat().st_size > 2**15)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, process.stderr.read()
    process.stderr.close()
    assert not path.exists()
    shelf.pause = 0
    with download.locked(f"{path}.lock"):  # the dead hold no lock
        download.fetch(shelf.url, path, sha256=SHA256)
    assert ranges(shelf)[1].startswith("bytes=")


def test_of_two_processes_one_downloads(shelf, tmp_path):
    path, shelf.step, shelf.pause = tmp_path / "a.zip", 2**16, 0.02
    processes = [fetch_elsewhere(shelf, path) for _ in range(2)]
    errors = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    assert path.read_bytes() == BODY
    assert ranges(shelf) == [None]


def test_a_lock_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(OSError, match=r"file must be a folder that can be written: .+") as caught,
        download.locked(tmp_path / "file" / "a.lock"),
    ):
        pass
    assert "\n" not in str(caught.value)


def make_zip(path, entries, method=zipfile.ZIP_DEFLATED):
    """A zip archive of {name or ZipInfo: bytes}."""
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


def refused(path, match):
    """Unpacks an archive that must be refused in one line, and leave nothing."""
    target = path.parent / "unpacked"
    with pytest.raises(ValueError, match=match) as caught:
        download.unpack(path, target)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert names(path.parent) == [path.name]


def test_unpack(tmp_path):
    entries = {"inner/": b"", "inner/vocab.txt": b"[PAD]\n", "inner/é.txt": b"", "a": b"\0" * 9}
    download.unpack(make_zip(tmp_path / "a.zip", entries), tmp_path / "a")
    found = {p.relative_to(tmp_path / "a").as_posix(): p for p in (tmp_path / "a").rglob("*")}
    assert set(found) == {"inner", "inner/vocab.txt", "inner/é.txt", "a"}
    assert found["inner/vocab.txt"].read_bytes() == b"[PAD]\n"
    assert not found["a"].stat().st_mode & (stat.S_IXUSR | stat.S_IWOTH)


NAMES = [
    "../a", "inner/../../a", "/dev/null/a", "//dev/null/a", "C:/a", "C:a", "..\\a", "a\\b",
    "a/./b", "a//b", ".", "..", "a.", "a /b", "a:stream", "a\nb", "a\x7f", "a*", "../", "n" * 2000,
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_that_lead_elsewhere(tmp_path, name):
    refused(make_zip(tmp_path / "a.zip", {"good": b"", name: b"x"}), "must stay in the folder")
    assert names(tmp_path) == ["a.zip"]


def patched(path, old, new, times):
    """The archive with some of its bytes changed."""
    content = path.read_bytes()
    assert content.count(old) == times
    path.write_bytes(content.replace(old, new))
    return path


def test_a_name_with_a_zero_byte(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"vocab.txt!exe": b"x"})
    refused(patched(path, b"txt!", b"txt\0", 2), "must stay in the folder")


def test_names_that_are_not_utf8(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"abc": b"x"})
    refused(patched(path, b"abc", b"a\xe9c", 2), "names must be in UTF-8")


def test_names_that_say_utf8_and_are_not(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"é": b"x"})
    refused(patched(path, "é".encode(), b"\xff\xff", 2), "must be a whole zip archive")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFSOCK])
def test_entries_that_are_no_files(tmp_path, kind):
    entry = zipfile.ZipInfo("vocab.txt")
    entry.external_attr = (kind | 0o777) << 16
    refused(make_zip(tmp_path / "a.zip", {entry: b"/etc/passwd"}), "must be files or folders")


@pytest.mark.parametrize(
    "pair", [("a", "a"), ("a", "A"), ("é", "e\u0301"), ("a", "a/b"), ("A/b", "a"), ("a/", "a")]
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_entries_of_one_name(tmp_path, pair):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in pair:
            archive.writestr(name, b"")
    refused(tmp_path / "a.zip", "must have names of their own")


def test_an_archive_that_grows_a_thousandfold(tmp_path):
    refused(make_zip(tmp_path / "a.zip", {"a": bytes(2**24)}), "less than 100 times its size")


def test_entries_that_share_their_bytes(tmp_path):
    """As in the bombs where a hundred entries stand for one."""
    path = make_zip(tmp_path / "a.zip", {"a": os.urandom(9999), "b": b""}, zipfile.ZIP_STORED)
    content = bytearray(path.read_bytes())
    second = content.rindex(b"PK\1\2")
    struct.pack_into("<LL", content, second + 20, 9999, 9999)  # sizes, packed and not
    struct.pack_into("<L", content, second + 42, 0)  # where it is: where the first one is
    path.write_bytes(content)
    refused(path, "less than 100 times its size")


@pytest.mark.parametrize("size", [10, 2000])
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_sizes_that_lie(tmp_path, size, method):
    """In the directory, which is what is summed, and before the entry."""
    path = make_zip(tmp_path / "a.zip", {"a": b"abcdefghij" * 100}, method)
    content = bytearray(path.read_bytes())
    struct.pack_into("<L", content, content.rindex(b"PK\1\2") + 24, size)
    struct.pack_into("<L", content, 22, size)
    path.write_bytes(content)
    refused(path, "must (be a whole zip archive|have the 2000 bytes it says; received 1000)")


def test_too_many_entries(tmp_path):
    entries = dict.fromkeys(map(str, range(10_001)), b"")
    refused(make_zip(tmp_path / "a.zip", entries), "at most 10000 entries; received 10001")


def test_too_many_folders(tmp_path):
    entries = {f"{number}/" + "a/" * 400: b"" for number in range(50)}
    refused(make_zip(tmp_path / "a.zip", entries), "at most 10000 folders")


def test_encrypted_entries(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"a": b"x"})
    content = bytearray(path.read_bytes())
    content[content.rindex(b"PK\1\2") + 8] |= 1
    path.write_bytes(content)
    refused(path, "must not be encrypted")


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "no zip", "method", "place"])
def test_broken_archives(tmp_path, damage):
    path = make_zip(tmp_path / "a.zip", {"a": os.urandom(5000), "b": b"x"})
    content = bytearray(path.read_bytes())
    directory = content.index(b"PK\1\2")
    if damage == "empty":
        content.clear()
    elif damage == "cut":
        del content[len(content) // 2 :]
    elif damage == "flipped":
        content[1000] ^= 1
    elif damage == "no zip":
        content[:] = b"<html>log in</html>"
    elif damage == "method":
        struct.pack_into("<H", content, directory + 10, 99)
        struct.pack_into("<H", content, 8, 99)
    else:
        struct.pack_into("<L", content, directory + 42, 2**31)
    path.write_bytes(content)
    refused(path, "must be a whole zip archive")


def test_no_room_to_unpack(tmp_path, monkeypatch):
    path = make_zip(tmp_path / "a.zip", {"a": bytes(5000)})
    free = types.SimpleNamespace(free=1000)
    monkeypatch.setattr(download.shutil, "disk_usage", lambda folder: free)
    with pytest.raises(OSError, match=r"could not be unpacked .*: it takes 5000 bytes"):
        download.unpack(path, tmp_path / "a")
    assert names(tmp_path) == ["a.zip"]


def test_a_killed_unpacking_leaves_nothing(tmp_path, monkeypatch):
    path = make_zip(tmp_path / "a.zip", {"a": bytes(5000), "b": b""})

    def killed(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(zipfile.ZipExtFile, "read", killed)
    with pytest.raises(KeyboardInterrupt):
        download.unpack(path, tmp_path / "a")
    assert names(tmp_path) == ["a.zip"]


def test_nothing_is_unpacked_over_what_is_there(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"a": b"x"})
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError, match="could not be unpacked into .*: File exists"):
        download.unpack(path, tmp_path / "a")
    assert names(tmp_path / "a") == []


def test_no_archive_at_all(tmp_path):
    with pytest.raises(FileNotFoundError):
        download.unpack(tmp_path / "no.zip", tmp_path / "no")
