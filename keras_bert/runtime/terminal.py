"""Terminal output: spinners, progress bars and quiet imports."""

import contextlib
import functools
import importlib
import importlib.util
import io
import logging
import os
import shlex
import sys
import tempfile
import time
import warnings
from typing import Any, TextIO

from keras_bert.runtime.escaping import printable, printable_lines

_SECONDS_IN_NOTEBOOK = 1  # between two lines, the second of which overwrites the first
_SECONDS_BETWEEN_LINES = 60  # without a terminal


def print_line(text: object, file: TextIO | None = None) -> None:
    """Print a text to a stream, by default stdout, with control characters escaped.

    Only tabs and line breaks stay. The package prints with this function, so that no text of an
    untrusted file controls the terminal.
    """
    print(printable_lines(str(text)), file=file, flush=True)


def metrics_table(metrics: dict[str, Any]) -> str:
    """Return the numbers and strings in `metrics` as text, one per line."""
    values = {
        printable(name): f"{value:.3f}" if isinstance(value, float) else printable(str(value))
        for name, value in metrics.items()
        if isinstance(value, (int, float, str)) and not isinstance(value, bool)
    }
    width = max(map(len, values), default=0)
    return "\n".join(f"{name:{width}}  {value}" for name, value in values.items())


def shell_quoted(text: object) -> str:
    """Return a text as one word of a shell command that is safe to print and to copy.

    Control characters become escapes, so the command does not find a file with such a name.
    """
    return printable(shlex.quote(str(text)))


def use_utf8():
    """Print UTF-8 on Windows, where redirected output otherwise has a code page without Korean."""
    if os.name == "nt":
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(encoding="utf-8")


@contextlib.contextmanager
def quiet_imports():
    """Hide what TensorFlow writes to stderr while it is imported.

    TensorFlow reports missing GPU drivers and CPU features before it reads any setting, so the
    file descriptor itself is redirected. If the import fails, the hidden output is shown. After
    Ctrl-C, it is not.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    saved = os.dup(2)
    with (
        tempfile.TemporaryFile() as hidden,
        open(os.dup(saved), "w", encoding="utf-8") as terminal,
    ):
        os.dup2(hidden.fileno(), 2)
        try:
            with waiting("Starting TensorFlow", terminal), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        except KeyboardInterrupt:
            raise
        except BaseException:
            hidden.seek(0)
            os.write(saved, hidden.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)


def quiet() -> None:
    """Import Keras and TensorFlow without TensorFlow's messages about GPUs and CPU features.

    Also hides TensorFlow's later log messages, such as those about retracing. Call it before
    anything else imports Keras or TensorFlow. Errors are still shown. Without TensorFlow, it only
    imports Keras.

    Example:

    >>> import keras_bert
    >>> keras_bert.quiet()
    """
    with quiet_imports():
        importlib.import_module("keras")
        if importlib.util.find_spec("tensorflow"):
            importlib.import_module("tensorflow")
    logging.getLogger("tensorflow").setLevel(logging.ERROR)


@contextlib.contextmanager
def waiting(title, terminal=None):
    """Show a spinner while the block runs. Without a terminal, show nothing."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=terminal or sys.stderr)
    # A string would be parsed as markup.
    status = console.status(Text(printable(title)))
    with status if console.is_terminal else contextlib.nullcontext():
        yield


def progress(*columns, show=True):
    """Return a `rich.progress.Progress` on stderr.

    Without a terminal, it prints a line per minute; in a notebook, a line that it overwrites.
    `columns` are format strings of further columns, such as `"loss {task.fields[loss]:.3f}"`.
    """
    from rich import progress as rich_progress
    from rich.console import Console

    console = Console(stderr=True)
    progress_class: Any = rich_progress.Progress
    if show and not console.is_terminal:
        progress_class = functools.partial(_line_progress(), columns)
    return progress_class(
        rich_progress.TextColumn("{task.description}", markup=False),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        *(rich_progress.TextColumn(column, markup=False) for column in columns),
        rich_progress.TimeRemainingColumn(elapsed_when_finished=True),
        console=console,
        disable=not (show and console.is_terminal),
    )


@functools.cache
def _line_progress():
    """Return the class of the progress that is printed as lines, for log files."""
    from rich.progress import Progress

    class LineProgress(Progress):
        def __init__(self, line_columns, *columns, **options):
            super().__init__(*columns, **options)
            self._line_columns = line_columns
            self._is_notebook = self.console.is_jupyter
            self._printed_at = time.monotonic()

        def update(self, task_id, **options):
            super().update(task_id, **options)
            self._print(task_id)

        def advance(self, task_id, advance=1):
            super().advance(task_id, advance)
            self._print(task_id)

        def _print(self, task_id):
            now = time.monotonic()
            seconds = _SECONDS_IN_NOTEBOOK if self._is_notebook else _SECONDS_BETWEEN_LINES
            if now - self._printed_at < seconds:
                return
            self._printed_at = now
            task = next(task for task in self.tasks if task.id == task_id)
            done = f"{task.completed:.4g}"
            if task.total is not None:
                done = f"{task.completed / max(task.total, 1e-9):.0%}"
            fields = [column.format(task=task) for column in self._line_columns]
            line = ", ".join([f"{task.description}: {done}", *filter(None, fields)])
            end = "\r" if self._is_notebook else "\n"
            print(printable_lines(line), end=end, file=sys.stderr, flush=True)

        def stop(self):
            super().stop()
            if self._is_notebook and self.tasks:
                self._printed_at = 0.0  # show the last state
                self._print(self.tasks[-1].id)
                print_line("", file=sys.stderr)

    return LineProgress
