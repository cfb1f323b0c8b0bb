"""Multiple choice: the best of several continuations of a text, as in SWAG.

Source: section 4.4 of the BERT paper.
"""

import collections
import os
import typing

import numpy as np

from keras_bert.data.tables import check_no_format
from keras_bert.tasks import results
from keras_bert.tasks.activations import SOFTMAX_PROGRAM, softmax
from keras_bert.tasks.inputs import SOURCE
from keras_bert.tasks.multiple_choice import data as swag
from keras_bert.tasks.multiple_choice.data import Choices, check_item
from keras_bert.tasks.pipeline import Pipeline
from keras_bert.tasks.task import Task
from keras_bert.text.encoded_texts import EncodedChoices


class MultipleChoicePipeline(Pipeline):
    """Pipeline of `heads.multiple_choice`."""

    data = (Choices,)
    long_texts_options = ("truncate", "error")

    def _check_row(self, location, row):
        text, choices = row
        check_item(location, text, choices, 0, choices)

    def _sequences(self, examples):
        return sum(map(len, examples.choices))

    def _run_rows(self, rows, call):
        # All rows of a batch must have the same number of choices.
        indices_per_size = collections.defaultdict(list)
        for index, (_, choices) in enumerate(rows):
            indices_per_size[len(choices)].append(index)
        result_per_row = results.Results([None] * len(rows))
        for indices in indices_per_size.values():
            part = [rows[index] for index in indices]
            results_of_part = super()._run_rows(part, call)
            for index, result in zip(indices, results_of_part, strict=True):
                result_per_row[index] = result
        return result_per_row

    def _examples(self, rows):
        texts, choices = map(list, zip(*rows, strict=True))
        return Choices(texts, choices, source=SOURCE)

    def _mistakes(self, examples, answers):
        mistakes = []
        rows = zip(examples.texts, examples.choices, examples.labels, answers, strict=True)
        for text, choices, expected, row in rows:
            chosen = row.argmax()
            if chosen != expected:
                mistakes.append({
                    "text": text, "expected": choices[expected], "choice": choices[chosen],
                    "score": float(row.max()),
                })  # fmt: skip
        return sorted(mistakes, key=lambda mistake: -mistake["score"])


class MultipleChoice(Task):
    """Multiple choice: the best of several continuations of a text, as in SWAG."""

    name = "multiple_choice"
    data = (Choices,)
    reads: typing.ClassVar = {"multiple_choice": ("format", "limit")}
    pipeline = MultipleChoicePipeline
    input_names = ("text", "choices")
    has_probabilities = True
    weights_group = "classifier"
    head_fields = ("dropout",)
    # The size is the number of choices, which is the same for all requests of a batch.
    variable_outputs = frozenset(("choice", "probabilities"))
    hub_tag = "multiple-choice"
    meanings: typing.ClassVar = {"probabilities": "of each choice"}

    def head_function(self):
        from keras_bert.tasks.multiple_choice.head import multiple_choice

        return multiple_choice

    def read(self, name, data, options):
        if isinstance(data, (str, os.PathLike)):
            return swag.read(data, **options)
        check_no_format(options.pop("format"))
        return swag.read_table(data, **options)

    def read_in_parts(self, name, path, options):
        return swag.read_in_parts(path, format=options["format"], labeled=False)

    def of_texts(self, model, texts, source):
        text, *choices = texts
        return Choices([text], [choices], source=source)

    def describe(self, output):
        return "Selects the best continuation of each text."

    def columns_of(self, examples, output):
        return [list(examples.texts), list(examples.choices)]

    def is_labeled(self, examples):
        return examples.labels is not None

    def build(self, encoder, train):
        """Build a model of `heads.multiple_choice` for `Choices` with labels."""
        if train.labels is None:
            raise ValueError(f"found no labels in {train.source}; give choices with labels")
        return self.head_function()(encoder)

    def encode(self, model, examples, max_length, options):
        """Encode `Choices`, truncated to `max_length`, as `EncodedChoices`."""
        return EncodedChoices(model.tokenizer, examples, max_length)

    def decode(self, model, examples, encoded, outputs, options):
        """Return the probabilities of the choices: an array (choices,) per text."""
        return outputs

    def score(self, output, examples, answers):
        """Return `accuracy`, and `majority`: always giving the most frequent label."""
        chosen = np.array([row.argmax() for row in answers])
        return {
            "accuracy": float(np.mean(chosen == examples.labels)),
            "majority": float(np.bincount(examples.labels).max() / len(examples)),
        }

    def metric_names(self, output, examples):
        """Return the names of the metrics of `score`, without `majority`."""
        return ("accuracy",)

    def results(self, output, examples, answers, **options):
        return [
            {"choice": int(row.argmax()), "score": float(row.max()), "text": choices[row.argmax()]}
            for choices, row in zip(examples.choices, answers, strict=True)
        ]

    def rows(self, output, examples, answers, probabilities=False):
        """Yield the results; with `probabilities`, `scores` has the one of every choice."""
        for result, row in zip(self.results(output, examples, answers), answers, strict=True):
            scores = {"scores": row.tolist()} if probabilities else {}
            yield {"choice": result["choice"], "score": result["score"], **scores,
                   "text": result["text"]}  # fmt: skip

    def activate(self, output, outputs):
        return [softmax(logits) for logits in outputs]

    def signatures(self, predict, output, preprocessor, max_sequence_length):
        from keras_bert.tasks.multiple_choice import serving

        return serving.multiple_choice(predict, output, preprocessor, max_sequence_length)

    def add_onnx_head(self, graph, model, encoded):
        x = graph.dense_layer(encoded.pooled(), model.get_layer("logits"))
        shape = graph.node("Gather", graph.node("Shape", encoded.words), graph.integers(0, 1))
        graph.node("Reshape", x, shape, output="logits")
        return {"logits": ("batch_size", "num_choices")}

    def graph_program(self, output):
        return SOFTMAX_PROGRAM

    def target(self, explained, target):
        """Explain the logit of the choice, which is the second text."""
        return explained.number(target)
