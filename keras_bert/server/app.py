"""Local server: TensorFlow Serving's REST API and a web page to try a model.

For local testing only. In production use TensorFlow Serving, which takes the same requests and for
which `export` writes a Compose file.
"""

import asyncio
import base64
import contextlib
import dataclasses
import hashlib
import ipaddress
import json
import pathlib
import re
import socket
import typing

import starlette.applications
import starlette.exceptions
import starlette.requests
import starlette.responses
import starlette.routing
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from keras_bert.server import batching, rest

HOST, PORT = "127.0.0.1", 8501  # TensorFlow Serving's port
MAX_BODY = 2**20  # bytes
# A tagger needs a minute for 100,000 words and blocks its queue meanwhile.
MAX_TEXT = 2**16  # bytes
# MiniLM needs 0.7 s for this many empty texts.
MAX_ROWS = 1024
_TIMEOUT = 10.0  # seconds
_MAX_CONNECTIONS = 512
_THREAD_THRESHOLD = 2**16  # bytes or values; larger bodies and outputs are converted in a thread
_LOCAL_NAMES = {"localhost", "127.0.0.1", "::1"}
# A name, an IPv4 address or an IPv6 address in brackets, and an optional port.
_AUTHORITY = re.compile(r"(?P<name>[a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_PAGE = pathlib.Path(__file__).parent / "page.html"
# Exception -> HTTP status, as in TensorFlow Serving. `Exception` covers bugs of this server.
_STATUSES = {
    ValueError: 400,
    LookupError: 404,
    MemoryError: 429,
    NotImplementedError: 501,
    batching.QueueFullError: 503,
    starlette.requests.ClientDisconnect: 499,
    KeyError: 500,
    IndexError: 500,
    Exception: 500,
}
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


def listen(host=HOST, port=PORT):
    """Return a socket that listens on the port; port 0 selects a free one."""
    if not 0 <= port < 2**16:
        raise ValueError(f"port must be a number from 0 to 65535; received {port}")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=_MAX_CONNECTIONS)
    except OSError as error:
        raise ValueError(
            f"Cannot listen on port {port} of {host}: {error.strerror or error}. Set another "
            "--port; --port 0 selects a free one."
        ) from error
    # Connections inherit this option. Without it, responses are delayed by 40 ms between headers
    # and body. asyncio sets it only on sockets with an explicit TCP protocol number.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits on requests: bytes of a body and of a string, rows, and seconds.

    `max_rows` also limits the strings in one input. `timeout` is for a client to send a request,
    and to receive a response.
    """

    max_body: int = MAX_BODY
    max_text: int = MAX_TEXT
    max_rows: int = MAX_ROWS
    timeout: float = _TIMEOUT


def make(models, host=HOST, limits=None, poll=1.0):
    """Return a `uvicorn.Server` for a list of refreshed `models.Model` with different names.

    Only requests to `host` and to names of the local machine are allowed. `poll` is the number of
    seconds between checks for new versions. Run it with `server.run(sockets=[listen()])`.
    """
    limits = limits or Limits()
    app = _App(models, host, limits, poll)

    def protocol(**options) -> typing.Any:
        # h11 limits the size of headers. httptools, which uvicorn also supports, does not.
        return _TimeoutProtocol(H11Protocol(**options), limits.timeout)

    config = uvicorn.Config(
        starlette.applications.Starlette(
            routes=[
                starlette.routing.Route("/", app.page),
                starlette.routing.Route("/models", app.list_models),
                starlette.routing.Route("/v1/{path:path}", app.rest, methods=_METHODS),
            ],
            exception_handlers={
                starlette.exceptions.HTTPException: _http_error,
                **dict.fromkeys(_STATUSES, _error),
            },
            lifespan=app.lifespan,
        ),
        http=typing.cast(typing.Any, protocol),
        ws="none",
        log_level="error",
        access_log=False,
        server_header=False,
        limit_concurrency=_MAX_CONNECTIONS,
        timeout_keep_alive=int(max(1, limits.timeout)),
        timeout_graceful_shutdown=int(max(1, limits.timeout)),
    )
    return uvicorn.Server(config)


def _description(model):
    """Return the name, version and labels of a model for the web page."""
    current = model.current  # read it once, because another thread sets it
    return {
        "name": model.name,
        "version": None if current is None else str(current.number),
        "labels": None if current is None else current.labels,
    }


class _App:
    """Request handlers and the state that they share."""

    def __init__(self, models, host, limits, poll):
        self._models = {model.name: model for model in models}
        self._host = host
        self._limits = limits
        self._poll = poll
        self._scheduler: typing.Any = None  # set while the server runs
        self._page = _PAGE.read_text(encoding="utf-8")
        script = self._page.partition("<script>")[2].partition("</script>")[0]
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        self._policy = (
            "default-src 'none'; connect-src 'self'; img-src data:; style-src 'unsafe-inline'; "
            f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'"
        )

    @contextlib.asynccontextmanager
    async def lifespan(self, _):
        """Start and stop the scheduler and the task that refreshes the models."""
        self._scheduler = batching.BatchScheduler()
        refresh = asyncio.create_task(self._refresh_models())
        try:
            yield
        finally:
            refresh.cancel()
            self._scheduler.close()

    async def _refresh_models(self):
        while True:
            await asyncio.sleep(self._poll)
            for model in self._models.values():
                await asyncio.to_thread(model.refresh)

    async def page(self, request):
        """Return the web page."""
        self._check_origin(request)
        headers = {"Content-Security-Policy": self._policy, "Cache-Control": "no-store"}
        return starlette.responses.HTMLResponse(self._page, headers=headers)

    async def list_models(self, request):
        """Return names and labels for the web page. TensorFlow Serving has no such request."""
        self._check_origin(request)
        return _json({"models": [_description(model) for model in self._models.values()]})

    async def rest(self, request):
        """Handle TensorFlow Serving's requests."""
        self._check_origin(request)
        # Read the body before any error: a client that is still sending receives no response.
        body = await self._read_body(request)
        path = request.scope.get("raw_path", b"").partition(b"?")[0].decode("ascii", "replace")
        call = rest.read_path(request.method, path)
        model = self._models.get(call.model)
        if call.verb in ("classify", "regress"):
            raise ValueError(
                f"{call.verb} needs a signature for tf.Example, which models of keras_bert lack. "
                "Use predict."
            )
        if model is None:
            names = ", ".join(self._models)
            raise LookupError(
                f"Servable not found for request: Latest({call.model[:200]}). The models "
                f"here are: {names}"
            )
        if call.verb == "status":
            if call.label is not None:
                model.version(label=call.label)  # raises an error: this server has no labels
            return _json(rest.status(model.states(call.version)))
        version = model.version(call.version, call.label)
        if call.verb == "metadata":
            return _json(rest.metadata(model.name, version.number, version.definitions))
        return await self._predict(version, body)

    async def _predict(self, version, body):
        """Run a predict request on a version and return the response."""

        def read():
            document = rest.parse(body)
            signature = version.signature(rest.read_signature(document))
            arrays, in_rows = rest.read_inputs(document, signature.inputs)
            return signature, arrays, in_rows

        signature, arrays, in_rows = await _call(len(body), read)
        _check_size(arrays, self._limits)
        outputs = await self._scheduler.run(signature, arrays)
        size = sum(array.size for array in outputs.values())
        content = await _call(size, lambda: rest.write_outputs(outputs, in_rows))
        return starlette.responses.Response(content, media_type="application/json")

    async def _read_body(self, request):
        """Read the body of a request within the limits of size and time."""
        limits = self._limits
        is_large = int(request.headers.get("content-length", "0")) > limits.max_body
        # Read large bodies to the end: otherwise the client sees a broken connection instead of
        # the response. Do not read if the client waits for "100 Continue". Stop at 64 times the
        # limit.
        if not (is_large and "expect" in request.headers):
            size, parts = 0, []
            try:
                async with asyncio.timeout(limits.timeout):
                    async for part in request.stream():
                        size += len(part)
                        is_large = is_large or size > limits.max_body
                        parts.append(part)
                        if is_large:
                            parts.clear()
                        if size > 64 * limits.max_body:
                            break
            except TimeoutError as error:
                raise starlette.exceptions.HTTPException(
                    408, f"The body did not arrive within {limits.timeout:g} seconds. Try again."
                ) from error
        if is_large:
            raise starlette.exceptions.HTTPException(
                413,
                f"The body may have at most {limits.max_body} bytes. Restart the server with a "
                "larger --max-body.",
            )
        return b"".join(parts)

    def _check_origin(self, request):
        """Reject requests that another website sends through a browser."""
        # Host shows a name of another site that resolves to this machine (DNS rebinding). Origin
        # and Sec-Fetch-Site show a request from a page of another site.
        allowed = {
            "host": self._is_own_host,
            "origin": lambda value: self._is_own_host(re.sub("^https?://", "", value, count=1)),
            "sec-fetch-site": lambda value: value != "cross-site",
        }
        for header, is_allowed in allowed.items():
            values = request.headers.getlist(header)
            if len(values) > 1 or not all(map(is_allowed, values)):
                raise starlette.exceptions.HTTPException(
                    403,
                    "Send requests to localhost or this server's host, and not from another "
                    f"website; the header {header} is {', '.join(values)[:200]!r}",
                )

    def _is_own_host(self, authority):
        found = _AUTHORITY.fullmatch(authority.lower())
        if not found:
            return False
        name = found["name"].strip("[]")
        if name in _LOCAL_NAMES or name == self._host.lower():
            return True
        # The server listens on all addresses: accept any address, but no other name.
        return self._host in ("0.0.0.0", "::") and _is_address(name)


class _TimeoutProtocol(asyncio.Protocol):
    """HTTP protocol with timeouts for headers and responses, which uvicorn lacks."""

    def __init__(self, connection, timeout):
        self._connection = connection
        self._timeout = timeout
        self._transport: typing.Any = None
        self._timers = {}

    def connection_made(self, transport):
        self._transport = transport
        self._connection.connection_made(transport)
        self._start("headers", self._headers_timed_out)

    def data_received(self, data):
        self._connection.data_received(data)
        if self._is_responding():
            self._stop("headers")
        elif not self._transport.is_closing():
            self._start("headers", self._headers_timed_out)

    def eof_received(self):
        return self._connection.eof_received()

    def pause_writing(self):
        self._connection.pause_writing()
        self._start("response", self._transport.abort)

    def resume_writing(self):
        self._stop("response")
        self._connection.resume_writing()

    def connection_lost(self, error):
        for name in list(self._timers):
            self._stop(name)
        self._connection.connection_lost(error)

    def _is_responding(self):
        cycle = self._connection.cycle
        return cycle is not None and not cycle.response_complete

    def _headers_timed_out(self):
        if self._is_responding() or self._transport.is_closing():
            return
        message = f"No request arrived within {self._timeout:g} seconds. Try again."
        content = json.dumps({"error": message}).encode()
        self._transport.write(
            b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\n"
            b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(content), content)
        )
        self._transport.close()

    def _start(self, name, callback):
        if name not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[name] = loop.call_later(self._timeout, callback)

    def _stop(self, name):
        if timer := self._timers.pop(name, None):
            timer.cancel()


def _check_size(arrays, limits):
    """Check the size of input arrays."""
    strings = [array for array in arrays.values() if array.dtype == object]
    if any(len(text) > limits.max_text for array in strings for text in array.flat):
        raise starlette.exceptions.HTTPException(
            413,
            f"A text may have at most {limits.max_text} bytes. Restart the server with a larger "
            "--max-text.",
        )
    if any(_rows(array) > limits.max_rows for array in arrays.values()):
        raise starlette.exceptions.HTTPException(
            413,
            f"A request may have at most {limits.max_rows} rows. Send several requests, or "
            "restart the server with a larger --max-rows.",
        )


def _rows(array):
    """Return the number of strings, or the size of the first dimension for numbers."""
    return array.size if array.dtype == object else len(array) if array.ndim else 1


async def _call(size, function):
    """Call a function, in a thread if its input is so large that it would delay others."""
    return function() if size <= _THREAD_THRESHOLD else await asyncio.to_thread(function)


async def _http_error(_, error):
    return _json({"error": error.detail}, error.status_code)


async def _error(_, error):
    status = next(_STATUSES[kind] for kind in type(error).__mro__ if kind in _STATUSES)
    message = str(error) if status != 500 else f"{type(error).__name__}: {str(error)[:500]}"
    return _json({"error": message}, status)


def _json(value, status=200):
    text = json.dumps(value, ensure_ascii=False, indent=1) + "\n"
    headers = {"Connection": "close"} if status in (408, 413) else None
    return starlette.responses.Response(text, status, headers, media_type="application/json")


def _is_address(name):
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
