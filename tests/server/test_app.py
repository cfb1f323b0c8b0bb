"""The local server over sockets: valid, invalid and slow requests, and the command."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse

import numpy as np
import pytest
import tensorflow as tf

import keras_bert
from keras_bert.__main__ import main
from keras_bert.cli import options
from keras_bert.cli import serving as command
from keras_bert.server import app, models
from tests import served, tiny
from tests.machine import slowness

TIMEOUT = 1.0  # seconds
MAX_BODY, MAX_TEXT = 200_000, 150_000
PREDICT = "/v1/models/reviews:predict"


@contextlib.contextmanager
def serving(found, host=app.HOST, **limits):
    """Serve the models of `models.find` in a thread; yield the port."""
    served = [models.load(folder, number, True, name) for name, number, folder in found]
    defaults = {"timeout": TIMEOUT, "max_body": MAX_BODY, "max_text": MAX_TEXT}
    server = app.make(served, host, app.Limits(**(defaults | limits)))
    with app.listen(port=0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder of models: an export, and functions that multiply, echo or are slow."""
    folder = tmp_path_factory.mktemp("models")
    served.head("classification", folder / "reviews")
    served.times(folder / "times" / "1", 2.0)

    def slow(text):
        size = tf.strings.length(text)
        count = tf.where(tf.reduce_max(size) > 10_000, 100_000, 1)
        # The loop keeps a core busy for up to a second.
        total = tf.while_loop(lambda n, _: n < count, lambda n, x: (n + 1, x + 1), [0, 0])[1]
        return {"length": size + 0 * total}

    served.save(tf.Module(), folder / "slow" / "1", served.function(slow, "text"))

    def bytes_(data):
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(data != "no"), [data])]):
            return {"data_bytes": tf.identity(data), "text": tf.identity(data)}

    served.save(tf.Module(), folder / "echo" / "1", served.function(bytes_, "data"))
    return folder


@pytest.fixture(scope="module")
def port(folder):
    with serving(models.find(folder)) as port:
        yield port


def call(port, path, body=None, method=None, headers=(), timeout=30):
    """Send a request; return the status and the JSON of the response."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        if isinstance(body, dict):
            body = json.dumps(body)
        method = method or ("GET" if body is None else "POST")
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        assert response.headers["content-type"] == "application/json"
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def raw(port, *parts, pause=0.0, timeout=30):
    """Send bytes unchanged, with a pause before each part; return the bytes received."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
        with contextlib.suppress(ConnectionError):
            for part in parts:
                time.sleep(pause)
                connection.sendall(part)
        received = b""
        with contextlib.suppress(ConnectionError):
            while data := connection.recv(65536):
                received += data
    return received


def check_alive(port):
    status, answer = call(port, PREDICT, {"instances": ["so good"]})
    assert status == 200 and set(answer["predictions"][0]) == {"label", "score", "probabilities"}


@pytest.mark.slow
def test_predictions_equal_those_of_the_signature(port, folder):
    texts = ["this film is good!", "", "한국어 😀", "bad"]
    signature = tf.saved_model.load(str(folder / "reviews" / "1")).signatures["serving_default"]
    expected = {name: value.numpy() for name, value in signature(text=tf.constant(texts)).items()}
    labels = [label.decode() for label in expected["label"]]
    status, rows = call(port, PREDICT, {"instances": texts})
    assert status == 200 and [row["label"] for row in rows["predictions"]] == labels
    for versioned in (PREDICT, "/v1/models/reviews/versions/1:predict"):
        _, columns = call(port, versioned, {"inputs": {"text": texts}, "signature_name": ""})
        assert columns["outputs"]["label"] == labels
        probabilities = np.array(columns["outputs"]["probabilities"])
        np.testing.assert_allclose(probabilities, expected["probabilities"], atol=1e-6)
    ids = {name: [[1, 0, 1]] for name in ("input_word_ids", "input_mask", "input_type_ids")}
    status, answer = call(port, PREDICT, {"signature_name": "ids", "inputs": ids})
    assert status == 200 and len(answer["outputs"]["probabilities"][0]) == 3


def test_status_and_metadata(port, folder):
    apis = pytest.importorskip("tensorflow_serving.apis.get_model_metadata_pb2")
    from google.protobuf import json_format

    expected = {
        "version": "1",
        "state": "AVAILABLE",
        "status": {"error_code": "OK", "error_message": ""},
    }
    for path in ("/v1/models/reviews", "/v1/models/reviews/versions/1"):
        assert call(port, path) == (200, {"model_version_status": [expected]})
    for path in ("/v1/models/reviews/metadata", "/v1/models/reviews/versions/1/metadata"):
        status, answer = call(port, path)
        spec = {"name": "reviews", "signature_name": "", "version": "1"}
        assert status == 200 and answer["model_spec"] == spec
        parsed = json_format.ParseDict(
            answer["metadata"]["signature_def"], apis.SignatureDefMap()
        ).signature_def
        assert sorted(parsed["serving_default"].outputs) == ["label", "probabilities", "score"]
        assert set(parsed) >= {"serving_default", "ids"}
        assert parsed["serving_default"].method_name == "tensorflow/serving/predict"
    _, listed = call(port, "/models")  # for the page
    labels = {model["name"]: model["labels"] for model in listed["models"]}
    assert labels["reviews"] == ["bad", "good", "좋음"] and labels["times"] is None


OUTSIDE = {"input_word_ids": [[99]], "input_mask": [[1]], "input_type_ids": [[0]]}
GOOD = '{"instances": ["so good"]}'
BAD = [
    # Invalid bodies; test_rest.py has more.
    ("POST", PREDICT, "", 400, "JSON parse error"),
    ("POST", PREDICT, '{"instances": [{"\\ud800": 1}]}', 400, "of the signature"),
    ("POST", PREDICT, '{"signature_name": "x", "instances": ["a"]}', 400, "no signature 'x'"),
    ("POST", PREDICT, '{"signature_name": {"a": 1}, "instances": ["a"]}', 400, "no signature {"),
    # Values that the graph rejects.
    ("POST", "/v1/models/echo:predict", '{"instances": ["no"]}', 400, "assertion failed"),
    ("POST", PREDICT, json.dumps({"signature_name": "ids", "inputs": OUTSIDE}), 400, "indices[0]"),
    # Paths.
    ("POST", "/v1/models/reviews:classify", GOOD, 405, "Method Not Allowed"),
    ("POST", "/v1/models/reviews", GOOD, 405, "Method Not Allowed"),
    ("PUT", PREDICT, GOOD, 405, "Method Not Allowed"),
    ("GET", PREDICT, None, 405, "with POST"),
    ("GET", "/v1/models/reviews/versions/99999999999999999999", None, 404, "Servable not found"),
    ("GET", f"/v1/models/reviews/versions/{'9' * 5000}", None, 400, "digits"),
    ("POST", "/v1/models/none:predict", GOOD, 404, "Servable not found: /v1/models/none"),
    ("POST", "/v1/models/reviews/versions/2:predict", GOOD, 404, "reviews (version 1)"),
    ("GET", "/v1/models/reviews/versions/0", None, 404, "Servable not found"),
    ("GET", "/elsewhere", None, 404, "Not Found"),
    ("POST", "/", GOOD, 405, "Method Not Allowed"),
    # Attempts to leave the folder.
    ("GET", "/v1/models/../../etc/passwd", None, 404, "Not Found"),
    ("GET", "/v1/models/..%2freviews", None, 404, "Not Found"),
    ("GET", "/v1/models/reviews%00", None, 404, "Servable not found"),
    ("GET", "/v1/models/%ff", None, 404, "Servable not found"),
    ("GET", "/../page.html", None, 404, "Not Found"),
]


@pytest.mark.parametrize("method, path, body, status, message", BAD)
def test_bad_requests(port, method, path, body, status, message):
    found, answer = call(port, path, body, method)
    assert found == status and message in answer["error"]
    assert len(answer["error"]) < 1000
    check_alive(port)


def test_large_bodies_and_long_texts_are_refused(port):
    request = {"instances": ["short", "한" * (MAX_TEXT // 3 + 1)]}
    status, answer = call(port, PREDICT, json.dumps(request, ensure_ascii=False).encode())
    assert status == 413 and "at most 150000 bytes" in answer["error"]
    text = '{"instances": ["' + "a" * 5_000_000 + '"]}'
    start = time.monotonic()
    status, answer = call(port, PREDICT, text)
    assert status == 413 and "at most 200000 bytes" in answer["error"]
    # Chunked encoding does not announce the size.
    chunk = b"10000\r\n%b\r\n" % (b"a" * 65536)
    head = f"POST {PREDICT} HTTP/1.1\r\nhost: localhost\r\n".encode()
    chunked = head + b"transfer-encoding: chunked\r\n\r\n"
    assert raw(port, chunked, chunk * 10, b"0\r\n\r\n").startswith(b"HTTP/1.1 413")
    # A body over 64 times the limit, and a client that waits for "100 Continue".
    received = raw(port, chunked, *[chunk * 10] * 40)
    assert received == b"" or received.startswith(b"HTTP/1.1 413")
    waiting = head + b"content-length: 5000000\r\nexpect: 100-continue\r\n\r\n"
    assert raw(port, waiting).startswith(b"HTTP/1.1 413")
    assert time.monotonic() - start < 10
    check_alive(port)


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"]
)
def test_connections_without_a_request_do_not_block_others(monkeypatch, sent):
    monkeypatch.setattr(app, "_MAX_CONNECTIONS", 50)
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(serving([], timeout=60))
        for _ in range(70):
            connection = socket.create_connection(("127.0.0.1", port), timeout=30)
            stack.enter_context(connection).sendall(sent)
        start = time.perf_counter()
        status, _ = call(port, "/models")
        assert status == 200
        assert time.perf_counter() - start < 2 * slowness()


def test_slow_clients(port):
    start = time.monotonic()
    head = f"POST {PREDICT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n".encode()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        silent = pool.submit(raw, port)
        without_end = pool.submit(raw, port, head)
        # Sending a few bytes at a time does not extend the timeout.
        trickle = pool.submit(raw, port, *[b"x-a: b\r\n"] * 8, pause=0.2)
        bodies = pool.submit(raw, port, head + b"\r\n", *[b'{"inst'] * 8, pause=0.2)
        whole = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
        second = pool.submit(raw, port, whole, b"GET /", pause=0.2)
        for _ in range(5):
            before = time.monotonic()
            check_alive(port)
            assert time.monotonic() - before < TIMEOUT, "others are not delayed"
        for received in (silent, without_end, trickle):
            assert received.result().startswith(b"HTTP/1.1 408 ")
            assert b"No request arrived within 1 seconds" in received.result()
        assert bodies.result().startswith(b"HTTP/1.1 408 ")
        assert b"The body did not arrive within 1 seconds" in bodies.result()
        page, _, late = second.result().partition(b"</html>")
        assert page.startswith(b"HTTP/1.1 200 ") and b"HTTP/1.1 408 " in late
    assert time.monotonic() - start < 10 * TIMEOUT


def test_client_that_does_not_read(port):
    """The responses exceed the buffers of the sockets, and the client reads nothing."""
    body = json.dumps({"inputs": ["a" * 1000] * 190}).encode()
    request = b"POST /v1/models/echo:predict HTTP/1.1\r\nhost: localhost\r\n"
    request += b"content-length: %d\r\n\r\n%b" % (len(body), body)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", port))
        connection.settimeout(30)
        with contextlib.suppress(ConnectionError):
            for _ in range(40):
                connection.sendall(request)
        time.sleep(2 * TIMEOUT)
        check_alive(port)
        received = 0
        with contextlib.suppress(ConnectionError):
            while data := connection.recv(2**20):
                received += len(data)
    assert received < 40 * 190_000, "the server closes the connection before the end"


def test_clients_that_disconnect(port, capfd):
    head = f"POST {PREDICT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 26\r\n\r\n".encode()
    for data in (b"", head[:30], head, head + GOOD[:9].encode(), head + GOOD.encode()):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(data)
    check_alive(port)
    assert capfd.readouterr().err == "", "a disconnect is not an error"


@pytest.mark.parametrize(
    "data",
    [b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"\x00" * 1000, b"G" * 200_000,
     b"GET / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nhost: a\r\n" + b"x: y\r\n" * 50_000,
     b"POST /v1/models/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n"],
)  # fmt: skip
def test_data_that_is_not_http(port, data):
    received = raw(port, data)
    assert received == b"" or received.startswith((b"HTTP/1.1 400", b"HTTP/1.1 408"))
    check_alive(port)


@pytest.mark.parametrize(
    "headers, status",
    [
        ({"Host": "localhost"}, 200),
        ({"Host": "127.0.0.1:1"}, 200),
        ({"Host": "[::1]:8501"}, 200),
        ({"Origin": "http://localhost:3000"}, 200),
        ({"Host": "rebound.example:8501"}, 403),
        ({"Host": "localhost.rebound.example"}, 403),
        ({"Host": "192.168.0.7"}, 403),
        ({"Origin": "https://elsewhere.example"}, 403),
        ({"Origin": "https://elsewhere.example//localhost"}, 403),
        ({"Origin": "http://localhost@elsewhere.example"}, 403),
        ({"Origin": "http://elsewhere.example http://localhost"}, 403),
        ({"Host": "elsewhere.example//localhost"}, 403),
        ({"Host": "user@localhost"}, 403),
        ({"Host": "localhost:8501/x"}, 403),
        ({"Host": "localhost, elsewhere.example"}, 403),
        ({"Host": "[::1"}, 403),
        ({"Host": "localhost."}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
def test_requests_from_other_sites_are_refused(port, headers, status):
    for path, body in ((PREDICT, GOOD), ("/v1/models/reviews", None), ("/models", None)):
        found, answer = call(port, path, body, headers=headers)
        assert found == status, path
        assert status == 200 or "another website" in answer["error"]


@pytest.mark.parametrize("rows", [1025, 40_000])
def test_too_many_rows_are_refused_at_once(port, rows):
    """Empty texts take time, too, and would delay other requests."""
    for body in (
        {"instances": [""] * rows},
        {"inputs": {"text": [""] * rows}},
        {"signature_name": "ids", "inputs": dict.fromkeys(OUTSIDE, [[1]] * rows)},
    ):
        body = json.dumps(body, separators=(",", ":"))
        if len(body) < MAX_BODY:
            start = time.perf_counter()
            status, answer = call(port, PREDICT, body)
            assert status == 413 and "at most 1024 rows" in answer["error"]
            assert time.perf_counter() - start < 2 * slowness()
    check_alive(port)
    assert call(port, PREDICT, {"instances": [""] * 1024})[0] == 200


def test_repeated_headers_are_refused(port):
    head = b"GET /v1/models/reviews HTTP/1.1\r\nconnection: close\r\n"
    for header in (b"host", b"origin", b"sec-fetch-site"):
        value = b"none" if header == b"sec-fetch-site" else b"http://localhost"
        value = value.removeprefix(b"http://") if header == b"host" else value
        hosts = b"" if header == b"host" else b"host: localhost\r\n"
        lines = hosts + (header + b": " + value + b"\r\n") * 2
        assert raw(port, head + lines + b"\r\n").startswith((b"HTTP/1.1 403", b"HTTP/1.1 400"))


def test_host_names_on_a_network(folder):
    for host, allowed in (("0.0.0.0", "192.168.0.7"), ("host.example", "host.example")):
        with serving(models.find(folder / "times"), host=host) as port:
            assert call(port, "/v1/models/times", headers={"Host": allowed})[0] == 200
            assert call(port, "/v1/models/times", headers={"Host": "rebound.example"})[0] == 403


def test_page_allows_only_its_own_script(port):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/")
    response = connection.getresponse()
    page = response.read().decode()
    policy = response.headers["content-security-policy"]
    connection.close()
    assert "<title>keras_bert</title>" in page
    assert "default-src 'none'" in policy and "script-src 'sha256-" in policy
    # The page loads nothing from other hosts.
    assert set(re.findall(r"""(?:https?:)?//[\w.]+""", page)) == {"http://www.w3.org"}


def test_32_concurrent_clients(port):
    texts = ["so good", "bad", "this film is", "한국어", ""]
    alone = {text: call(port, PREDICT, {"instances": [text]})[1] for text in texts}

    def client(number):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for turn in range(8):
            text = texts[(number + turn) % len(texts)]
            connection.request("POST", PREDICT, json.dumps({"instances": [text]}))
            response = connection.getresponse()
            answer = json.loads(response.read())
            assert response.status == 200
            row, expected = answer["predictions"][0], alone[text]["predictions"][0]
            np.testing.assert_allclose(row["probabilities"], expected["probabilities"], atol=1e-5)
        connection.close()
        return True

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        assert all(pool.map(client, range(32)))


def test_bugs_are_status_500(folder, monkeypatch, capfd):
    def bug(*_):
        raise KeyError("a bug")

    with serving(models.find(folder / "times")) as port:
        with monkeypatch.context() as patch:
            patch.setattr(app.rest, "parse", bug)
            status, answer = call(port, "/v1/models/times:predict", GOOD)
        assert status == 500 and answer["error"] == "KeyError: 'a bug'"
        assert call(port, "/v1/models/times:predict", {"instances": [1]})[0] == 200


def test_port_in_use():
    with app.listen(port=0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ValueError, match=f"port {port} of 127.0.0.1: Address already in use"):
            app.listen(port=port)


def test_command_needs_starlette_and_uvicorn(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "keras_bert.server.app")
    monkeypatch.delattr(keras_bert.server, "app")
    assert main(["serve", "anything"]) == 1
    assert re.search(r"run: pip install .*\[serve\]'", capsys.readouterr().err)


def test_command_reports_models_that_cannot_be_loaded(tmp_path, capsys):
    (tmp_path / "m" / "1").mkdir(parents=True)
    assert main(["serve", str(tmp_path / "m"), "--port", "0"]) == 1
    assert re.search("m/1 .* no saved_model.pb", capsys.readouterr().err)
    assert main(["serve", str(tmp_path / "none"), "--port", "0"]) == 1
    assert "none" in capsys.readouterr().err


@pytest.mark.slow
def test_command_serves_a_trained_model_until_ctrl_c(tmp_path, one_tokenizer):
    encoder = tiny.encoder(num_hidden_layers=1)
    path = tmp_path / "my reviews.keras"
    keras_bert.save(keras_bert.heads.classifier(encoder, labels=["bad", "good"]), path)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "keras_bert", "serve", str(path), "--port", "0"],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        where, curl, purpose = (process.stdout.readline() for _ in range(3))
        port = int(
            re.fullmatch(r"my-reviews: http://127\.0\.0\.1:(\d+) \(Ctrl-C stops\)\n", where)[1]
        )
        assert "keras-bert export" in purpose
        assert str(temporary) not in purpose
        # Send the example request.
        body, url = re.fullmatch(r"curl -d '(.*)' http://127\.0\.0\.1:\d+(\S+)\n", curl).groups()
        status, answer = call(port, url, body)
        assert status == 200 and len(answer["predictions"]) == 1
        with contextlib.suppress(OSError):
            assert socket.create_connection((_own_address(), port), 1) is None, (
                "the server listens on loopback only"
            )
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "stopped\n", "")
    assert list(temporary.iterdir()) == [], "temporary files are removed"


@pytest.mark.parametrize(
    ("model", "shown"),
    [
        ("..", "reviews"),
        ("other/..", "sub"),
        ("model.keras", "model"),
        ("my name.keras", "my-name"),
        ("hf:org/name@main", "name-main"),
    ],
)
def test_a_trained_model_is_exported_into_the_temporary_folder(tmp_path, monkeypatch, model, shown):
    """Everything in it is served as trusted, so the name must not select another folder."""
    (tmp_path / "reviews" / "sub").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "reviews" / "sub")
    temporary = tmp_path / "temporary" / "private"
    temporary.mkdir(parents=True)
    (tmp_path / "temporary" / "999").mkdir()  # another user put this there
    monkeypatch.setattr(command.reading, "load", lambda *_, **options: None)
    monkeypatch.setattr(
        keras_bert, "export", lambda _, path, **options: (path / "1").mkdir(parents=True)
    )
    [exported] = command._export(options.Serve(model=model), temporary)
    assert exported.name == shown
    assert temporary in exported.folder.parents


@pytest.mark.parametrize("name", ["';touch pwned;'", '";touch pwned;"', "$(touch pwned)", "`id`"])
def test_the_printed_commands_are_safe_to_copy(name):
    """The author of a SavedModel chooses the names of its folder and of its inputs."""
    inputs = {name: tf.TensorSpec([None], "string", name), "b": tf.TensorSpec([], "int32", "b")}
    signature = models.Signature(inputs, {}, id)
    model = models.Model(name, 1, {"serving_default": signature}, {}, None, None)
    _, curl, _ = command._introduction([model], "http://[::1]:8501")
    assert shlex.split(curl) == [
        "curl", "-d", json.dumps({"instances": [{name: "your text", "b": 0}]}),
        f"http://[::1]:8501/v1/models/{urllib.parse.quote(name, safe='')}:predict",
    ]  # fmt: skip


def test_printed_names_have_no_control_characters():
    name = "\x1b[2J\x7f"
    signature = models.Signature({name: tf.TensorSpec([None], "string", name)}, {}, id)
    model = models.Model("\x1b]0;title", 1, {"serving_default": signature}, {}, None, None)
    for line in command._introduction([model], "http://127.0.0.1:8501"):
        assert line.isprintable()


def _own_address():
    """Return an address of this machine other than loopback; raise OSError if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # UDP: sends nothing
        return probe.getsockname()[0]
