"""The command line: `keras-bert`, or `python -m keras_bert`.

Keras is imported only when a command runs, so that `--help` is fast.
"""

import contextlib
import importlib
import logging
import os
import stat
import sys
import warnings
from collections.abc import Sequence

from keras_bert.cli import options
from keras_bert.cli.parser import parse
from keras_bert.runtime.escaping import printable
from keras_bert.runtime.packages import advise_on_backend
from keras_bert.runtime.reading import first_line, one_line
from keras_bert.runtime.stopping import stop_requests
from keras_bert.runtime.terminal import print_line, quiet_imports, use_utf8

_MAX_MESSAGE = 2000  # characters
_TRACEBACK = "KERAS_BERT_TRACEBACK"
_TEXT_OPTIONS = ("texts", "text", "text_pair", "query", "prompt", "corpus_prompt")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line with a list of arguments, by default those of the process.

    Return the exit status: 0; 1 after an error, which is one line on stderr; 2 for wrong arguments
    or without a command; 130 after Ctrl-C, unless the command handles it.
    """
    try:
        with stop_requests():
            return _parse_and_run(argv)
    except BrokenPipeError:  # the reader of our output has closed it, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt as error:
        print_line(f"keras-bert: {str(error) or 'stopped'}", file=sys.stderr)
        # After Ctrl-C in `exec`, `python -m` ignores the status unless another `exec` succeeds.
        exec("")
        return 130
    except Exception as error:
        if os.environ.get(_TRACEBACK):
            raise
        print_line(f"keras-bert: {_message(error)}", file=sys.stderr)
        return 1


def _parse_and_run(argv):
    """Run the command and return 0, or return 2 without a command."""
    use_utf8()
    command, args = parse(argv)
    if command is None:
        return 2
    _check_files(args)
    _check_texts(args)
    if isinstance(args, options.NamedModel):
        from keras_bert.hub import resolve  # --help does not need its imports

        resolve.check(args.model)
    feature = f"keras-bert {command}"
    function = _import(args, feature)
    with advise_on_backend(feature), _plain_warnings():
        function(args)
    return 0


def _import(args, feature):
    """Import the module of a command; return the command's function."""
    module, name = args.run.split(".")
    needs_keras = args.needs_keras and not _reads_graph(args)
    quiet = quiet_imports() if needs_keras else contextlib.nullcontext()
    modules = ["keras"] if needs_keras else []
    with advise_on_backend(feature), quiet, stop_requests() as stop:
        for imported in (*modules, f"keras_bert.cli.{module}"):
            with stop.delayed():  # a module that is interrupted can crash the process
                commands = importlib.import_module(imported)
    return getattr(commands, name)


def _reads_graph(args):
    """Return True if a command computes with the graph of an export, which needs no Keras."""
    if not isinstance(args, options.Computation):
        return False
    from keras_bert.pipelines import factory  # --help does not need its imports

    return factory.find_graph(args.model, args.engine) is not None


def _message(error):
    """Return the message of an error in one line."""
    if isinstance(error, (ImportError, OSError, ValueError)):
        return one_line(error, limit=_MAX_MESSAGE)
    name = type(error).__name__
    return f"{name}: {first_line(error)[:300]} (set {_TRACEBACK}=1 for the traceback)"


def _check_files(args):
    """Raise an error if an input file is missing or empty, before TensorFlow is imported."""
    for name in args.files:
        paths = getattr(args, name) or ()
        for path in [paths] if isinstance(paths, str) else paths:
            status = os.stat(path)  # not opened, since a pipe can be read only once
            if stat.S_ISREG(status.st_mode) and not status.st_size:
                raise ValueError(f"{path} is empty")


def _check_texts(args):
    """Raise an error if a text of the command line is not UTF-8. File names need not be."""
    for name in _TEXT_OPTIONS:
        texts = getattr(args, name, None) or ()
        for text in [texts] if isinstance(texts, str) else texts:
            try:
                text.encode()
            except UnicodeEncodeError as error:  # Python reads other bytes as lone surrogates
                raise ValueError(
                    f"texts on the command line must be UTF-8; received {printable(text, 80)}. Set "
                    "the terminal to UTF-8, or convert the text. Korean text may be CP949: iconv "
                    "-f CP949 -t UTF-8"
                ) from error


@contextlib.contextmanager
def _plain_warnings():
    """Print warnings in one line, and hide TensorFlow's warnings about tracing."""
    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: print_line(
                f"keras-bert: {printable(' '.join(str(message).split()), _MAX_MESSAGE)}",
                file=sys.stderr,
            )
            yield
    finally:
        logger.setLevel(level)


if __name__ == "__main__":
    sys.exit(main())
