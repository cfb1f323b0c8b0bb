"""`evaluate`, `predict`, `fill`, `embed`, `search` and `mine`."""

import collections
import contextlib
import hashlib
import itertools
import os
import pathlib
import sys

import numpy as np

import keras_bert
from keras_bert import heads
from keras_bert.cli import options, reading, writing
from keras_bert.data import tabular
from keras_bert.data.examples import Examples
from keras_bert.exporting.predict_function import predict_function
from keras_bert.hub import loading
from keras_bert.provenance import digest_of_weights
from keras_bert.runtime.escaping import printable
from keras_bert.runtime.files import atomic_write, cache_folder
from keras_bert.runtime.terminal import print_line, progress
from keras_bert.tasks import inference, prediction_files, registry
from keras_bert.tasks.embedding import nearest as search
from keras_bert.tasks.embedding.head import as_embedder
from keras_bert.tasks.inputs import prompt_of
from keras_bert.tasks.masked_tokens.task import MaskedTokens
from keras_bert.text.encoded_texts import EncodedTexts
from keras_bert.training import report, run_state
from keras_bert.untrusted import containers


def _fine_tuned(args, otherwise):
    """Load a model with the head of a task. `otherwise` ends the error for a model without one."""
    folder = pathlib.Path(args.model)
    if (folder / run_state.STATE_FILE).is_file() and not (folder / loading.MODEL_FILE).is_file():
        raise ValueError(
            f"{folder} has an unfinished run. Repeat the finetune command to resume it"
        )
    model = reading.load(args, task="auto")
    if registry.find(model) is None:
        raise ValueError(
            f"{args.model} has no head of a task. Train one with keras-bert finetune; {otherwise}"
        )
    return model


def evaluate(args: options.Evaluate) -> None:
    """Score a model on a labeled file."""
    if args.task is not None:
        wanted = registry.by_name(args.task)
        model = wanted.from_encoder(reading.load(args, task="auto"), args.pooling)
    elif args.pooling is not None:
        raise ValueError("--pooling applies only with --task")
    else:
        model = _fine_tuned(args, "to score embeddings, add --task embedding")
    task = registry.for_model(model)
    name = reading.task_of(model)
    if args.characters and "characters" not in task.reads[name]:
        raise ValueError(f"--characters does not apply to {args.model}, which has the task {name}")
    examples = _labeled_data(args, model, task)
    encoded = inference.encode(model, examples)
    with progress() as bar:
        work = bar.add_task("Scoring", total=1)
        answers = inference.answers(
            model,
            examples,
            batch_size=args.batch_size,
            encoded=encoded,
            on_batch=lambda share: bar.advance(work, share),
            predict=predict_function(task.training_model(model), args.precision),
        )
    metrics = inference.score(heads.find_output(model), examples, answers)
    print_line(report.table({"examples": len(examples), **metrics}))
    for note in reading.notes(examples, metrics=encoded.counts()):
        print_line(note)


def _labeled_data(args, model, task):
    """Read the data to score a model on: for embeddings, queries and a corpus, or pairs."""
    has_prompts = args.prompt is not None or args.corpus_prompt is not None
    columns = reading.columns_of(args, args.model)
    if not task.reads_encoders:
        if has_prompts:
            raise ValueError("--prompt and --corpus-prompt apply only to embeddings")
        return reading.read(args.input, reading.task_of(model), columns, args.format)
    data = reading.read_retrieval(args.input, args.split)
    if data is None:
        columns |= {"negatives": [], "score_range": None}
        if (args.text or args.text_pair) and args.label is None:
            columns["label"] = None
        data = reading.read(args.input, task.name, columns, args.format)
    if not has_prompts:
        return data
    output = heads.find_output(model)
    return data.with_prompts(
        prompt_of(output, args.prompt or ""), prompt_of(output, args.corpus_prompt or "")
    )


def predict_texts(args: options.Predict) -> None:
    """Predict for texts or a file."""
    if bool(args.texts) == bool(args.input):
        raise ValueError("give either texts or --input")
    for text in args.texts:
        if pathlib.Path(text).suffix and os.path.isfile(text):
            raise ValueError(f"{text} is a file. To read it, give --input {text}")
    writing.check_output(args.output, args.input)
    model = _fine_tuned(args, "for vectors, use keras-bert embed; for [MASK], keras-bert fill")
    task = registry.for_model(model)
    if args.probabilities and not task.has_probabilities:
        raise ValueError(f"--probabilities does not apply to the task {task.name}. Remove it")
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
    predict = predict_function(model, args.precision)
    work = bar.add_task("Predicting", total=None if args.input else 1, completed=state["rows"])
    rows_to_skip = state["rows"]  # they end with a part
    for part in _parts(args, model):
        if rows_to_skip > 0:
            rows_to_skip -= len(part)
            continue
        registry.for_model(model).check_inputs(part)
        encoded = inference.encode(model, part)
        answers = inference.answers(
            model, part, batch_size=args.batch_size, encoded=encoded, predict=predict
        )
        yield part, answers
        # The lines of this part are written now.
        state["rows"] += len(part)
        counts = collections.Counter(state["counts"])
        state["counts"] = counts + collections.Counter(encoded.counts())
        file.commit(state)
        bar.advance(work, len(part))


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
    model = as_embedder(reading.load(args, task="auto"), args.pooling)
    task_model = inference.describe(model)
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
            encoded = EncodedTexts(task_model.tokenizer, [texts], task_model.max_length)
            counts.update(encoded.counts())
            vectors = inference.run(model, encoded, batch_size=args.batch_size, predict=predict)
            vectors = np.array(vectors, np.float32)
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
    try:
        model = reading.load(args, task=MaskedTokens.name)
    except ValueError as error:
        if heads.find_task(reading.load(args, task="auto")) in registry.OF_PRETRAINING:
            raise
        # The error suggests a fresh head, which would predict random tokens.
        raise ValueError(
            f"{args.model} has no masked LM head. Use a checkpoint that has one, such as base"
        ) from error
    predict = predict_function(model)
    answers = inference.answers(model, Examples(list(args.texts)), predict=predict, top_k=args.top)
    for text, masks in zip(args.texts, answers, strict=True):
        for mask, candidates in enumerate(masks, 1):
            for token, probability in candidates:
                print_line(f"{probability:.4f}\t{printable(token)}\t{mask}\t{printable(text)}")


def find(args: options.Search) -> None:
    """Print the texts of a file with the highest similarity to a query, and their rows."""
    columns = reading.columns_of(args)
    examples = tabular.read(
        args.file, text=columns["text"], header=columns["header"], format=args.format
    )
    rows = [row for row, text in enumerate(examples.texts, 1) if text.strip()]
    texts = [examples.texts[row - 1] for row in rows]
    if not texts:
        raise ValueError(f"{args.file} has no texts to search")
    if not args.query.strip():
        raise ValueError("the query is empty. Give a text to search for")
    embed = _pipeline(args)
    query = embed.encode(args.query, prompt=args.prompt)
    vectors = _vectors(embed, texts, args)
    indices, scores = search.top_k(query, vectors, args.top, embed.output.similarity)
    for index, score in zip(indices[0], scores[0], strict=True):
        print_line(f"{score:.4f}\t{rows[index]}\t{printable(texts[index])}")


def mine(args: options.Mine) -> None:
    """Write the rows of a file with hard negatives."""
    writing.check_output(args.output, args.file)
    columns = reading.columns_of(args)
    pairs = reading.read(args.file, "embedding", {**columns, "label": None}, args.format)
    mined = _pipeline(args).mine_negatives(
        pairs, args.count, margin=args.margin, prompt=args.prompt,
        corpus_prompt=args.corpus_prompt,
    )  # fmt: skip
    numbers = range(1, args.count + 1)
    names = [columns["text"], args.text_pair, *(f"negative_{number}" for number in numbers)]
    rows = prediction_files.table_lines(args.output, names, mined.texts)
    with atomic_write(args.output) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.writelines(f"{row}\n" for row in rows)
    print_line(f"{len(mined)} rows written to {args.output}")


def _pipeline(args):
    model = as_embedder(reading.load(args, task="auto"), args.pooling)
    return keras_bert.pipeline(model, batch_size=args.batch_size, precision=args.precision)


def _vectors(embed, texts, args):
    """Return the vectors of the texts, from the user's cache if they fit.

    They are not beside the texts, because then their author could also give false vectors.
    """
    key = _key(embed, texts, args)
    name = hashlib.sha256(os.fsencode(os.path.realpath(args.file))).hexdigest()
    path = cache_folder() / "vectors" / f"{name}.npz"
    with contextlib.suppress(OSError, ValueError, KeyError):  # no file, or a broken one
        arrays = containers.read_npz(path)
        if np.array_equal(arrays["key"], key):
            return arrays["vectors"]
    vectors = embed.encode(texts, prompt=args.corpus_prompt)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as temporary, open(temporary, "wb") as stream:
            np.savez(stream, key=key, vectors=vectors)
    except OSError as error:  # the cache may be read-only
        print_line(f"the vectors were not saved: {error}", file=sys.stderr)
    return vectors


def _key(embed, texts, args):
    """Return a hash of everything that determines the vectors, as an array."""
    settings = (
        digest_of_weights(embed.model),
        embed.model.get_config(),  # the pooling and the layers after it
        heads.find_encoder(embed.model).preprocessor.vocabulary,
        args.corpus_prompt,
        args.precision,
        texts,
    )
    return np.frombuffer(hashlib.sha256(repr(settings).encode()).digest(), np.uint8)
