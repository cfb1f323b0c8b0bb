"""The base class of tasks that give each text, or each pair of texts, one answer."""

import os

from keras_bert.data import tables, tabular
from keras_bert.data.examples import Examples, with_columns
from keras_bert.runtime.arguments import LONG_TEXTS, check_one_of
from keras_bert.tasks.task import Task
from keras_bert.tasks.text_pipeline import TextPipeline, check_pairs, texts_of
from keras_bert.text.encoded_texts import EncodedTexts

# Options of `keras_bert.read` for texts.
READ_OPTIONS = (
    "text", "text_pair", "label", "separator", "format", "header", "skip_ragged", "limit",
)  # fmt: skip
# Names that a model remembers for `pipeline(model)(frame)` and the command line.
_REMEMBERED = ("text", "text_pair", "label", "separator", "header")


def read_texts(data, kind: str, options: dict) -> Examples:
    """Read texts or pairs of texts; `kind` is that of `tabular.read`."""
    is_file = isinstance(data, (str, os.PathLike))
    if not is_file:
        tables.check_no_format(options["format"])
    reader = tabular if is_file else tables
    examples = reader.read(data, kind=kind, **options)
    return with_columns(examples, {name: options[name] for name in _REMEMBERED})


class TextTask(Task):
    """A task that gives each text, or each pair of texts, one answer."""

    answers_texts = True
    pipeline = TextPipeline
    label_kind = "label"

    def read(self, name, data, options):
        if name == "pair" and options["text_pair"] is None:
            raise ValueError("the task 'pair' needs text_pair, the column of the second text")
        return read_texts(data, self.kind_of_label(name), options)

    def kind_of_label(self, name: str) -> str:
        """Return how `tabular.read` reads the labels for a name of the task."""
        return self.label_kind

    def read_in_parts(self, name, path, options):
        kind = self.kind_of_label(name)
        # Each row gets an answer, so a row with another number of columns is an error.
        options = options | {"label": None, "skip_ragged": False}
        return tabular.read_in_parts(path, kind=kind, keep_rows=True, **options)

    def of_texts(self, model, texts, source):
        if not model.output.pairs:
            return Examples(texts, source=source)
        if len(texts) != 2:
            raise ValueError(
                f"this model needs the two texts of a pair; received {len(texts)}. For several "
                "pairs, give --input"
            )
        return Examples(texts[:1], text_pairs=texts[1:], source=source)

    def inputs_of(self, output):
        return ("text", "text_pair") if output.pairs else ("text",)

    def columns_of(self, examples, output):
        check_pairs(output.pairs, examples)
        return examples.text_columns()

    def is_labeled(self, examples):
        columns = (examples.labels, examples.label_sets, examples.scores)
        return columns != (None, None, None)

    def rows(self, output, examples, answers, probabilities=False):
        """Yield the result of each text, and the text."""
        for index, result in enumerate(self.results(output, examples, answers)):
            yield result | texts_of(examples, index)

    def encode_columns(
        self, model, columns, max_length, source, *, long_texts=None, targets=None, weights=None
    ) -> EncodedTexts:
        """Return texts or pairs as `EncodedTexts`.

        `long_texts` is "truncate", "window" or "error"; `None` takes that of the model.
        """
        long_texts = model.output.long_texts if long_texts is None else long_texts
        check_one_of("long_texts", long_texts, LONG_TEXTS)
        if long_texts == "window" and len(columns) > 1:
            raise ValueError('long_texts="window" is only for single texts; use "truncate"')
        encoded = EncodedTexts(
            model.tokenizer,
            columns,
            max_length,
            targets=targets,
            weights=weights,
            in_windows=long_texts == "window",
        )
        if long_texts == "error" and encoded.truncated:
            raise ValueError(
                f"{source}: {encoded.truncated} of {len(columns[0])} texts have more than "
                f'{max_length} tokens; shorten them, or use long_texts="truncate" or "window"'
            )
        return encoded


def pooling_of(model) -> str:
    """Return the option `pooling` of the head of a model."""
    names = [layer.name for layer in model.layers]
    return model.get_layer("pooling").mode if "pooling" in names else "pooler"
