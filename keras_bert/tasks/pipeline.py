"""The base class of the pipelines."""

import collections
import contextlib
import dataclasses
import itertools
import warnings
from collections.abc import Iterator

import keras_bert
from keras_bert.data.examples import Examples, TaskData
from keras_bert.data.tables import check_single
from keras_bert.runtime.arguments import as_integer, is_dataframe
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.terminal import progress
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks import results
from keras_bert.tasks.inputs import check_data, check_not_given, check_texts, is_pair, listed
from keras_bert.tasks.predictor import Predictor

_LONG_INPUT = 200  # texts for which a progress bar is shown


@dataclasses.dataclass
class Call:
    """A call of a pipeline.

    Attributes:
        batch_size: Sequences per batch.
        options: Options of the task.
        show_progress: If True, show a progress bar for long inputs.
        texts, truncated: Number of texts that were read, and of those that were truncated.
    """

    batch_size: int
    options: dict
    show_progress: bool = False
    texts: int = 0
    truncated: int = 0


class Pipeline:
    """A function from texts to results. `keras_bert.pipeline` makes one.

    Attributes:
        model: The `keras.Model`; not for the folder of an export.
        task: Name of its head, such as `"classification"`.
        output: Its labels and options, as in `layers.TaskOutput`.
        batch_size: Sequences per batch.
        counts: How much of the texts of all calls the model did not see, a `collections.Counter`
            with keys such as `"truncated"` and `"without_tokens"`.
    """

    # Each task has a subclass, which implements `_examples` (rows to the data of the task).
    options: tuple[str, ...] = ()  # keyword options of `__call__`
    data: tuple[type, ...] = (Examples,)  # classes of the data of a call
    long_texts_options: tuple[str, ...] = ("truncate",)
    reads_pairs_in_windows = False  # True if long second texts of pairs can be read in windows
    chunk = 8192  # rows that are tokenized and computed at once

    def __init__(self, predictor: Predictor, *, batch_size=32, long_texts=None):
        self.predictor = predictor
        self.output = predictor.task_model.output
        self.task = predictor.task.name
        self.columns = predictor.task.inputs_of(self.output)  # columns of a row
        self.batch_size = batch_size
        if long_texts not in (None, *self.long_texts_options):
            raise ValueError(
                f"long_texts must be one of {', '.join(self.long_texts_options)} for the task "
                f"{self.task}; received {long_texts!r}"
            )
        self.long_texts = long_texts
        self.counts: collections.Counter[str] = collections.Counter()
        self._has_warned = False

    @property
    def model(self):
        return self.predictor.model

    def __repr__(self):
        return f"<keras_bert.pipeline of {self.predictor.name!r}, task {self.task}>"

    def __call__(
        self,
        inputs=None,
        text_pair=None,
        *,
        text=None,
        question=None,
        context=None,
        choices=None,
        query=None,
        document=None,
        batch_size=None,
        show_progress=True,
        **options,
    ):
        """Compute the results for the inputs.

        Args:
            inputs: A string, or several: a list, a tuple, a NumPy array, a pandas Series, an
                iterator or a DataFrame. Pairs are tuples of two strings; for multiple choice,
                tuples of a text and a list. Or the data of the task, such as `keras_bert.Examples`.
            text_pair: The second text of a pair, or a list or iterator of second texts.
            question, context: For question answering, strings, lists or iterators. Several
                questions may share one context.
            choices: For multiple choice, the choices of a text, or a list or iterator of them.
            query, document: For reranking, strings or lists. One query may have several documents.
            text: For a DataFrame, the name of the column of the texts. `text_pair`, `question`,
                `context`, `choices`, `query` and `document` name columns too. Defaults to the
                columns of the training data if the DataFrame has them, and else to the names of the
                arguments.
            batch_size: Sequences per batch. Defaults to that of the pipeline.
            show_progress: If True, show a progress bar for long inputs.
            **options: Options of the task, see `keras_bert.pipeline`.

        Returns:
            The result of a single input, a list of results for several, an iterator for an
            iterator, or for a DataFrame a copy with the results as further columns. Their names
            begin with `predicted_` where the DataFrame already has a column of this name. An
            existing column `predicted_...` is overwritten.

        Raises:
            ValueError: If an input is not a string, or an option does not belong to the task.
        """
        for name in options:
            if name not in self.options:
                known = ", ".join((*self.options, "batch_size", "show_progress"))
                raise ValueError(f"{name} is not an option of this task; the options are {known}")
        if options.get("top_k") is not None:
            as_integer("top_k", options["top_k"], 1)
        named = {
            "text": text, "text_pair": text_pair, "question": question, "context": context,
            "choices": choices, "query": query, "document": document,
        }  # fmt: skip
        named = {name: value for name, value in named.items() if value is not None}
        call = self._new_call(options, batch_size, show_progress)
        if is_dataframe(inputs):
            return self._run_dataframe(inputs, named, call)
        if text is not None:
            raise ValueError("text names a column of a DataFrame; give texts as the first argument")
        inputs, named = self._zip_iterators(inputs, named)
        if isinstance(inputs, (Iterator, TaskData)):
            if named:
                raise ValueError(f"{min(named)} cannot be combined with a {type(inputs).__name__}")
            run = self._run_iterator if isinstance(inputs, Iterator) else self._run
            return run(inputs, call)
        rows, is_single = self._rows(inputs, **named)
        answers = self._run_rows(rows, call)
        self._warn_of_truncation(call)
        return answers[0] if is_single else answers

    def evaluate(self, examples, *, batch_size=None, **options):
        """Score the model on labeled data.

        Args:
            examples: The data of the task, with labels.
            batch_size: Sequences per batch.
            **options: For question answering `max_answer_length` and `null_threshold`.

        Returns:
            A dict of metrics, the main one first. For classes and tags, `report` has a dict of
            `precision`, `recall`, `f1` and `support` for each label.

        Raises:
            ValueError: If the data has no labels or belongs to another task.
        """
        self.predictor.task.answer_options.of(options, f"the task {self.task}")
        metrics = self.predictor.evaluate(
            examples, self._answers_with_warning, report=True, batch_size=batch_size, **options
        )
        return results.Metrics(metrics)

    def errors(self, examples, n=10):
        """Return the most confident mistakes.

        Args:
            examples: The data of the task, with labels.
            n: Number of mistakes.

        Returns:
            A list of dicts: the text, the label as `expected`, and the result; the highest score
            first.

        Raises:
            ValueError: If the data has no labels, or the task has no single answer per text.
        """
        n = as_integer("n", n, 1)
        self.predictor.check_labeled(examples)
        answers = self._answers_with_warning(examples)
        return results.Results(self._mistakes(examples, answers)[:n])

    def export(self, path, **options):
        """Export the model; the arguments of `keras_bert.export`."""
        model = self.model  # an error for an export, whose user may lack Keras
        return keras_bert.export(model, path, **options)

    def save(self, path, **options):
        """Save the model; the arguments of `keras_bert.save`."""
        model = self.model
        return keras_bert.save(model, path, **options)

    def _check_data(self, examples):
        """Raise an error for data of another task."""
        check_data(repr(self.predictor.name), examples, self.data)

    def answers(self, examples, batch_size=None, on_batch=None, **options):
        """Return one answer per example, in the form that `Task.decode` returns.

        Args:
            examples: The data of the task.
            batch_size: Sequences per batch. Defaults to that of the pipeline.
            on_batch: Called after each batch with the fraction of the sequences in it.
            **options: Those of a call or of `evaluate`.
        """
        return self._answers(examples, self._new_call(options, batch_size), on_batch)

    def _new_call(self, options, batch_size=None, show_progress=False):
        """Return a `Call`. Its batch size is by default that of the pipeline."""
        batch_size = self.batch_size if batch_size is None else batch_size
        return Call(as_integer("batch_size", batch_size, 1), options, show_progress)

    def _answers(self, examples, call, on_batch=None):
        """Return what `answers` returns, and count the texts in the call."""
        task = self.predictor.task
        encode_options = {}
        if "long_texts" in task.training_options.names():
            encode_options["long_texts"] = self.long_texts
        names = task.answer_options.names()
        answer_options = {name: value for name, value in call.options.items() if name in names}
        return self.predictor.answers(
            examples,
            batch_size=call.batch_size,
            on_batch=on_batch,
            on_encoded=lambda encoded: self._count(encoded, self._sequences(examples), call),
            encode_options=encode_options,
            **answer_options,
        )

    def _answers_with_warning(self, examples, batch_size=None, **options):
        """Return what `answers` returns, and warn of truncated texts."""
        call = self._new_call(options, batch_size)
        answers = self._answers(examples, call)
        self._warn_of_truncation(call)
        return answers

    def _rows(self, inputs, **named):
        """Return a list of rows, and True if the inputs are a single row.

        A row is a text, or a pair of a text and its value for the second of two `columns`.
        """
        if len(self.columns) == 1:
            check_not_given(**named)
            rows, is_single = listed(inputs)
            return check_texts(rows), is_single
        name = self.columns[1]
        values = named.pop(name, None)
        check_not_given(**named)
        if values is None:
            is_single = _is_row(inputs)
            rows = [inputs] if is_single else listed(inputs)[0]
        else:
            texts, is_single = listed(inputs)
            values = [values] if is_single else listed(values, name)[0]
            if len(values) != len(texts):
                raise ValueError(f"{name} must have an item for each of the {len(texts)} texts")
            rows = list(zip(texts, values, strict=True))
        for number, row in enumerate(rows, 1):
            if not is_pair(row):
                columns = ", ".join(self.columns)
                raise ValueError(f"input {number} must be ({columns}); received {shown(row)}")
            self._check_row(f"input {number}", row)
        return rows, is_single

    def _check_row(self, location, row):
        """Raise an error for a row of two columns that is malformed."""
        check_texts(row, f"{location}, text")

    def _examples(self, rows):
        """Return the data of the task for some rows."""
        raise NotImplementedError

    def _run(self, examples, call):
        """Return the results for the data of the task."""
        self._check_data(examples)
        with _bar(len(examples), call) as advance:
            answers = self._part(examples, call, advance)
        self._warn_of_truncation(call)
        return self._joined(answers)

    def _run_rows(self, rows, call):
        answers = []
        with _bar(len(rows), call) as advance:
            for start in range(0, len(rows), self.chunk):
                part = self._examples(rows[start : start + self.chunk])
                answers.extend(self._part(part, call, advance))
        return self._joined(answers)

    def _part(self, examples, call, advance):
        task = self.predictor.task
        task.check_inputs(examples)

        def on_batch(share):
            advance(share * len(examples))

        answers = self._answers(examples, call, on_batch)
        return task.results(self.output, examples, answers, **call.options)

    def _joined(self, result_per_text):
        return results.Results(result_per_text)

    def _zip_iterators(self, inputs, named):
        """Return the two columns of the task as an iterator of rows, if the first is an iterator.

        `named` are the other inputs of `__call__` by name.
        """
        first = named.get(self.columns[0]) if inputs is None else inputs
        second = named.get(self.columns[-1])
        if len(self.columns) == 1 or second is None or not isinstance(first, Iterator):
            return inputs, named
        if isinstance(second, str):  # one context for all questions
            second = itertools.repeat(second)
            return zip(first, second, strict=False), {}
        return zip(first, second, strict=True), {}

    def _run_iterator(self, inputs, call):
        call.show_progress = False
        size = min(self.chunk, 16 * call.batch_size)
        done = 0
        try:
            while part := list(itertools.islice(inputs, size)):
                try:
                    rows, _ = self._rows(part)
                    answers = self._run_rows(rows, call)
                except ValueError as error:
                    where = f"in the inputs {done + 1} to {done + len(part)}"
                    raise ValueError(f"{where}: {error}") from error
                done += len(part)
                yield from answers
        finally:
            self._warn_of_truncation(call)

    def _run_dataframe(self, frame, named, call):
        """Return a copy of a DataFrame with the results as further columns.

        `named` are the names of columns that a caller gave, by input.
        """
        check_not_given(**{name: named[name] for name in named if name not in self.columns})
        values = {}
        for name in self.columns:
            default = self.predictor.columns.get(name)
            if default not in frame.columns:
                default = name
            column = named.get(name, default)
            if column not in frame.columns:
                raise ValueError(
                    f"the DataFrame has no column {column!r}. Give the name of yours: "
                    f"pipe(frame, {name}=...)"
                )
            check_single(collections.Counter(frame.columns), column)
            values[name] = frame[column].tolist()
        rows, _ = self._rows(values.pop(self.columns[0]), **values)
        answers = results.Results(self._run_rows(rows, call))
        self._warn_of_truncation(call)
        columns = answers.to_dataframe(frame.index)
        new_names = {name: f"predicted_{name}" for name in columns if name in frame.columns}
        return frame.assign(**columns.rename(columns=new_names).to_dict("list"))

    def _mistakes(self, examples, answers):
        """Return the mistakes for `errors`, the most confident first."""
        raise ValueError(f"errors does not apply to the task {self.task}")

    def _sequences(self, examples):
        """Return the number of texts that can be truncated."""
        return len(examples)

    def _count(self, encoded, texts, call):
        """Count what the model does not see; raise an error if `long_texts` is "error"."""
        self.counts.update(encoded.counts())
        truncated = encoded.truncated or encoded.cut_questions
        long_texts = self.long_texts or self.output.long_texts
        if truncated and long_texts == "error":
            raise ValueError(
                f"{truncated} of {texts} texts have more than {encoded.max_length} tokens. Shorten "
                'them, or pass long_texts="truncate"'
            )
        call.truncated += truncated
        call.texts += texts

    def _warn_of_truncation(self, call):
        """Warn of the texts that a call has truncated, once per pipeline."""
        if not call.truncated or self._has_warned:
            return
        self._has_warned = True
        max_length = self.predictor.task_model.max_length
        max_positions = self.predictor.max_positions
        remedy = "Shorten them"
        is_readable = self.reads_pairs_in_windows or not self.output.pairs
        in_windows = (self.long_texts or self.output.long_texts) == "window"
        if "window" in self.long_texts_options and is_readable and not in_windows:
            remedy = 'keras_bert.pipeline(model, long_texts="window") reads them in parts'
        elif max_positions > max_length:
            remedy += f", or raise preprocessor.max_sequence_length, at most {max_positions}"
        warnings.warn(
            f"{call.truncated} of {call.texts} texts were truncated to {max_length} tokens. "
            f"{remedy}",
            stacklevel=level_of_caller(),
        )


def _is_row(inputs):
    """Return True for a tuple of a text and its second value, a single row of two columns."""
    return isinstance(inputs, tuple) and len(inputs) == 2 and isinstance(inputs[0], str)


@contextlib.contextmanager
def _bar(count, call):
    """Show a progress bar for long inputs; yields a function that takes a number of texts."""
    if not call.show_progress or count <= _LONG_INPUT:
        yield lambda done: None
        return
    with progress() as bar:
        work = bar.add_task("Predicting", total=count)
        yield lambda done: bar.advance(work, done)
