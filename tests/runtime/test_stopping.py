"""Ctrl-C: it ends a block also where a library swallows `KeyboardInterrupt`."""

import contextlib
import signal
import sys

import pytest

from keras_bert.runtime.stopping import stop_requests

pytestmark = pytest.mark.usefixtures("hears_ctrl_c")


def swallow():
    with contextlib.suppress(BaseException):
        signal.raise_signal(signal.SIGINT)


def test_ctrl_c_raises_at_once():
    with pytest.raises(KeyboardInterrupt), stop_requests():
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("it went on")


def test_swallowed_ctrl_c_is_raised_by_the_check():
    with pytest.raises(KeyboardInterrupt), stop_requests():
        with stop_requests() as stop:
            stop.check()
            swallow()
        stop.check()


def test_ctrl_c_in_a_finalizer_is_not_printed(monkeypatch):
    class Finalized:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    class Broken:
        def __del__(self):
            raise ValueError

    shown = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: shown.append(found.exc_type))
    with pytest.raises(KeyboardInterrupt), stop_requests() as stop:
        Finalized()
        Broken()
        stop.check()
    assert shown == [ValueError]


def test_an_error_after_ctrl_c_is_an_interrupt():
    def to_error():
        swallow()
        raise ImportError("half imported")

    with pytest.raises(KeyboardInterrupt), stop_requests():
        to_error()
    with pytest.raises(ImportError), stop_requests():
        raise ImportError


def test_an_error_after_a_handled_interrupt_is_an_error():
    """A disk can be full when the best epoch is saved after Ctrl-C."""
    with pytest.raises(OSError, match="full"), stop_requests():
        with pytest.raises(KeyboardInterrupt), stop_requests():
            signal.raise_signal(signal.SIGINT)
        raise OSError("full")


def test_a_delayed_ctrl_c_is_raised_at_the_end():
    done = []
    with pytest.raises(KeyboardInterrupt), stop_requests() as stop, stop.delayed():
        signal.raise_signal(signal.SIGINT)
        done.append("the block ends")
    assert done


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_waits_for_the_step_and_the_second_interrupts(number, capfd):
    with stop_requests() as stop:
        with stop.finishing_steps():
            stop.end_step()
            assert not stop.is_pending
            signal.raise_signal(number)
            stop.end_step()
            assert stop.is_pending
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(number)
        stop.check()
    assert capfd.readouterr().err == (
        "\nStopping after this step. Press Ctrl-C again to stop now.\n"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_in_the_first_step_interrupts(number):
    with pytest.raises(KeyboardInterrupt), stop_requests() as stop, stop.finishing_steps():
        with contextlib.suppress(BaseException):
            signal.raise_signal(number)
        stop.end_step()
        raise AssertionError("it went on")


def test_an_error_while_a_step_is_saved_is_an_error():
    with pytest.raises(OSError, match="full"), stop_requests() as stop, stop.finishing_steps():
        stop.end_step()
        signal.raise_signal(signal.SIGINT)
        raise OSError("full")


def test_handlers_of_the_process_stay():
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append(1))
    try:
        with stop_requests() as stop:
            signal.raise_signal(signal.SIGINT)
            stop.check()
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [1]
