"""What a person at a terminal sees: no log noise, and a sign of life where there is a wait."""

import contextlib
import os
import signal
import sys
import tempfile
import threading
import warnings

__all__ = ["printable", "progress", "quiet_imports", "stop_requests", "waiting"]


def printable(text):
    r"""Return a text with its control characters escaped, so that it is safe for a terminal.

    Args:
        text: a string, such as a name in a file from elsewhere.

    Returns:
        A string.

    Example:

    >>> print(printable("good\x1b[2J"))
    good\x1b[2J
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


@contextlib.contextmanager
def quiet_imports():
    """Holds back what TensorFlow's runtime writes to stderr while it is imported.

    It reports missing GPU drivers and CPU features before it reads any setting, so nothing but
    the file descriptor stops it. What was written is shown after all if the import fails.

    Example:

    >>> with quiet_imports():
    ...     import tensorflow
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as held, open(os.dup(saved), "w") as terminal:
        os.dup2(held.fileno(), 2)
        try:
            with waiting("Starting TensorFlow", terminal), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        except BaseException:
            held.seek(0)
            os.write(saved, held.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)


@contextlib.contextmanager
def waiting(title, terminal=None):
    """Turns a spinner while something of unknown length runs; nothing without a terminal.

    Args:
        title: what is being done.
        terminal: file to draw on; default: stderr.

    Example:

    >>> with waiting("Thinking"):
    ...     answer = 42
    """
    from rich.console import Console

    console = Console(file=terminal or sys.stderr)
    with console.status(title) if console.is_terminal else contextlib.nullcontext():
        yield


def progress(*columns, show=True):
    """A progress bar on stderr that leaves no trace where stderr is no terminal.

    Args:
        *columns: format strings of further columns, such as `"loss {task.fields[loss]:.3f}"`.
        show: `False` draws nothing anywhere.

    Returns:
        A `rich.progress.Progress`, to be used as a context manager.

    Example:

    >>> with progress() as bar:
    ...     task = bar.add_task("Counting", total=2)
    ...     bar.advance(task, 2)
    """
    from rich import progress as rich_progress
    from rich.console import Console

    console = Console(stderr=True)
    return rich_progress.Progress(
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        *(rich_progress.TextColumn(column) for column in columns),
        rich_progress.TimeRemainingColumn(elapsed_when_finished=True),
        console=console,
        disable=not (show and console.is_terminal),
    )


@contextlib.contextmanager
def stop_requests(take=True):
    """Within it, Ctrl-C and SIGTERM ask to stop; what is at work looks when it suits it.

    The second one interrupts at once. A signal that the process ignores or handles in a way of its
    own is left alone, as are all where it is not the main thread.

    Args:
        take: `False` takes no signals.

    Yields:
        A `threading.Event`, set once there was one.

    Example:

    >>> with stop_requests() as stop:
    ...     stop.is_set()
    False
    """
    stop = threading.Event()

    def ask(*_):
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        print("\nstopping behind this step; again: at once", file=sys.stderr, flush=True)

    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    taken = {}
    if take and threading.current_thread() is threading.main_thread():
        taken = {
            number: signal.signal(number, ask)
            for number, handler in usual.items()
            if signal.getsignal(number) == handler
        }
    try:
        yield stop
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)
