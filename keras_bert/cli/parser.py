"""The parser of the command line, made from the dataclasses in `options`."""

import argparse
import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from keras_bert.cli import options
from keras_bert.version import __version__

# A line "name: help" and the indented lines that follow it.
_HELP = re.compile(r"^(\w+): (.+(?:\n +.+)*)", re.MULTILINE)


class _Parser(argparse.ArgumentParser):
    """Argument parser with errors of two short lines: what is wrong, and how to get help."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {message}\nsee {self.prog} --help\n")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of `keras-bert`."""
    parser = _Parser(
        prog="keras-bert",
        description="BERT for Keras 3: fine-tune, score, predict, export, serve.",
        epilog="Errors are one line. Set KERAS_BERT_TRACEBACK=1 to get the traceback.",
    )
    parser.add_argument("--version", action="version", version=f"keras_bert {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    for name, command in options.COMMANDS.items():
        subparser = commands.add_parser(
            name, help=_title(command), description=_first_line(command)
        )
        _add_arguments(subparser, command)
    return parser


def parse(arguments: Sequence[str] | None) -> tuple[str | None, Any]:
    """Return the name of the command and its options; exit after an error in them."""
    parser = make_parser()
    values, unknown = parser.parse_known_args(arguments)
    name = vars(values).pop("command")
    if name is None:
        parser.print_help()
        return None, None
    if "texts" in values and not any(text.startswith("-") for text in unknown):
        values.texts = [*values.texts, *unknown]  # argparse does not assign texts after options
    elif unknown:
        parser.prog += f" {name}"  # the error then names the command's own help
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return name, options.COMMANDS[name](**vars(values))


def _add_arguments(parser, command):
    """Add the fields of a command. The options of each base class are a group."""
    helps: dict[str, str] = {}
    for base in reversed(command.__mro__):
        helps |= dict(_HELP.findall(inspect.cleandoc(base.__doc__ or "")))
    groups = {_title(command): parser}
    for field in dataclasses.fields(command):
        settings = _settings(field, helps[field.name])
        if field.metadata.get("positional"):
            parser.add_argument(field.name, **settings)
            continue
        owner = next(base for base in command.__mro__ if field.name in base.__annotations__)
        title = _title(owner)
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        groups[title].add_argument(f"--{field.name.replace('_', '-')}", **settings)


def _first_line(command):
    return inspect.cleandoc(command.__doc__).partition("\n")[0]


def _title(command):
    """Return the first line of the docstring without capital and period."""
    line = _first_line(command)
    return line[0].lower() + line[1:].removesuffix(".")


def _settings(field, text):
    """Return the arguments of `add_argument` for a field and its help text."""
    metadata = dict(field.metadata)
    is_positional = metadata.pop("positional", False)
    is_required = field.default is dataclasses.MISSING
    kind = field.type
    if typing.get_origin(kind) in (typing.Union, types.UnionType):  # `kind | None`
        kind = typing.get_args(kind)[0]
    is_list = typing.get_origin(kind) is Sequence
    if is_list:
        kind = typing.get_args(kind)[0]
    settings = {"action": "store_true"} if kind is bool else _value_settings(kind)
    if is_list:
        settings["nargs"] = "*" if is_positional and not is_required else "+"
    elif is_positional and not is_required:
        settings["nargs"] = "?"
    if is_required and not is_positional:
        settings["required"] = True
    if not is_required:
        settings["default"] = field.default
        text += _default_text(field.default, text)
    return {**settings, "help": " ".join(text.split()).replace("%", "%%"), **metadata}


def _value_settings(kind):
    """Return how argparse converts and checks a value of a type."""
    if typing.get_origin(kind) is Literal:
        return {"choices": typing.get_args(kind)}
    if typing.get_origin(kind) is Annotated:
        return {"type": typing.get_args(kind)[1]}
    return {"type": kind}


def _default_text(default, text):
    if default is None or default is False or default == () or "default" in text:
        return ""
    shown = " ".join(map(str, default)) if isinstance(default, tuple) else default
    return f" (default: {shown})"
