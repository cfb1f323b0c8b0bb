"""`evaluate`, `predict`, `embed` and `fill`: what a model answers."""

import collections
import contextlib
import itertools
import math
import os
import pathlib
import re
import sys

import numpy as np

from keras_bert import heads
from keras_bert.cli import arguments, reading
from keras_bert.data import tabular
from keras_bert.hub import loading
from keras_bert.runtime.files import atomic_write
from keras_bert.runtime.terminal import progress
from keras_bert.tasks import (
    inference,
    masked_lm,
    multiple_choice,
    prediction_files,
    question_answering,
    registry,
    tagging,
)
from keras_bert.training import report, run_state

# Endings of files that hold text.
_TEXTS = {".csv", ".json", ".jsonl", ".tsv", ".txt"}


def _fine_tuned(args):
    """A model with one of the tasks' heads."""
    name = args.model
    if pathlib.Path(name, run_state.STATE_FILE).is_file():
        note = f"{name}: the run there is not finished; the same finetune command goes on with it"
        if not pathlib.Path(name, loading.MODEL_FILE).is_file():
            raise ValueError(note)
        print(f"{note}. This is the model of an earlier run", file=sys.stderr)
    model = arguments.load(args, task="auto")
    try:
        registry.for_model(model)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    return model


def evaluate(args):
    """Scores a model on a labelled file."""
    model = _fine_tuned(args)
    task = reading.task_of(model)
    if args.characters and task != "qa":
        raise ValueError(f"--characters is for questions; {args.model} is of the task {task}")
    decoding = _decoding(args, model)
    examples = reading.read(args.input, task, reading.columns_of(args, args.model), args.format)
    encoded = inference.encode(model, examples)
    with _bar("Scoring") as on_batch:
        answers = inference.answers(
            model,
            examples,
            batch_size=args.batch_size,
            encoded=encoded,
            on_batch=on_batch,
            **decoding,
        )
    metrics = registry.for_model(model).score(model, examples, answers)
    print(report.table({"examples": len(examples), **metrics}))
    for note in reading.notes(examples, metrics=inference.counts(encoded)):
        print(note)


def _decoding(args, model):
    """The options of the task's `decode` that the command line gives."""
    if args.null_threshold is None:
        return {}
    if reading.task_of(model) != "qa" or not heads.find_output(model).no_answer:
        raise ValueError(
            f"--null-threshold is for questions that may have no answer; {args.model} was not "
            "trained on such"
        )
    if math.isnan(args.null_threshold):
        raise ValueError("--null-threshold must be a number; received nan")
    return {"null_threshold": args.null_threshold}


def predict_texts(args):
    """Answers texts or a file."""
    if bool(args.texts) == bool(args.input):
        raise ValueError("predict takes texts or --input, one of them")
    _check_output(args.output, args.input)
    model = _fine_tuned(args)
    format = prediction_files.format_of(args.output, model)
    decoding = _decoding(args, model)
    parts = _parts(args, model)
    counts: collections.Counter[str] = collections.Counter()
    with _writer(args.output) as write, progress() as bar:
        work = bar.add_task("Predicting", total=None if args.input else 1)

        def answered():
            for part in parts:
                encoded = inference.encode(model, part)
                counts.update(inference.counts(encoded))
                options = {"batch_size": args.batch_size, "encoded": encoded, **decoding}
                answers = inference.answers(model, part, **options)
                yield part, answers, _asked(part, answers) if args.texts else None
                bar.advance(work, len(part))

        # A label and its probability explain themselves; a row of probabilities does not.
        named = bool(args.input) or getattr(heads.find_output(model), "multi_label", False)
        for line in prediction_files.lines(format, model, answered(), header=named):
            write(line)
    reading.print_counts(counts)


def _asked(part, answers):
    """What is shown with each answer to the command line: its texts, the choice; or `None`."""
    if isinstance(part, multiple_choice.Choices):
        rows = zip(part.choices, answers, strict=True)
        return [{"text": its[answer.argmax()]} for its, answer in rows]
    if not isinstance(part, tabular.Examples):
        return None
    if part.text_pairs is None:
        return [{"text": text} for text in part.texts]
    pairs = zip(part.texts, part.text_pairs, strict=True)
    return [{"text": text, "text_pair": pair} for text, pair in pairs]


def _parts(args, model):
    """What is to be answered, a part at a time, so that a file may have any size."""
    task = reading.task_of(model)
    if args.input:
        return reading.read_in_parts(
            args.input, task, reading.columns_of(args, args.model), args.format
        )
    if task == "tagging":
        tokenizer = heads.find_encoder(model).preprocessor.tokenizer
        characters = heads.find_output(model).characters
        words, _ = tagging.sentences_of(args.texts, tokenizer, characters)
        return [tagging.TaggedSentences(words, source="the command line")]
    if task == "qa":
        if len(args.texts) != 2:
            raise ValueError("predict takes a question and a context, two texts")
        return [
            question_answering.Questions(args.texts[:1], args.texts[1:], source="the command line")
        ]
    if task == "multiple-choice":
        text, *rest = args.texts
        if len(rest) < 2:
            raise ValueError("predict takes a text and its choices, at least two of them")
        return [multiple_choice.Choices([text], [rest], source="the command line")]
    if heads.find_output(model).pairs:
        if len(args.texts) != 2:
            raise ValueError(
                "this model reads pairs: predict takes the two texts of one; received "
                f"{len(args.texts)}. For more, give --input with --text and --text-pair"
            )
        text, pair = args.texts
        return [tabular.Examples([text], [pair], source="the command line")]
    return [tabular.Examples(args.texts, source="the command line")]


def embed(args):
    """Writes a vector for each text of a file."""
    _check_output(args.output, args.input)
    if args.output == "-" or _is_stream(args.output):
        raise ValueError(f"{args.output}: vectors are written to a file; name one, .npy")
    if pathlib.Path(args.output).suffix.lower() in _TEXTS:
        raise ValueError(f"{args.output}: vectors are written in NumPy's format; name it .npy")
    columns = reading.columns_of(args, args.model)
    parts = tabular.read_in_parts(
        args.input, text=columns["text"], header=columns["header"], format=args.format
    )
    first = next(parts)
    model = inference.as_embedder(arguments.load(args, task="auto"), args.pooling)
    shape = [0, model.output_shape[-1]]
    counts: collections.Counter[str] = collections.Counter()
    path = pathlib.Path(args.output).resolve()
    with atomic_write(path) as beside, open(beside, "wb") as file, progress() as bar:
        work = bar.add_task("Embedding", total=None)
        _write_header(file, shape)
        for part in itertools.chain([first], parts):
            encoded = inference.encode_texts(model, part.texts)
            counts.update(inference.counts(encoded))
            options = {"batch_size": args.batch_size, "encoded": encoded}
            file.write(inference.embed(model, part.texts, **options).tobytes())
            shape[0] += len(part)
            bar.advance(work, len(part))
        file.seek(0)
        _write_header(file, shape)  # as long as before: numpy leaves room for any number of rows
    print(f"{shape[0]} vectors of {shape[1]} numbers in {path}")
    reading.print_counts(counts)


def _write_header(file, shape):
    dtype = np.lib.format.dtype_to_descr(np.dtype(np.float32))
    header = {"descr": dtype, "fortran_order": False, "shape": tuple(shape)}
    np.lib.format.write_array_header_1_0(file, header)


def fill_blanks(args):
    """Prints candidates for [MASK]."""
    model = _load_masked_lm(args)
    for text, blanks in zip(
        args.texts, masked_lm.fill(model, args.texts, top=args.top), strict=True
    ):
        for number, candidates in enumerate(blanks, 1):
            for piece, probability in candidates:
                print(f"{probability:.4f}\t{piece}\t{number}\t{text}")


def _load_masked_lm(args):
    name = args.model
    try:
        return arguments.load(args, task="masked_lm")
    except ValueError as error:
        # What the library advises, a fresh head, would fill blanks with anything.
        lacks = re.search(r": must have the weights of the head masked_lm; missing ", str(error))
        if lacks or re.search(
            r" has (no head|the head (?!pretraining)\w+), not masked_lm; ", str(error)
        ):
            raise ValueError(
                f"{name} has no masked-LM head to fill blanks with; take a checkpoint that has "
                "one, such as base"
            ) from error
        raise


@contextlib.contextmanager
def _bar(title):
    """A bar for work that says which share of it is done."""
    with progress() as bar:
        work = bar.add_task(title, total=1)
        yield lambda share: bar.advance(work, share)


def _check_output(path, input):
    """Raises for a file that cannot be written, or that is being read."""
    arguments.check_folder(path)
    if path and input and pathlib.Path(path).is_file() and pathlib.Path(path).samefile(input):
        raise ValueError(f"{path}: --output must be another file than --input")


def _is_stream(path):
    """Whether it is a pipe or a device, or /dev/stdout, which may lead to a file at the moment."""
    path = pathlib.Path(path).absolute()
    while not str(path).startswith(("/dev/std", "/dev/fd/", "/proc/")):
        if not path.is_symlink():
            return path.exists() and not path.is_file()
        path = path.parent / os.readlink(path)
    return True


@contextlib.contextmanager
def _writer(path):
    """A function that writes a line to a file, which appears when it is whole, or to stdout."""
    if path in (None, "-"):
        yield print
        return
    path = pathlib.Path(path)
    if _is_stream(path):
        with open(path, "a", encoding="utf-8") as file:  # "w" would empty what stdout leads to
            yield lambda line: print(line, file=file)
        return
    path = path.resolve()  # the file that a link names, not the link
    with atomic_write(path) as beside, open(beside, "w", encoding="utf-8", newline="\n") as file:
        yield lambda line: print(line, file=file)
