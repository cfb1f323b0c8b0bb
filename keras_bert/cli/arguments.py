"""Functions on parsed arguments that several commands need."""

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
