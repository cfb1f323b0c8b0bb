"""Functions on parsed arguments that several commands need."""

import pathlib

import keras_bert
from keras_bert import provenance
from keras_bert.hub import loading


def encoder_options(args):
    """Return the options of an encoder that the command line sets, as a dict."""
    options = {"dtype": args.dtype, "rematerialize": args.rematerialize}
    return {name: value for name, value in options.items() if value}


def load(args, **options):
    """Load the model that the command line names, with options of `keras_bert.load`."""
    return keras_bert.load(args.model, trusted=args.trusted, **options)


def metrics_of(model):
    """Return the contents of metrics.json beside a model, or an empty dict."""
    path = pathlib.Path(model)
    return provenance.read_metrics(path.parent if path.name == loading.MODEL_FILE else path)


def check_log_folder(path):
    """Raise an error if a log folder (or `None`) is a file or lies below one."""
    for part in (pathlib.Path(path), *pathlib.Path(path).parents) if path else ():
        if part.exists() and not part.is_dir():
            raise ValueError(f"{path} must be a folder, but {part} is a file")


def check_folder(path):
    """Raise an error if the folder of an output (or `None`) does not exist."""
    if path and not pathlib.Path(path).absolute().parent.is_dir():
        raise ValueError(f"the folder of {path} does not exist. Create it first")
