"""The command line: `keras-bert`, or `python -m keras_bert`.

Keras is imported only when a command runs, so that `--help` is fast.
"""

import contextlib
import errno
import importlib
import itertools
import logging
import os
import stat
import sys
import warnings

from keras_bert.cli.options import make_parser
from keras_bert.hub import named_source, resolve
from keras_bert.runtime.escaping import printable
from keras_bert.runtime.packages import advise_on_backend
from keras_bert.runtime.reading import first_line, one_line
from keras_bert.runtime.stopping import stop_requests
from keras_bert.runtime.terminal import print_line, quiet_imports, use_utf8

# Commands whose model is a name or a path that `resolve` knows; `serve` also takes SavedModels.
_TAKES_MODEL = (
    "info", "finetune", "evaluate", "predict", "embed", "fill", "explain", "convert", "export",
    "search", "mine",
)  # fmt: skip
_MAX_MESSAGE = 2000  # characters
_TRACEBACK = "KERAS_BERT_TRACEBACK"


def main(argv=None):
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
    parser = make_parser()
    args, unknown = parser.parse_known_args(argv)
    if hasattr(args, "texts") and not any(item.startswith("-") for item in unknown):
        args.texts, unknown = (
            [*args.texts, *unknown],
            [],
        )  # argparse does not assign texts that follow options
    if unknown:
        parser.prog += f" {args.command}"  # the error then names the command's own help
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if args.command is None:
        parser.print_help()
        return 2
    _run(args)
    return 0


def _run(args):
    if args.command == "list":  # needs no Keras
        print_line(named_source.table())
        return
    if args.command == "doctor":  # Keras may be broken
        importlib.import_module("keras_bert.cli.doctor").doctor(args)
        return
    _check_files(args)
    if args.command in _TAKES_MODEL:
        resolve.check(args.model)
    module, name = args.run.split(".")
    feature = f"keras-bert {args.command}"
    with (
        advise_on_backend(feature),
        quiet_imports(),
        stop_requests() as stop,
    ):
        for imported in ("keras", f"keras_bert.cli.{module}"):
            with stop.delayed():  # a module that is interrupted can crash the process
                commands = importlib.import_module(imported)
    command = getattr(commands, name)
    with advise_on_backend(feature), _plain_warnings():
        command(args)


def _message(error):
    """Return the message of an error in one line."""
    if isinstance(error, (ImportError, OSError, ValueError)):
        return one_line(error, limit=_MAX_MESSAGE)
    name = type(error).__name__
    return f"{name}: {first_line(error)[:300]} (set {_TRACEBACK}=1 for the traceback)"


def _check_files(args):
    """Raise an error if an input file is missing or empty, before TensorFlow is imported."""
    given = [getattr(args, name) for name in getattr(args, "files", ())]
    for path in filter(
        None, itertools.chain(*(each if isinstance(each, list) else [each] for each in given))
    ):
        status = os.stat(path)  # not opened, since a pipe can be read only once
        if stat.S_ISDIR(status.st_mode):
            if getattr(args, "takes_folders", False):
                continue
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not os.access(path, os.R_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        if stat.S_ISREG(status.st_mode) and not status.st_size:
            raise ValueError(f"{path} is empty")


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
