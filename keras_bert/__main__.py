"""The command line: `keras-bert`, or `python -m keras_bert`.

Keras is imported when a command runs, not before, so that `--help` answers at once.
"""

import argparse
import contextlib
import difflib
import errno
import importlib
import logging
import os
import re
import stat
import sys
import warnings

from keras_bert.hub import resolve
from keras_bert.runtime.terminal import printable, quiet_imports
from keras_bert.version import __version__

TASKS = (
    "classification",
    "pair",
    "multi-label",
    "regression",
    "tagging",
    "qa",
    "multiple-choice",
)
_REMEMBERED = "where none is given, those that metrics.json beside the model has from its training"
# Of the models that Google published.
SIZES = ("tiny", "mini", "small", "medium", "base", "large")
# Commands whose model is a name or path of `sources`; that of `serve` may be SavedModels as well.
_READS_MODEL = ("info", "finetune", "evaluate", "predict", "embed", "fill", "convert", "export")


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are two short lines: what is wrong, and where to read on."""

    def error(self, message):
        choice = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if choice:
            known = re.findall(r"[\w-]+", choice[2])
            near = difflib.get_close_matches(choice[1], known, n=1)
            message += f"; did you mean {near[0]}?" if near else ""
        self.exit(2, f"{self.prog}: {message}\nsee {self.prog} --help\n")


def _command(commands, name, text):
    return commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")


def _parser():
    parser = _Parser(
        prog="keras-bert",
        description="BERT for Keras 3: fine-tune, score, predict, export, serve.",
        epilog="An error is one line; with KERAS_BERT_TRACEBACK=1 it says where it came from.",
    )
    parser.add_argument("--version", action="version", version=f"keras_bert {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")

    _command(commands, "list", "the models that have a name")

    info = _command(commands, "info", "what a model is: sizes, vocabulary, labels")
    info.add_argument("model", help="name (see list), hf:org/name, folder, .zip or .keras file")
    info.set_defaults(run="models.info")

    _add_finetune(_command(commands, "finetune", "train a model on a labelled file"))

    evaluate = _command(commands, "evaluate", "score a trained model on a labelled file")
    evaluate.add_argument("model", help="folder or .keras file of a fine-tuned model")
    evaluate.add_argument("--input", required=True, help="file of the model's task")
    columns = evaluate.add_argument_group("columns", _REMEMBERED)
    _add_columns(columns)
    _add_labels(columns)
    _add_characters(evaluate)
    _add_null_threshold(evaluate)
    _add_batch_size(evaluate)
    evaluate.set_defaults(run="inference.evaluate", files=("input",))

    predict = _command(commands, "predict", "answer texts or a file with a trained model")
    predict.add_argument("model", help="folder or .keras file of a fine-tuned model")
    predict.add_argument(
        "texts",
        nargs="*",
        help="texts; of pairs the two texts, for qa the question and the context, for "
        "multiple-choice the text and its choices; for tagging they are split at white space and "
        "punctuation, or into characters if the words of the training were such; or give --input",
    )
    predict.add_argument(
        "--input",
        help="file of the model's task, of any size; multiple-choice: JSON Lines with the keys "
        "text and choices (a list), or SWAG's CSV",
    )
    _add_columns(predict.add_argument_group("columns", _REMEMBERED))
    predict.add_argument(
        "--output",
        help="file for the answers, in the order of the input: .jsonl has a JSON object a line, "
        ".csv is CSV, .json (qa alone) SQuAD's file of predictions, any other ending is "
        "tab-separated; default, and -: standard output",
    )
    _add_null_threshold(predict)
    _add_batch_size(predict)
    predict.set_defaults(run="inference.predict_texts", files=("input",))

    embed = _command(commands, "embed", "write a vector for each text of a file")
    embed.add_argument("model", help="an encoder: name, hf:org/name, folder or .keras file")
    embed.add_argument("--input", required=True, help="TSV, CSV or JSON Lines file")
    embed.add_argument("--output", required=True, help=".npy file for the vectors")
    embed.add_argument(
        "--pooling", choices=("mean", "cls", "max"), help="of an encoder's vectors (default: mean)"
    )
    _add_text_column(embed)
    _add_batch_size(embed)
    embed.set_defaults(run="inference.embed", files=("input",))

    fill = _command(commands, "fill", "candidates for [MASK] in texts")
    fill.add_argument("model", help="a checkpoint with a masked LM head")
    fill.add_argument("texts", nargs="+", help="texts with [MASK]")
    fill.add_argument(
        "--top", type=_positive(int), default=5, help="candidates for each (default: 5)"
    )
    fill.set_defaults(run="inference.fill_blanks")

    vocab = _command(commands, "vocab", "learn a vocabulary from your own text")
    vocab.add_argument(
        "corpus",
        nargs="+",
        help="files, folders, patterns: text, JSON Lines, WikiExtractor's output, MediaWiki dumps",
    )
    vocab.add_argument(
        "--size", type=_positive(int), default=30522, help="pieces, exactly (default: 30522)"
    )
    vocab.add_argument("--output", required=True, help="folder for vocab.txt and its options")
    vocab.add_argument("--cased", action="store_true", help="keep upper case and accents")
    vocab.add_argument(
        "--keep-accents", action="store_true", help="keep accents, and Hangul in syllables"
    )
    vocab.add_argument(
        "--no-split-cjk", action="store_true", help="do not make each ideograph a word"
    )
    vocab.add_argument(
        "--min-frequency", type=_positive(int), default=2, help="of what becomes a piece (2)"
    )
    vocab.add_argument(
        "--max-bytes", type=_positive(int), help="learn from so much of the text, evenly spread"
    )
    vocab.set_defaults(run="pretraining.make_vocabulary")

    records = _command(commands, "records", "tokenize a corpus once, for pretraining")
    records.add_argument("corpus", nargs="+", help="files, folders, patterns, as for vocab")
    records.add_argument(
        "--vocab", required=True, help="folder that vocab wrote, or a model whose vocabulary it is"
    )
    records.add_argument("--output", required=True, help="folder for the records")
    records.add_argument(
        "--held-out", type=_share, default=0.01,
        help="share of the documents kept for evaluation (0.01: of a hundred, one)",
    )  # fmt: skip
    records.add_argument(
        "--workers", type=_positive(int), help="processes that split text (default: the cores)"
    )
    records.set_defaults(run="pretraining.make_records")

    _add_pretrain(_command(commands, "pretrain", "train a BERT from records"))

    convert = _command(commands, "convert", "write a model in another library's format")
    convert.add_argument("model", help="name (see list), hf:org/name, folder, .zip or .keras file")
    convert.add_argument("path", help="empty folder to write into; for keras also a .keras file")
    convert.add_argument(
        "--to", required=True, choices=("keras", "huggingface", "google", "keras_hub")
    )
    convert.add_argument(
        "--drop",
        action="append",
        default=[],
        choices=("pooler", "masked_lm", "next_sentence", "classifier", "span_selector"),
        help="a part to leave out; more than once for several",
    )
    convert.add_argument(
        "--hidden-act",
        choices=("gelu", "gelu_new", "relu"),
        help="write this activation instead of the model's own",
    )
    convert.set_defaults(run="models.convert")

    export = _command(commands, "export", "write a SavedModel that takes strings")
    export.add_argument(
        "model", help="folder or .keras file of a trained model; or an encoder, by name or folder"
    )
    export.add_argument(
        "path",
        help="model folder of TensorFlow Serving; each export is its next version, that of an "
        "encoder a pair, preprocess and encoder",
    )
    export.add_argument(
        "--task",
        default="auto",
        choices=("masked_lm", "next_sentence"),
        help="of a pretrained model, the head that answers (default: the encoder, a pair)",
    )
    export.add_argument(
        "--license", help="of the source weights, for the model card (default: a known name's)"
    )
    export.set_defaults(run="models.export")

    serve = _command(commands, "serve", "try a model by HTTP or on a page, on this machine")
    serve.add_argument(
        "model", help="SavedModels: a model folder, a version or several models; or a trained model"
    )
    serve.add_argument("--name", help="the model's name in URLs (default: its folder's)")
    serve.add_argument("--host", default="127.0.0.1", help="default: 127.0.0.1, this machine alone")
    serve.add_argument("--port", type=int, default=8501, help="default: 8501; 0: any free one")
    serve.add_argument(
        "--max-body", type=_positive(int), default=2**20, help="bytes of a request (default: 1 MiB)"
    )
    serve.add_argument(
        "--max-text", type=_positive(int), default=2**16, help="bytes of a text (default: 64 KiB)"
    )
    serve.add_argument(
        "--max-rows",
        type=_positive(int),
        default=1024,
        help="maximum rows per request (default: 1024)",
    )
    serve.set_defaults(run="serving.serve")
    for name in (*_READS_MODEL, "pretrain", "serve"):
        commands.choices[name].add_argument(
            "--trusted",
            action="store_true",
            help="allow code in the model to run; use only for models you trust",
        )
    return parser


def _add_finetune(parser):
    parser.add_argument("--model", default="minilm", help="encoder to start from (default: minilm)")
    parser.add_argument("--task", choices=TASKS, help="default: classification")
    data = parser.add_argument_group("data")
    data.add_argument(
        "--train",
        help="TSV (quotes mean nothing there), CSV or JSON Lines; for tagging CoNLL columns or "
        "CoNLL-U; for qa SQuAD's JSON; for multiple-choice JSON Lines with the keys text, choices "
        "(a list) and label (the index of the right one, from 0), or SWAG's CSV",
    )
    data.add_argument(
        "--dev",
        help="file to score the model on after each epoch; optional, without it nothing is scored",
    )
    data.add_argument(
        "--glue",
        help="folder of a GLUE task, named as it came (MRPC, SST-2, ...), in place of --train, "
        "--dev, --task and the columns",
    )
    _add_columns(data)
    _add_labels(data)
    data.add_argument("--limit", type=_positive(int), help="train on the first rows only")
    recipe = parser.add_argument_group("recipe; the defaults are the paper's")
    recipe.add_argument("--epochs", type=_positive(int), help="passes over the data (default: 3)")
    _add_batch_size(recipe, default=None)  # one that is given is not searched
    recipe.add_argument("--learning-rate", type=_positive(float), help="its peak (default: 5e-5)")
    recipe.add_argument(
        "--warmup", type=_share, default=0.1, help="share of steps in which it rises (0.1)"
    )
    recipe.add_argument(
        "--max-length",
        type=_length(3),
        help="in pieces, what is longer is cut, or windowed in tagging and qa (128; qa: 384)",
    )
    recipe.add_argument(
        "--stride",
        type=_positive(int),
        help="tagging and qa: pieces by which a window of a long text moves, in training (qa: 128)",
    )
    _add_characters(recipe)
    recipe.add_argument(
        "--class-weight", choices=("balanced",), help="classification: rare labels weigh more"
    )
    recipe.add_argument(
        "--accumulate", type=_positive(int), default=1, help="batches an optimizer step (1)"
    )
    recipe.add_argument("--freeze", action="store_true", help="train the head alone")
    recipe.add_argument(
        "--metric",
        help="which one chooses the best epoch: accuracy, f1 (two labels: that of the one that "
        "sorts last) or macro_f1, mcc; several labels: "
        "micro_f1, macro_f1, exact_match; regression: pearson, spearman, rmse; tagging: f1, "
        "precision, recall, accuracy; qa: f1, exact_match (default: the first that is printed)",
    )
    recipe.add_argument(
        "--patience", type=_positive(int), help="stop after so many epochs without a better one"
    )
    recipe.add_argument(
        "--search",
        action="store_true",
        help="try the paper's 18 recipes (16 or 32 sequences, 5e-5, 3e-5 or 2e-5, 2 to 4 epochs; "
        "what is given stays as given), keep the best; once killed, it begins anew",
    )
    recipe.add_argument(
        "--seed", type=_seed, default=0, help="of head, order and dropout (default: 0)"
    )
    machine = parser.add_argument_group("machine")
    machine.add_argument(
        "--dtype",
        choices=("float32", "mixed_bfloat16", "mixed_float16"),
        help="default: that of --model, float32 for a checkpoint",
    )
    machine.add_argument("--rematerialize", action="store_true", help="less memory, more time")
    machine.add_argument(
        "--fixed-length", action="store_true", help="one shape for all batches, for TPUs"
    )
    machine.add_argument("--tensorboard", metavar="FOLDER", help="write logs for TensorBoard")
    parser.add_argument(
        "--output", required=True, help="folder for model, metrics.json and pictures"
    )
    parser.set_defaults(run="training.finetune", files=("train", "dev"))


def _add_pretrain(parser):
    parser.add_argument("--records", required=True, help="folder that records wrote")
    parser.add_argument(
        "--output", required=True, help="folder for checkpoints, curves and the model"
    )
    model = parser.add_argument_group("model")
    model.add_argument("--model", help="go on from this model, which has the records' vocabulary")
    model.add_argument("--size", choices=SIZES, help="a new model's (base)")
    model.add_argument("--config", help="a new model's bert_config.json, in place of --size")
    recipe = parser.add_argument_group("recipe; the defaults are the paper's")
    recipe.add_argument(
        "--steps", type=_positive(int), default=1_000_000, help="of the optimizer (1000000)"
    )
    recipe.add_argument(
        "--lengths", type=_length(8), nargs="+", default=[128, 512], help="of the phases (128 512)"
    )
    recipe.add_argument(
        "--first-share", type=_share, default=0.9, help="of the steps, in the first phase (0.9)"
    )
    recipe.add_argument(
        "--batch-size", type=_positive(int), default=256,
        help="sequences a step, over all devices and --accumulate (256)",
    )  # fmt: skip
    recipe.add_argument(
        "--max-predictions", type=_positive(int), nargs="+", metavar="N",
        help="masked pieces a sequence, for both lengths or each (15%%)",
    )  # fmt: skip
    recipe.add_argument("--learning-rate", type=_positive(float), default=1e-4, help="peak (1e-4)")
    recipe.add_argument(
        "--warmup-steps", type=int, help="in which the rate rises (10000, at most 10%% of --steps)"
    )
    recipe.add_argument("--optimizer", choices=("adamw", "lamb"), default="adamw")
    recipe.add_argument("--whole-words", action="store_true", help="mask whole words")
    recipe.add_argument(
        "--no-next-sentence", action="store_true", help="single texts, masked LM alone"
    )
    recipe.add_argument("--seed", type=_seed, default=0, help="of everything drawn (0)")
    machine = parser.add_argument_group("machine")
    machine.add_argument(
        "--strategy", default="auto", help="auto, one-device, mirrored, multi-worker, tpu[:NAME]"
    )
    machine.add_argument(
        "--model-parallel", type=_positive(int), default=1,
        help="JAX: devices that share each matrix, for models that one of them cannot hold (1)",
    )  # fmt: skip
    machine.add_argument("--packed", action="store_true", help="several pairs a row: no padding")
    machine.add_argument(
        "--accumulate", type=_positive(int), default=1,
        help="parts in which the batch of a step is computed, to save memory (1)",
    )  # fmt: skip
    machine.add_argument(
        "--dtype", choices=("float32", "mixed_bfloat16", "mixed_float16"), help="default: float32"
    )
    machine.add_argument("--rematerialize", action="store_true", help="less memory, more time")
    run = parser.add_argument_group("the run; given again, the command goes on where it was")
    run.add_argument("--log-every", type=_positive(int), default=100, help="steps (100)")
    run.add_argument("--save-every", type=_positive(int), default=1000, help="steps (1000)")
    run.add_argument("--eval-every", type=_positive(int), help="steps (default: --save-every)")
    run.add_argument("--keep", type=_positive(int), default=3, help="checkpoints kept (3)")
    run.add_argument("--tensorboard", metavar="FOLDER", help="write logs for TensorBoard")
    parser.set_defaults(run="pretraining.pretrain", files=("config",))


# None where nothing is given: `keras_bert.cli` knows the defaults, and what a model was trained on.
def _add_columns(parser):
    _add_text_column(parser)
    parser.add_argument("--text-pair", help="column of the second text, for pairs")
    parser.add_argument("--separator", help="between the labels of one text (default: ,)")
    parser.add_argument("--word", type=int, help="column of the word, for tagging (default: 1)")


def _add_text_column(parser):
    parser.add_argument("--text", help="column of the text (default: text)")
    formats = ("tsv", "csv", "jsonl", "conll", "conllu")
    parser.add_argument("--format", choices=formats, help="of the file; default: by its ending")
    parser.add_argument(
        "--no-header",
        dest="header",
        action="store_const",
        const=False,
        help="columns are then numbers, from 1",
    )


def _add_labels(parser):
    parser.add_argument("--label", help="column of the label (default: label)")
    parser.add_argument(
        "--tag", type=int, help="column of the tag, for tagging (default: -1, the last)"
    )


def _add_characters(parser):
    parser.add_argument(
        "--characters",
        action="store_const",
        const=True,
        help="F1 of questions over characters, as KorQuAD's files have it without being asked",
    )


def _add_null_threshold(parser):
    parser.add_argument(
        "--null-threshold",
        type=float,
        metavar="LOGITS",
        help="how much better than the best answer none must score to be it, where questions may "
        "have none (0)",
    )


def _add_batch_size(parser, default=32):
    parser.add_argument(
        "--batch-size", type=_positive(int), default=default, help="sequences at once (default: 32)"
    )


def _positive(kind):
    def parse(text):
        value = kind(text)
        if not 0 < value < float("inf"):
            raise ValueError
        return value

    parse.__name__ = f"positive {kind.__name__}"
    return parse


def _length(least):
    def parse(text):
        value = int(text)
        if value < least:
            raise ValueError
        return value

    parse.__name__ = f"length (at least {least})"
    return parse


def _seed(text):
    value = int(text)
    if not 0 <= value < 2**32:
        raise ValueError
    return value


_seed.__name__ = "seed (0 to 2^32 - 1)"


def _share(text):
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError
    return value


_share.__name__ = "share (0 to 1)"


def _check_files(args):
    """Raises for an input file that is missing or empty: that should not wait for TensorFlow."""
    for path in filter(None, (getattr(args, name) for name in getattr(args, "files", ()))):
        status = os.stat(path)  # not opened: what a pipe holds can be read only once
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not os.access(path, os.R_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        if stat.S_ISREG(status.st_mode) and not status.st_size:
            raise ValueError(f"{path}: is empty")


@contextlib.contextmanager
def _plain_warnings():
    """Shows warnings as lines for people, and none of TensorFlow's on how it traces."""
    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: print(
                "keras-bert:", " ".join(str(message).split()), file=sys.stderr
            )
            yield
    finally:
        logger.setLevel(level)


def main(argv=None):
    """Runs the command line.

    Args:
        argv: the arguments; default: those of the process.

    Returns:
        The exit status: 0, 1 after an error (one line on stderr), 2 without a command (the help
        is what it prints then), 130 after Ctrl-C.

    Example:

    >>> main(["info", "no-such-model"])
    1
    """
    parser = _parser()
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        parser.prog += f" {args.command}"  # whose help has the options
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if args.command is None:
        parser.print_help()
        return 2
    try:
        if args.command == "list":  # needs no Keras, so there is nothing to wait for
            print(resolve.table())
            return 0
        _check_files(args)
        if args.command in _READS_MODEL:
            resolve.check(args.model)
        module, name = args.run.split(".")
        with quiet_imports():
            commands = importlib.import_module(f"keras_bert.cli.{module}")
            importlib.import_module("tensorflow")  # on JAX and torch a command would later
        with _plain_warnings():
            getattr(commands, name)(args)
    except BrokenPipeError:  # whoever read our output has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError) as error:
        if os.environ.get("KERAS_BERT_TRACEBACK"):
            raise
        message = str(error)
        if isinstance(error, OSError) and error.strerror and error.filename:
            message = f"{error.filename}: {error.strerror}"
        print("keras-bert:", printable(" ".join(message.split())), file=sys.stderr)
        return 1
    except Exception as error:
        # One line for whatever TensorFlow or the machine (memory, say) throws as well.
        if os.environ.get("KERAS_BERT_TRACEBACK"):
            raise
        lines = str(error).strip().splitlines() or ["no reason given"]
        print(
            f"keras-bert: {type(error).__name__}: {printable(lines[0][:300])} "
            "(KERAS_BERT_TRACEBACK=1 shows where)",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt as error:
        print("keras-bert: stopped", *error.args, file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
