"""uvicorn's HTTP protocol with timeouts for clients that do not send or do not read."""

import asyncio
import json

from uvicorn.protocols.http.h11_impl import H11Protocol


class TimedProtocol(H11Protocol):
    """Closes a connection without a whole request head, or whose client does not read.

    uvicorn limits only the time between two requests. Uses its attributes `cycle` (the current
    request), `loop` and `transport`.
    """

    def __init__(self, timeout: float, **options) -> None:
        super().__init__(**options)
        self._timeout = timeout
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def connection_made(self, transport):
        super().connection_made(transport)
        self._start("request", self._refuse)

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
