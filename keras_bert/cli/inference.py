"""`evaluate`, `predict`, `fill`, `embed`, `search` and `mine`.

Keras is imported in functions, because ONNX and OpenVINO folders do not need it.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import os
import pathlib
import sys
import tempfile

import numpy as np

import keras_bert
from keras_bert import provenance
from keras_bert.cli import options, reading, writing
from keras_bert.data import tabular
from keras_bert.data.examples import Examples
from keras_bert.pipelines import factory
from keras_bert.runtime.escaping import printable
from keras_bert.runtime.files import atomic_write, cache_folder, check_cache, make_cache
from keras_bert.runtime.terminal import metrics_table, print_line, progress
from keras_bert.tasks import prediction_files, registry
from keras_bert.tasks.embedding import nearest
from keras_bert.tasks.embedding.retrieval import RetrievalData
from keras_bert.tasks.inputs import prompt_of
from keras_bert.tasks.masked_tokens.task import MaskedTokens
from keras_bert.tasks.reranking.data import RankingExamples
from keras_bert.tasks.reranking.pipeline import RerankingPipeline
from keras_bert.untrusted import containers

_CANDIDATES = 50  # texts to rerank


def _pipeline(args, model=None, **options):
    """Return the pipeline of a Keras model, by default of what the command line names."""
    if model is None:
        options["engine"] = args.engine
    return keras_bert.pipeline(
        model or args.model,
        batch_size=args.batch_size,
        precision=args.precision,
        trusted=args.trusted,
        **options,
    )


def _fine_tuned(args, otherwise):
    """Return the pipeline of a model that has the head of a task.

    `otherwise` ends the error for a model without one.
    """
    if factory.find_graph(args.model, args.engine) is not None:
        return _pipeline(args, task=args.task)
    from keras_bert.training import run_state

    folder = pathlib.Path(args.model)
    is_complete = (folder / provenance.MODEL_FILE).is_file()
    if (folder / run_state.STATE_FILE).is_file() and not is_complete:
        raise ValueError(
            f"{folder} has an unfinished run. Repeat the finetune command to resume it"
        )
    model = reading.load(args, task=args.task or "auto")
    if registry.find(model) is None:
        raise ValueError(
            f"{args.model} has no head of a task. Train one with keras-bert finetune; {otherwise}"
        )
    return _pipeline(args, model)


def _embedder(args):
    """Return the pipeline for the embeddings of what the command line names."""
    return _pipeline(args, task="embedding", pooling=args.pooling)


def evaluate(args: options.Evaluate) -> None:
    """Score a model on a labeled file."""
    if args.task is None and args.pooling is not None:
        raise ValueError("--pooling applies only with --task")
    if args.task is None:
        pipe = _fine_tuned(args, "to score embeddings, add --task embedding")
    elif registry.by_name(args.task).reads_encoders:
        pipe = _pipeline(args, task=args.task, pooling=args.pooling)
    else:
        pipe = _fine_tuned(args, f"{args.task} needs one")
    task = pipe.predictor.task
    name = task.variant_of(pipe.output)
    if args.task not in (None, name):
        raise ValueError(f"{args.model} has the task {name}; received --task {args.task}")
    reading.check_columns(args, name)
    examples = _labeled_data(args, pipe, name)
    reading.print_misfit(pipe, examples)
    with progress() as bar:
        work = bar.add_task("Scoring", total=1)
        metrics = pipe.predictor.evaluate(
            examples, pipe.answers, on_batch=lambda share: bar.advance(work, share)
        )
    print_line(metrics_table({"examples": len(examples), **metrics}))
    for note in reading.notes(examples, metrics=pipe.counts):
        print_line(note)


def _labeled_data(args, pipe, name):
    """Read the data to score a model on: for embeddings, queries and a corpus, or pairs.

    `name` is that of the task or of its variant.
    """
    has_prompts = args.prompt is not None or args.corpus_prompt is not None
    columns = reading.columns_of(args, args.model, name)
    if args.candidates is not None and args.retriever is None:
        raise ValueError("--candidates needs --retriever, which finds the candidates")
    if args.retriever is not None:
        return _read_candidates(args, pipe)
    if isinstance(pipe, RerankingPipeline) and os.path.isdir(args.input):
        raise ValueError("a folder needs --retriever bm25 or an embedder, which finds documents")
    if RetrievalData not in pipe.predictor.task.data:
        if has_prompts:
            raise ValueError("--prompt and --corpus-prompt apply only to embeddings")
        return reading.read(args.input, name, columns, args.format)
    data = reading.read_retrieval(args.input, args.split)
    if data is None:
        columns |= {"negatives": [], "score_range": None}  # they are only for training
        if args.text and args.text_pair and args.label is None:
            columns["label"] = None  # the columns of other pairs
        data = reading.read(args.input, name, columns, args.format)
    if not has_prompts:
        return data
    prompts = (args.prompt, args.corpus_prompt)
    return data.with_prompts(*(prompt_of(pipe.output, prompt) for prompt in prompts))


def _read_candidates(args, pipe):
    """Read queries and a corpus, and find the documents to rerank."""
    if not isinstance(pipe, RerankingPipeline):
        raise ValueError(f"--retriever applies to rerankers; {args.model} is a {pipe.task} model")
    data = reading.read_retrieval(args.input, args.split)
    if data is None:
        raise ValueError("--retriever needs --input FOLDER in the format of BEIR or TREC")
    retriever = args.retriever
    if retriever != "bm25":
        retriever = _other_pipeline(args, retriever, "embedding")
        prompts = (args.prompt, args.corpus_prompt)
        data = data.with_prompts(*(prompt_of(retriever.output, prompt) for prompt in prompts))
    elif args.prompt is not None or args.corpus_prompt is not None:
        raise ValueError("--prompt and --corpus-prompt do not apply to --retriever bm25")
    return RankingExamples.of_retrieval(data, retriever, args.candidates or _CANDIDATES)


def _other_pipeline(args, model, task):
    """Return the pipeline of another model than `args.model`, with the same options."""
    options = {"batch_size": args.batch_size, "precision": args.precision, "trusted": args.trusted}
    return keras_bert.pipeline(model, task=task, **options)


def predict_texts(args: options.Predict) -> None:
    """Predict for texts or a file."""
    if bool(args.texts) == bool(args.input):
        raise ValueError("give either texts or --input")
    for text in args.texts:
        if pathlib.Path(text).suffix and os.path.isfile(text):
            raise ValueError(f"{text} is a file. To read it, give --input {text}")
    if args.output is not None:
        writing.check_file(args.output, args.input)
    pipe = _fine_tuned(args, "for vectors, use keras-bert embed; for [MASK], keras-bert fill")
    task = pipe.predictor.task
    if args.input:
        reading.check_columns(args, task.variant_of(pipe.output))
    if args.probabilities and not task.has_probabilities:
        raise ValueError(f"--probabilities does not apply to the task {task.name}. Remove it")
    format = prediction_files.format_of(args.output, task)
    with writing.open_predictions(args, format) as file, progress() as bar:
        state = file.state or {"rows": 0, "counts": {}}
        if state["rows"]:
            print_line(f"resuming after {state['rows']} rows", file=sys.stderr)
        # A label, a number or a choice on the command line needs no header.
        has_columns = task.needs_header(pipe.output)
        needs_header = args.input or args.probabilities or has_columns
        lines = prediction_files.lines(
            format,
            task,
            pipe.output,
            _answered(args, pipe, state, file, bar),
            header=not state["rows"] and bool(needs_header or format == "csv"),
            probabilities=args.probabilities,
        )
        for line in lines:
            # JSON and invalid bytes in arguments can hold surrogates, which UTF-8 cannot encode.
            file.write(line.encode("utf-8", "replace").decode("utf-8"))
    if args.output not in (None, "-") and not writing.is_stream(args.output):
        noun = "answer" if state["rows"] == 1 else "answers"
        print_line(f"{state['rows']} {noun} in {pathlib.Path(args.output).resolve()}")
    reading.print_counts(pipe.counts)


def _answered(args, pipe, state, file, bar):
    """Yield each part of the input with its answers.

    `state` has the number of rows and the counts of the parts whose lines are in the file.
    """
    work = bar.add_task("Predicting", total=None if args.input else 1, completed=state["rows"])
    rows_to_skip = state["rows"]  # they end with a part
    pipe.counts.update(state["counts"])
    parts = iter(_parts(args, pipe))
    first = next(parts)
    reading.print_misfit(pipe, first)
    for part in itertools.chain([first], parts):
        if rows_to_skip > 0:
            rows_to_skip -= len(part)
            continue
        pipe.predictor.task.check_inputs(part)
        yield part, pipe.answers(part)
        # The lines of this part are written now.
        state["rows"] += len(part)
        state["counts"] = dict(pipe.counts)
        file.commit(state)
        bar.advance(work, len(part))


def _parts(args, pipe):
    """Return the inputs in parts, because a file may be larger than the memory."""
    task = pipe.predictor.task
    if args.input:
        columns = reading.columns_of(args, args.model)
        name = task.variant_of(pipe.output)
        return reading.read_in_parts(args.input, name, columns, args.format)
    return [task.of_texts(pipe.predictor.task_model, list(args.texts), "the command line")]


def embed(args: options.Embed) -> None:
    """Write a vector for each text of a file."""
    writing.check_file(args.output, args.input)
    is_float = args.vector_precision == "float32"
    suffix = ".npy" if is_float else ".npz"
    if pathlib.Path(args.output).suffix.lower() != suffix:
        raise ValueError(
            f"--output must be a file with the extension {suffix} for --vector-precision "
            f"{args.vector_precision}; received {args.output}"
        )
    parts = tabular.read_in_parts(args.input, **reading.text_options(args, args.input))
    first = next(parts)
    pipe = _embedder(args)
    reading.print_misfit(pipe, first)
    shape = [0, pipe.width_of(args.truncate_dim)]
    path = pathlib.Path(args.output).resolve()
    parts = itertools.chain([first], parts)
    with atomic_write(path) as beside:
        if is_float:
            _write_vectors(pipe, parts, args, beside, shape)
        else:
            with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.stem}.") as folder:
                floats = pathlib.Path(folder, "vectors.npy")
                source = _write_vectors(pipe, parts, args, floats, shape)
                _quantize(pipe, floats, args.vector_precision, source).save(beside)
    print_line(f"{shape[0]} vectors of {shape[1]} numbers in {path}")
    reading.print_counts(pipe.counts)


def _write_vectors(pipe, parts, args, path, shape):
    """Write the vectors of the texts of all parts to a `.npy` file, and count them in `shape`.

    Returns `_source_id` of the texts.
    """
    digests: list[bytes] = []
    with open(path, "wb") as file, progress() as bar:
        work = bar.add_task("Embedding", total=None)
        _write_header(file, shape)
        for part in parts:
            vectors = pipe.answers(part, prompt=args.prompt, truncate_dim=args.truncate_dim)
            file.write(np.array(vectors, np.float32).tobytes())
            shape[0] += len(part)
            digests += map(_digest_of_text, part.texts)
            bar.advance(work, len(part))
        file.seek(0)
        _write_header(file, shape)  # NumPy pads headers, so the length is the same
    return _source_id(pipe, args.prompt, digests)


def _digest_of_text(text):
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _source_id(pipe, prompt, digests):
    """Return a hash of a prompt and of texts, of which `_digest_of_text` returned the digests."""
    prompt = _digest_of_text(prompt_of(pipe.output, prompt))
    return hashlib.sha256(prompt + b"".join(digests)).hexdigest()


def _quantize(pipe, path, precision, source):
    """Return the vectors of a `.npy` file as `QuantizedVectors`."""
    vectors = np.load(path, mmap_mode="r")
    stored = nearest.QuantizedVectors.of(vectors, precision, pipe=pipe)
    return dataclasses.replace(stored, source=source)


def _write_header(file, shape):
    dtype = np.lib.format.dtype_to_descr(np.dtype(np.float32))
    header = {"descr": dtype, "fortran_order": False, "shape": tuple(shape)}
    np.lib.format.write_array_header_1_0(file, header)


def fill_masks(args: options.Fill) -> None:
    """Print candidates for [MASK]."""
    try:
        pipe = _pipeline(args, task=MaskedTokens.name)
    except ValueError as error:
        if factory.find_graph(args.model, args.engine) is not None:
            raise
        model = reading.load(args, task="auto")
        task = registry.find(model)
        if task is not None and task.is_pretraining:
            raise
        # The error suggests a fresh head, which would predict random tokens.
        raise ValueError(
            f"{args.model} has no masked LM head. Use a checkpoint that has one, such as base"
        ) from error
    answers = pipe.answers(Examples(list(args.texts)), top_k=args.top)
    for text, masks in zip(args.texts, answers, strict=True):
        for mask, candidates in enumerate(masks, 1):
            for token, probability in candidates:
                print_line(f"{probability:.4f}\t{printable(token)}\t{mask}\t{printable(text)}")


def find(args: options.Search) -> None:
    """Print the texts of a file with the highest similarity to a query, and their rows."""
    candidates = _candidates(args)
    examples = tabular.read(args.file, **reading.text_options(args, args.file))
    rows = [row for row, text in enumerate(examples.texts, 1) if text.strip()]
    texts = [examples.texts[row - 1] for row in rows]
    if not texts:
        raise ValueError(f"{args.file} has no texts to search")
    if not args.query.strip():
        raise ValueError("the query is empty. Give a text to search for")
    reranker = None
    if args.rerank is not None:
        reranker = _other_pipeline(args, args.rerank, "reranking")
    pipe = _embedder(args)
    reading.print_misfit(pipe, examples)
    if args.vectors is None:
        vectors = _vectors(pipe, texts, args)
        width = None
    else:
        vectors = _stored_vectors(pipe, examples.texts, args)
        vectors = dataclasses.replace(vectors, values=vectors.values[np.array(rows) - 1])
        width = vectors.width
    query = pipe.encode(args.query, prompt=args.prompt, truncate_dim=width)
    (indices,), (scores,) = nearest.top_k(query, vectors, candidates, pipe.output.similarity)
    if reranker is not None:
        ranked = reranker.rank(args.query, [texts[index] for index in indices], top_k=args.top)
        indices = [indices[answer["index"]] for answer in ranked]
        scores = [answer["score"] for answer in ranked]
    for index, score in zip(indices, scores, strict=True):
        print_line(f"{score:.4f}\t{rows[index]}\t{printable(texts[index])}")


def _candidates(args):
    """Return the number of texts that `search` finds, before any reranking."""
    if args.rerank is None:
        if args.candidates is not None:
            raise ValueError("--candidates needs --rerank, which orders the candidates")
        return args.top
    candidates = args.candidates or max(args.top, _CANDIDATES)
    if candidates < args.top:
        raise ValueError(f"--candidates must be at least --top, {args.top}; received {candidates}")
    return candidates


def mine(args: options.Mine) -> None:
    """Write the rows of a file with hard negatives."""
    writing.check_file(args.output, args.file)
    columns = reading.columns_of(args, args.model)
    if columns["text_pair"] is None:
        raise ValueError("mine needs --text-pair, the column of the positives")
    columns |= {"label": None, "negatives": [], "score_range": None}  # they are only for training
    pairs = reading.read(args.file, "embedding", columns, args.format)
    mined = _embedder(args).mine_negatives(
        pairs, args.count, margin=args.margin, prompt=args.prompt,
        corpus_prompt=args.corpus_prompt,
    )  # fmt: skip
    numbers = range(1, args.count + 1)
    names = [columns["text"], columns["text_pair"], *(f"negative_{number}" for number in numbers)]
    rows = prediction_files.table_lines(args.output, names, mined.texts)
    with atomic_write(args.output) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.writelines(f"{row}\n" for row in rows)
    print_line(f"{len(mined)} rows written to {args.output}")


def _vectors(pipe, texts, args):
    """Return the vectors of the texts, from the user's cache if they fit.

    They are not beside the texts, because then their author could also give false vectors.
    """
    key = _key(pipe, texts, args)
    name = hashlib.sha256(os.fsencode(os.path.realpath(args.file))).hexdigest()
    path = cache_folder() / "vectors" / f"{name}.npz"
    with contextlib.suppress(OSError, ValueError, KeyError):  # no file, or a broken one
        check_cache(path.parent)
        arrays = containers.read_npz(path)
        if np.array_equal(arrays["key"], key):
            return arrays["vectors"]
    vectors = pipe.encode(texts, prompt=args.corpus_prompt)
    try:
        make_cache(path.parent)
        with atomic_write(path) as temporary, open(temporary, "wb") as stream:
            np.savez(stream, key=key, vectors=vectors)
    except OSError as error:  # the cache may be read-only
        print_line(f"the vectors were not saved: {error}", file=sys.stderr)
    return vectors


def _stored_vectors(pipe, texts, args):
    """Return the vectors of a file of `embed`, after a check that they are those of the texts."""
    stored = nearest.QuantizedVectors.load(args.vectors, pipe)
    source = _source_id(pipe, args.corpus_prompt, map(_digest_of_text, texts))
    if (stored.source, len(stored)) != (source, len(texts)):
        raise ValueError(
            f"{args.vectors} does not hold the vectors of {args.file} with this --corpus-prompt. "
            "Run keras-bert embed again"
        )
    return stored


def _key(pipe, texts, args):
    """Return a hash of everything that determines the vectors, as an array."""
    settings = (pipe.predictor.digest(), args.corpus_prompt, texts)
    return np.frombuffer(hashlib.sha256(repr(settings).encode()).digest(), np.uint8)
