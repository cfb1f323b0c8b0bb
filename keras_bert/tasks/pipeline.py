"""The base class of the pipelines."""

import contextlib
import difflib
import itertools
import typing
import warnings
from collections.abc import Iterator

from keras_bert.data.examples import Examples, TaskData
from keras_bert.runtime.arguments import as_integer
from keras_bert.runtime.escaping import printable
from keras_bert.runtime.terminal import progress
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks import results
from keras_bert.tasks.inputs import check_top_k, listed

_LONG_INPUT = 200  # texts for which a progress bar is shown


class Pipeline:
    """A function from texts to results. `keras_bert.pipeline` makes one.

    Attributes:
        model: The `keras.Model`; not for an ONNX folder.
        task: Name of its head, such as `"classification"`.
        output: Its labels and options, as in `layers.TaskOutput`.
        batch_size: Sequences per batch.
    """

    # A pipeline computes with a `KerasEngine` or an `OnnxEngine`. Each task has a subclass, which
    # implements `_rows` (inputs to a list of rows) and `_examples` (rows to the data of the task).
    columns: tuple[str, ...] = ("text",)  # of a DataFrame
    options: tuple[str, ...] = ()  # keyword options of `__call__`
    data: tuple[type, ...] = (Examples,)  # the data of the task
    long_texts_options: tuple[str, ...] = ("truncate",)
    chunk = 8192  # rows that are tokenized and computed at once

    def __init__(self, engine, *, batch_size=32, long_texts=None):
        self._engine = engine
        self.output = engine.described.output
        self.task = engine.task.name
        self.batch_size = batch_size
        if long_texts not in (None, *self.long_texts_options):
            raise ValueError(
                f"long_texts must be one of {', '.join(self.long_texts_options)} for the task "
                f"{self.task}; received {long_texts!r}"
            )
        self.long_texts = long_texts
        self._has_warned, self._truncated, self._read, self._max_length = False, 0, 0, None

    @property
    def model(self):
        return self._engine.model

    def __repr__(self):
        return f"<keras_bert.pipeline of {self._engine.name!r}, task {self.task}>"

    def __call__(
        self,
        inputs=None,
        text_pair=None,
        *,
        text=None,
        question=None,
        context=None,
        choices=None,
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
            text: For a DataFrame, the name of the column of the texts. `text_pair`, `question`,
                `context` and `choices` name columns too. Defaults to the columns of the training
                data if the DataFrame has them, and else to the names of the arguments.
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
        self._check_options(options)
        check_top_k(options.get("top_k"))
        given = {
            "text_pair": text_pair, "question": question, "context": context, "choices": choices
        }  # fmt: skip
        settings = {"batch_size": self._size(batch_size), "show_progress": show_progress}
        if results.is_dataframe(inputs):
            columns = self._columns_of(inputs, {"text": text, **given})
            return self._run_dataframe(inputs, columns, settings, options)
        if text is not None:
            raise ValueError("text names a column of a DataFrame; give texts as the first argument")
        inputs, given = self._zip_iterators(inputs, given)
        run = None
        if isinstance(inputs, Iterator):
            run = self._run_iterator
        elif isinstance(inputs, TaskData):
            run = self._run
        if run is not None:
            other = next((name for name, value in given.items() if value is not None), None)
            if other is not None:
                raise ValueError(
                    f"{other} cannot be combined with a {type(inputs).__name__}, which holds all "
                    "inputs itself"
                )
            return run(inputs, settings, options)
        rows, is_single = self._rows(inputs, **given)
        answers = self._run_rows(rows, settings, options)
        return answers[0] if is_single else answers

    def _check_options(self, options):
        """Raise an error for an option that a call does not have."""
        unknown = next((name for name in options if name not in self.options), None)
        if unknown is None:
            return
        if unknown in ("long_texts", "precision", "pooling"):
            raise ValueError(
                f"{unknown} is an argument of keras_bert.pipeline, not of its calls: "
                f"keras_bert.pipeline(model, {unknown}=...)"
            )
        known = (*self.options, "batch_size", "show_progress")
        close = difflib.get_close_matches(unknown, known, 1)
        advice = f"did you mean {close[0]}?" if close else f"the options are {', '.join(known)}"
        raise ValueError(f"{unknown} is not an option of this task; {advice}")

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
        self._check_data(examples, scored=True)
        if "top_k" in options:
            raise ValueError("top_k is not an option of evaluate; remove it")
        task = self._engine.task
        task.answer_options.of(options, f"the task {task.name}")
        answers = self._answers(examples, self._size(batch_size), **options)
        self._warn_of_truncation()
        task = self._engine.task
        return results.Metrics(task.metrics(self.output, examples, answers, report=True))

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
        if self._mistakes is None:
            raise ValueError(f"errors does not apply to the task {self.task}")
        self._check_data(examples, scored=True)
        answers = self._answers(examples, self.batch_size)
        return results.Results(self._mistakes(examples, answers)[:n])

    def export(self, path, **options):
        """Export the model; the arguments of `keras_bert.export`."""
        return self._engine.export(path, **options)

    def save(self, path, **options):
        """Save the model; the arguments of `keras_bert.save`."""
        return self._engine.save(path, **options)

    def encode(self, *args, **options):
        raise ValueError(
            f"a pipeline of the task {self.task} has no embeddings. Load the Keras model with "
            "keras_bert.pipeline(model, task='embedding')"
        )

    def _check_data(self, examples, scored=False):
        """Raise an error for data of another task; with `scored`, also for data without labels."""
        if not isinstance(examples, self.data):
            raise ValueError(
                f"{self._engine.name!r} takes {self.data[0].__name__}; received "
                f"{type(examples).__name__}. Files and tables become such data with keras_bert.read"
            )
        if scored:
            self._engine.task.check_labeled(examples)
            self._engine.task.check_targets(self.output, examples)

    def _size(self, batch_size):
        """Return the batch size of a call; the pipeline's own is the default."""
        if batch_size is None:
            return self.batch_size
        return as_integer("batch_size", batch_size, 1)

    def _answers(self, examples, batch_size, on_batch=None, **options):
        encoded = self._encode(examples)
        self._count_truncated(encoded, self._sequences(examples))
        return self._engine.answers(
            examples, encoded, batch_size=batch_size, on_batch=on_batch, **options
        )

    def _rows(self, inputs, **given):
        """Return a list of rows, and True if the inputs are a single row."""
        raise NotImplementedError

    def _examples(self, rows):
        """Return the data of the task for some rows."""
        raise NotImplementedError

    def _encode(self, examples):
        return self._engine.encode(examples)

    def _run(self, examples, settings, options):
        """Return the results for the data of the task."""
        self._check_data(examples)
        with _bar(len(examples), settings) as advance:
            found = self._part(examples, settings, options, advance)
        self._warn_of_truncation()
        return self._joined(found)

    def _run_rows(self, rows, settings, options, warn=True):
        found = results.Results()
        with _bar(len(rows), settings) as advance:
            for start in range(0, len(rows), self.chunk):
                part = self._examples(rows[start : start + self.chunk])
                found.extend(self._part(part, settings, options, advance))
        if warn:
            self._warn_of_truncation()
        return self._joined(found)

    def _part(self, examples, settings, options, advance):
        self._engine.task.check_inputs(examples)

        def on_batch(share):
            advance(share * len(examples))

        answers = self._answers(
            examples, settings["batch_size"], on_batch, **self._decoding(options)
        )
        task = self._engine.task
        return results.Results(task.results(self.output, examples, answers, **options))

    def _zip_iterators(self, inputs, given):
        """Return the two columns of the task as an iterator of rows, if the first is an iterator.

        `given` are the other inputs of `__call__` by name.
        """
        names = {name for name, value in given.items() if value is not None}
        if len(self.columns) < 2 or names | {self.columns[0]} != {*self.columns}:
            return inputs, given
        if inputs is not None and self.columns[0] in names:
            return inputs, given
        first = given.get(self.columns[0]) if inputs is None else inputs
        second = given[self.columns[1]]
        is_text = isinstance(second, str) and self.columns[1] != "context"
        if not isinstance(first, Iterator) or is_text:
            return inputs, given
        if not isinstance(second, (str, Iterator)):
            second = listed(second, self.columns[1])[0]
        return _paired(first, second, self.columns[1]), {}

    def _run_iterator(self, inputs, settings, options):
        settings = {**settings, "show_progress": False}
        size = min(self.chunk, 16 * settings["batch_size"])
        done = truncated = read = 0
        try:
            while part := list(itertools.islice(inputs, size)):
                try:
                    rows, _ = self._rows(part)
                    found = self._run_rows(rows, settings, options, warn=False)
                except ValueError as error:
                    if not done:
                        raise
                    where = f"in the inputs {done + 1} to {done + len(part)}"
                    raise ValueError(f"{where}: {error}") from None
                done += len(part)
                truncated, read = truncated + self._truncated, read + self._read
                self._truncated = self._read = 0
                yield from found
        except GeneratorExit:  # the caller stopped
            self._warn_of_truncation(truncated, read)
            raise
        self._warn_of_truncation(truncated, read)

    def _columns_of(self, frame, given):
        """Return the columns of a DataFrame for the inputs of the task, in their order.

        `given` are the names of columns that a caller gave, by input.
        """
        if not frame.columns.is_unique:
            repeated = frame.columns[frame.columns.duplicated()][0]
            raise ValueError(f"the DataFrame has several columns {repeated!r}; rename them")
        given = {role: name for role, name in given.items() if name is not None}
        for role, name in given.items():
            if role not in self.columns:
                raise ValueError(f"{role} is not an input of this task; remove it")
            if not isinstance(name, (str, int)):
                raise ValueError(
                    f"{role} must be the name of a column of the DataFrame; received {name!r:.80}"
                )
        remembered = {
            role: name for role, name in self._engine.columns.items() if name in frame.columns
        }
        columns = [given.get(role, remembered.get(role, role)) for role in self.columns]
        for role, name in zip(self.columns, columns, strict=True):
            if name not in frame.columns:
                raise ValueError(
                    f"the DataFrame has no column {name!r}; it has "
                    f"{printable(', '.join(map(str, frame.columns)))}. Give the name of yours: "
                    f"pipe(frame, {role}=...)"
                )
        return columns

    def _run_dataframe(self, frame, names, settings, options):
        if not len(frame):
            return self._run_empty(frame, names, settings, options)
        first, *others = (frame[name].tolist() for name in names)
        rows, _ = self._rows(first, **dict(zip(self.columns[1:], others, strict=True)))
        answers = results.Results(self._run_rows(rows, settings, options))
        columns = {}
        for name, column in answers.to_dataframe(frame.index).items():
            values = column.tolist()
            if name in frame.columns:
                if name == "label" and frame[name].dtype.kind in "iu":
                    values = _integers(values)
                name = f"predicted_{name}"
            columns[name] = values
        return frame.assign(**columns)

    def _run_empty(self, frame, names, settings, options):
        """Add the columns of the results to a DataFrame without rows."""
        # A masked language model needs a [MASK]; the other tasks take any text.
        sample: dict[typing.Any, typing.Any] = dict.fromkeys(names, "[MASK]")
        if "choices" in self.columns:
            sample[names[self.columns.index("choices")]] = ["[MASK]", "[MASK]"]
        one_row = type(frame)([dict.fromkeys(frame.columns) | sample])
        columns = self._run_dataframe(one_row, names, settings, options).columns
        return frame.assign(**{name: [] for name in columns if name not in frame.columns})

    def _decoding(self, options):
        """Return the options that the task's `decode` takes."""
        return {}

    def _joined(self, answers):
        return answers

    _mistakes: typing.Any = None  # a function of examples and answers, if one can be wrong

    def _sequences(self, examples):
        """Return the number of texts that can be truncated."""
        return len(examples)

    def _count_truncated(self, encoded, count):
        """Count truncated texts for the warning; raise an error if `long_texts` is "error"."""
        truncated = encoded.truncated or encoded.cut_questions
        long_texts = self.long_texts or self.output.long_texts
        if truncated and long_texts == "error":
            raise ValueError(
                f"{truncated} of {count} texts have more than {encoded.max_length} tokens. Shorten "
                'them, or pass long_texts="truncate"'
            )
        self._truncated += truncated
        self._read, self._max_length = self._read + count, encoded.max_length

    def _warn_of_truncation(self, truncated=0, read=0):
        """Warn of truncated texts, once per pipeline."""
        self._truncated, self._read = self._truncated + truncated, self._read + read
        if self._truncated and not self._has_warned:
            self._has_warned = True
            remedy = 'keras_bert.pipeline(model, long_texts="window") reads them in parts'
            if "window" not in self.long_texts_options or self.output.pairs:
                remedy = "Shorten them"
                if self._engine.longest > self._max_length:
                    remedy += (
                        ", or raise preprocessor.max_sequence_length of the encoder to at most "
                        f"{self._engine.longest}"
                    )
            warnings.warn(
                f"{self._truncated} of {self._read} texts were truncated to {self._max_length} "
                f"tokens. {remedy}",
                stacklevel=level_of_caller(),
            )
        self._truncated = self._read = 0


def _paired(first, second, name):
    """Yield rows of two columns; `second` may be one text for all rows."""
    if isinstance(second, str):
        yield from ((item, second) for item in first)
        return
    end = object()
    for item, other in itertools.zip_longest(first, second, fillvalue=end):
        if item is end or other is end:
            raise ValueError(f"{name} must have as many items as the other input")
        yield item, other


def _integers(labels):
    """Convert labels to integers if each is the decimal form of one."""
    try:
        found = [int(label) for label in labels]
    except ValueError:
        return labels
    return found if list(map(str, found)) == labels else labels


@contextlib.contextmanager
def _bar(count, settings):
    """Show a progress bar for long inputs; yields a function that takes a number of texts."""
    if not settings["show_progress"] or count <= _LONG_INPUT:
        yield lambda done: None
        return
    with progress() as bar:
        work = bar.add_task("Predicting", total=count)
        yield lambda done: bar.advance(work, done)
