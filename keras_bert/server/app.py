"""Local server: TensorFlow Serving's REST API and a web page to try a model.

For local testing only. In production use TensorFlow Serving, which takes the same requests and for
which `export` writes a Compose file.
"""

import asyncio
import base64
import contextlib
import dataclasses
import functools
import hashlib
import ipaddress
import json
import pathlib
import re
import socket
import typing
from collections.abc import Sequence

import numpy as np
import starlette.applications
import starlette.exceptions
import starlette.requests
import starlette.responses
import starlette.routing
import uvicorn

from keras_bert.server import batching, models, rest, timeouts

HOST = "127.0.0.1"
PORT = 8501  # TensorFlow Serving's port
_MAX_CONNECTIONS = 512
_LOCAL_NAMES = {"localhost", "127.0.0.1", "::1"}
# A name, an IPv4 address or an IPv6 address in brackets, and an optional port.
_AUTHORITY = re.compile(r"(?P<name>[a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_PAGE = pathlib.Path(__file__).parent / "page.html"
# Exception -> HTTP status, as in TensorFlow Serving. `Exception` covers bugs of this server.
_STATUSES = {
    ValueError: 400,
    MemoryError: 429,
    NotImplementedError: 501,
    batching.QueueFullError: 503,
    starlette.requests.ClientDisconnect: 499,
    Exception: 500,
}


def listen(host=HOST, port=PORT):
    """Return a socket that listens on the port; port 0 selects a free one."""
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

    max_body: int = 2**20
    max_text: int = 2**16  # a tagger needs a minute for 100,000 words and blocks its queue
    max_rows: int = 1024  # MiniLM needs 0.7 s for this many empty texts
    timeout: float = 10.0


def make(
    served: Sequence[models.Model], host: str = HOST, limits: Limits | None = None
) -> uvicorn.Server:
    """Return a server for models with different names.

    Only requests to `host` and to names of the local machine are allowed. Run it with
    `server.run(sockets=[listen()])`.
    """
    limits = limits or Limits()
    handlers = _Handlers(served, host, limits)
    route = starlette.routing.Route
    routes = [route("/", handlers.page), route("/models", handlers.list_models)]
    for path in ("/v1/models/{name}", "/v1/models/{name}/versions/{version:int}"):
        routes += [
            route(f"{path}:predict", handlers.predict, methods=["POST"]),
            route(f"{path}:predict", _reject_method),  # `path` would match it as a name
            route(f"{path}/metadata", handlers.metadata),
            route(path, handlers.status),
        ]
    app = starlette.applications.Starlette(
        routes=routes,
        exception_handlers={
            starlette.exceptions.HTTPException: _http_error,
            **{kind: functools.partial(_error, status) for kind, status in _STATUSES.items()},
        },
        lifespan=handlers.lifespan,
    )
    # h11 limits the size of headers. httptools, which uvicorn also supports, does not.
    protocol = functools.partial(timeouts.TimedProtocol, limits.timeout, by_age={})
    config = uvicorn.Config(
        app,
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


class _Handlers:
    """Request handlers and the state that they share."""

    def __init__(self, served, host, limits):
        self._models = {model.name: model for model in served}
        self._host = host
        self._limits = limits
        self._queues: dict[str, batching.BatchQueue] = {}  # one per model while the server runs
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
        """Start and stop the queues."""
        self._queues = {name: batching.BatchQueue() for name in self._models}
        try:
            yield
        finally:
            for queue in self._queues.values():
                queue.close()

    async def page(self, request):
        """Return the web page."""
        self._check_origin(request)
        headers = {"Content-Security-Policy": self._policy, "Cache-Control": "no-store"}
        return starlette.responses.HTMLResponse(self._page, headers=headers)

    async def list_models(self, request):
        """Return names and labels for the web page. TensorFlow Serving has no such request."""
        self._check_origin(request)
        descriptions = [
            {"name": model.name, "version": str(model.number), "labels": model.labels}
            for model in self._models.values()
        ]
        return _json({"models": descriptions})

    async def status(self, request):
        """Return the state of a version, which is always loaded."""
        state = {
            "version": str(self._find(request).number),
            "state": "AVAILABLE",
            "status": {"error_code": "OK", "error_message": ""},
        }
        return _json({"model_version_status": [state]})

    async def metadata(self, request):
        """Return the signatures of a model."""
        model = self._find(request)
        spec = {"name": model.name, "signature_name": "", "version": str(model.number)}
        signatures = {"signature_def": {"signature_def": model.definitions}}
        return _json({"model_spec": spec, "metadata": signatures})

    async def predict(self, request):
        """Run a predict request and return the response."""
        # Read the body before any error: a client that is still sending receives no response.
        body = await self._read_body(request)
        model = self._find(request)
        document = rest.parse(body)
        signature = model.signature(document.get("signature_name") or rest.DEFAULT_SIGNATURE)
        arrays, in_rows = rest.read_inputs(document, signature.inputs)
        _check_size(arrays, self._limits)
        outputs = await self._queues[model.name].run(signature, arrays)
        content = rest.write_outputs(outputs, in_rows)
        return starlette.responses.Response(content, media_type="application/json")

    def _find(self, request):
        """Return the model of a request, whose version must be the one that is loaded."""
        self._check_origin(request)
        name = request.path_params["name"]
        model = self._models.get(name)
        if model is None or request.path_params.get("version", model.number) != model.number:
            versions = [f"{model.name} (version {model.number})" for model in self._models.values()]
            raise starlette.exceptions.HTTPException(
                404, f"Servable not found: {request.url.path[:200]}. Loaded: {', '.join(versions)}"
            )
        return model

    async def _read_body(self, request):
        """Read the body of a request within the limits of size and time."""
        limit = self._limits.max_body
        too_large = starlette.exceptions.HTTPException(
            413, f"The body may have at most {limit} bytes. See --max-body."
        )
        announced_size = int(request.headers.get("content-length", "0"))
        if announced_size > limit and "expect" in request.headers:
            raise too_large  # the client waits for "100 Continue" and has not sent the body
        body = bytearray()
        size = 0
        try:
            async with asyncio.timeout(self._limits.timeout):
                # Read large bodies to the end, or to 64 times the limit: otherwise the client sees
                # a broken connection in place of the response.
                async for part in request.stream():
                    size += len(part)
                    if size <= limit:
                        body += part
                    if size > 64 * limit:
                        break
        except TimeoutError as error:
            raise starlette.exceptions.HTTPException(
                408, f"The body did not arrive within {self._limits.timeout:g} seconds."
            ) from error
        if size > limit:
            raise too_large
        return bytes(body)

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
        match = _AUTHORITY.fullmatch(authority.lower())
        if match is None:
            return False
        name = match["name"].strip("[]")
        if name in _LOCAL_NAMES or name == self._host.lower():
            return True
        # The server listens on all addresses: accept any address, but no other name.
        return self._host in ("0.0.0.0", "::") and _is_address(name)


def _check_size(arrays, limits):
    """Check the size of input arrays."""
    strings = [array for array in arrays.values() if array.dtype == object]
    if any(len(text) > limits.max_text for array in strings for text in array.flat):
        raise starlette.exceptions.HTTPException(
            413, f"A text may have at most {limits.max_text} bytes. See --max-text."
        )
    rows = [
        array.size if array.dtype == object else len(np.atleast_1d(array))
        for array in arrays.values()
    ]
    if max(rows, default=0) > limits.max_rows:
        raise starlette.exceptions.HTTPException(
            413, f"A request may have at most {limits.max_rows} rows. See --max-rows."
        )


async def _reject_method(_):
    raise starlette.exceptions.HTTPException(405, "Send predict requests with POST.")


async def _http_error(_, error):
    return _json({"error": error.detail}, error.status_code)


async def _error(status, _, error):
    message = str(error) if status != 500 else f"{type(error).__name__}: {str(error)[:500]}"
    return _json({"error": message}, status)


def _json(value, status=200):
    text = json.dumps(value, ensure_ascii=False, indent=1) + "\n"
    content = text.encode(errors="backslashreplace")  # JSON's escapes can hold lone surrogates
    headers = {"Connection": "close"} if status in (408, 413) else None
    return starlette.responses.Response(content, status, headers, media_type="application/json")


def _is_address(name):
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
