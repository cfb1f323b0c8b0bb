"""The contract of a task: what the rest of the package asks of it.

Fine-tuning, pipelines, exports, inspection, the command line and the server call these methods and
name no task. A new task is a folder with a subclass of `Task`, and one entry in `tasks.registry`.
docs/understand/adding-a-task.md shows one.
"""

import dataclasses
import difflib
import typing
from collections.abc import Callable, Iterator, Sequence

from keras_bert.data.examples import Examples
from keras_bert.model_spec import UNIT_LENGTH, HeadSpec
from keras_bert.runtime.label_types import of_one_type
from keras_bert.tasks.pipeline import Pipeline
from keras_bert.text.python_tokenizer import PythonTokenizer

# Fields of every head that change its answers. They are no arguments of a `head_function`.
_OF_ANSWERS = ("long_texts", "label_type")


@dataclasses.dataclass(frozen=True)
class TaskModel:
    """A model as its task sees it: a Keras model, or the folder of an ONNX or OpenVINO export.

    Attributes:
        name: Name of the model, for errors.
        output: The `layers.TaskOutput`, or the `HeadSpec` of a folder.
        tokenizer: Its tokenizer.
        max_length: Tokens of the longest sequence that it reads by default.
        width: Size of the last axis of the output; `None` for several outputs.
    """

    name: str
    output: typing.Any
    tokenizer: PythonTokenizer
    max_length: int
    width: int | None = None


@dataclasses.dataclass(frozen=True)
class Options:
    """Base class of the options of a task. The fields are the options, with their defaults."""

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of the options."""
        return [field.name for field in dataclasses.fields(cls)]

    @classmethod
    def of(cls, values: dict, what: str, elsewhere: Sequence[str] = (), synonyms=None):
        """Return the options with these values.

        Args:
            values: Values by name.
            what: What has the options, for the error.
            elsewhere: Names that are valid in the place of options too; for a suggestion.
            synonyms: Names that other libraries use, with ours.

        Raises:
            ValueError: If a name is unknown.
        """
        names = cls.names()
        unknown = [name for name in values if name not in names]
        if unknown:
            wanted = (synonyms or {}).get(unknown[0], unknown[0])
            close = difflib.get_close_matches(wanted, [*elsewhere, *names], 1)
            known = f"the options are {', '.join(names) or 'none'}"
            advice = f"did you mean {close[0]}?" if close else known
            raise ValueError(f"{unknown[0]} is not an option of {what}; {advice}")
        return cls(**values)


@dataclasses.dataclass(frozen=True)
class HeadStart:
    """How a new head gets its first weights: from a regression on the encoder's vectors.

    Attributes:
        max_sequences: Sequences that the regression is fitted to, at most; `None` for all.
        max_tokens: Tokens of these sequences, at most; `None` for any number.
        needs_pooling: True if only an encoder with a `pooling` makes useful vectors.
        fit: Function of the head's output layer, vectors (n, hidden), targets and weights (n,). It
            returns a list with the weights and the bias of each logit; `None` keeps random ones.
    """

    max_sequences: int | None
    fit: Callable
    max_tokens: int | None = None
    needs_pooling: bool = True


@dataclasses.dataclass(frozen=True)
class ContrastiveTraining:
    """Training of the encoder on pairs of texts; the new head is then fitted to its vectors.

    Attributes:
        pairs: The pairs of an epoch, `EmbeddingExamples`.
        loss: Their Keras loss.
        head: How the head is fitted.
    """

    pairs: typing.Any
    loss: typing.Any
    head: HeadStart


class Task:
    """A task. The attributes declare what it is; the methods do the work.

    Attributes:
        name: The name, as in `keras_bert.load(name, task=...)` and `keras_bert.read`.
        variants: Further names of the task, with the options of the head that they stand for.
        data: The classes of its data. The first one is the training data.
        reads: Names for `keras_bert.read`, with the options that apply to each.
        default_label: Default of the option `label`.
        command_hint: End of the error of a command that does not apply, with the right command.
        max_length: Default of `finetune(max_length=)`, in tokens.
        training_options: The `Options` of `finetune`.
        answer_options: The `Options` of a call and of `evaluate` that change the answers.
        pipeline: The class of its pipeline.
        input_names: Names of its inputs, as in exported signatures.
        reads_any_texts: True if its models read single texts and pairs alike.
        has_labels: True if its models have `labels`.
        has_probabilities: True if answers have the probabilities of labels or choices.
        has_predictions_file: True if `predictions` makes the file of an official scoring script.
        reads_windows: True if long texts are always split into windows.
        reads_encoders: True if it can use a model without a head, see `from_encoder`.
        answers_texts: True if each text, or pair of texts, gets one answer.
        uses_pooler: True if its head reads the pooler.
        compared_options: Options of the calls in which the answers of two exports are compared.
        graph_outputs: Outputs of an ONNX or OpenVINO graph that a pipeline reads. They are those of
            the Keras model.
        graph_rank: Number of axes of `graph_outputs`.
        weights_group: Group of the head's weights in checkpoints, see
            `checkpoints.canonical.OPTIONAL_GROUPS`; `None` without a group.
        head_fields: Fields of `HeadSpec` that are arguments of `head_function`.
        default_dropout: Default of the argument `dropout`, or `None` for the encoder's rate.
        same_heads: Tasks whose checkpoints have the same head with the same meaning.
        is_pretraining: True if its head is one of pretraining, which fine-tuning replaces.
        hub_tag: Hugging Face's name of the task, for model cards.
        variable_outputs: Outputs of an export whose size depends on the inputs, by which the local
            server knows that requests can share a batch.
        meanings: What inputs and outputs of an export mean, if it differs from the common meaning.
        lower_is_better: Names of metrics of which a lower value is better.
        baselines: Metric -> the metric of the trivial answer, such as the most frequent label.
        head_start: A `HeadStart`, or `None` for random weights.
        comparable_data: Classes of the data on which exports can be compared; `None` for `data`.
        has_teachers: True if its pipeline has `as_teacher`.
        packs: True if several texts can share a row in training.
        compares_vectors: True if the losses of rows of texts read a vector per text, else a number.
        positions_have_targets: True if the targets are (batch, seq).
    """

    name = ""
    variants: typing.ClassVar[dict[str, dict]] = {}
    data: tuple[typing.Any, ...] = (Examples,)
    reads: typing.ClassVar[dict[str, tuple[str, ...]]] = {}
    default_label: str | None = "label"
    command_hint = ""
    max_length = 128
    training_options: type[Options] = Options
    answer_options: type[Options] = Options
    pipeline: type[Pipeline] = Pipeline
    input_names: tuple[str, ...] = ("text",)
    reads_any_texts = False
    has_labels = False
    has_probabilities = False
    has_predictions_file = False
    reads_windows = False
    reads_encoders = False
    answers_texts = False
    uses_pooler = True
    graph_outputs: tuple[str, ...] = ("logits",)
    graph_rank = 2
    compared_options: typing.ClassVar[dict[str, typing.Any]] = {}
    weights_group: str | None = None
    head_fields: tuple[str, ...] = ()
    default_dropout: float | None = None
    same_heads: tuple[str, ...] = ()
    is_pretraining = False
    hub_tag = ""
    variable_outputs: frozenset[str] = frozenset()
    meanings: typing.ClassVar[dict[str, str]] = {}
    lower_is_better: tuple[str, ...] = ()
    baselines: typing.ClassVar[dict[str, str]] = {"accuracy": "majority"}
    head_start: HeadStart | None = None
    comparable_data: tuple[typing.Any, ...] | None = None
    has_teachers = False
    packs = False
    compares_vectors = False
    positions_have_targets = False

    def __repr__(self):
        return f"<task {self.name}>"

    def head_function(self) -> Callable:
        """Return the function of `keras_bert.heads` that builds its models.

        Modules of tasks import Keras only in methods, so that ONNX and OpenVINO run without it.
        """
        raise NotImplementedError

    def variant_of(self, output) -> str:
        """Return the name of a model's task: that of a variant, or the plain name."""
        for name, options in self.variants.items():
            if all(getattr(output, option) == value for option, value in options.items()):
                return name
        return self.name

    def inputs_of(self, output) -> tuple[str, ...]:
        """Return the names of the inputs that a model takes, as in exported signatures."""
        return self.input_names

    def columns_of(self, examples, output) -> list[list]:
        """Return the data as lists, one for each input of the exported signature."""
        raise NotImplementedError

    def fits(self, examples) -> bool:
        """Return True if the examples are data of this task."""
        return isinstance(examples, self.data)

    def convert(self, examples):
        """Return data of another class as data of this task, if `finetune` is called for it."""
        return examples

    def from_encoder(self, model, pooling=None):
        """Return a model of this task for a model of any task, or for an encoder."""
        from keras_bert.model_structure import find_task

        if find_task(model) == self.name:
            return model
        raise ValueError(f"{model.name!r} has no head for the task {self.name}; fine-tune it first")

    def with_pretrained_head(self, model, encoder):
        """Return a model on an encoder with the head of a pretraining model; `None`: a new head."""
        return None

    def spec_of_head(self, model) -> HeadSpec:
        """Return the options of the head of a model, which must be as `head_function` builds it."""
        from keras_bert.model_structure import find_encoder, find_output

        layers = {layer.name: layer for layer in model.layers}
        config = find_output(model).get_config()
        names = (*self.head_fields, *_OF_ANSWERS)
        fields = {name: config[name] for name in names if name in config}
        if "dropout" in self.head_fields and "dropout" in layers:
            rate = layers["dropout"].rate
            default = self.default_dropout
            if default is None:
                default = find_encoder(model).bert_config["hidden_dropout_prob"]
            fields["dropout"] = None if rate == default else rate
        if "tied" in self.head_fields and "masked_lm" in layers:
            fields["tied"] = layers["masked_lm"].tied
        if "pooling" in layers:
            mode = layers["pooling"].mode
            fields["pooling"] = mode if isinstance(mode, tuple) else (mode,)
            fields["layers"] = (UNIT_LENGTH,) if layers["pooling"].normalize else ()
        return HeadSpec(self.name, **fields)

    def options_of_head(self, head: HeadSpec) -> dict:
        """Return the options with which `head_function` builds a head."""
        options = {name: getattr(head, name) for name in self.head_fields}
        for name in ("pairs", "multi_label", "dropout"):
            if name in options and options[name] is None:  # not known
                options.pop(name)
        if head.labels is not None and "labels" in options:
            options["labels"] = of_one_type(head.labels, head.label_type)
        return options

    def vector_layers(self, model) -> dict[int, typing.Any]:
        """Return the Keras layers for `HeadSpec.layers` of a model, by their index there."""
        return {}

    # Training.

    def contrastive_training(
        self, encoder, train, options: Options, recipe
    ) -> ContrastiveTraining | None:
        """Return how the encoder is trained on pairs of texts, or `None` to train on the labels.

        `encoder` is `None` for a model with a trained head; `recipe` is the `FinetuningRecipe`.
        """
        return None

    def build(self, encoder, train):
        """Return a model with a new head for some training data."""
        raise NotImplementedError

    def build_on_unit_vectors(self, encoder, train):
        """Return a model for contrastive training, whose new head reads vectors of length 1."""
        raise NotImplementedError

    def model_of_logits(self, model):
        """Return the model whose outputs the losses read; it shares the weights of `model`."""
        return model

    def compile_options(self, output, encoded) -> dict:
        """Return loss and metrics as arguments of `keras.Model.compile`; by default of a label."""
        import keras

        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        # Keras creates a metric given by name in the first step, and traces the step twice.
        accuracy = keras.metrics.SparseCategoricalAccuracy("accuracy")
        return {"loss": loss, "weighted_metrics": [accuracy]}

    def encode(self, model: TaskModel, examples, max_length: int, options: Options):
        """Return the examples as an `Encoded`, with targets if they have labels."""
        raise NotImplementedError

    def encode_training(self, model: TaskModel, examples, max_length: int, options: Options):
        """Return the examples as an `Encoded` for training, by default that of `encode`."""
        return self.encode(model, examples, max_length, options)

    def default_batch_size(self, encoded) -> int:
        """Return the number of rows of `encoded` per batch if the user gives no `batch_size`."""
        return 32

    def model_of_batches(self, model):
        """Return a new model that is trained on batches that are not packed; it shares weights."""
        import keras

        return keras.Model(model.input, model.output, name=model.name)

    def check_training_data(self, examples, encoded):
        """Raise an error if nothing can be learned from the data."""

    # Answers.

    def check_inputs(self, examples):
        """Raise an error for inputs that every model would answer at random."""

    def needs_header(self, output) -> bool:
        """Return True if an answer has several columns, whose names must be shown."""
        return False

    def activate(self, output, outputs: list) -> list:
        """Return the outputs of a model after the function that makes probabilities of logits.

        `outputs` are arrays, or dicts of arrays, one for each sequence.
        """
        return outputs

    def decode(self, model: TaskModel, examples, encoded, outputs: list, options: Options):
        """Return one answer per example, from the outputs of each sequence after `activate`."""
        raise NotImplementedError

    def results(self, output, examples, answers, **options):
        """Return one plain result per answer: dicts, lists of dicts, or arrays.

        `options` are the keyword options of a call of the pipeline.
        """
        raise NotImplementedError

    def rows(self, output, examples, answers, probabilities=False):
        """Yield the results as dicts, the rows of a file."""
        yield from self.results(output, examples, answers)

    def own_lines(self, format: str, rows) -> Iterator[str] | None:
        """Return the lines of a file in the task's own form; `None` for a table of `rows`."""
        return None

    def table_rows(self, rows, examples):
        """Yield the rows of a CSV file."""
        return rows

    def predictions(self, examples, answers) -> dict:
        """Return the JSON object that scoring scripts read, see `has_predictions_file`."""
        raise NotImplementedError

    # Scores.

    def is_labeled(self, examples) -> bool:
        """Return True if the examples can be scored."""
        raise NotImplementedError

    def is_scorable(self, examples) -> bool:
        """Return True if `metrics` can score answers to the examples."""
        return isinstance(examples, self.data) and self.is_labeled(examples)

    def check_targets(self, output, examples):
        """Raise an error if the examples have labels that the model lacks."""

    def check_labeled(self, examples):
        """Raise an error if the examples cannot be scored."""
        if not self.is_labeled(examples):
            raise ValueError(
                f"{examples.source} has no labels to score against. Give labeled examples"
            )

    def metrics(self, output, examples, answers, report=False) -> dict:
        """Return the metrics of answers, with `report` also those of each label."""
        self.check_labeled(examples)
        metrics: dict = dict(self.score(output, examples, answers))
        rows = self.report(output, examples, answers) if report else {}
        return metrics | ({"report": rows} if rows else {})

    def metric_names(self, output, examples) -> tuple[str, ...]:
        """Return the names of the metrics of `score`, the main one first, without `majority`."""
        raise NotImplementedError

    def score(self, output, examples, answers) -> dict[str, float]:
        """Return the metrics of answers, the main one first."""
        raise NotImplementedError

    def report(self, output, examples, answers) -> dict[str, dict]:
        """Return the metrics of each label; empty if there are no labels."""
        return {}

    def confusion(self, output, examples, answers) -> tuple[list, list]:
        """Return the right and the predicted label of each unit, for one label per unit."""
        raise NotImplementedError

    # Files.

    def read(self, name: str, data, options: dict):
        """Read a file or a table as data of this task.

        `name` is one of `reads`, and `options` has a value for each of its options.
        """
        raise ValueError(f"the task {self.name} reads no files{self.command_hint}")

    def read_in_parts(self, name: str, path, options: dict):
        """Yield the data of a file without labels in parts, since it may exceed the memory."""
        raise ValueError(f"predict does not apply to the task {self.name}{self.command_hint}")

    def of_texts(self, model: TaskModel, texts: list[str], source: str):
        """Return data for the texts of a command line."""
        raise ValueError(f"predict does not apply to the task {self.name}{self.command_hint}")

    # Exports.

    def describe(self, output) -> str:
        """Return a sentence for the model card."""
        raise NotImplementedError

    def signatures(self, predict, output, preprocessor, max_sequence_length: int):
        """Return the `text_serving.Signatures` of an export. TensorFlow is imported here."""
        raise ValueError(f"the task {self.name} has no `signatures`, which a SavedModel needs")

    def other_signatures(self, predict, output, preprocessor, max_sequence_length: int) -> dict:
        """Return further signatures: pairs of function of strings and specs, by name."""
        return {}

    def served_rows(self, results) -> list[dict]:
        """Return results of the pipeline as rows with the outputs of `signatures`."""
        return list(results)

    def length_of_rows(self, outputs: dict) -> int | None:
        """Return the longest row of `variable_outputs` without padding; `None` without padding."""
        return None

    def add_onnx_head(self, graph, model, encoded) -> dict[str, tuple]:
        """Add the head to an ONNX graph, and return the names and axes of its outputs.

        The names are those of Hugging Face's exports, and include `graph_outputs`.
        `graph` is the `onnx_graph.Graph`, `encoded` its `onnx_graph.EncodedInputs`.
        """
        raise ValueError(f"the task {self.name} has no `add_onnx_head`, which ONNX needs")

    def graph_program(self, output) -> str:
        """Return lines of Python that compute `answers` from `outputs`, a dict of arrays.

        They stand in the `README.md` of an export, after lines that define `texts` and `encodings`,
        those of the library tokenizers.
        """
        return f'answers = outputs["{self.graph_outputs[0]}"]'

    # Inspection.

    def target(self, explained, target):
        """Return (name, function, position) of an output for `keras_bert.inspect.attributions`.

        `explained` is an `inspect.integrated_gradients.Explained`. The function selects
        float (batch,) from the outputs of the model. The position is that of a token, or
        `None`.
        """
        raise ValueError(f"the task {self.name} has no `target`, which attributions need")
