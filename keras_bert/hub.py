"""Models by name or path: `load` and `save`."""

import os
import pathlib
import zipfile

import keras

from keras_bert import checkpoints, heads, sources
from keras_bert.encoder import BertEncoder
from keras_bert.layers import initializer, without_initial_weights
from keras_bert.text.preprocessor import Preprocessor

MODEL_FILE = "model.keras"  # the model in a folder that `save` wrote


def load(name, *, task=None, sequence_length=128, dtype=None, rematerialize=False):
    """Loads a model with its weights, its vocabulary and its tokenizer options.

    Args:
        name: a name of `sources.SOURCES`, such as `"minilm"`; `"hf:org/name"` or
            `"hf:org/name@revision"` for a BERT on the Hugging Face Hub; the folder of a
            Hugging Face or Google checkpoint; or a folder or `.keras` file that `save` wrote.
        task: a function of `keras_bert.heads`, such as `"masked_lm"`: the encoder then comes with
            that head and the weights that the checkpoint has for it.
        sequence_length: of `encoder.preprocessor`, at most the encoder's
            `max_position_embeddings`; `None` pads to the longest of the batch.
        dtype: dtype policy of the encoder, such as `"mixed_bfloat16"`.
        rematerialize: trade time for memory in training.

    Returns:
        A `BertEncoder` with a `preprocessor`, with `task` the head's model; or whatever model
        `save` wrote, to which the other arguments do not apply.

    Raises:
        ValueError: no such name or folder, a file that is not as it must be, or a head whose
            weights it lacks.
        OSError: a source that cannot be reached, a file that cannot be read.

    Example:

    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(encoder, folder + "/mine")
    ...     load(folder + "/mine").count_params() == encoder.count_params()
    True
    """
    if task is not None and task not in heads.TASKS:
        raise ValueError(f"task must be one of {', '.join(heads.TASKS)}; received {task!r}")
    path = sources.find(name)
    if path.is_file() or (path / MODEL_FILE).is_file():
        return _load_keras(path if path.is_file() else path / MODEL_FILE, task)
    checkpoint = checkpoints.read(path)
    config = checkpoint.config
    longest = config["max_position_embeddings"]
    if sequence_length is not None and sequence_length < 3:
        raise ValueError(f"sequence_length must be None or at least 3; received {sequence_length}")
    try:
        with without_initial_weights():
            encoder = BertEncoder(**config, dtype=dtype, rematerialize=rematerialize)
            model = encoder if task is None else _head(encoder, task, checkpoint)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    _assign(model, task, checkpoint, path)
    if checkpoint.vocabulary is not None:
        options = dict(checkpoint.tokenizer)
        max_sequence_length = min(options.pop("sequence_length", None) or longest, longest)
        try:
            encoder.preprocessor = Preprocessor(
                checkpoint.vocabulary,
                sequence_length=sequence_length and min(sequence_length, longest),
                max_sequence_length=max_sequence_length,
                **options,
            )
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    return model


# Heads whose dense layer the checkpoints call "classifier"; the others have their own names.
_CLASSIFIERS = ("classifier", "regressor", "tagger", "multiple_choice")
# Heads that do without the pooler, and whose checkpoints often do so too.
_WITHOUT_POOLER = ("tagger", "span_selector", "masked_lm", "embedder")


def _head(encoder, task, checkpoint):
    """The model of a task, with as many classes as the checkpoint has."""
    options = {}
    if task in ("classifier", "tagger"):
        options["labels"] = checkpoint.labels
        if checkpoint.labels is None:
            bias = checkpoint.weights.get("classifier/bias")
            # Without a classifier the number does not matter: to fill it will fail.
            options["labels"] = [str(index) for index in range(2 if bias is None else len(bias))]
    return heads.TASKS[task](encoder, **options)


def _assign(model, task, checkpoint, path):
    """Fills all variables of a model, or fails and names those it cannot fill."""
    group = "classifier" if task in _CLASSIFIERS else task
    variables = {
        variable.path.replace("logits/", f"{group}/", 1): variable
        for variable in model.variables
        if "seed_generator" not in variable.path
    }
    groups = {name.partition("/")[0] for name in checkpoint.weights}
    if task in _WITHOUT_POOLER and "pooler" not in groups:
        for name in [name for name in variables if name.startswith("pooler/")]:
            variable = variables.pop(name)
            stddev = checkpoint.config["initializer_range"] if name.endswith("kernel") else 0.0
            variable.assign(initializer(stddev)(variable.shape))
    used = {name.partition("/")[0] for name in variables}
    optional = checkpoints.canonical.OPTIONAL_GROUPS - used - {"pooler"}
    # An encoder alone without a pooler would have an untrained one: an error here.
    checkpoints.assign(
        variables,
        checkpoint.weights,
        source=str(path),
        ignore=tuple(f"{group}/" for group in optional),
    )


def save(model, path):
    """Saves a model with its vocabulary and labels, so that `load` takes it.

    The state of its optimizer, twice the size of the model, is left out.

    Args:
        model: a `keras.Model`.
        path: a file ending in `.keras`, or a folder; folders that are missing are made.

    Raises:
        OSError: the path cannot be written; what stood there stays as it was.

    Example:

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, folder + "/mine.keras")
    ...     load(folder + "/mine.keras").count_params()
    3
    """
    path = pathlib.Path(path)
    if path.suffix != ".keras":
        path = path / MODEL_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{os.getpid()}.{path.name}")
    optimizer, compiled = getattr(model, "optimizer", None), model.compiled
    try:
        model.optimizer, model.compiled = None, False
        model.save(beside)
        os.replace(beside, path)
    except OSError as error:
        reason = error.strerror or str(error).splitlines()[0]
        raise OSError(f"{path} could not be written: {reason}") from error
    finally:
        model.optimizer, model.compiled = optimizer, compiled
        beside.unlink(missing_ok=True)


def _load_keras(path, task):
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not a model that Keras can read: it is no complete archive")
    try:
        model = keras.saving.load_model(path, compile=False)
        for layer in model._flatten_layers():
            if isinstance(layer, BertEncoder):
                layer.check_vocabulary()  # it is read after the encoder was made
    except (ValueError, TypeError, KeyError, OSError, zipfile.BadZipFile) as error:
        reason = str(error).strip() or repr(error)
        reason = reason.splitlines()[0].partition(" Full object config")[0]
        raise ValueError(f"{path} is not a model that Keras can read: {reason}") from error
    output = heads.find_output(model)
    if task is not None and (output is None or output.task != task):
        has = "no head" if output is None else f"the head {output.task}"
        raise ValueError(f"{path} has {has}, not {task}")
    return model
