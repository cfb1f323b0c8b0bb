"""Load, save and convert models by name or path."""

import os
import pathlib
import warnings
from collections.abc import Sequence
from typing import Any

import keras

from keras_bert import checkpoints, heads, provenance
from keras_bert.checkpoints import peft
from keras_bert.checkpoints.huggingface_heads import task_of_groups
from keras_bert.hub import conversion, keras_models, named_source, resolve
from keras_bert.provenance import MODEL_FILE
from keras_bert.runtime import distribution
from keras_bert.runtime.arguments import as_output_path, check_one_of
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks import registry


def load(
    name: str | os.PathLike[str],
    *,
    task: str | None = None,
    format: str | None = None,
    fresh_head: bool = False,
    sequence_length: int | str | None = "auto",
    dtype: Any = None,
    rematerialize: bool | None = None,
    hidden_act: str | None = None,
    pooling: str | None = None,
    ignore: Sequence[str] = (),
    trusted: bool = False,
    **head_options: Any,
) -> keras.Model:
    """Load a model with its weights, its vocabulary and its tokenizer options.

    No code from the model runs unless `trusted=True`. Code is everything but plain layers: a
    `HubLayer`, a Keras `Lambda` layer, or a class of your own. SECURITY.md describes the rule for
    each format.

    Args:
        name: One of these:

            - A name that `keras-bert list` prints, such as `"base"`.
            - `"hf:org/name"` or `"hf:org/name@revision"` for a BERT on the Hugging Face Hub.
            - `"kaggle:owner/model/framework/variation"` for a model on Kaggle.
            - The folder of a checkpoint in a format of `checkpoints.FORMATS`, or a `.zip` of it,
              as a path or an `https` address.
            - A folder or a `.keras` file that `save` wrote.
        task: A task, such as `"masked_tokens"`. The model then has the head of the task,
            with the weights of the checkpoint. `"auto"` uses the head that the checkpoint names,
            if any. Without a task, every checkpoint gives its encoder, with a warning if its head
            cannot be read. An encoder without a pooler gets a new one. A head that reads the new
            pooler warns.
        format: `"keras"` or a key of `checkpoints.FORMATS`, for a folder with several formats.
            By default, a `.keras` file comes first, and two other formats are an error.
        fresh_head: If `True`, initialize the head with random weights and ignore those of the
            checkpoint.
        sequence_length: Sequence length of `encoder.preprocessor`, at most the encoder's
            `max_position_embeddings`. `None` pads to the longest text of a batch. `"auto"` means
            128, or that maximum if it is smaller, for a checkpoint, and the saved length for a
            model that `save` wrote.
        dtype: Dtype policy of the encoder, such as `"mixed_bfloat16"`. `"auto"` is the fastest for
            training on this device: 16 bits on GPUs, on TPUs, and with TensorFlow on processors
            with AVX512-BF16 or AMX. A saved model with a head keeps its dtype with `"auto"`.
        rematerialize: If `True`, recompute activations in the backward pass to save memory.
            `None` means the saved value, or `False` for a checkpoint.
        hidden_act: Activation that replaces the checkpoint's. A named model such as `"base"` has
            the activation with which Google published it: `"gelu"` for the models of 2018,
            `"gelu_new"` (tanh) for whole word masking and the miniatures.
        pooling: Pooling of the encoder for embeddings, such as `"mean"` or `"cls"`. `None` means
            that of the model, if it is known.
        ignore: Patterns of the tensors of a checkpoint to leave out, such as `["cls.chain.*"]`.
            Otherwise, tensors that BERT does not have are an error with a task, and inside the
            encoder.
        trusted: Use `True` only if you trust the author: the model's code can then read and write
            your files.
        **head_options: Options of the head, such as `labels` with `fresh_head`, `pairs=True` for a
            classifier of pairs, or `no_answer=True` for a model that was trained on SQuAD 2.

    Returns:
        A `BertEncoder` with a `preprocessor`; with `task`, the model of that head; or the model
        that `save` wrote. For a saved pretraining model, `task` may be either of its two heads.
        Only the encoder and the pretraining models accept other options than `sequence_length`
        after they were saved.

    Raises:
        ValueError: The name is unknown, a file is damaged, the model contains code and is not
            trusted, weights of the head are missing, or an argument does not apply.
        OSError: No source can be reached, or a file cannot be read.

    Example:

    >>> from keras_bert import BertEncoder
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(encoder, folder + "/mine")
    ...     load(folder + "/mine").count_params() == encoder.count_params()
    True
    """
    of_variant: dict = {}
    plain_task = task
    if task not in (None, "auto"):
        of_variant = registry.head_options(task)
        plain_task = registry.by_name(task).name
    _check_dtype(dtype)
    path = resolve.find(name)
    file = _keras_file(path, ignore, format)
    options = {
        "dtype": dtype,
        "rematerialize": rematerialize,
        "hidden_act": hidden_act,
        "pooling": pooling,
    }
    options = {key: value for key, value in options.items() if value is not None}
    if file:
        if fresh_head:
            head_options = of_variant | head_options
        model = keras_models.load(file, plain_task, fresh_head, options, head_options, trusted)
        if of_variant:
            registry.check_variant(str(task), heads.find_output(model), file)
        metrics = provenance.read_metrics(file)
        if metrics and not fresh_head:
            provenance.remember_metrics(model, metrics)
        if sequence_length != "auto":
            _set_length(model, sequence_length, file)
    else:
        if dtype == "auto":
            options["dtype"] = distribution.fastest_dtype()
        model = conversion.from_checkpoint(
            checkpoints.read(
                path,
                ignore,
                needs_head=task is not None and not fresh_head,
                find_base=resolve.find_base,
                format=format,
            ),
            task,
            fresh_head=fresh_head,
            sequence_length=sequence_length,
            **(named_source.published_options(name) | options),
            **head_options,
        )
    # For the model's card, which does not name folders of this machine.
    source = pathlib.Path(name).resolve().name if os.path.exists(name) else str(name)
    provenance.remember_source(model, source, named_source.license_of(name), os.fspath(name))
    return model


def _check_dtype(dtype):
    """Raise an error for a dtype policy that Keras does not know."""
    if dtype in (None, "auto"):
        return
    try:
        keras.dtype_policies.get(dtype)
    except Exception as error:  # Keras raises several types
        raise ValueError(
            "dtype must be a dtype policy, such as float32 or mixed_bfloat16, or auto; received "
            f"{shown(dtype)}"
        ) from error


_OF_TRANSFORMERS = ("huggingface", "sentence_transformers", "peft")  # formats with its classes
_WITH_POOLER = ("keras_hub",)  # formats whose models always have one
# Extensions of files that `save` does not write.
_OTHER_FILES = (".h5", ".hdf5", ".pt", ".pth", ".bin", ".safetensors", ".onnx", ".pb", ".json")


def save(model: keras.Model, path: str | os.PathLike[str], *, format: str = "keras") -> None:
    """Save a model with its vocabulary and labels, so that `load` can read it.

    The optimizer's state, which is twice as large as the model, is not saved.

    Args:
        model: A `keras.Model`. Formats other than `"keras"` need an encoder or a model that a
            function of `keras_bert.heads` built.
        path: A file with the suffix `.keras`, or a folder. Missing folders are created. Formats
            other than `"keras"` need an empty folder. Known metrics are saved, too, for the
            model card: in the `.keras` file, and in a folder also as `metrics.json`.
        format: `"keras"`, `"huggingface"`, `"google"`, `"keras_hub"`, `"peft"` or
            `"sentence_transformers"`, which is for embedders, sparse embedders, rerankers and
            encoders with a pooling. `"peft"` holds only the head and what LoRA trained; the other
            weights must be those of the model that `load` read. The folder is read back before it
            gets its name. If an option or a weight would differ, the format cannot hold the model,
            and the error names what it loses, such as `pooling` or `prompts`. A warning names
            options that `load` needs again, such as `labels` or `no_answer`. Only `"keras"` keeps
            frozen layers. Hugging Face's classes without a pooler drop the pooler of the encoder. A
            pooler with random weights, which the checkpoint did not have, is left out. A warning
            says if `load` needs `trusted=True`, as for a layer of your own.

    Raises:
        ValueError: The format cannot hold the head, the activation or another option.
        OSError: The path cannot be written. An existing file is unchanged.

    Example:

    >>> inputs = keras.Input((2,))
    >>> model = keras.Model(inputs, keras.layers.Dense(1)(inputs))
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, folder + "/mine.keras")
    ...     load(folder + "/mine.keras").count_params()
    3
    """
    if not isinstance(model, keras.Model):
        raise ValueError(f"save takes a keras.Model; received {shown(model)}")
    path = as_output_path("path", path)
    if path.suffix.lower() in _OTHER_FILES:
        raise ValueError(f"path must be a folder or a .keras file; received {shown(str(path))}")
    if format == "keras":
        keras_models.save(model, path)
        return
    if format not in (*checkpoints.WRITABLE, peft.FORMAT):
        known = ", ".join(("keras", *checkpoints.WRITABLE, peft.FORMAT))
        raise ValueError(f"format must be one of {known}; received {format!r}")
    checkpoint = _without_unused_pooler(conversion.to_checkpoint(model), model, format)
    if format == peft.FORMAT:
        from keras_bert.hub import lora_adapter

        _warn_of_lost(lora_adapter.save(model, checkpoint, path), format)
    else:
        _warn_of_lost(checkpoints.write(checkpoint, path, format), format)


def _without_unused_pooler(checkpoint, model, format):
    """Return the checkpoint without a pooler that is random, or that the format has no place for.

    A head that reads the pooler keeps it.
    """
    if "pooler" not in checkpoint.groups:
        return checkpoint
    task = checkpoint.spec.head.task
    is_used = task is not None and registry.by_name(task).uses_pooler
    is_random = not is_used and heads.find_encoder(model).fresh_pooler
    if is_random and format in _WITH_POOLER:
        warnings.warn(
            "the pooler is saved with random weights, because the checkpoint had none, and the "
            f"format {format!r} has no model without a pooler",
            stacklevel=level_of_caller(),
        )
        return checkpoint
    # transformers' classes without a pooler cannot read one.
    has_no_place = format in _OF_TRANSFORMERS and _drops_pooler(task)
    return checkpoint.without({"pooler"}) if is_random or has_no_place else checkpoint


def _warn_of_lost(lost, format):
    """Warn of options that a format loses."""
    if lost:
        warnings.warn(
            f"the format {format!r} does not keep {', '.join(lost)}. Set this again when you "
            "load the model, or use format='keras' (--to keras)",
            stacklevel=level_of_caller(),
        )


def convert(
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    format: str,
    drop: Sequence[str] = (),
    hidden_act: str | None = None,
    ignore: Sequence[str] = (),
    source_format: str | None = None,
    trusted: bool = False,
) -> checkpoints.Checkpoint:
    """Write a checkpoint in another format, with all of its weights and its tokenizer.

    Args:
        source: As `name` of `load`.
        path: As for `save`.
        format: `"keras"`, or one of `checkpoints.WRITABLE`.
        drop: Parts to leave out because the format cannot hold them, such as
            `["next_sentence"]`.
        hidden_act: Activation that replaces the checkpoint's; see `load`.
        ignore: As for `load`.
        source_format: As `format` of `load`.
        trusted: As for `load`.

    Returns:
        The `checkpoints.Checkpoint` that was written.

    Raises:
        ValueError: The name is unknown, a file is damaged, or the format cannot hold a part.
        FileExistsError: The folder is not empty.
        OSError: No source can be reached, or the path cannot be written.

    Example:

    >>> import tempfile
    >>> from keras_bert import BertEncoder
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(encoder, folder + "/mine")
    ...     _ = convert(folder + "/mine", folder + "/theirs", format="huggingface")
    ...     checkpoints.detect(folder + "/theirs")
    'huggingface'
    """
    check_one_of("format", format, ("keras", *checkpoints.WRITABLE))
    source_path = resolve.find(source)
    file = _keras_file(source_path, ignore, source_format)
    if file:
        model = keras_models.load_model(file, None, trusted)
        checkpoint = conversion.to_checkpoint(model)
    else:
        checkpoint = checkpoints.read(
            source_path, ignore, find_base=resolve.find_base, format=source_format
        )
        for name in checkpoint.weights:
            checkpoints.canonical.check_numbers(source_path, name, checkpoint.weights[name])
        hidden_act = hidden_act or named_source.published_options(source).get("hidden_act")
    checkpoint = checkpoint.with_activation(hidden_act).without(drop)
    if file:
        checkpoint = _without_unused_pooler(checkpoint, model, format)
    if format != checkpoint.format:
        _warn_of_guess(checkpoint)
    if format == "keras":
        task = checkpoint.spec.head.task or task_of_groups(checkpoint)
        save(conversion.from_checkpoint(checkpoint, task), path)
    else:
        _warn_of_lost(checkpoints.write(checkpoint, path, format), format)
    return checkpoint


def _warn_of_guess(checkpoint):
    """Warn if a checkpoint does not say what its classifier is for."""
    if checkpoint.spec.head.task is None and "classifier" in checkpoint.groups:
        warnings.warn(
            f"{checkpoint.path} does not say what its classifier is for, so it is converted as "
            f"{task_of_groups(checkpoint)}. For another task, load it with this task, and save "
            "that model",
            stacklevel=level_of_caller(),
        )


def _drops_pooler(task):
    """Return True for a task whose classes in transformers have no pooler."""
    if task is None:
        return False
    head = registry.by_name(task)
    return not head.uses_pooler and not head.reads_encoders


def _keras_file(path, ignore, format):
    """Return the `.keras` file that a path is or contains, or `None` for a checkpoint."""
    check_one_of("format", format, (None, "keras", *checkpoints.FORMATS))
    if isinstance(ignore, str):  # a list of letters would ignore nothing
        raise ValueError(f'ignore must be a list of patterns, as in ["{ignore:.80}"]')
    file = path if path.is_file() else path / MODEL_FILE
    if format not in (None, "keras") or not file.is_file():
        return None
    if ignore:
        raise ValueError(f"{file}: ignore is for checkpoints; remove it for a .keras file")
    return file


def _set_length(model, sequence_length, path):
    """Set the sequence length of the preprocessor of a saved model."""
    encoder = heads.find_encoder(model)
    if encoder.preprocessor is None:
        raise ValueError(f"{path} has no preprocessor; remove sequence_length")
    max_positions = encoder.bert_config["max_position_embeddings"]
    conversion.check_sequence_length(sequence_length, max_positions)
    encoder.preprocessor.sequence_length = sequence_length
