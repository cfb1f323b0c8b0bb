"""What several commands make of their arguments."""

import json
import pathlib

import keras_bert
from keras_bert.hub import loading
from keras_bert.training import report


def encoder_options(args):
    """What the command line asks of an encoder, whatever it was saved with."""
    options = {"dtype": args.dtype, "rematerialize": args.rematerialize}
    return {name: value for name, value in options.items() if value}


def load(args, **options):
    """The model that the command line names, with the options of `keras_bert.load`."""
    return keras_bert.load(args.model, trusted=args.trusted, **options)


def metrics_of(model):
    """What `finetune` left in metrics.json beside a model; nothing where there is none."""
    path = pathlib.Path(model)
    folder = path.parent if path.name == loading.MODEL_FILE else path
    try:
        metrics = json.loads((folder / report.METRICS_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # none, or another program's
        return {}
    return metrics if isinstance(metrics, dict) else {}


def check_log_folder(path):
    """Raises for a folder, or `None`, that is a file or lies in one."""
    for part in (pathlib.Path(path), *pathlib.Path(path).parents) if path else ():
        if part.exists() and not part.is_dir():
            raise ValueError(f"{path}: must be a folder; {part} is a file")


def check_folder(path):
    """Raises for an output, or `None`, that has no folder to lie in."""
    if path and not pathlib.Path(path).absolute().parent.is_dir():
        raise ValueError(f"{path}: its folder does not exist")
