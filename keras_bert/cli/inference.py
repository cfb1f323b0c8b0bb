"""`evaluate`, `predict`, `embed` and `fill`."""

import collections
import contextlib
import itertools
import os
import pathlib
import sys

import numpy as np

from keras_bert import heads
from keras_bert.cli import arguments, options, reading, writing
from keras_bert.data import tabular
from keras_bert.data.examples import Examples
from keras_bert.exporting.predict_function import predict_function
from keras_bert.hub import loading
from keras_bert.runtime.escaping import printable
from keras_bert.runtime.files import atomic_write
from keras_bert.runtime.terminal import print_line, progress
from keras_bert.tasks import inference, prediction_files, registry
from keras_bert.tasks.embedding import nearest as search
from keras_bert.tasks.embedding.head import as_embedder
from keras_bert.tasks.inputs import prompt_of
from keras_bert.tasks.masked_tokens.task import MaskedTokens
from keras_bert.text.encoded_texts import EncodedTexts
from keras_bert.training import report, run_state


def _fine_tuned(args, hint=""):
    """Load a model with the head of a task. `hint` ends the error for a model without one."""
    name = args.model
    if pathlib.Path(name, run_state.STATE_FILE).is_file():
        note = f"{name} has an unfinished run. Run the same finetune command again to resume it"
        if not pathlib.Path(name, loading.MODEL_FILE).is_file():
            raise ValueError(note)
        print_line(f"{note}. The model there is from an earlier run", file=sys.stderr)
    model = arguments.load(args, task="auto")
    try:
        registry.for_model(model)
    except ValueError as error:
        raise ValueError(f"{name}: {error}{hint}") from error
    return model


def evaluate(args: options.Evaluate) -> None:
    """Score a model on a labeled file."""
    if args.task is not None:
        wanted = registry.by_name(args.task)
        model = wanted.from_encoder(arguments.load(args, task="auto"), args.pooling)
    elif args.pooling is not None:
        raise ValueError("--pooling applies only with --task")
    else:
        model = _fine_tuned(args, hint="; to score embeddings, add --task embedding")
    task = registry.for_model(model)
    name = reading.task_of(model)
    if args.characters and "characters" not in task.reads[name]:
        raise ValueError(f"--characters does not apply to {args.model}, which has the task {name}")
    decoding = _decoding(args, model)
    examples = _labeled_data(args, model, task)
    encoded = inference.encode(model, examples)
    with _bar("Scoring") as on_batch:
        answers = inference.answers(
            model,
            examples,
            batch_size=args.batch_size,
            encoded=encoded,
            on_batch=on_batch,
            predict=predict_function(task.training_model(model), args.precision),
            **decoding,
        )
    metrics = inference.score(heads.find_output(model), examples, answers)
    print_line(report.table({"examples": len(examples), **metrics}))
    for note in reading.notes(examples, metrics=encoded.counts()):
        print_line(note)


def _labeled_data(args, model, task):
    """Read the data to score a model on."""
    has_prompts = args.prompt is not None or args.corpus_prompt is not None
    if task.reads_encoders:
        data = _embedding_data(args, task.name)
        if not has_prompts:
            return data
        output = heads.find_output(model)
        return data.with_prompts(
            prompt_of(output, args.prompt or ""), prompt_of(output, args.corpus_prompt or "")
        )
    if has_prompts:
        raise ValueError("--prompt and --corpus-prompt apply only to embeddings")
    name = reading.task_of(model)
    return reading.read(args.input, name, reading.columns_of(args, args.model), args.format)


def _embedding_data(args, name):
    """Read the data to score an embedder on: queries and a corpus, or pairs."""
    data = reading.read_retrieval(args.input, args.split)
    if data is not None:
        return data
    columns = reading.columns_of(args, args.model) | {"negatives": (), "score_range": None}
    if (args.text or args.text_pair) and args.label is None:
        columns["label"] = None
    return reading.read(args.input, name, columns, args.format)


def _decoding(args, model):
    """Return the options of the task's `decode` that the command line sets."""
    if args.null_threshold is None:
        return {}
    names = registry.for_model(model).answer_options.names()
    if "null_threshold" not in names or not heads.find_output(model).no_answer:
        raise ValueError(
            f"--null-threshold needs a model for questions without an answer; {args.model} was not "
            "trained on such questions"
        )
    return {"null_threshold": args.null_threshold}


def predict_texts(args: options.Predict) -> None:
    """Predict for texts or a file."""
    if bool(args.texts) == bool(args.input):
        raise ValueError("give either texts or --input")
    for text in args.texts:
        if pathlib.Path(text).suffix and os.path.isfile(text):
            raise ValueError(f"{text} is a file. To read it, give --input {text}")
    writing.check_output(args.output, args.input)
    model = _fine_tuned(args)
    task = registry.for_model(model)
    if args.probabilities and not task.has_probabilities:
        raise ValueError(
            f"--probabilities needs a model with classes or choices; {args.model} has the task "
            f"{task.name}. Remove the option"
        )
    format = prediction_files.format_of(args.output, model)
    with writing.open_predictions(args, format) as file, progress() as bar:
        state = file.state or {"rows": 0, "counts": {}}
        if state["rows"]:
            print_line(f"resuming after {state['rows']} rows", file=sys.stderr)
        # A label, a number or a choice on the command line needs no header.
        has_columns = task.needs_header(heads.find_output(model))
        needs_header = args.input or args.probabilities or has_columns
        lines = prediction_files.lines(
            format,
            model,
            _answered(args, model, state, file, bar),
            header=not state["rows"] and bool(needs_header or format == "csv"),
            probabilities=args.probabilities,
        )
        for line in lines:
            # JSON and invalid bytes in arguments can hold surrogates, which UTF-8 cannot encode.
            file.write(line.encode("utf-8", "replace").decode("utf-8"))
    if args.output not in (None, "-") and not writing.is_stream(args.output):
        noun = "answer" if state["rows"] == 1 else "answers"
        print_line(f"{state['rows']} {noun} in {pathlib.Path(args.output).resolve()}")
    reading.print_counts(collections.Counter(state["counts"]))


def _answered(args, model, state, file, bar):
    """Yield each part of the input with its answers.

    `state` has the number of rows and the counts of the parts whose lines are in the file.
    """
    decoding = _decoding(args, model)
    predict = predict_function(model, args.precision)
    work = bar.add_task("Predicting", total=None if args.input else 1, completed=state["rows"])
    for part in _after(state["rows"], _parts(args, model)):
        registry.for_model(model).check_inputs(part)
        encoded = inference.encode(model, part)
        yield (
            part,
            inference.answers(
                model,
                part,
                batch_size=args.batch_size,
                encoded=encoded,
                predict=predict,
                **decoding,
            ),
        )
        # The lines of this part are written now.
        state["rows"] += len(part)
        counts = collections.Counter(state["counts"])
        state["counts"] = counts + collections.Counter(encoded.counts())
        file.commit(state)
        bar.advance(work, len(part))


def _after(rows, parts):
    """Yield the parts after the first `rows` rows, which end with a part."""
    for part in parts:
        if rows <= 0:
            yield part
        rows -= len(part)


def _parts(args, model):
    """Return the inputs in parts, because a file may be larger than the memory."""
    if args.input:
        columns = reading.columns_of(args, args.model)
        return reading.read_in_parts(args.input, reading.task_of(model), columns, args.format)
    task = registry.for_model(model)
    return [task.of_texts(inference.describe(model), list(args.texts), "the command line")]


def embed(args: options.Embed) -> None:
    """Write a vector for each text of a file."""
    writing.check_output(args.output, args.input)
    if pathlib.Path(args.output).suffix.lower() != ".npy":
        raise ValueError(f"--output must be a file with the extension .npy; received {args.output}")
    columns = reading.columns_of(args, args.model)
    parts = tabular.read_in_parts(
        args.input, text=columns["text"], header=columns["header"], format=args.format
    )
    first = next(parts)
    model = as_embedder(arguments.load(args, task="auto"), args.pooling)
    described = inference.describe(model)
    shape = [0, model.output_shape[-1]]
    prompt = prompt_of(heads.find_output(model), args.prompt)
    predict = predict_function(model, args.precision)
    counts: collections.Counter[str] = collections.Counter()
    path = pathlib.Path(args.output).resolve()
    with atomic_write(path) as beside, open(beside, "wb") as file, progress() as bar:
        work = bar.add_task("Embedding", total=None)
        _write_header(file, shape)
        for part in itertools.chain([first], parts):
            texts = [prompt + text for text in part.texts]
            encoded = EncodedTexts(described.tokenizer, [texts], described.max_length)
            counts.update(encoded.counts())
            options = {"batch_size": args.batch_size, "predict": predict}
            vectors = np.array(inference.run(model, encoded, **options), np.float32)
            search.check_finite(vectors, args.model)
            file.write(vectors.tobytes())
            shape[0] += len(part)
            bar.advance(work, len(part))
        file.seek(0)
        _write_header(file, shape)  # NumPy pads headers, so the length is the same
    print_line(f"{shape[0]} vectors of {shape[1]} numbers in {path}")
    reading.print_counts(counts)


def _write_header(file, shape):
    dtype = np.lib.format.dtype_to_descr(np.dtype(np.float32))
    header = {"descr": dtype, "fortran_order": False, "shape": tuple(shape)}
    np.lib.format.write_array_header_1_0(file, header)


def fill_masks(args: options.Fill) -> None:
    """Print candidates for [MASK]."""
    model = _load_masked_lm(args)
    predict = predict_function(model)
    answers = inference.answers(model, Examples(list(args.texts)), predict=predict, top_k=args.top)
    for text, masks in zip(args.texts, answers, strict=True):
        for mask, candidates in enumerate(masks, 1):
            for token, probability in candidates:
                print_line(f"{probability:.4f}\t{printable(token)}\t{mask}\t{printable(text)}")


def _load_masked_lm(args):
    try:
        return arguments.load(args, task=MaskedTokens.name)
    except ValueError as error:
        if heads.find_task(arguments.load(args, task="auto")) in heads.OF_PRETRAINING:
            raise
        # The error suggests a fresh head, which would predict random tokens.
        raise ValueError(
            f"{args.model} has no masked LM head. Use a checkpoint that has one, such as base"
        ) from error


@contextlib.contextmanager
def _bar(title):
    """Show a progress bar; yields a function that takes the fraction done since the last call."""
    with progress() as bar:
        work = bar.add_task(title, total=1)
        yield lambda share: bar.advance(work, share)
