"""A server for the desk: TensorFlow Serving's REST API on this machine, and a page to try texts on.

It is for one person and their scripts. Production is TensorFlow Serving, for which `export` writes
a Compose file; what is sent here can be sent there.
"""

import asyncio
import base64
import contextlib
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

HOST, PORT = "127.0.0.1", 8501  # the port is TensorFlow Serving's
MAX_BODY = 2**20
# A tagger takes a minute for some hundred thousand words, in which its lane answers nobody else.
MAX_TEXT = 2**16
# So many empty texts take 0.7 s with MiniLM.
MAX_ROWS = 1024
_PATIENCE = 10.0  # seconds
_CONNECTIONS = 512
_LARGE = 2**16  # bytes of a body, or values of an answer, that would hold others up
_NAMES = {"localhost", "127.0.0.1", "::1"}
# A name, an IPv4 address or an IPv6 address in brackets, and a port that may be missing.
_AUTHORITY = re.compile(r"(?P<name>[a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_PAGE = pathlib.Path(__file__).parent / "page.html"
# Those of TensorFlow Serving. What is of no kind here is a mistake of ours.
_STATUSES = {
    ValueError: 400,
    LookupError: 404,
    MemoryError: 429,
    NotImplementedError: 501,
    ConnectionRefusedError: 503,
    starlette.requests.ClientDisconnect: 499,
    KeyError: 500,
    IndexError: 500,
    Exception: 500,
}
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


def listen(host=HOST, port=PORT):
    """Takes a port.

    Args:
        host: address or name of this machine.
        port: its number; 0 takes a free one.

    Returns:
        A listening socket.

    Raises:
        ValueError: the port is taken, or the address is not this machine's.

    Example:

    >>> with listen(port=0) as listener:
    ...     listener.getsockname()[0]
    '127.0.0.1'
    """
    if not 0 <= port < 2**16:
        raise ValueError(f"a port is a number from 0 to 65535; received {port}")
    try:
        kind = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=kind, backlog=_CONNECTIONS)
    except OSError as error:
        raise ValueError(
            f"cannot listen on port {port} of {host}: {error.strerror or error}; --port takes "
            "another, --port 0 any free one"
        ) from error
    # Connections inherit it. Without it an answer waits 40 ms between its head and its body:
    # asyncio sets it on sockets only that say that they are of TCP, and this one does not.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def make(
    models,
    host=HOST,
    max_body=MAX_BODY,
    max_text=MAX_TEXT,
    max_rows=MAX_ROWS,
    patience=_PATIENCE,
    poll=1.0,
):
    """Makes a server of models.

    Args:
        models: list of `models.Model` with different names, refreshed once.
        host: address to be listened on; requests under a name that is neither it nor this
            machine's own are refused.
        max_body: bytes of a request's body.
        max_text: bytes of one string in it.
        max_rows: rows of a request, and strings in an input.
        patience: seconds that a client may take to send a request, or to take an answer.
        poll: seconds between looks for new versions.

    Returns:
        A `uvicorn.Server`; `server.run(sockets=[listen()])` serves until Ctrl-C.

    Example:

    >>> make([]).config.app.routes[0].path
    '/'
    """
    app = _App(models, host, max_body, max_text, max_rows, patience, poll)

    def connect(**options) -> typing.Any:
        # h11 bounds the headers; the other parser that uvicorn knows does not.
        return _Impatient(H11Protocol(**options), patience)

    config = uvicorn.Config(
        starlette.applications.Starlette(
            routes=[
                starlette.routing.Route("/", app.page),
                starlette.routing.Route("/desk/models", app.list_models),
                starlette.routing.Route("/v1/{path:path}", app.rest, methods=_METHODS),
            ],
            exception_handlers={
                starlette.exceptions.HTTPException: _http_error,
                **dict.fromkeys(_STATUSES, _error),
            },
            lifespan=app.lifespan,
        ),
        http=typing.cast(typing.Any, connect),
        ws="none",
        log_level="error",
        access_log=False,
        server_header=False,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=int(max(1, patience)),
        timeout_graceful_shutdown=int(max(1, patience)),
    )
    return uvicorn.Server(config)


class _App:
    """What the handlers share."""

    def __init__(self, models, host, max_body, max_text, max_rows, patience, poll):
        self._models = {model.name: model for model in models}
        self._host = host
        self._max_body = max_body
        self._max_text = max_text
        self._max_rows = max_rows
        self._patience = patience
        self._poll = poll
        self._lanes: typing.Any = None  # while the server runs
        html = _PAGE.read_text(encoding="utf-8")
        script = html.partition("<script>")[2].partition("</script>")[0]
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        self._page = html
        self._policy = (
            "default-src 'none'; connect-src 'self'; img-src data:; style-src 'unsafe-inline'; "
            f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'"
        )

    @contextlib.asynccontextmanager
    async def lifespan(self, _):
        """Starts the threads and the watch, and ends them."""
        self._lanes = batching.Lanes()
        watch = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watch.cancel()
            self._lanes.close()

    async def _watch(self):
        while True:
            await asyncio.sleep(self._poll)
            for model in self._models.values():
                await asyncio.to_thread(model.refresh)

    async def page(self, request):
        """The page."""
        self._check_names(request)
        headers = {"Content-Security-Policy": self._policy, "Cache-Control": "no-store"}
        return starlette.responses.HTMLResponse(self._page, headers=headers)

    async def list_models(self, request):
        """What the page asks, and TensorFlow Serving has no call for: names and labels."""
        self._check_names(request)
        found = [
            {
                "name": model.name,
                "version": model.current and str(model.current.number),
                "labels": model.current and model.current.labels,
            }
            for model in self._models.values()
        ]
        return _json({"models": found})

    async def rest(self, request):
        """TensorFlow Serving's calls."""
        self._check_names(request)
        body = await self._body(request)  # first: who is still sending does not hear an answer
        path = request.scope.get("raw_path", b"").partition(b"?")[0].decode("ascii", "replace")
        call = rest.read_path(request.method, path)
        model = self._models.get(call.model)
        if call.verb in ("classify", "regress"):
            raise ValueError(
                f"{call.verb} needs a signature on tf.Example, which no model of keras_bert has; "
                "all have predict"
            )
        if model is None:
            names = ", ".join(self._models)
            raise LookupError(
                f"Servable not found for request: Latest({call.model[:200]}); here is {names}"
            )
        if call.verb == "status":
            if call.label is not None:
                model.version(label=call.label)  # there are none
            return _json(rest.status(model.states(call.version)))
        version = model.version(call.version, call.label)
        if call.verb == "metadata":
            return _json(rest.metadata(model.name, version.number, version.definitions))
        return await self._predict(version, body)

    async def _predict(self, version, body):
        def read():
            document = rest.parse(body)
            signature = version.signature(rest.read_signature(document))
            arrays, in_rows = rest.read_inputs(document, signature.inputs)
            return signature, arrays, in_rows

        signature, arrays, in_rows = await _call(len(body), read)
        strings = [array for array in arrays.values() if array.dtype == object]
        if any(len(text) > self._max_text for array in strings for text in array.flat):
            raise starlette.exceptions.HTTPException(
                413, f"a text has at most {self._max_text} bytes here; --max-text raises that"
            )
        if any(_rows(array) > self._max_rows for array in arrays.values()):
            raise starlette.exceptions.HTTPException(
                413, f"a request has at most {self._max_rows} rows here; --max-rows raises that"
            )
        outputs = await self._lanes.run(signature, arrays)
        size = sum(array.size for array in outputs.values())
        content = await _call(size, lambda: rest.write_outputs(outputs, in_rows))
        return starlette.responses.Response(content, media_type="application/json")

    async def _body(self, request):
        """The body of a request, within its limits of size and time."""
        is_large = int(request.headers.get("content-length", "0")) > self._max_body
        # Read to the end, or a client that has not done sending sees its connection break in place
        # of the answer. But not what waits for our consent, and not what has no end.
        if not (is_large and "expect" in request.headers):
            size, parts = 0, []
            try:
                async with asyncio.timeout(self._patience):
                    async for part in request.stream():
                        size += len(part)
                        is_large = is_large or size > self._max_body
                        parts.append(part)
                        if is_large:
                            parts.clear()
                        if size > 64 * self._max_body:
                            break
            except TimeoutError as error:
                raise starlette.exceptions.HTTPException(
                    408, f"the body did not come within {self._patience:g} seconds"
                ) from error
        if is_large:
            raise starlette.exceptions.HTTPException(
                413, f"a body has at most {self._max_body} bytes here; --max-body raises that"
            )
        return b"".join(parts)

    def _check_names(self, request):
        """Reject cross-site requests of browsers.

        The name of such a site may resolve to this machine, which the Host header shows, or its
        page may send requests here, which Origin and Sec-Fetch-Site show.
        """
        allowed = {
            "host": self._is_ours,
            "origin": lambda value: self._is_ours(re.sub("^https?://", "", value, count=1)),
            "sec-fetch-site": lambda value: value != "cross-site",
        }
        for header, is_allowed in allowed.items():
            values = request.headers.getlist(header)
            if len(values) > 1 or not all(map(is_allowed, values)):
                raise starlette.exceptions.HTTPException(
                    403,
                    f"this server answers to localhost; {header} is {', '.join(values)[:200]!r}",
                )

    def _is_ours(self, authority):
        found = _AUTHORITY.fullmatch(authority.lower())
        if not found:
            return False
        name = found["name"].strip("[]")
        if name in _NAMES or name == self._host.lower():
            return True
        # Open to the network: its addresses cannot be listed, but names stay out.
        return self._host in ("0.0.0.0", "::") and _is_address(name)


class _Impatient(asyncio.Protocol):
    """A connection of uvicorn's, closed when its client takes too long.

    uvicorn waits for the head of a request as long as it takes. Bodies are timed in `_App`.

    Args:
        connection: the protocol that speaks HTTP.
        patience: seconds.
    """

    def __init__(self, connection, patience):
        self._connection = connection
        self._patience = patience
        self._transport: typing.Any = None
        self._timers = {}

    def connection_made(self, transport):
        self._transport = transport
        self._connection.connection_made(transport)
        self._start("head", self._no_head)

    def data_received(self, data):
        self._connection.data_received(data)
        if self._is_answering():
            self._stop("head")
        elif not self._transport.is_closing():
            self._start("head", self._no_head)

    def eof_received(self):
        return self._connection.eof_received()

    def pause_writing(self):
        self._connection.pause_writing()
        self._start("answer", self._transport.abort)

    def resume_writing(self):
        self._stop("answer")
        self._connection.resume_writing()

    def connection_lost(self, error):
        for name in list(self._timers):
            self._stop(name)
        self._connection.connection_lost(error)

    def _is_answering(self):
        cycle = self._connection.cycle
        return cycle is not None and not cycle.response_complete

    def _no_head(self):
        if self._is_answering() or self._transport.is_closing():
            return
        content = json.dumps({"error": f"no request within {self._patience:g} seconds"}).encode()
        self._transport.write(
            b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\n"
            b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(content), content)
        )
        self._transport.close()

    def _start(self, name, call):
        if name not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[name] = loop.call_later(self._patience, call)

    def _stop(self, name):
        if timer := self._timers.pop(name, None):
            timer.cancel()


def _rows(array):
    """Number of strings, or size of the first dimension for numbers."""
    return array.size if array.dtype == object else len(array) if array.ndim else 1


async def _call(size, function):
    """Calls it, in a thread where it would hold others up."""
    return function() if size <= _LARGE else await asyncio.to_thread(function)


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
