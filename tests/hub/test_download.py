"""Downloads from good and bad servers: a complete, checked file or an error."""

import contextlib
import hashlib
import http.server
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
import types

import pytest

from keras_bert.hub import cache, download

BODY = bytes(range(256)) * 4000  # 1,024,000 bytes
SHA256 = hashlib.sha256(BODY).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """Serve files with the faults that `server.settings` asks for."""

    def log_message(self, *arguments):
        pass

    def do_GET(self):  # noqa: N802
        settings = self.server.settings
        settings.requests.append(self.path)
        if self.path in settings.redirects:
            self.send_response(302)
            self.send_header("Location", settings.redirects[self.path])
            self.end_headers()
            return
        if self.path not in settings.files:
            self.send_error(404)
            return
        body = settings.files[self.path]
        self.send_response(200)
        if settings.send_length:
            self.send_header("Content-Length", str(len(body) + settings.extra_length))
        for name, value in settings.headers.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            for start in range(0, len(body), settings.step):
                if settings.stall_after is not None and start >= settings.stall_after:
                    settings.resume.wait(60)
                self.wfile.write(body[start : start + settings.step])
                time.sleep(settings.pause)
        self.close_connection = True


@pytest.fixture
def server(monkeypatch):
    """The settings of an HTTP server on this machine."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http_server:
        settings = http_server.settings = types.SimpleNamespace(
            url=f"http://127.0.0.1:{http_server.server_port}/a.zip",
            files={"/a.zip": BODY},
            redirects={},
            headers={},
            send_length=True,
            extra_length=0,
            step=2**16,
            pause=0,
            stall_after=None,
            resume=threading.Event(),
            requests=[],
        )
        thread = threading.Thread(target=http_server.serve_forever, args=(0.01,))
        thread.start()
        yield settings
        settings.resume.set()
        http_server.shutdown()
        thread.join()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def check_fails(server, folder, match, kind=OSError, **options):
    """Check that a download fails with a message of one line and leaves no file."""
    with pytest.raises(kind, match=match) as caught:
        download.fetch(server.url, folder / "a.zip", **options)
    assert "\n" not in str(caught.value)
    assert names(folder) == []


def test_public_address_has_no_secrets():
    shown = download.public_address("https://me:mine@example.org/bert.zip?key=1")
    assert shown == "https://example.org/bert.zip"


def test_file_is_downloaded_once(server, tmp_path):
    path = tmp_path / "new" / "a.zip"
    for _ in range(2):
        assert download.fetch(server.url, path, sha256=SHA256) == path
        assert path.read_bytes() == BODY
    assert names(path.parent) == ["a.zip"]
    assert server.requests == ["/a.zip"]


def test_wrong_hash_is_refused(server, tmp_path):
    server.files["/a.zip"] = BODY[:-1] + b"x"
    match = f"a.zip must have the SHA-256 {SHA256}; received [0-9a-f]+; check the address"
    check_fails(server, tmp_path, match, ValueError, sha256=SHA256)


def test_existing_file_with_a_wrong_hash_is_kept(server, tmp_path):
    (tmp_path / "a.zip").write_bytes(b"mine")
    with pytest.raises(ValueError, match="a.zip must have the SHA-256 .*; delete it to download"):
        download.fetch(server.url, tmp_path / "a.zip", sha256=SHA256)
    assert (tmp_path / "a.zip").read_bytes() == b"mine"
    assert server.requests == []


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"files": {}}, r"/a\.zip: the server answers 404"),
        ({"extra_length": 1}, "a.zip could not be downloaded: IncompleteRead"),
        ({"send_length": False}, "must send the length"),
        # The client ignores the announced length of chunked data, which may never end.
        ({"headers": {"Transfer-Encoding": "chunked"}}, "must send the length"),
        ({"headers": {"Content-Encoding": "gzip"}}, "must send the file uncompressed"),
    ],
)
def test_faults_of_servers_are_refused(server, tmp_path, fault, message):
    vars(server).update(fault)
    check_fails(server, tmp_path, message)


def test_file_longer_than_announced_is_cut_and_refused_by_its_hash(server, tmp_path):
    server.extra_length = -1
    check_fails(server, tmp_path, "must have the SHA-256", ValueError, sha256=SHA256)


def test_stalled_server_is_an_error(server, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "_TIMEOUT", 0.2)
    server.stall_after = 2**17
    check_fails(server, tmp_path, "could not be downloaded: TimeoutError")


def test_unreachable_server_is_an_error_without_secrets(tmp_path):
    server = types.SimpleNamespace(url="http://me:secret@127.0.0.1:9/a.zip?key=secret")
    match = r"^http://127\.0\.0\.1:9/a\.zip could not be .*: Connection refused((?!secret).)*$"
    check_fails(server, tmp_path, match)
    try:
        raise KeyError("secret")
    except KeyError:  # the error of a caller is not the reason
        check_fails(server, tmp_path, match)


def test_redirects_are_followed_to_http_only(server, tmp_path):
    target, server.url = server.url, server.url.replace("a.zip", "b.zip")
    for refused in ("ftp://127.0.0.1/a.zip", "file:///etc/passwd"):
        server.redirects["/b.zip"] = refused
        check_fails(server, tmp_path, "redirects to .*; the scheme must be https or http")
    server.redirects["/b.zip"] = target
    assert download.fetch(server.url, tmp_path / "b.zip").read_bytes() == BODY


def test_redirect_from_https_to_http_is_refused(tmp_path):
    response = types.SimpleNamespace(
        url="https://127.0.0.1/b.zip", is_redirect=True, headers={"Location": "http://127.0.0.1/a"}
    )
    with pytest.raises(OSError, match="the scheme must be https$"):
        download._check_response("b.zip", tmp_path, response)
    response.headers["Location"] = "/a"
    download._check_response("b.zip", tmp_path, response)


def test_too_large_file_is_refused_before_the_download(server, tmp_path, monkeypatch):
    free = types.SimpleNamespace(free=1000)
    monkeypatch.setattr(download.shutil, "disk_usage", lambda path: free)
    check_fails(server, tmp_path, "needs 1024000 free bytes for .*; it has 1000")


@pytest.fixture
def cache_path(monkeypatch, tmp_path):
    """An empty cache."""
    monkeypatch.setenv("KERAS_BERT_CACHE", str(tmp_path / "cache"))


def fetch_in_a_process(server, path):
    program = (
        "import sys; from keras_bert.hub import cache, download\n"
        "with cache.locked('one'):\n"
        "    download.fetch(sys.argv[1], sys.argv[2])\n"
    )
    command = [sys.executable, "-c", program, server.url, str(path)]
    return subprocess.Popen(
        command, cwd=pathlib.Path(__file__).parents[2], stderr=subprocess.PIPE, text=True
    )


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.01)


def test_killed_download_is_repeated_and_its_file_removed(server, cache_path, tmp_path):
    path, server.stall_after = tmp_path / "new" / "a.zip", 2**17
    process = fetch_in_a_process(server, path)
    wait_for(lambda: process.poll() is not None or list(tmp_path.glob("new/.a.*.zip")))
    assert process.poll() is None, process.stderr.read()
    process.kill()
    process.wait()
    process.stderr.close()
    assert not path.exists()
    server.stall_after = None
    with cache.locked("one"):  # the lock ended with the process
        download.fetch(server.url, path, sha256=SHA256)
    assert names(path.parent) == ["a.zip"]


def test_only_one_of_two_processes_downloads(server, cache_path, tmp_path):
    path, server.pause = tmp_path / "a.zip", 0.02
    processes = [fetch_in_a_process(server, path) for _ in range(2)]
    errors = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    assert errors == ["", ""]
    assert path.read_bytes() == BODY
    assert server.requests == ["/a.zip"]


@pytest.mark.parametrize("variable", ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("scheme", ["http://", "socks5h://", ""])
def test_the_proxy_is_asked_in_place_of_a_server_that_cannot_be_reached(
    monkeypatch, variable, scheme
):
    for name in [name for name in os.environ if "proxy" in name.lower()]:
        monkeypatch.delenv(name)
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.settimeout(10)
        monkeypatch.setenv(variable, f"{scheme}127.0.0.1:{proxy.getsockname()[1]}")
        assert download.ask("https://192.0.2.1/model", lambda: "answer") == "answer"
        proxy.accept()[0].close()
