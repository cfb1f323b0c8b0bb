"""The commands of the command line; `__main__` reads the arguments and calls them."""

import collections
import contextlib
import inspect
import itertools
import json
import pathlib
import re
import shlex
import signal
import sys
import tempfile
import urllib.parse

import numpy as np

import keras_bert
from keras_bert import distribution, heads, hub, sources
from keras_bert.checkpoints import folder, google, huggingface
from keras_bert.console import progress, waiting
from keras_bert.files import alone, whole
from keras_bert.finetuning import (
    choices,
    data,
    fill,
    formats,
    predict,
    questions,
    report,
    resume,
    search,
    tagging,
    tasks,
    train,
)
from keras_bert.pretraining import corpus, records, vocabulary
from keras_bert.pretraining import train as pretraining
from keras_bert.serving import models, production, rest
from keras_bert.text.preprocessor import VOCABULARY_FILE

# What each task reads a text file's label as.
_KINDS = {"classification": "label", "pair": "label", "multi-label": "label_set"}
_KINDS |= {"regression": "score"}
_HEAD_TASKS = {
    "tagger": "tagging",
    "span_selector": "qa",
    "multiple_choice": "multiple-choice",
    "regressor": "regression",
}
_SEARCHED = ("batch_size", "learning_rate", "epochs")  # by --search, unless they are given
# What `predict.counts` counts.
_COUNTED = {
    "truncated": "texts are longer than the model reads (finetune's --max-length) and were cut",
    "without_pieces": "texts are empty or invisible characters alone",
    "words_without_pieces": "words are invisible characters alone, nothing is learned from them",
    "cut_words": "words are longer than the model reads and were cut",
    "cut_questions": "questions are longer than a window has room for and were cut",
    "cut_answers": "answers are longer than a window, nothing is learned from them",
    "invisible_answers": "answers are invisible characters alone, nothing is learned from them",
}
# What `questions.Questions` counts.
_MISPLACED = {
    "moved_answers": "did not stand where the file says; the nearest place was taken",
    "lost_answers": "do not stand in their text; nothing is learned from them",
}
# Texts to see whether a vocabulary fits them. One of their language takes 1.0 to 1.8 pieces a word
# and knows all but 1.3% of them; MiniLM's takes 5.4 in Korean reviews and knows 75%.
_SAMPLE, _MANY_PIECES, _MANY_UNKNOWN = 1000, 2.5, 0.05
# Layers and width of the models that Google published.
_SIZES = {"tiny": (2, 128), "mini": (4, 256), "small": (4, 512), "medium": (8, 512)}
_SIZES |= {"base": (12, 768), "large": (24, 1024)}
# What the history says of a part of a run, and is of no use at its end.
_OF_A_LINE = ("learning_rate", "seconds")
_BERT_KEYS = tuple(inspect.signature(keras_bert.BertEncoder).parameters)[:12]


def info(args):
    """Prints what a model is."""
    model = keras_bert.load(args.model, task="auto")
    encoder = heads.find_encoder(model)
    output = heads.find_output(model)
    lines = {
        "model": args.model,
        "parameters": f"{model.count_params():,}",
        **{
            key: value
            for key, value in encoder.get_config().items()
            if isinstance(value, (int, float, str)) and not isinstance(value, bool)
        },
    }
    if encoder.preprocessor is not None:
        preprocessor = encoder.preprocessor
        lines["pieces"] = f"{len(preprocessor.vocabulary):,}"
        for option in ("lowercase", "strip_accents", "split_cjk"):
            lines[option] = getattr(preprocessor, option)
    if output is not None:
        task = heads.find_task(model)
        lines["task"] = f"{task}{' of pairs' if output.pairs else ''}"
        if output.labels and task == output.task:  # pretraining has two heads
            lines["labels"] = ", ".join(output.labels)
    width = max(map(len, lines))
    for key, value in lines.items():
        print(f"{key:{width}}  {value}")


def finetune(args):
    """Trains a model, and writes it with its metrics and pictures."""
    # The files first: a wrong column should not cost the wait for a model.
    examples, dev, columns = _read_training_data(args)
    if dev is None and (args.search or args.metric or args.patience):
        raise ValueError("--search, --metric and --patience need --dev, the data that is scored")
    # No lock stays in a folder that people copy and hand on.
    with alone(args.output, "training", keep=False):
        _finetune(args, pathlib.Path(args.output), examples, dev, columns)


def _finetune(args, output, examples, dev, columns):
    """The training itself, in a folder that no other process writes to."""
    # "auto": a checkpoint with another head may have left the pooler out.
    encoder = heads.find_encoder(keras_bert.load(args.model, task="auto"))
    if changes := _encoder_options(args):
        encoder = encoder.with_options(**changes)
    if note := _note_of_vocabulary(examples, encoder.preprocessor, args.model):
        print(note, flush=True)  # before the wait
    encoder.trainable = not args.freeze
    names = ("warmup", "max_length", "metric", "patience", "accumulate", "fixed_length", "seed")
    options = {name: getattr(args, name) for name in names}
    given = {name: getattr(args, name) for name in _SEARCHED if getattr(args, name) is not None}
    for name in ("class_weight", "stride"):
        if (value := getattr(args, name)) is not None:
            options[name] = value

    def save(model, metrics, **found):
        found |= {"model": args.model, "train": examples.source, "dev": dev and dev.source}
        found["columns"] = columns
        recipe = {"freeze": args.freeze, "dtype": encoder.dtype_policy.name, **metrics["recipe"]}
        _write_run(output, model, {**found, **metrics, "recipe": recipe}, dev)

    if args.search:
        resume.RunState(output, {}).clear()  # of an earlier run, which nothing goes on with
        # What is given is not searched.
        grid = {name: values for name, values in search.GRID.items() if name not in given}
        trials = search.grid(
            encoder,
            examples,
            dev,
            choices=grid,
            on_trial=_print_trial,
            tensorboard=args.tensorboard,
            **options,
            **given,
        )
        best = search.best(trials)
        print("the best:", _options_text(best["options"]))
        tried = [{"options": trial["options"], "value": trial["value"]} for trial in trials.runs]
        # A search that was stopped has not tried all, whether or not the best one was cut short.
        metrics = best["metrics"] | {"stopped": trials.stopped}
        model = search.best_model(trials)
        save(model, metrics, search=tried)
    else:
        model, metrics = train.finetune(
            encoder,
            examples,
            dev,
            folder=output,
            on_end=save,
            tensorboard=args.tensorboard,
            **options,
            **given,
        )
    _print_run(model, metrics, examples, dev)
    print(f"saved in {output}")


def _write_run(output, model, metrics, dev):
    """Writes what is left of a run: the model, its metrics, the pictures."""
    keras_bert.save(model, output)
    report.clear(output)
    report.write_metrics(output, {"task": _task_of(model), **metrics})
    if metrics["history"]:
        report.draw_curves(output, metrics["history"])
    if dev is not None and heads.find_output(model).labels is not None:
        answers = predict.answers(model, dev, batch_size=metrics["recipe"]["batch_size"])
        report.draw_confusion(output, model, dev, answers)


def _print_run(model, metrics, examples, dev):
    """Prints the metrics of a run, and what a person should know about them."""
    if metrics["stopped"]:
        print("stopped; what follows is the best so far")
    print(report.table({"examples": len(examples), **metrics}))
    labels = heads.find_output(model).labels
    if "f1" in metrics and _task_of(model) in ("classification", "pair"):
        print(f"f1 is that of the label {labels[1]!r}")
    for note in _notes(examples, dev, metrics):
        print(note)
    if dev is None:
        print("nothing was scored, as there was no --dev; keras-bert evaluate does it later")


def _print_trial(trial):
    print(f"{_options_text(trial['options'])}: {trial['metric']} {trial['value']:.3f}", flush=True)


def _options_text(options):
    return ", ".join(f"{name} {value}" for name, value in options.items())


def _read_training_data(args):
    """Training and dev data, and the columns that they were read from."""
    if args.glue:
        if args.train or args.dev or args.task:
            raise ValueError("--glue stands for --train, --dev and --task; give one or the other")
        options = data.GLUE[data.find_glue(args.glue)]
        return (
            data.read_glue(args.glue, "train", limit=args.limit),
            data.read_glue(args.glue, "dev"),
            {name: options.get(name, default) for name, default in _COLUMNS.items()},
        )
    if not args.train:
        raise ValueError("finetune needs --train or --glue")
    task, columns = args.task or "classification", _columns(args)
    examples = _read(args.train, task, columns, args.format, limit=args.limit)
    return examples, _read(args.dev, task, columns, args.format) if args.dev else None, columns


# Where in a file things are, unless it is said: the names of options, and of arguments of `read`.
_COLUMNS = {
    "text": "text",
    "text_pair": None,
    "label": "label",
    "separator": ",",
    "header": True,
    "word": 1,
    "tag": -1,
    "skip_ragged": False,  # no option: GLUE's QQP has broken rows
}


def _columns(args, model=None):
    """The columns that the command line names, or else those that a model was trained on."""
    given = {name: getattr(args, name, None) for name in _COLUMNS}
    given = {name: value for name, value in given.items() if value is not None}
    if model is not None and not given:
        trained = _metrics_of(model).get("columns")
        given = trained if isinstance(trained, dict) else {}
    return {name: given.get(name, default) for name, default in _COLUMNS.items()}


def _read(path, task, columns, format, limit=None):
    """A file as the labelled data of a task."""
    if task == "tagging":
        places = {"word": columns["word"], "tag": columns["tag"]}
        return tagging.read(path, **places, format=format, limit=limit)
    if task == "qa":
        _check_no_format(format)
        return questions.read(path, limit=limit)
    if task == "multiple-choice":
        return choices.read(path, format=format, limit=limit)
    options = _of_texts(columns, task) | {"skip_ragged": columns["skip_ragged"]}
    return data.read(path, **options, format=format, limit=limit)


def _read_in_parts(path, task, columns, format):
    """A file to be answered, a part at a time."""
    if task == "tagging":
        return tagging.read_in_parts(path, word=columns["word"], tag=None, format=format)
    if task == "qa":  # one JSON object, which is read as a whole or not at all
        _check_no_format(format)
        return [questions.read(path, labelled=False)]
    if task == "multiple-choice":
        return choices.read_in_parts(path, format=format, labelled=False)
    return data.read_in_parts(path, **{**_of_texts(columns, task), "label": None}, format=format)


def _check_no_format(format):
    if format is not None:
        raise ValueError(f"questions are read from SQuAD's JSON alone; received --format {format}")


def _of_texts(columns, task):
    """The columns of single texts and pairs, as the arguments of `data.read`."""
    if task == "pair" and not columns["text_pair"]:
        raise ValueError("pairs need --text-pair, the column of the second text")
    names = ("text", "text_pair", "label", "separator", "header")
    return {**{name: columns[name] for name in names}, "kind": _KINDS[task]}


def _task_of(model):
    """The name of a model's task on the command line."""
    tasks.for_model(model)  # or an error
    output = heads.find_output(model)
    if output.task == "classifier":
        single = "pair" if output.pairs else "classification"
        return "multi-label" if output.multi_label else single
    return _HEAD_TASKS[output.task]


def _notes(examples, dev=None, metrics=()):
    """What a person should know about how the data was read."""
    counts = dict(metrics)
    for part in (examples, dev):
        if count := getattr(part, "ragged_rows", 0):
            yield f"{count} rows of {part.source} have not its columns and were left out"
    for part, prefix in ((examples, ""), (dev, "dev_")):
        for name, note in _COUNTED.items():
            if count := counts.get(prefix + name):
                yield f"{count} {note} ({part.source})"
        for name, note in _MISPLACED.items():
            if count := getattr(part, name, 0):
                yield f"{count} answers {note} ({part.source})"


def _note_of_vocabulary(examples, preprocessor, name):
    """What a person should know about a vocabulary that is another language's; or `None`."""
    if preprocessor is None:  # which is an error soon
        return None
    if isinstance(examples, tagging.TaggedSentences):
        texts = [" ".join(words) for words in examples.words[:_SAMPLE]]
    else:
        texts = getattr(examples, "texts", None) or examples.contexts
    try:
        fits = vocabulary.coverage(texts[:_SAMPLE], preprocessor)
    except ValueError:  # there are no words among them
        return None
    if fits["pieces_per_word"] < _MANY_PIECES and fits["unknown"] < _MANY_UNKNOWN:
        return None
    return (
        f"{name} has few of the words: {fits['pieces_per_word']:.1f} pieces a word, "
        f"{fits['unknown']:.1%} unknown; more is learned from a model of their language"
    )


def _fine_tuned(name):
    """A model with one of the tasks' heads."""
    if pathlib.Path(name, resume.STATE_FILE).is_file():
        note = f"{name}: the run there is not finished; the same finetune command goes on with it"
        if not pathlib.Path(name, hub.MODEL_FILE).is_file():
            raise ValueError(note)
        print(f"{note}. This is the model of an earlier run", file=sys.stderr)
    model = keras_bert.load(name, task="auto")
    try:
        tasks.for_model(model)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    return model


def evaluate(args):
    """Scores a model on a labelled file."""
    model = _fine_tuned(args.model)
    task = _task_of(model)
    if args.characters and task != "qa":
        raise ValueError(f"--characters is for questions; {args.model} is of the task {task}")
    decoding = _decoding(args, model)
    examples = _read(args.input, task, _columns(args, args.model), args.format)
    encoded = predict.encode(model, examples)
    with _bar("Scoring") as on_batch:
        answers = predict.answers(
            model,
            examples,
            batch_size=args.batch_size,
            encoded=encoded,
            on_batch=on_batch,
            **decoding,
        )
    options = {"characters": True} if args.characters else {}
    metrics = tasks.for_model(model).score(model, examples, answers, **options)
    print(report.table({"examples": len(examples), **metrics}))
    for note in _notes(examples, metrics=predict.counts(encoded)):
        print(note)


def _decoding(args, model):
    """The options of the task's `decode` that the command line gives."""
    if args.null_threshold is None:
        return {}
    if _task_of(model) != "qa" or not heads.find_output(model).no_answer:
        raise ValueError(
            f"--null-threshold is for questions that may have no answer; {args.model} was not "
            "trained on such"
        )
    return {"null_threshold": args.null_threshold}


def predict_texts(args):
    """Answers texts or a file."""
    if bool(args.texts) == bool(args.input):
        raise ValueError("predict takes texts or --input, one of them")
    _check_output(args.output, args.input)
    model = _fine_tuned(args.model)
    format = formats.format_of(args.output, model)
    decoding = _decoding(args, model)
    parts = _parts(args, model)
    counts: collections.Counter[str] = collections.Counter()
    with _writer(args.output) as write, progress() as bar:
        work = bar.add_task("Predicting", total=None if args.input else 1)

        def answered():
            for part in parts:
                encoded = predict.encode(model, part)
                counts.update(predict.counts(encoded))
                options = {"batch_size": args.batch_size, "encoded": encoded, **decoding}
                answers = predict.answers(model, part, **options)
                yield part, answers, _asked(part, answers) if args.texts else None
                bar.advance(work, len(part))

        # A label and its probability explain themselves; a row of probabilities does not.
        named = bool(args.input) or getattr(heads.find_output(model), "multi_label", False)
        for line in formats.lines(format, model, answered(), header=named):
            write(line)
    _print_counts(counts)


def _print_counts(counts):
    """Says on stderr, as the answers may be on stdout, what of the texts was not read."""
    for name, note in _COUNTED.items():
        if counts[name]:
            print(f"{counts[name]} {note}", file=sys.stderr)


def _asked(part, answers):
    """What is shown with each answer to the command line: its texts, the choice; or `None`."""
    if isinstance(part, choices.Choices):
        rows = zip(part.choices, answers, strict=True)
        return [{"text": its[answer.argmax()]} for its, answer in rows]
    if not isinstance(part, data.Examples):
        return None
    if part.text_pairs is None:
        return [{"text": text} for text in part.texts]
    pairs = zip(part.texts, part.text_pairs, strict=True)
    return [{"text": text, "text_pair": pair} for text, pair in pairs]


def _parts(args, model):
    """What is to be answered, a part at a time, so that a file may have any size."""
    task = _task_of(model)
    if args.input:
        return _read_in_parts(args.input, task, _columns(args, args.model), args.format)
    if task == "tagging":
        tokenizer = heads.find_encoder(model).preprocessor.tokenizer
        words, _ = tagging.sentences_of(args.texts, tokenizer)
        return [tagging.TaggedSentences(words, source="the command line")]
    if task == "qa":
        if len(args.texts) != 2:
            raise ValueError("predict takes a question and a context, two texts")
        return [questions.Questions(args.texts[:1], args.texts[1:], source="the command line")]
    if task == "multiple-choice":
        text, *rest = args.texts
        return [choices.Choices([text], [rest], source="the command line")]
    if heads.find_output(model).pairs:
        if len(args.texts) != 2:
            raise ValueError(
                "this model reads pairs: predict takes the two texts of one; received "
                f"{len(args.texts)}. For more, give --input with --text and --text-pair"
            )
        text, pair = args.texts
        return [data.Examples([text], [pair], source="the command line")]
    return [data.Examples(args.texts, source="the command line")]


def embed(args):
    """Writes a vector for each text of a file."""
    _check_output(args.output, args.input)
    columns = _columns(args)
    parts = data.read_in_parts(
        args.input, text=columns["text"], header=columns["header"], format=args.format
    )
    first = next(parts)
    model = keras_bert.load(args.model, task="auto")
    output = heads.find_output(model)
    if output is None or output.task != "embedder":
        model = heads.embedder(heads.find_encoder(model), pooling=args.pooling)
    shape = [0, model.output_shape[-1]]
    counts: collections.Counter[str] = collections.Counter()
    path = pathlib.Path(args.output)
    with whole(path) as beside, open(beside, "wb") as file, progress() as bar:
        work = bar.add_task("Embedding", total=None)
        _write_header(file, shape)
        for part in itertools.chain([first], parts):
            encoded = predict.encode_texts(model, part.texts)
            counts.update(predict.counts(encoded))
            options = {"batch_size": args.batch_size, "encoded": encoded}
            file.write(predict.embed(model, part.texts, **options).tobytes())
            shape[0] += len(part)
            bar.advance(work, len(part))
        file.seek(0)
        _write_header(file, shape)  # as long as before: numpy leaves room for any number of rows
    print(f"{shape[0]} vectors of {shape[1]} numbers in {path}")
    _print_counts(counts)


def _write_header(file, shape):
    dtype = np.lib.format.dtype_to_descr(np.dtype(np.float32))
    header = {"descr": dtype, "fortran_order": False, "shape": tuple(shape)}
    np.lib.format.write_array_header_1_0(file, header)


def fill_blanks(args):
    """Prints candidates for [MASK]."""
    model = _load_masked_lm(args.model)
    for text, blanks in zip(args.texts, fill.fill(model, args.texts, top=args.top), strict=True):
        for number, candidates in enumerate(blanks, 1):
            for piece, probability in candidates:
                print(f"{probability:.4f}\t{piece}\t{number}\t{text}")


def _load_masked_lm(name):
    try:
        return keras_bert.load(name, task="masked_lm")
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


# Every so many documents one is held out, to see how a vocabulary fits what it has not seen.
_HELD_OUT_EVERY, _HELD_OUT_BYTES = 20, 8 << 20


def make_vocabulary(args):
    """Learns a vocabulary and prints how it fits the documents that were held out."""
    _check_folder(args.output)
    corpus.check_outside(args.output, args.corpus)
    counts: collections.Counter[str] = collections.Counter()
    held_out: list[corpus.Document] = []
    options = {
        "lowercase": not args.cased,
        "strip_accents": not (args.cased or args.keep_accents),
        "split_cjk": not args.no_split_cjk,
    }
    documents = corpus.documents(args.corpus, counts=counts)
    first = next(documents, None)
    if first is None:
        raise ValueError(f"{' '.join(args.corpus)}: holds no documents")
    with waiting("Learning the vocabulary"):
        pieces = vocabulary.train(
            _holding_out(itertools.chain([first], documents), held_out),
            args.size,
            min_frequency=args.min_frequency,
            max_bytes=args.max_bytes,
            **options,
        )
    vocabulary.write(args.output, pieces, **options)
    with waiting("Trying it on texts"):
        preprocessor = keras_bert.Preprocessor(pieces, **options)
        seen = not any(document.paragraphs() for document in held_out)
        if seen:  # too few documents to spare one
            some = itertools.islice(corpus.documents(args.corpus), 50 * _HELD_OUT_EVERY)
            found = vocabulary.coverage(some, preprocessor)
        else:
            found = vocabulary.coverage(held_out, preprocessor)
    print(f"{len(pieces):,} pieces from {counts['documents']:,} documents in {args.output}")
    where = "the corpus itself" if seen else f"{len(held_out):,} documents held out"
    print(f"on {where}, {found['words']:,} words:")
    print(f"  unknown          {found['unknown']:.3%}")
    print(f"  pieces a word    {found['pieces_per_word']:.2f}")
    print(f"  whole words      {found['whole']:.1%}")
    _print_mended(counts)


def _print_mended(counts):
    """What of a corpus was not read as it stands in its files."""
    for key, what in (
        ("invalid_utf8", "lines with bytes that are not UTF-8, now U+FFFD"),
        ("long_lines", "lines cut, which had more than 4 MB"),
        ("long_documents", "documents cut, which had more than 4 MB (blank lines end one)"),
    ):
        if counts.get(key):
            print(f"mended: {counts[key]:,} {what}; the first: {counts[f'{key}_at']}")


def _holding_out(documents, held_out):
    """All but a few documents, which go to a list."""
    size = 0
    for index, document in enumerate(documents, 1):
        if index % _HELD_OUT_EVERY == 0 and size < _HELD_OUT_BYTES:
            held_out.append(document)
            size += len(document.text)
        else:
            yield document


def make_records(args):
    """Tokenizes a corpus once."""
    _check_folder(args.output)
    corpus.files(args.corpus)  # before the wait for a vocabulary
    with progress(show=True) as bar:
        work = bar.add_task("Megabytes", total=None)
        manifest = records.build(
            args.corpus,
            args.output,
            _preprocessor_of(args.vocab),
            held_out=args.held_out,
            workers=args.workers,
            on_progress=lambda done: bar.update(work, completed=done // 10**6),
        )
    counts = manifest["counts"]
    made = records.Records(args.output)
    print(f"{counts['documents']:,} documents, {counts['sentences']:,} sentences, "
          f"{counts['pieces']:,} pieces in {args.output}")  # fmt: skip
    print(f"  held out         {made.counts('eval')['documents']:,} documents")
    print(f"  unknown          {counts['unknown_pieces'] / counts['pieces']:.3%}")
    _print_mended(counts)
    if made.counts()["documents"] < 2:
        print("next sentences are drawn from other documents, of which there are none: put blank "
              "lines between documents, or pretrain with --no-next-sentence")  # fmt: skip
    elif counts["sentences"] == counts["documents"]:
        print("no document has a second sentence: pretrain with --no-next-sentence")
    if made.counts("eval")["documents"] < 2:
        print("fewer than two documents are held out: pretraining will not be evaluated; a larger "
              "--held-out holds out more")  # fmt: skip


def _preprocessor_of(name):
    """The preprocessor of a folder with a vocabulary alone, or of a model."""
    if pathlib.Path(name, VOCABULARY_FILE).is_file():
        pieces, options = vocabulary.read(name)
        return keras_bert.Preprocessor(pieces, **options)
    preprocessor = heads.find_encoder(keras_bert.load(name, task="auto")).preprocessor
    if preprocessor is None:
        raise ValueError(f"the model {name} has no vocabulary")
    return preprocessor


def pretrain(args):
    """Trains a BERT from records."""
    import keras

    for path in (args.records, args.output):
        if "://" in path:
            raise ValueError(
                f"{path}: must be a folder of this machine; mount the bucket (gcsfuse), or see "
                "pretraining.google_records"
            )
    made = records.Records(args.records)
    _check_folder(args.output)
    if len(args.lengths) > 2:
        raise ValueError(f"--lengths takes one or two numbers; received {len(args.lengths)}")
    most = args.max_predictions or [None]
    if len(most) not in (1, len(args.lengths)):
        raise ValueError(
            "--max-predictions takes one number, or one for each of --lengths; received "
            f"{len(most)}"
        )
    phases = pretraining.two_phases(
        args.steps,
        args.batch_size,
        (*args.lengths, args.lengths[-1])[:2],
        1.0 if len(args.lengths) == 1 else args.first_share,
        (*most, most[-1])[:2],
    )
    with distribution.scope(args.strategy, model_parallel=args.model_parallel):
        # Before the model: its first weights are drawn, too, and alike in all processes.
        keras.utils.set_random_seed(args.seed)
        if args.model:
            model = _model_to_go_on_with(args)
        else:
            model = keras_bert.BertEncoder(
                **_bert_config(args, made),
                dtype=args.dtype,
                rematerialize=args.rematerialize,
                preprocessor=made.preprocessor(),
            )
            if args.no_next_sentence:
                model = heads.masked_lm(model)
        _, history = pretraining.pretrain(
            model,
            made,
            args.output,
            phases,
            learning_rate=args.learning_rate,
            warmup_steps=args.warmup_steps,
            optimizer=args.optimizer,
            accumulate=args.accumulate,
            packed=args.packed,
            whole_words=args.whole_words,
            seed=args.seed,
            log_every=args.log_every,
            save_every=args.save_every,
            eval_every=args.eval_every,
            keep=args.keep,
            tensorboard=args.tensorboard,
        )
    last = {key: value for key, value in history[-1].items() if key not in _OF_A_LINE}
    print(report.table(last | {"minutes": sum(record["seconds"] for record in history) / 60}))
    print(f"saved in {args.output}")


def _model_to_go_on_with(args):
    if args.size is not None or args.config:
        raise ValueError("--size and --config are of a new model; --model has its own")
    options = _encoder_options(args)
    model = keras_bert.load(args.model, task="auto")
    has = heads.find_task(model)
    if has not in ("pretraining", "masked_lm"):  # the encoder alone, with fresh heads
        encoder = heads.find_encoder(model)
        encoder = encoder.with_options(**options) if options else encoder
        return heads.masked_lm(encoder) if args.no_next_sentence else encoder
    task = "masked_lm" if args.no_next_sentence else has
    if task == has and not options:
        return model
    return keras_bert.load(args.model, task=task, **options)


def _encoder_options(args):
    """What the command line asks of an encoder, whatever it was saved with."""
    options = {"dtype": args.dtype, "rematerialize": args.rematerialize}
    return {name: value for name, value in options.items() if value}


def _bert_config(args, made):
    """The configuration of a new model for records."""
    config = {
        "vocab_size": made.manifest["settings"]["vocab_size"],
        "max_position_embeddings": max(512, *args.lengths),
    }
    if args.config:
        given = folder.read_json(pathlib.Path(args.config))
        given = {key: value for key, value in given.items() if not _means_nothing(key, value)}
        unknown = sorted(given.keys() - set(_BERT_KEYS))
        if unknown:
            raise ValueError(f"{args.config}: {', '.join(unknown)}: no key of a BERT's config")
        if given.get("vocab_size", config["vocab_size"]) != config["vocab_size"]:
            raise ValueError(
                f"{args.config}: vocab_size must be that of the records, {config['vocab_size']}; "
                f"received {given['vocab_size']}"
            )
        return config | given
    layers, hidden = _SIZES[args.size or "base"]
    return config | {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": hidden // 64,
        "intermediate_size": 4 * hidden,
    }


def _means_nothing(key, value):
    """Whether it is something that the published files say, and that changes no computation."""
    required = huggingface.REQUIRED_VALUES
    return (
        key in google.DROPPED_KEYS
        or key in huggingface.DROPPED_KEYS
        or (key in required and required[key] == value)
    )


def convert(args):
    """Writes a model in another format."""
    try:
        written = keras_bert.convert(
            args.model, args.path, format=args.to, drop=args.drop, hidden_act=args.hidden_act
        )
    except ValueError as error:
        raise ValueError(_with_options(str(error))) from error
    parts = ", ".join(["encoder", *sorted(written.groups)])
    print(f"{args.to}: {parts}: {len(written.weights)} weights in {args.path}")


def _with_options(message):
    """An error of `hub.convert` with the options of the command line that mend it."""
    if 'hidden_act="gelu_new"' in message:
        return f"{message}: give --hidden-act gelu_new"
    if advice := re.search(r"; drop ([a-z_]+(?:, [a-z_]+)*)(?: for \w+)?$", message):
        return f"{message}: give {' '.join(f'--drop {part}' for part in advice[1].split(', '))}"
    if message.endswith("; drop some of them"):
        return f"{message}: give --drop for each"
    return message


def export(args):
    """Writes a SavedModel."""
    metrics = _metrics_of(args.model)
    known = (sources.license_of(name) for name in (args.model, str(metrics.get("model"))))
    before = _versions_in(args.path)
    with waiting("Writing the SavedModel"):
        keras_bert.export(
            keras_bert.load(args.model, task="auto"),
            args.path,
            metrics=metrics,
            license=args.license or next(filter(None, known), None),
        )
    for version in sorted(_versions_in(args.path) - before):  # of a pair there are two
        print(version)


def _versions_in(path):
    """The folders of the SavedModels in a model folder, or in those of a pair."""
    folder = pathlib.Path(path)
    patterns = ("*/saved_model.pb", "encoder/*/saved_model.pb", "preprocess/*/saved_model.pb")
    return {file.parent for pattern in patterns for file in folder.glob(pattern)}


def _metrics_of(model):
    """What `finetune` left in metrics.json beside a model; nothing where there is none."""
    path = pathlib.Path(model)
    folder = path.parent if path.name == hub.MODEL_FILE else path
    try:
        metrics = json.loads((folder / report.METRICS_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # none, or another program's
        return {}
    return metrics if isinstance(metrics, dict) else {}


def serve(args):
    """Serves SavedModels, or what a trained model is exported to, until Ctrl-C."""
    try:
        from keras_bert.serving import server
    except ImportError as error:
        raise ValueError(
            f"serve needs {error.name}, which is not installed: pip install starlette uvicorn"
        ) from error
    with contextlib.ExitStack() as stack:
        stack.enter_context(_terminable())
        listener = stack.enter_context(server.listen(args.host, args.port))
        found = models.find(args.model, args.name)
        with waiting("Loading"):
            export_first = None
            if not found:
                found = _exported(args, stack.enter_context(tempfile.TemporaryDirectory()))
                export_first = f"keras-bert export {shlex.quote(args.model)} FOLDER"
            for model in found:
                model.refresh(settled=False)
        address, port = listener.getsockname()[:2]
        url = f"http://{f'[{address}]' if ':' in address else address}:{port}"
        for line in _introduction(found, url, export_first):
            print(line, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            made = server.make(found, args.host, args.max_body, args.max_text)
            made.run(sockets=[listener])
        print("stopped")


def _exported(args, folder):
    """The models that a trained model is exported to."""
    name = args.name or pathlib.Path(args.model).absolute().name.removesuffix(".keras")
    path = pathlib.Path(folder, re.sub(r"[^\w.-]+", "-", name))
    keras_bert.export(keras_bert.load(args.model, task="auto"), path)
    return models.find(path)


def _introduction(found, url, export_first=None):
    """What a person needs to know about a server: where it is, a request, what it is for.

    `export_first` is the command that keeps what is served from a temporary folder.
    """
    for model in found:
        if model.current is None:
            state = "; ".join(reason for _, _, (_, reason) in model.states())
            if len(found) == 1:
                raise ValueError(f"{model.folder} could not be loaded: {state}")
            yield f"{model.name} is not served: {state}"
    served = [model for model in found if model.current is not None]
    if not served:
        raise ValueError(f"none of the {len(found)} models could be loaded")
    yield f"{', '.join(model.name for model in served)}: {url} (Ctrl-C stops)"
    # Of a pair, the model that takes strings: the other's example is ids that nobody types.
    for model in ([model for model in served if _takes_strings(model)] or served)[:1]:
        body = json.dumps({"instances": [model.current.example()]})
        yield f"curl -d '{body}' {url}/v1/models/{urllib.parse.quote(model.name)}:predict"
    compose = served[0].folder / production.COMPOSE_FILE
    how = "see keras-bert export"
    if export_first is not None:
        how = f"{export_first}, then docker compose with the compose.yaml that it writes"
    elif compose.is_file():
        how = f"docker compose -f {shlex.quote(str(compose))} up"
    yield f"This is for the desk; production is TensorFlow Serving: {how}"


def _takes_strings(model):
    default = model.current.signatures.get(rest.DEFAULT_SIGNATURE)
    return default is not None and any(spec.dtype == "object" for spec in default.inputs.values())


@contextlib.contextmanager
def _terminable():
    """Within it, SIGTERM ends the process as Ctrl-C does: its temporary files go with it."""

    def stop(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _bar(title):
    """A bar for work that says which share of it is done."""
    with progress() as bar:
        work = bar.add_task(title, total=1)
        yield lambda share: bar.advance(work, share)


def _check_output(path, input):
    """Raises for a file that cannot be written, or that is being read."""
    _check_folder(path)
    if path and input and pathlib.Path(path).is_file() and pathlib.Path(path).samefile(input):
        raise ValueError(f"{path}: --output must be another file than --input")


def _check_folder(path):
    if path and not pathlib.Path(path).absolute().parent.is_dir():
        raise ValueError(f"{path}: its folder does not exist")


@contextlib.contextmanager
def _writer(path):
    """A function that writes a line to a file, which appears when it is whole, or to stdout."""
    if path is None:
        yield print
        return
    path = pathlib.Path(path)
    if path.exists() and not path.is_file():  # such as /dev/stdout
        with open(path, "w", encoding="utf-8") as file:
            yield lambda line: print(line, file=file)
        return
    with whole(path) as beside, open(beside, "w", encoding="utf-8", newline="\n") as file:
        yield lambda line: print(line, file=file)
