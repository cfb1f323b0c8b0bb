"""`finetune`: train a model on a labeled file; write the model, its metrics and plots."""

import contextlib
import pathlib
import sys

import keras
import numpy as np

import keras_bert
from keras_bert import heads, provenance
from keras_bert.cli import arguments, options, reading, writing
from keras_bert.data import conll, tabular
from keras_bert.data.embedding_examples import EmbeddingExamples
from keras_bert.encoder import BertEncoder
from keras_bert.hub import loading
from keras_bert.pretraining import vocabulary
from keras_bert.runtime.files import exclusive_lock
from keras_bert.runtime.terminal import print_line
from keras_bert.tasks import inference, registry, tagging
from keras_bert.text.words import split_words
from keras_bert.training import finetuning, report, run_state, search

_SEARCHED = ("batch_size", "learning_rate", "epochs")  # --search chooses them unless they are given

# Limits for a warning that the vocabulary does not fit the texts. A vocabulary of the same language
# needs 1.0 to 1.8 tokens per word, one of Hangul syllables 2.7, and at most 1.3% of the words are
# unknown. MiniLM's needs 5.4 for Korean reviews, and 25% of the words are unknown.
_SAMPLE, _MANY_TOKENS, _MANY_UNKNOWN = 1000, 3, 0.05
_SHOWN_LABELS = 5
# Heads that fine-tuning for other tasks always replaces.
_REPLACED_HEADS = (*heads.OF_PRETRAINING, "embedder")

# Limit for a warning about words with punctuation, such as "n't" and links. The English Web
# Treebank has 2.4%, WNUT-17 11%.
_MANY_SPLIT = 0.02


def finetune(args: options.Finetune) -> None:
    """Train a model, and write it with its metrics and plots."""
    if args.characters and args.task != "question-answering":
        raise ValueError("--characters applies only to --task question-answering")
    # Read the files first, so that a wrong column is reported before the model loads.
    examples, dev, columns = _read_training_data(args)
    if dev is None and (args.search or args.metric or args.patience or args.evaluate_every):
        raise ValueError(
            "--search, --metric, --patience and --evaluate-every need --dev, the data to score"
        )
    if pathlib.Path(args.output, loading.MODEL_FILE).is_file():
        print_line(f"this run will replace the model in {args.output}", file=sys.stderr)
    writing.check_log_folder(args.tensorboard)
    # Without a search, `finetuning.finetune` locks the folder itself.
    with (
        exclusive_lock(args.output, "training", keep=False)
        if args.search
        else contextlib.nullcontext()
    ):
        _finetune(args, pathlib.Path(args.output), examples, dev, columns)


def _finetune(args, output, examples, dev, columns):
    """Train and write the run to `output`, which is locked."""
    encoder, start = _starting_point(args, examples)
    if args.teacher:
        examples = _teacher_targets(args, examples)
    if getattr(examples, "vectors", None) is not None:
        width = examples.vectors.shape[1]
        if start is encoder and encoder.bert_config["hidden_size"] != width:
            start = heads.embedder(encoder, layers=[keras.layers.Dense(width, name="dense")])
    for note in (
        _note_of_vocabulary(examples, encoder.preprocessor, args.model),
        _note_of_words(examples, encoder.preprocessor),
    ):
        if note:
            print_line(note)
    if args.search and start is not encoder:
        raise ValueError("--search needs an encoder of the width of its data. Remove --search")
    if args.freeze or not encoder.trainable:  # other layers stay frozen as they are
        encoder.trainable = not args.freeze
    options, given = _recipe_options(args)

    def save(model, metrics, **found):
        found |= {"model": args.model, "train": examples.source, "dev": dev and dev.source}
        recipe = {"freeze": args.freeze, "dtype": encoder.dtype_policy.name, **metrics["recipe"]}
        _write_run(output, model, {**found, **metrics, "columns": columns, "recipe": recipe}, dev)

    if args.search:
        if (output / run_state.STATE_FILE).is_file():
            raise ValueError(
                f"{output} has an unfinished run. Run the same command without --search to resume "
                f"it, or delete {run_state.STATE_FILE} to start over"
            )
        # Options that are given are not searched.
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
        best = trials.best
        print_line(f"best: {_options_text(best['options'])}")
        tried = [{"options": trial["options"], "value": trial["value"]} for trial in trials.runs]
        # A stopped search is incomplete, even if its best trial was not stopped.
        metrics = best["metrics"] | {"stopped": trials.stopped}
        model = trials.model
        save(model, metrics, search=tried)
    else:
        model, metrics = finetuning.finetune(
            start,
            examples,
            dev,
            folder=output,
            on_end=save,
            tensorboard=args.tensorboard,
            **options,
            **given,
        )
    _print_run(model, metrics, examples, dev)
    print_line(f"saved in {output}")


def _starting_point(args, examples):
    """Return the encoder, and what is trained: the encoder with a new head, or a model with it."""
    loaded = arguments.load(args, task="auto")
    encoder = heads.find_encoder(loaded)
    is_embedder = heads.find_task(loaded) == "embedder"
    if args.keep_layers and is_embedder:
        raise ValueError(
            f"--keep-layers cannot change {args.model}, which is an embedder. Remove --keep-layers"
        )
    if args.pooling and is_embedder:
        inference.as_embedder(loaded, args.pooling)  # raises an error for another pooling
    elif args.pooling:
        encoder = encoder.with_options(pooling=args.pooling)
    if args.keep_layers:
        encoder = encoder.keep_layers(args.keep_layers)
    if changes := arguments.encoder_options(args):
        encoder = encoder.with_options(**changes)
    if is_embedder and isinstance(examples, EmbeddingExamples):
        if changes:
            names = ", ".join(f"--{name}" for name in changes)
            raise ValueError(f"{names} cannot change {args.model}, which is an embedder. Remove it")
        return encoder, loaded  # with its pooling, dense layers and prompts
    if isinstance(loaded, BertEncoder) or heads.find_task(loaded) in _REPLACED_HEADS:
        return encoder, encoder
    is_changed = encoder is not heads.find_encoder(loaded)
    if not args.search and not is_changed and _fits(loaded, examples):
        print_line(f"training goes on with the head of {args.model}, {_head_text(loaded)}")
        return encoder, loaded
    print_line(f"a new head replaces the head of {args.model}, {_head_text(loaded)}")
    return encoder, encoder


def _fits(model, examples):
    """Return True if a model has the head that the data need, with all of their labels."""
    output, task = heads.find_output(model), registry.for_data(examples)
    if output is None or output.task not in task.HEADS:
        return False
    new = heads.find_output(task.build(heads.find_encoder(model), examples))
    options = ("task", "pairs", "multi_label", "characters")
    if any(getattr(new, name) != getattr(output, name) for name in options):
        return False
    if new.no_answer and not output.no_answer:
        return False
    return set(new.labels or ()) <= set(output.labels or ())


def _head_text(model):
    """Return the task of a model and its labels, at most five."""
    output = heads.find_output(model)
    if output is None:
        return "a custom head"
    text = reading.task_of(model)
    if output.labels is not None:
        text += f" with the labels {', '.join(output.labels[:_SHOWN_LABELS])}"
        text += ", ..." if len(output.labels) > _SHOWN_LABELS else ""
    return text


def _teacher_targets(args, examples):
    """Return the texts of the examples with the vectors or the scores of `--teacher`."""
    teacher = keras_bert.load(args.teacher, trusted=args.trusted, task="auto")
    of_scores = ("cosent", "cosine_similarity")
    if args.loss not in (None, "distillation", *of_scores):
        raise ValueError(
            "--teacher works with --loss distillation (the default), cosent and cosine_similarity; "
            f"received {args.loss}"
        )
    target = "scores" if args.loss in of_scores else "vectors"
    return keras_bert.pipeline(inference.as_embedder(teacher)).as_teacher(examples, target=target)


def _recipe_options(args):
    """Return two dicts: other options of `finetune`, and the given options of `_SEARCHED`."""
    names = (
        "warmup", "schedule", "max_length", "metric", "patience", "fixed_length", "seed",
        "evaluate_every", "gradient_accumulation_steps",
    )  # fmt: skip
    options = {name: getattr(args, name) for name in names}
    for name in (
        "class_weight",
        "stride",
        "loss",
        "gradient_caching",
        "sampling",
        "matryoshka_dims",
    ):
        if (value := getattr(args, name)) not in (None, False):
            options[name] = value
    given = {name: getattr(args, name) for name in _SEARCHED if getattr(args, name) is not None}
    return options, given


def _write_run(output, model, metrics, dev):
    """Write the model, its metrics and plots."""
    metrics = {"task": reading.task_of(model), **metrics}
    report.clear(output)
    provenance.remember_metrics(model, metrics)
    keras_bert.save(model, output)  # with the metrics and the columns of the data
    if metrics["history"]:
        report.draw_curves(output, metrics["history"])
    if dev is not None and heads.find_output(model).labels is not None:
        answers = inference.answers(model, dev, batch_size=metrics["recipe"]["batch_size"])
        report.draw_confusion(output, model, dev, answers)


def _print_run(model, metrics, examples, dev):
    """Print the metrics of a run, and notes about the data."""
    if metrics["stopped"]:
        print_line("stopped early; these are the best results so far")
    print_line(report.table({"examples": len(examples), **metrics}))
    labels = heads.find_output(model).labels
    if "f1" in metrics and reading.task_of(model) in ("classification", "pair"):
        print_line(f"f1 is computed for the label {labels[1]!r}")
    for note in reading.notes(examples, dev, metrics):
        print_line(note)
    if dev is None:
        print_line("nothing was scored, since --dev was not given. Use keras-bert evaluate")


def _print_trial(trial):
    print_line(f"{_options_text(trial['options'])}: {trial['metric']} {trial['value']:.3f}")


def _options_text(options):
    return ", ".join(f"{name} {value}" for name, value in options.items())


def _read_training_data(args):
    """Return training data, dev data, and the columns that they were read from."""
    if args.glue:
        if args.train or args.dev or args.task:
            raise ValueError(
                "--glue replaces --train, --dev and --task. Give either --glue or the others"
            )
        options = tabular.GLUE[tabular.find_glue(args.glue)]
        return (
            tabular.read_glue(args.glue, "train", limit=args.limit),
            tabular.read_glue(args.glue, "dev"),
            {name: options.get(name, default) for name, default in reading.COLUMNS.items()},
        )
    if not args.train:
        raise ValueError("finetune needs --train or --glue")
    task, columns = args.task or "classification", reading.columns_of(args)
    if task != "embedding":
        for name in ("negatives", "pooling", "score_range", "teacher"):
            if getattr(args, name):
                raise ValueError(f"--{name.replace('_', '-')} applies only to --task embedding")
    if len(args.train) > 1 and task != "embedding":
        raise ValueError(f"the task {task} takes one --train file; received {len(args.train)}")
    if args.teacher:
        columns["negatives"] = ()
    parts = [
        reading.read(path, task, columns, args.format, limit=args.limit) for path in args.train
    ]
    examples = EmbeddingExamples.of_sets(parts) if len(parts) > 1 else parts[0]
    dev = _read_dev(args, task, columns) if args.dev else None
    return examples, dev, columns


def _read_dev(args, task, columns):
    if task == "embedding" and (found := reading.read_retrieval(args.dev, "dev")):
        return found
    return reading.read(args.dev, task, columns | {"negatives": ()}, args.format)


def _note_of_words(examples, preprocessor):
    """Return a note if many words in the training data contain punctuation, else `None`."""
    if preprocessor is None or not isinstance(examples, conll.TaggedSentences):
        return None
    sentences = examples.words[:_SAMPLE]
    if tagging.are_characters(sentences):
        return None
    words = [word for sentence in sentences for word in sentence]
    split, _ = split_words(words, preprocessor.python_tokenizer)
    apart = np.mean([len(found) > 1 for found in split])
    if apart < _MANY_SPLIT:
        return None
    return (
        f"{apart:.1%} of the words contain punctuation. Texts on the command line and in a "
        "SavedModel are split at punctuation; predict --input keeps words as they are in the file"
    )


def _note_of_vocabulary(examples, preprocessor, name):
    """Return a note if the vocabulary does not fit the language of the texts; else `None`."""
    if preprocessor is None:  # `finetune` raises an error
        return None
    if isinstance(examples, conll.TaggedSentences):
        texts = [" ".join(words) for words in examples.words[:_SAMPLE]]
    elif isinstance(examples, EmbeddingExamples):
        texts = [text for row in examples.texts[:_SAMPLE] for text in row]
    else:
        texts = getattr(examples, "texts", None) or examples.contexts
    try:
        fits = vocabulary.coverage(texts[:_SAMPLE], preprocessor)
    except ValueError:  # the texts have no words
        return None
    if fits["tokens_per_word"] < _MANY_TOKENS and fits["unknown"] < _MANY_UNKNOWN:
        return None
    return (
        f"the vocabulary of {name} does not fit these texts: {fits['tokens_per_word']:.1f} tokens "
        f"per word, {fits['unknown']:.1%} unknown. Use a model for their language or subject"
    )
