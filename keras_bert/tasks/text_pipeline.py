"""The pipeline of tasks that read texts or pairs of texts."""

import warnings

from keras_bert.data.examples import Examples
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks.inputs import SOURCE, check_not_given, check_texts, is_pair, listed
from keras_bert.tasks.pipeline import Pipeline


class TextPipeline(Pipeline):
    """Pipeline of a task that reads texts or pairs of texts."""

    def __init__(self, engine, **options):
        super().__init__(engine, **options)
        self._pairs = self.output.pairs
        if self._pairs:
            self.columns = ("text", "text_pair")
            if self.long_texts == "window":
                raise ValueError(
                    'long_texts="window" is only for single texts; use "truncate" for pairs'
                )

    def _check_data(self, examples, scored=False):
        super()._check_data(examples, scored)
        if isinstance(examples, Examples) and self._pairs != (examples.text_pairs is not None):
            reads = "pairs of texts" if self._pairs else "single texts"
            has = "single texts" if self._pairs else "pairs of texts"
            raise ValueError(f"{self._engine.name!r} reads {reads}; {examples.source} has {has}")

    def _rows(self, inputs, text_pair=None, **others):
        check_not_given(**others)
        if not self._pairs:
            if text_pair is not None:
                raise ValueError(
                    f"{self._engine.name!r} reads single texts; remove text_pair, or, if "
                    "it was trained on pairs, load it with keras_bert.load(name, "
                    f"task={self.task!r}, pairs=True)"
                )
            if _is_pair_of_strings(inputs):
                warnings.warn(
                    f"{self._engine.name!r} reads single texts, so the tuple is two texts with an "
                    "answer each. For a pair of texts, load the model with "
                    "keras_bert.load(name, task=..., pairs=True); for two texts, give a list",
                    stacklevel=level_of_caller(),
                )
            rows, is_single = listed(inputs)
            return check_texts(rows), is_single
        if text_pair is not None:
            first, is_single = listed(inputs)
            second, _ = listed(text_pair, "text_pair")
            if len(first) != len(second):
                raise ValueError(
                    f"text_pair must have as many texts as the inputs, {len(first)}; received "
                    f"{len(second)}"
                )
            pairs = list(zip(first, second, strict=True))
        else:
            is_single = _is_pair_of_strings(inputs)
            if isinstance(inputs, tuple) and len(inputs) == 2 and not is_single:
                raise ValueError(
                    "give two lists of texts as inputs and text_pair, or a list of pairs; received "
                    "a tuple of two"
                )
            pairs = [inputs] if is_single else listed(inputs)[0]
        for number, pair in enumerate(pairs, 1):
            if not is_pair(pair):
                raise ValueError(
                    f"input {number} must be a pair of texts, such as ('a', 'b'), or give "
                    f"text_pair; received {pair!r:.80}"
                )
            check_texts(pair, f"input {number}, text")
        return [tuple(pair) for pair in pairs], is_single

    def _examples(self, rows):
        if self._pairs:
            texts, text_pairs = map(list, zip(*rows, strict=True))
            return Examples(texts, text_pairs=text_pairs, source=SOURCE)
        return Examples(rows, source=SOURCE)


def _is_pair_of_strings(inputs):
    if not isinstance(inputs, tuple) or len(inputs) != 2:
        return False
    return all(isinstance(text, str) for text in inputs)


def texts_of(examples, index):
    """Return the text or the pair of texts of an example."""
    if examples.text_pairs is None:
        return {"text": examples.texts[index]}
    return {"text": examples.texts[index], "text_pair": examples.text_pairs[index]}
