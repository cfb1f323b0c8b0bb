"""Functions on parsed arguments that several commands need."""

import pathlib

import keras

import keras_bert
from keras_bert.runtime import distribution
from keras_bert.runtime.terminal import print_line


def encoder_options(args):
    """Return the options of an encoder that the command line sets, as a dict."""
    options = {"dtype": dtype_of(args), "rematerialize": args.rematerialize}
    return {name: value for name, value in options.items() if value}


def dtype_of(args):
    """Return the dtype policy of the command line; print the choice for "auto"."""
    if args.dtype != "auto":
        return args.dtype
    has_tpu = keras.backend.backend() != "torch" and any(  # torch has no keras.distribution
        device.startswith("tpu") for device in keras.distribution.list_devices()
    )
    is_faster = has_tpu or distribution.is_faster_in_bfloat16()
    dtype = "mixed_bfloat16" if is_faster else "float32"
    print_line(f"--dtype auto: {dtype}")
    return dtype


def load(args, **options):
    """Load the model that the command line names, with options of `keras_bert.load`."""
    return keras_bert.load(args.model, trusted=args.trusted, **options)


def check_log_folder(path):
    """Raise an error if a log folder (or `None`) is a file or lies below one."""
    for part in (pathlib.Path(path), *pathlib.Path(path).parents) if path else ():
        if part.exists() and not part.is_dir():
            raise ValueError(f"{path} cannot be a folder, because {part} is a file")


def check_folder(path):
    """Raise an error if the folder of an output (or `None`) does not exist."""
    if path and not pathlib.Path(path).absolute().parent.is_dir():
        raise ValueError(f"the folder of {path} does not exist. Create it first")


def check_output(path, input):
    """Raise an error if the output (or `None`) cannot be written, or is the input."""
    check_folder(path)
    if path and input and pathlib.Path(path).is_file() and pathlib.Path(path).samefile(input):
        raise ValueError(f"the output must not be the input; received {path} for both")
