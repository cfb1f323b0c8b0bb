"""The parser of the command line: one module per group of commands.

These modules import neither Keras nor TensorFlow, so `--help` and errors in options are fast.
"""

import argparse
import difflib
import re

from keras_bert.cli.options import explain, inference, models, pretraining, serving, training
from keras_bert.version import __version__


class _Parser(argparse.ArgumentParser):
    """Argument parser with errors of two short lines: what is wrong, and how to get help."""

    def error(self, message):
        choice = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if choice:
            known = re.findall(r"[\w-]+", choice[2])
            near = difflib.get_close_matches(choice[1], known, n=1)
            message += f"; did you mean {near[0]}?" if near else ""
        self.exit(2, f"{self.prog}: {message}\nsee {self.prog} --help\n")


def make_parser():
    """Return the parser of `keras-bert`.

    The parsed arguments of a command hold `run`, the command's function as "module.function" in
    `keras_bert.cli`, and may hold `files`, the names of arguments that are input files.
    """
    parser = _Parser(
        prog="keras-bert",
        description="BERT for Keras 3: fine-tune, score, predict, export, serve.",
        epilog="Errors are one line. Set KERAS_BERT_TRACEBACK=1 to get the traceback.",
    )
    parser.add_argument("--version", action="version", version=f"keras_bert {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    models.add_list(commands)
    models.add_doctor(commands)
    models.add_info(commands)
    training.add_finetune(commands)
    inference.add_evaluate(commands)
    inference.add_predict(commands)
    inference.add_embed(commands)
    inference.add_search(commands)
    inference.add_mine(commands)
    inference.add_fill(commands)
    explain.add_explain(commands)
    pretraining.add_vocab(commands)
    pretraining.add_records(commands)
    pretraining.add_pretrain(commands)
    models.add_convert(commands)
    models.add_export(commands)
    serving.add_serve(commands)
    return parser
