"""Classification and regression of texts or pairs: one label, a set of labels, or a number."""

import dataclasses
import numbers
import typing
import warnings

import numpy as np

from keras_bert.checkpoints.canonical import KERAS_ACTIVATIONS
from keras_bert.checkpoints.huggingface_heads import TORCH_ACTIVATIONS
from keras_bert.data.examples import Examples
from keras_bert.model_spec import UNIT_LENGTH
from keras_bert.runtime.arguments import LONG_TEXTS
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.label_types import typed
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks import head_start, results
from keras_bert.tasks.activations import SIGMOID_PROGRAM, SOFTMAX_PROGRAM, sigmoid, softmax
from keras_bert.tasks.classification import contrastive
from keras_bert.tasks.pipeline import Pipeline
from keras_bert.tasks.task import HeadStart
from keras_bert.tasks.text import (
    READ_OPTIONS,
    TextOptions,
    TextPipeline,
    TextTask,
    targets_of,
    texts_of,
)
from keras_bert.text.text_windows import mean_per_text

_FEW_LABELS = 20  # up to this many, there is no warning


def metrics_of_numbers(expected, answers):
    """Return the correlations and the root of the mean square error of numbers, arrays (n,)."""
    from scipy import stats

    pearson = 0.0
    spearman = 0.0
    if np.ptp(expected) > 0 and np.ptp(answers) > 0:
        pearson = float(stats.pearsonr(answers, expected).statistic)
        spearman = float(stats.spearmanr(answers, expected).statistic)
    rmse = float(np.sqrt(np.mean((answers - expected) ** 2)))
    return {"pearson": pearson, "spearman": spearman, "rmse": rmse}


def chosen_labels(output, answers):
    """Return the answered targets: label indices (n,), or label sets (n, labels)."""
    return answers >= 0.5 if output.multi_label else answers.argmax(axis=1)


def _expected(examples, output):
    """Return the targets; a probability of at least 0.5 means that a text has the label."""
    targets = targets_of(examples, output)
    return (targets >= 0.5).astype(targets.dtype) if output.multi_label else targets


def _scored_targets(output, examples, answers):
    """Return the expected targets, the chosen ones, and the value of each label, for scikit-learn.

    scikit-learn takes an array (n, 1) for the two classes 0 and 1, so a single label is the class 1
    of arrays (n,).
    """
    expected = _expected(examples, output)
    chosen = chosen_labels(output, answers)
    if output.multi_label and len(output.labels) == 1:
        return expected[:, 0], chosen[:, 0], [1]
    return expected, chosen, list(range(len(output.labels)))


class ClassificationPipeline(TextPipeline):
    """Pipeline of `heads.classifier` and `heads.next_sentence`."""

    options: tuple[str, ...] = ("top_k",)
    long_texts_options = LONG_TEXTS

    def _mistakes(self, examples, answers):
        labels = [typed(label, self.output.label_type) for label in self.output.labels]
        targets = _expected(examples, self.output)
        chosen = chosen_labels(self.output, answers)
        scores = answers.max(axis=1)
        if self.output.multi_label:
            # The score of a wrong label is the probability of its wrong value, at least 0.5.
            scores = np.where(chosen != targets, np.abs(answers - 0.5) + 0.5, 0).max(axis=1)

        def name(target):
            if self.output.multi_label:
                return sorted(labels[index] for index in np.flatnonzero(target))
            return labels[target]

        mistakes = []
        for index in np.argsort(-scores, kind="stable"):
            if np.any(chosen[index] != targets[index]):
                answer = {
                    "expected": name(targets[index]),
                    "label": name(chosen[index]),
                    "score": float(scores[index]),
                }
                mistakes.append(texts_of(examples, index) | answer)
        return mistakes


class RegressionPipeline(ClassificationPipeline):
    """Pipeline of `heads.regressor`."""

    options: tuple[str, ...] = ()

    def _mistakes(self, examples, answers):
        order = np.argsort(-np.abs(np.array(examples.scores) - answers), kind="stable")
        mistakes = []
        for index in order:
            scores = {"expected": examples.scores[index], "score": float(answers[index])}
            mistakes.append(texts_of(examples, index) | scores)
        return mistakes


@dataclasses.dataclass(frozen=True)
class ClassificationOptions(TextOptions):
    """Options of training.

    class_weight: A dict with the weight of each label in the loss (other labels: 1), or
        `"balanced"`, inversely proportional to the frequency of each label.
    contrastive: True to train the encoder on pairs of texts of a class, and a new head on its
        vectors; `None` to do so for few texts per class, without `optimizer`.
    """

    class_weight: dict | str | None = None
    contrastive: bool | None = None


class Classification(TextTask):
    """Classification of texts or pairs: one label, or a set of labels."""

    name = "classification"
    variants: typing.ClassVar = {"multi_label": {"multi_label": True}, "pair": {"pairs": True}}
    reads: typing.ClassVar = dict.fromkeys(("classification", "pair", "multi_label"), READ_OPTIONS)
    label_kinds: typing.ClassVar = {"multi_label": "label_set"}
    training_options = ClassificationOptions
    pipeline = ClassificationPipeline
    has_labels = True
    has_probabilities = True
    packs = True
    weights_group = "classifier"
    head_fields: tuple[str, ...] = ("labels", "pairs", "multi_label", "dropout")
    logits_layer = "logits"
    hub_tag = "text-classification"
    head_start: HeadStart | None = HeadStart(max_sequences=2000, fit=head_start.fit_labels)

    def head_function(self):
        from keras_bert.tasks.classification.head import classifier

        return classifier

    def options_of_head(self, head):
        _check_activation(head, ("linear",), "Identity, Softmax or Sigmoid")
        options = super().options_of_head(head)
        return options | {"pooling": _pooling_of(head), "normalize": UNIT_LENGTH in head.layers}

    def needs_header(self, output):
        return output.multi_label

    def describe(self, output):
        if output.multi_label:
            return "A BERT model that assigns any number of labels."
        return "A BERT model that assigns one label to each text."

    def fits(self, examples):
        return isinstance(examples, Examples) and examples.scores is None

    def contrastive_training(self, encoder, train, options, recipe):
        return contrastive.plan(encoder, train, options, recipe)

    def build(self, encoder, train):
        """Build a classifier for `Examples` with labels or label sets."""
        return self._build(encoder, train, normalize=False)

    def build_on_unit_vectors(self, encoder, train):
        return self._build(encoder, train, normalize=True)

    def _build(self, encoder, train, normalize):
        pairs = train.text_pairs is not None
        labels = train.label_names()
        multi_label = train.label_sets is not None
        if len(labels) < 2 and not multi_label:
            raise ValueError(f"{train.source}: a classifier needs two labels; received {labels}")
        if not multi_label and len(labels) > max(_FEW_LABELS, len(train) / 2):
            warnings.warn(
                f"{train.source}: {len(train)} texts have {len(labels)} different labels, such as "
                f"{shown(labels[0])}. Check the label column",
                stacklevel=level_of_caller(),
            )
        return self.head_function()(
            encoder, labels=labels, pairs=pairs, multi_label=multi_label, normalize=normalize
        )

    def compile_options(self, output, encoded):
        if not output.multi_label:
            return super().compile_options(output, encoded)
        import keras

        return {"loss": keras.losses.BinaryCrossentropy(from_logits=True)}

    def weights(self, output, examples, targets, options):
        class_weight = options.class_weight
        if class_weight is None:
            return None
        if targets is None or targets.ndim > 1:
            raise ValueError("class_weight is only for training with one label per text")
        if class_weight == "balanced":
            counts = np.bincount(targets, minlength=len(output.labels))
            weight_of_label = len(targets) / (len(counts) * np.maximum(counts, 1))
            return weight_of_label[targets].astype(np.float32)
        if not isinstance(class_weight, dict):
            raise ValueError(
                f'class_weight must be "balanced" or a dict, not {shown(class_weight)}'
            )
        class_weight = {str(label): weight for label, weight in class_weight.items()}
        for label, weight in class_weight.items():
            is_number = isinstance(weight, numbers.Real)
            if label not in output.labels or not is_number or not 0 <= weight < np.inf:
                raise ValueError(
                    f"class_weight must be at least 0 for each label; received {shown(label)}: "
                    f"{shown(weight)}. The labels are {', '.join(output.labels[:20])}"
                )
        weights = np.array([class_weight.get(label, 1.0) for label in output.labels], np.float32)
        if not weights[targets].any():
            raise ValueError("class_weight must be above 0 for a label in the data")
        return weights[targets]

    def activate(self, output, outputs):
        logits = np.stack(outputs)
        return list(sigmoid(logits) if output.multi_label else softmax(logits))

    def decode(self, model, examples, encoded, outputs, options):
        """Return the probabilities of the labels, float32 (n, classes)."""
        return mean_per_text(encoded.text_of, np.stack(outputs))

    def metric_names(self, output, examples):
        if output.multi_label:
            return "micro_f1", "macro_f1", "exact_match"
        return "accuracy", "f1" if len(output.labels) == 2 else "macro_f1", "mcc"

    def score(self, output, examples, answers):
        """Return the metrics of the GLUE benchmark.

        `f1` is of the second of two labels, `macro_f1` of more labels. `mcc` is the Matthews
        correlation. `majority` is the accuracy of always predicting the most frequent label.
        """
        from sklearn import metrics

        targets, chosen, values = _scored_targets(output, examples, answers)

        def f1(average, labels=None):
            value = metrics.f1_score(
                targets, chosen, labels=labels, average=average, zero_division=0
            )
            return float(value)

        if output.multi_label:
            is_right = (targets == chosen).reshape(len(examples), -1).all(axis=1)
            return {
                "micro_f1": f1("micro", values),
                "macro_f1": f1("macro", values),
                "exact_match": float(np.mean(is_right)),
            }
        mcc = 0.0
        if len({*chosen, *targets}) > 1:  # else scikit-learn warns
            mcc = float(metrics.matthews_corrcoef(targets, chosen))
        return {
            "accuracy": float(np.mean(chosen == targets)),
            **({"f1": f1("binary")} if len(output.labels) == 2 else {"macro_f1": f1("macro")}),
            "mcc": mcc,
            "majority": examples.majority_share(),
        }

    def report(self, output, examples, answers):
        """Return `precision`, `recall`, `f1` and `support` per label."""
        from sklearn import metrics

        targets, chosen, values = _scored_targets(output, examples, answers)
        columns = metrics.precision_recall_fscore_support(
            targets, chosen, labels=values, zero_division=0
        )
        rows = zip(*(column.tolist() for column in columns), strict=True)
        names = ("precision", "recall", "f1", "support")
        return {
            label: dict(zip(names, row, strict=True))
            for label, row in zip(output.labels, rows, strict=True)
        }

    def confusion(self, output, examples, answers):
        predicted = [output.labels[index] for index in chosen_labels(output, answers)]
        return [str(label) for label in examples.labels], predicted

    def results(self, output, examples, answers, **options):
        """Return the best label of each text; with `top_k` or label sets, a list of labels."""
        labels = [typed(label, output.label_type) for label in output.labels]
        has_list = output.multi_label or "top_k" in options
        result_per_text: list[results.Result | results.Labels] = []
        for text, row in zip(examples.texts, answers, strict=True):
            order = np.argsort(-row, kind="stable")
            if "top_k" in options:
                order = order[: options["top_k"]]
            elif output.multi_label:
                order = order[row[order] >= 0.5]
            else:
                order = order[:1]
            ranked = [{"label": labels[index], "score": float(row[index])} for index in order]
            result = results.Labels(ranked) if has_list else results.Result(ranked[0], text)
            result_per_text.append(result)
        return result_per_text

    def rows(self, output, examples, answers, probabilities=False):
        """Yield a dict per text: `label` and `score`, or `labels`; `scores`; and the text.

        `scores` has the probability of every label, for label sets or with `probabilities`.
        """
        result_per_text = self.results(output, examples, answers)
        for index, (result, row) in enumerate(zip(result_per_text, answers, strict=True)):
            if output.multi_label:
                result = {"labels": [scored["label"] for scored in result]}
            if output.multi_label or probabilities:
                result |= {"scores": dict(zip(output.labels, row.tolist(), strict=True))}
            yield result | texts_of(examples, index)

    def signatures(self, predict, output, preprocessor, max_sequence_length):
        from keras_bert.tasks.classification import serving

        return serving.classifier(predict, output, preprocessor, max_sequence_length)

    def add_onnx_head(self, graph, model, encoded):
        x = graph.dense_layer(encoded.text_vector(), model.get_layer(self.logits_layer))
        graph.node("Identity", x, output="logits")
        return {"logits": ("batch_size", len(encoded.output.labels))}

    def graph_program(self, output):
        return SIGMOID_PROGRAM if output.multi_label else SOFTMAX_PROGRAM

    def target(self, explained, target):
        """Explain a label or its index, by default the most probable one."""
        if target is None:
            target = int(explained.outputs().argmax())
        index = explained.index_of_label(target)
        return explained.output.labels[index], lambda logits: logits[:, index], None


class NextSentence(Classification):
    """Next sentence prediction: whether the second text follows the first."""

    name = "next_sentence"
    variants: typing.ClassVar = {}
    reads: typing.ClassVar = {"next_sentence": READ_OPTIONS}
    logits_layer = "next_sentence"
    is_pretraining = True
    packs = False
    head_start: HeadStart | None = None
    weights_group = "next_sentence"
    head_fields = ()

    def head_function(self):
        from keras_bert.tasks.classification.head import next_sentence

        return next_sentence

    def options_of_head(self, head):
        return {}

    def describe(self, output):
        return "Tells if the second text follows the first."


def _pooling_of(head):
    """Return the pooling of a head. Those of other libraries have the pooler."""
    if len(head.pooling) > 1:
        return list(head.pooling)
    return head.pooling[0] if head.pooling else "pooler"


def _check_activation(head, known, names):
    """Raise an error for an activation that a head does not have."""
    if head.activation not in (None, *known):
        raise ValueError(
            f"the activation_fn of a {head.task} must be {names} of torch.nn; received "
            f"{shown(head.activation)}. Load the encoder without task"
        )


def _scale_of(scores):
    """Return the standard deviation of numbers, or 1.0 if float32 cannot tell them apart."""
    deviation = float(np.std(scores))
    # The deviation of equal numbers is not always 0: that of [0.1] * 3 is 1e-17.
    smallest = np.finfo(np.float32).eps * np.abs(scores).max()
    return deviation if deviation > smallest else 1.0


class Regression(TextTask):
    """Regression: a number for each text or pair of texts."""

    name = "regression"
    reads: typing.ClassVar = {"regression": READ_OPTIONS}
    label_kinds: typing.ClassVar = {"regression": "score"}
    lower_is_better: tuple[str, ...] = ("rmse",)
    baselines: typing.ClassVar = {"rmse": "rmse_of_mean"}
    same_heads: tuple[str, ...] = ("reranking",)
    pipeline: type[Pipeline] = RegressionPipeline
    packs = True
    weights_group = "classifier"
    head_fields: tuple[str, ...] = ("pairs", "dropout", "activation")
    hub_tag = "text-classification"
    graph_outputs = ("score",)
    meanings: typing.ClassVar = {"score": "predicted number"}
    head_start: HeadStart | None = HeadStart(max_sequences=2000, fit=head_start.fit_number)

    def head_function(self):
        from keras_bert.tasks.classification.head import regressor

        return regressor

    def options_of_head(self, head):
        known = (*TORCH_ACTIVATIONS.values(), *KERAS_ACTIVATIONS)
        _check_activation(head, known, ", ".join(TORCH_ACTIVATIONS))
        return super().options_of_head(head) | {"pooling": _pooling_of(head)}

    def describe(self, output):
        return "A BERT model that predicts a number for each text."

    def fits(self, examples):
        return isinstance(examples, Examples) and examples.scores is not None

    def build(self, encoder, train):
        """Build a regressor for `Examples` with scores, whose head standardizes them."""
        return self.head_function()(
            encoder,
            pairs=train.text_pairs is not None,
            target_mean=float(np.mean(train.scores)),
            target_scale=_scale_of(train.scores),
        )

    def compile_options(self, output, encoded):
        import keras

        # The loss of the standardized numbers, so that its size does not depend on their unit.
        options = {"loss": keras.losses.MeanSquaredError()}
        if output.target_scale != 1:
            options["loss_weights"] = 1 / output.target_scale**2
        return options

    def decode(self, model, examples, encoded, outputs, options):
        """Return the numbers, float32 (n,)."""
        numbers = np.reshape(outputs, -1).astype(np.float32)
        return mean_per_text(encoded.text_of, numbers)

    def metric_names(self, output, examples):
        return "pearson", "spearman", "rmse"

    def score(self, output, examples, answers):
        """Return the correlations of the GLUE benchmark, and the root of the mean square error.

        `rmse_of_mean` is the error of always answering the mean of the right numbers.
        """
        expected = np.array(examples.scores)
        rmse_of_mean = float(np.std(expected))
        return {**metrics_of_numbers(expected, answers), "rmse_of_mean": rmse_of_mean}

    def results(self, output, examples, answers, **options):
        return [{"score": float(number)} for number in answers]

    def signatures(self, predict, output, preprocessor, max_sequence_length):
        from keras_bert.tasks.classification import serving

        return serving.regressor(predict, output, preprocessor, max_sequence_length)

    def add_onnx_head(self, graph, model, encoded):
        x = graph.dense_layer(encoded.text_vector(), model.get_layer("logits"))
        if encoded.output.is_standardized:
            x = graph.node("Mul", x, graph.constant(encoded.output.target_scale))
            x = graph.node("Add", x, graph.constant(encoded.output.target_mean))
        graph.node("Identity", x, output="logits")
        activation = encoded.output.activation
        if activation not in (None, "linear"):
            x = graph.activation(x, activation)
        graph.node("Identity", x, output="score")
        return {"logits": ("batch_size", 1), "score": ("batch_size", 1)}

    def target(self, explained, target):
        """Explain the number."""
        return explained.number(target)
