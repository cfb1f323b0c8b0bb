"""uvicorn's HTTP protocol with limits for clients that do not send or do not read."""

import asyncio
import json

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class TimedProtocol(H11Protocol):
    """Closes a connection without a whole request head, or whose client does not read.

    uvicorn limits only the time between two requests, and refuses all requests while there are
    `limit_concurrency` connections. So the oldest connection that waits for its client is closed
    before there are as many. Uses uvicorn's attributes `conn` (of h11), `connections`, `cycle` (the
    current request), `limit_concurrency`, `loop` and `transport`.

    Args:
        timeout: Seconds for a client to send a request head, or to read.
        by_age: All connections of the server, the oldest first. Each adds itself.
    """

    def __init__(self, timeout: float, by_age: dict["TimedProtocol", None], **options) -> None:
        super().__init__(**options)
        self._timeout = timeout
        self._by_age = by_age
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def connection_made(self, transport):
        super().connection_made(transport)
        self._start("request", self._refuse)
        self._by_age[self] = None
        if self.limit_concurrency and len(self.connections) >= self.limit_concurrency:
            waiting = (connection for connection in self._by_age if connection.waits_for_client())
            oldest = next(waiting)
            del self._by_age[oldest]  # `connection_lost` is called later
            oldest.transport.abort()

    def waits_for_client(self) -> bool:
        """Return True if the client has not sent a whole request, or does not read a response."""
        is_sending = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        return is_sending or "response" in self._timers

    def data_received(self, data):
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop("request")
        else:
            self._start("request", self._refuse)

    def pause_writing(self):
        super().pause_writing()
        self._start("response", self.transport.abort)

    def resume_writing(self):
        super().resume_writing()
        self._stop("response")

    def connection_lost(self, exc):
        for name in list(self._timers):
            self._stop(name)
        self._by_age.pop(self, None)
        super().connection_lost(exc)

    def _refuse(self):
        if self.transport.is_closing():
            return
        message = f"No request arrived within {self._timeout:g} seconds. Try again."
        content = json.dumps({"error": message}).encode()
        self.transport.write(
            b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\n"
            b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(content), content)
        )
        self.transport.close()

    def _start(self, name, callback):
        if name not in self._timers:
            self._timers[name] = self.loop.call_later(self._timeout, callback)

    def _stop(self, name):
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
