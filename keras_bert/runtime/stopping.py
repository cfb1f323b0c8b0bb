"""Ctrl-C and SIGTERM, also where a library swallows Python's `KeyboardInterrupt`."""

import contextlib
import signal
import sys
import threading

from keras_bert.runtime.terminal import print_line


class StopRequest:
    """A signal handler that raises `KeyboardInterrupt` and remembers it.

    Attributes:
        is_pending: True from the signal until `KeyboardInterrupt` leaves `stop_requests`.
    """

    def __init__(self):
        self.is_pending = False
        self._is_delayed = False  # True: the first signal only sets `is_pending`
        self._finishes_steps = False

    def __call__(self, *_):
        is_delayed = self._is_delayed and not self.is_pending
        self.is_pending = True
        if not is_delayed:
            raise KeyboardInterrupt
        if self._finishes_steps:
            message = "\nStopping after this step. Press Ctrl-C again to stop now."
            print_line(message, sys.stderr)

    def check(self):
        """Raise `KeyboardInterrupt` again if a library has swallowed it."""
        if self.is_pending and not self._is_delayed:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def finishing_steps(self):
        """After the first step, let the first Ctrl-C or SIGTERM only set `is_pending`.

        The block calls `end_step` after each step, and reads `is_pending`. It may complete its
        work in spite of the signal. A second signal raises `KeyboardInterrupt`.
        """
        self._finishes_steps = True
        try:
            with _handle(signal.SIGTERM, signal.SIG_DFL, self):
                yield
        finally:
            if self._is_delayed:  # the block has read `is_pending`
                self.is_pending = False
            self._finishes_steps = False
            self._is_delayed = False

    def end_step(self):
        """Raise `KeyboardInterrupt` if the first step swallowed it; delay it in later steps."""
        self.check()
        self._is_delayed = self._finishes_steps

    @contextlib.contextmanager
    def delayed(self):
        """Raise the `KeyboardInterrupt` of the first Ctrl-C at the end of the block.

        The second Ctrl-C raises it at once.
        """
        self._is_delayed = True
        try:
            yield
        finally:
            self._is_delayed = False
        self.check()


@contextlib.contextmanager
def stop_requests():
    """Yield the `StopRequest` that handles Ctrl-C in this block.

    Libraries swallow `KeyboardInterrupt`, or turn it into another error, for example when
    TensorFlow calls a Python function. So the block calls `check` after it has called libraries. An
    error that leaves the block after Ctrl-C becomes a `KeyboardInterrupt`.

    A block within a block yields the same `StopRequest`. Outside of the main thread, and if the
    process ignores Ctrl-C or handles it itself, the `StopRequest` receives no signals.
    """
    stop = signal.getsignal(signal.SIGINT)
    if not isinstance(stop, StopRequest) or not _is_main_thread():
        stop = StopRequest()
    with _handle(signal.SIGINT, signal.default_int_handler, stop), _hide_unraisable(stop):
        try:
            yield stop
        except KeyboardInterrupt:
            stop.is_pending = False
            raise
        except Exception as error:
            if not stop.is_pending:
                raise
            stop.is_pending = False
            raise KeyboardInterrupt from error


@contextlib.contextmanager
def _handle(number, default, handler):
    """Install a signal handler in place of the default one, in the main thread only."""
    if not _is_main_thread() or signal.getsignal(number) != default:
        yield
        return
    signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, default)


@contextlib.contextmanager
def _hide_unraisable(stop):
    """Hide the `KeyboardInterrupt` that Python prints and drops, for example in `__del__`."""
    show = sys.unraisablehook

    def show_others(unraisable):
        if not (stop.is_pending and issubclass(unraisable.exc_type, KeyboardInterrupt)):
            show(unraisable)

    sys.unraisablehook = show_others
    try:
        yield
    finally:
        sys.unraisablehook = show


def _is_main_thread():
    return threading.current_thread() is threading.main_thread()
