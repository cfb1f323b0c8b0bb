"""Export of models as SavedModels, ONNX folders or OpenVINO folders."""

import dataclasses
import functools
import importlib
import os
import pathlib
import typing
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras

from keras_bert import provenance
from keras_bert.encoder import BertEncoder
from keras_bert.exporting import model_comparison
from keras_bert.model_structure import find_encoder, find_output, path_of_diverged_weight
from keras_bert.runtime.arguments import as_output_path, check_one_of
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.files import temporary_folder
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks import registry
from keras_bert.tasks.predictor import Predictor


@dataclasses.dataclass(frozen=True)
class Target:
    """A format of `export`.

    Attributes:
        module: Module of `exporting`. Its function `folders` returns the list of
            `ExportedFolder`s that a `Job` writes.
        options: Values of `precision` and `quantize`; without a name, it must be `None`.
        needs_tensorflow: True if only TensorFlow's backend can write it.
    """

    module: str
    options: Mapping[str, tuple[str, ...]]
    needs_tensorflow: bool = False


_INT8 = {"quantize": ("int8",)}
TARGETS = {
    "saved_model": Target(
        "saved_model", {"precision": ("float32", "bfloat16")}, needs_tensorflow=True
    ),
    "onnx": Target("onnx_export", _INT8),
    "openvino": Target("openvino_export", _INT8),
    "litert": Target("litert_export", _INT8, needs_tensorflow=True),
}
FORMATS = tuple(TARGETS)


@dataclasses.dataclass(frozen=True)
class Job:
    """One call of `export`; the arguments are checked."""

    model: keras.Model
    path: pathlib.Path
    format: str
    precision: str | None
    quantize: str | None
    dev: Any
    metrics: Mapping[str, float] | None
    license: str | None

    @functools.cached_property
    def task(self):
        """The `Task` of the model, or `None`."""
        return registry.find(self.model)

    @property
    def output(self):
        """The `layers.TaskOutput` of the model, or `None`."""
        return find_output(self.model)

    @property
    def encoder(self):
        return find_encoder(self.model)

    @property
    def takes_strings(self):
        return any(item.dtype == "string" for item in self.model.inputs)

    @property
    def is_pair(self):
        """True for an encoder or a pretraining model, whose SavedModels are TF-Hub's pair."""
        if isinstance(self.model, BertEncoder):
            return True
        has_both_heads = isinstance(self.model.output, dict)
        return has_both_heads and self.task is not None and self.task.is_pretraining

    @property
    def has_pipeline(self):
        """True if a pipeline can compute with the model."""
        if self.task is None or self.takes_strings:
            return False
        return self.encoder.preprocessor is not None


class ExportedFolder(typing.Protocol):
    """A folder that an export writes, in the order of the methods.

    Attributes:
        parent: The folder that it is written into, under a temporary name.
    """

    parent: pathlib.Path

    def write(self, folder: pathlib.Path) -> None:
        """Write the model into the temporary folder."""

    def samples(self, folder: pathlib.Path) -> Iterable[model_comparison.Sample]:
        """Open the model, and return the samples on which it is compared."""

    def predictors(self, folder: pathlib.Path) -> Sequence[Predictor]:
        """Return the predictors in lower precision and in float32, which are compared on `dev`."""

    def finish(
        self, folder: pathlib.Path, agreement: model_comparison.Agreement | None
    ) -> pathlib.Path:
        """Write the card, and move the folder to its place; return its path."""


def export(
    model: keras.Model,
    path: str | os.PathLike,
    *,
    format: str = "saved_model",
    precision: str | None = None,
    quantize: str | None = None,
    dev: Any = None,
    metrics: Mapping[str, float] | None = None,
    license: str | None = None,
) -> pathlib.Path:
    """Export a model as SavedModels that take strings, or as an ONNX or OpenVINO graph of ids.

    - A model with a head of `keras_bert.heads` becomes the next version in the model folder
      `path`, with two signatures: `serving_default` takes strings, `ids` takes the inputs of the
      model. The docstrings in `serving.py` of each task's folder list them.
    - A functional model that starts at a string `keras.Input` becomes the next version too. Its
      signature `serving_default` has the names of the model's inputs and outputs.
    - If `serving_default` has one output, the SavedModel can also be called with the inputs, as
      `hub.load(path)(texts)`, and returns a tensor.
    - A `BertEncoder`, or a model of `heads.pretraining`, becomes two reusable SavedModels with
      the interface of TF-Hub's BERT models, `path/preprocess/1` and `path/encoder/1`. See
      `keras_bert.exporting.tfhub`.

    `export` also writes warm-up requests into the version, and next to it the files that
    TensorFlow Serving needs (`models.config`, `batching.config`, `compose.yaml`) and a model card,
    `README.md`. Existing files stay as they are, except for a card that you have not edited.

    Texts are padded to the longest of their batch and truncated at the preprocessor's
    `max_sequence_length`. Only the TensorFlow backend can export SavedModels. A SavedModel is a
    program: `keras-bert serve` runs it with `--trusted`, and `HubLayer` with `trusted=True`.

    With `format="onnx"` or `"openvino"`, the folder `path` gets a graph in the layout of Hugging
    Face, `onnx/model.onnx` or `openvino/openvino_model.xml`, with the files that optimum,
    sentence-transformers, fastembed, transformers.js and text-embeddings-inference read. Its inputs
    are `input_ids`, `attention_mask` and `token_type_ids`, int64 (batch_size, sequence_length).
    These formats need the extra of the same name and work on every backend.
    `"litert"` writes a graph of ids for phones, `litert/model.tflite`, and works on the TensorFlow
    backend.

    Before it returns, `export` opens the result with the library that serves it, and compares its
    outputs with those of the model.

    Args:
        model: The trained `keras.Model`.
        path: Model folder. The version is written to `path/1`, or to the number after the highest
            one there. For the other formats, a new or empty folder.
        format: `"saved_model"`, `"onnx"`, `"openvino"` or `"litert"`.
        precision: Dtype of the matmuls of a SavedModel: `"float32"`, or `"bfloat16"`, which halves
            the size and is fast on CPUs with AVX512-BF16 or AMX. `None` keeps the model's dtype.
        quantize: `"int8"` for ONNX, OpenVINO and LiteRT. ONNX and LiteRT: matmuls and embeddings,
            whose activations are scaled in each call. OpenVINO: matmuls, with scales that nncf
            computes from `dev`, which is faster and more accurate.
        dev: Data of the task, on which a bfloat16 or int8 export is compared with float32. The
            model card states the equal answers, the time and, with labels, the main metric of the
            task; more than 1 lost point is a warning.
        metrics: Dict for the model card, such as `keras_bert.finetune` returns. `None`: the metrics
            of the run of `finetune`, or of the file or folder that was loaded, unless the
            weights have changed since. `{}`: none.
        license: License of the weights that training started from, for the model card. `None`: that
            of the name given to `load`, if known. For a saved model, the card quotes its
            metrics.

    Returns:
        `pathlib.Path` of the version's folder, of the encoder's version, or of the folder `path`.
        It appears when it is complete.

    Raises:
        ValueError: If a SavedModel or LiteRT is exported on another backend than TensorFlow; the
            encoder of a SavedModel has no vocabulary; a weight is NaN or infinite; the model does
            not fit the format or the precision; an argument has an unknown value or does not apply
            to the format; `dev` is not data of the task with labels that the model knows; or the
            result computes something else than the model.
        FileExistsError: If the folder of another format than a SavedModel is not empty.
        OSError: If the folder cannot be written. Incomplete files are removed.
        ImportError: If the extra of the format is not installed.

    Example:

    >>> import tempfile
    >>> import tensorflow as tf
    >>> import keras_bert
    >>> preprocessor = keras_bert.Preprocessor(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good"])
    >>> encoder = keras_bert.BertEncoder(
    ...     vocab_size=5, hidden_size=4, num_hidden_layers=1, num_attention_heads=2,
    ...     intermediate_size=8, preprocessor=preprocessor)
    >>> model = keras_bert.heads.classifier(encoder, labels=["no", "yes"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     served = tf.saved_model.load(str(export(model, folder)))
    ...     answer = served.signatures["serving_default"](text=tf.constant(["good"]))
    >>> sorted(answer), answer["probabilities"].shape
    (['label', 'probabilities', 'score'], TensorShape([1, 2]))
    """
    if not isinstance(model, keras.Model):
        raise ValueError(
            f"export takes a keras.Model, such as pipeline.model; received {shown(model)}"
        )
    _check_weights(model)
    _check_card(metrics, license)
    path = as_output_path("path", path).expanduser()
    check_one_of("format", format, FORMATS)
    _check_options(format, precision=precision, quantize=quantize)
    known_metrics, known_license = provenance.known_metrics_and_license(model)
    metrics = known_metrics if metrics is None else metrics
    job = Job(model, path, format, precision, quantize, dev, metrics, license or known_license)
    model_comparison.check_dev(job)
    target = importlib.import_module(f"{__package__}.{TARGETS[format].module}")
    for exported in target.folders(job):
        written = _write(exported, job)
    return written


def _write(exported: ExportedFolder, job: Job) -> pathlib.Path:
    """Write a folder beside its place, compare it with the model, and move it; return its path."""
    exported.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(exported.parent, ".writing-") as folder:
        exported.write(folder)
        for sample in exported.samples(folder):
            model_comparison.check(sample, job.model, job.precision)
        agreement = None
        if job.dev is not None:
            actual, expected = exported.predictors(folder)
            precision = job.quantize or job.precision
            agreement = model_comparison.on_dev(actual, expected, job.dev, precision)
        return exported.finish(folder, agreement)


def _check_weights(model):
    path_of_weight = path_of_diverged_weight(model.variables)
    if path_of_weight is not None:
        raise ValueError(
            f"{model.name!r} cannot be exported, because its weight {path_of_weight} holds NaN or "
            "infinity. Load or train the model again"
        )
    if isinstance(model, BertEncoder) and model.fresh_pooler:
        warnings.warn(
            "the pooled_output of this export has random weights, because the checkpoint has no "
            "pooler. Use its sequence_output",
            stacklevel=level_of_caller(),
        )


def _check_card(metrics, license):
    """Check what goes into the model card, which is written last."""
    is_dict = isinstance(metrics, Mapping) and all(isinstance(name, str) for name in metrics)
    if metrics is not None and not is_dict:
        raise ValueError(
            "metrics must be a dict of names, such as keras_bert.finetune returns; received "
            f"{shown(metrics)}"
        )
    if license is not None and not isinstance(license, str):
        raise ValueError(f"license must be a name, such as 'apache-2.0'; received {shown(license)}")


def _check_options(format, **options):
    """Check that the format takes `precision` and `quantize`, and that this backend writes it."""
    target = TARGETS[format]
    for name, value in options.items():
        if value is not None and name not in target.options:
            formats = ", ".join(repr(other) for other in FORMATS if name in TARGETS[other].options)
            raise ValueError(
                f"{name} does not apply to format={format!r}. Leave it out; it is for {formats}"
            )
        check_one_of(name, value, (None, *target.options.get(name, ())))
    if target.needs_tensorflow and keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"format={format!r} needs TensorFlow, KERAS_BACKEND=tensorflow; this process runs "
            f"{keras.backend.backend()}. Give format='onnx', or export the saved .keras file there"
        )
