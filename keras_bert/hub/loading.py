"""Models by name or path: `load`, `save` and `convert`."""

import concurrent.futures
import dataclasses
import json
import math
import pathlib
import zipfile

import keras

from keras_bert import checkpoints, heads
from keras_bert.encoder import BertEncoder
from keras_bert.hub import conversion, resolve
from keras_bert.runtime.files import atomic_write

MODEL_FILE = "model.keras"  # the model in a folder that `save` wrote
_MOST_PARAMETERS = 2  # of a model, for each number in its file: quantized kernels are packed


def load(
    name,
    *,
    task=None,
    fresh_head=False,
    sequence_length="auto",
    dtype=None,
    rematerialize=None,
    hidden_act=None,
    trusted=False,
    **head_options,
):
    """Loads a model with its weights, its vocabulary and its tokenizer options.

    No code from the model runs unless `trusted=True`; see SECURITY.md for what that means for each
    format. A saved model with a `HubLayer` or a Keras `Lambda` layer contains code.

    Args:
        name: a name that `keras-bert list` prints, such as `"base"`; `"hf:org/name"` or
            `"hf:org/name@revision"` for a BERT on the Hugging Face Hub; `"kaggle:..."`; the folder
            of a checkpoint of any format of `checkpoints.FORMATS`, or a `.zip` of it, here or at
            an `https` address; or a folder or `.keras` file that `save` wrote.
        task: a function of `keras_bert.heads`, such as `"masked_lm"`: the encoder then comes with
            that head and the weights that the checkpoint has for it. `"auto"`: with the head that
            the checkpoint names, if any.
        fresh_head: whether the head starts from random weights, whatever the checkpoint has.
        sequence_length: of `encoder.preprocessor`, at most the encoder's
            `max_position_embeddings`; `None` pads to the longest of the batch. `"auto"`: 128 for a
            checkpoint, and as it was saved for a model that `save` wrote.
        dtype: dtype policy of the encoder, such as `"mixed_bfloat16"`.
        rematerialize: trade time for memory in training. `None`: as it was saved, else `False`.
        hidden_act: an activation to take instead of the checkpoint's. A name such as `"base"`
            has the activation that Google published it with, from whatever source its files come:
            `"gelu"` for the models of 2018, `"gelu_new"` (tanh) for whole word masking and the
            miniatures.
        trusted: whether code in the model may run. Pass `True` only if you trust its author: such
            code can read and write your files.
        **head_options: of the head, such as `labels` with `fresh_head`.

    Returns:
        A `BertEncoder` with a `preprocessor`, with `task` the head's model; or whatever model
        `save` wrote: of one with the heads of pretraining `task` may be either of them. It comes
        as it was saved but for the arguments that are given. Of a fine-tuned model only
        `sequence_length` can be changed.

    Raises:
        ValueError: no such name or folder, a file that is not as it must be, code in a model that
            is not trusted, a head whose weights it lacks, or an argument that does not apply.
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
    if task not in (None, "auto") and task not in heads.TASKS:
        raise ValueError(f"task must be one of {', '.join(heads.TASKS)}; received {task!r}")
    path = resolve.find(name)
    if file := _keras_file(path):
        options = {"dtype": dtype, "rematerialize": rematerialize, "hidden_act": hidden_act}
        options = {key: value for key, value in options.items() if value is not None}
        model = _load_saved(file, task, fresh_head, options, head_options, trusted)
        if sequence_length != "auto":
            _set_length(model, sequence_length, file)
        return model
    return conversion.from_checkpoint(
        checkpoints.read(path),
        task,
        fresh_head=fresh_head,
        sequence_length=128 if sequence_length == "auto" else sequence_length,
        dtype=dtype,
        rematerialize=bool(rematerialize),
        hidden_act=hidden_act or resolve.hidden_act_of(name),
        **head_options,
    )


def save(model, path, *, format="keras"):
    """Saves a model with its vocabulary and labels, so that `load` takes it.

    The state of its optimizer, twice the size of the model, is left out.

    Args:
        model: a `keras.Model`; for another format than "keras" an encoder or a model that a head
            built on one.
        path: a file ending in `.keras`, or a folder; folders that are missing are made. For
            another format than "keras" the folder must be empty.
        format: "keras", or "huggingface", "google" or "keras_hub" for those who go on there.
            Weights that the format has no place for are an error. What only "keras" keeps: that
            a model reads pairs, that a question may have no answer, an embedder's pooling. Names
            of labels, and which head it is, are Hugging Face's too, and its classes without a
            pooler leave out the encoder's; KerasHub has its own dropout of attention.

    Raises:
        ValueError: a model that the format cannot hold: a head, an activation.
        OSError: the path cannot be written; what stood there stays as it was.

    Example:

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, folder + "/mine.keras")
    ...     load(folder + "/mine.keras").count_params()
    3
    """
    path = pathlib.Path(path).expanduser()
    if format != "keras":
        if format not in checkpoints.WRITABLE:
            known = ", ".join(("keras", *checkpoints.WRITABLE))
            raise ValueError(f"format must be one of {known}; received {format!r}")
        checkpoint = conversion.to_checkpoint(model)
        if format == "huggingface" and checkpoint.task in ("masked_lm", "span_selector", "tagger"):
            checkpoint = checkpoint.without({"pooler"})
        checkpoints.write(checkpoint, path, format)
        return
    if path.suffix != ".keras":
        path = path / MODEL_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    optimizer, compiled = getattr(model, "optimizer", None), model.compiled
    try:
        with atomic_write(path) as beside:
            model.optimizer, model.compiled = None, False
            model.save(beside)
    except OSError as error:
        reason = error.strerror or str(error).splitlines()[0]
        raise OSError(f"{path} could not be written: {reason}") from error
    finally:
        model.optimizer, model.compiled = optimizer, compiled


def convert(source, path, *, format, drop=(), hidden_act=None, trusted=False):
    """Writes a checkpoint in another format, with all of its weights and its tokenizer.

    Args:
        source: as `name` of `load`.
        path: as for `save`.
        format: as for `save`.
        drop: parts to leave out for a format that has no place for them, such as
            `"next_sentence"`.
        hidden_act: an activation to write instead of the checkpoint's, see `load`.
        trusted: as for `load`.

    Returns:
        The `checkpoints.Checkpoint` that was written.

    Raises:
        ValueError: no such name, a broken file, or a part that the format cannot hold.
        FileExistsError: the folder holds something.
        OSError: a source that cannot be reached, a path that cannot be written.

    Example:

    >>> import tempfile
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(encoder, folder + "/mine")
    ...     _ = convert(folder + "/mine", folder + "/theirs", format="huggingface")
    ...     checkpoints.detect(folder + "/theirs")
    'huggingface'
    """
    found = resolve.find(source)
    if file := _keras_file(found):
        checkpoint = conversion.to_checkpoint(_load_keras(file, None, trusted))
    else:
        checkpoint = checkpoints.read(found)
        for name in checkpoint.weights:
            checkpoints.canonical.check_numbers(found, name, checkpoint.weights[name])
        hidden_act = hidden_act or resolve.hidden_act_of(source)
    if hidden_act is not None:
        config = {**checkpoint.config, "hidden_act": hidden_act}
        checkpoint = dataclasses.replace(checkpoint, config=config)
    checkpoint = checkpoint.without(drop)
    if format == "keras":
        task = checkpoint.task or _task_of_parts(checkpoint)
        save(conversion.from_checkpoint(checkpoint, task), path)
    else:
        checkpoints.write(checkpoint, path, format)
    return checkpoint


def _task_of_parts(checkpoint):
    """The head that takes all of a checkpoint's parts, for one that does not name it."""
    parts = checkpoint.groups - {"pooler"}
    if len(parts) < 2:
        return next(iter(parts), None)
    if parts == {"masked_lm", "next_sentence"}:
        return "pretraining"
    raise ValueError(
        f"{checkpoint.path}: no head takes all of {', '.join(sorted(parts))}; drop some of them"
    )


def _keras_file(path):
    """The `.keras` file that a path is or holds; `None` for a checkpoint's folder."""
    return next((file for file in (path, path / MODEL_FILE) if file.is_file()), None)


def _load_keras(path, task, trusted):
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not a model that Keras can read: it is no complete archive")
    try:
        config, stored = checkpoints.keras_file.check(path)
        if not trusted and checkpoints.keras_file.has_code(config):
            raise ValueError(
                "it contains code (Lambda, a function or an object of KerasHub). If you trust its "
                "author, pass trusted=True, or --trusted on the command line"
            )
        if not trusted:
            _check_parameters(config, stored)
        model = keras.saving.load_model(path, compile=False, safe_mode=not trusted)
        for layer in model._flatten_layers():
            if isinstance(layer, BertEncoder):
                layer.check_vocabulary()  # it is read after the encoder was made
        for weight in model.weights:
            if "float" in keras.backend.standardize_dtype(weight.dtype):
                value = keras.ops.convert_to_numpy(weight)
                checkpoints.canonical.check_numbers(path, weight.path, value)
    except Exception as error:  # a broken file leads Keras to exceptions of any kind
        reason = str(error).partition(" Full object config")[0].strip().partition("\n")[0]
        reason = checkpoints.canonical.printable(reason or type(error).__name__, 500)
        raise ValueError(f"{path} is not a model that Keras can read: {reason}") from error
    has = heads.find_task(model)
    if task in (None, "auto", has):
        return model
    if has == "pretraining" and task in heads.OF_PRETRAINING:
        return _half_of(model, task)
    raise ValueError(
        f"{path} has {'no head' if has is None else f'the head {has}'}, not {task}; "
        "fresh_head=True starts one from random weights"
    )


def _check_parameters(config, stored):
    """Raise an error if the model of a config has far more parameters than its file.

    The model is built once without memory for its variables, which is fast. This runs in its own
    thread because Keras stores uninitialized variables per thread.
    """

    def without_compile(item):
        item.pop("compile_config", None)
        return item

    plain = json.loads(json.dumps(config), object_hook=without_compile)

    def count():
        with keras.StatelessScope(initialize_variables=False):
            model = keras.saving.deserialize_keras_object(plain)
        return sum(math.prod(variable.shape) for variable in model.variables)

    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        parameters = thread.submit(count).result()
    if parameters > _MOST_PARAMETERS * stored + 1000:
        raise ValueError(
            f"the config declares {parameters:.3g} parameters, but the file has {stored:.3g}"
        )


def _load_saved(path, task, fresh_head, options, head_options, trusted):
    """A model that `save` wrote, with other options of the encoder, or with a fresh head."""
    if not fresh_head and head_options:
        raise ValueError(f"{path}: {next(iter(head_options))} is an option of a fresh_head")
    if fresh_head and task in (None, "auto"):
        raise ValueError("fresh_head is an option of a head: give the task too")
    model = _load_keras(path, None if fresh_head else task, trusted)
    if not fresh_head and not options:
        return model
    encoder = heads.find_encoder(model)
    has = heads.find_task(model)
    if not fresh_head and model is not encoder and has not in heads.OF_PRETRAINING:
        raise ValueError(
            f"{path} has {'a head of its own' if has is None else f'the head {has}'}, which comes "
            f"as it was saved: {', '.join(options)} cannot be given"
        )
    other = encoder.with_options(**options) if options else encoder
    if fresh_head:
        return heads.TASKS[task](other, **head_options)
    if model is encoder:
        return other
    head = heads.TASKS[has](other)
    head.set_weights(model.get_weights())
    return head


def _set_length(model, sequence_length, path):
    encoder = heads.find_encoder(model)
    if encoder.preprocessor is None:
        raise ValueError(f"{path} has no preprocessor for the sequence_length")
    encoder.preprocessor.sequence_length = sequence_length
    if sequence_length is not None:
        longest = encoder.bert_config["max_position_embeddings"]
        encoder.preprocessor.sequence_length = min(sequence_length, longest)


def _half_of(model, task):
    """One of the two heads of a pretraining model, on the same encoder."""
    half = heads.TASKS[task](heads.find_encoder(model))
    half.get_layer(task).set_weights(model.get_layer(task).get_weights())
    return half
