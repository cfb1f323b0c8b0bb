"""`finetune`: from a labelled file to a model, its metrics and pictures."""

import contextlib
import pathlib
import sys

import numpy as np

import keras_bert
from keras_bert import heads
from keras_bert.cli import arguments, reading
from keras_bert.data import tabular
from keras_bert.hub import loading
from keras_bert.pretraining import vocabulary
from keras_bert.runtime.files import alone
from keras_bert.tasks import inference, tagging
from keras_bert.training import finetuning, report, run_state, search

_SEARCHED = ("batch_size", "learning_rate", "epochs")  # by --search, unless they are given

# Texts to see whether a vocabulary fits them. One of their language takes 1.0 to 1.8 pieces a word
# and knows all but 1.3% of them; MiniLM's takes 5.4 in Korean reviews and knows 75%.
_SAMPLE, _MANY_PIECES, _MANY_UNKNOWN = 1000, 2.5, 0.05
# Words that hold punctuation, as "n't" and links do: 2.4% of the English Web Treebank's, 11% of
# WNUT-17's.
_MANY_APART = 0.02


def finetune(args):
    """Trains a model, and writes it with its metrics and pictures."""
    if args.characters and args.task != "qa":
        raise ValueError("--characters is for questions, --task qa")
    # The files first: a wrong column should not cost the wait for a model.
    examples, dev, columns = _read_training_data(args)
    if dev is None and (args.search or args.metric or args.patience):
        raise ValueError("--search, --metric and --patience need --dev, the data that is scored")
    if pathlib.Path(args.output, loading.MODEL_FILE).is_file():
        print(f"{args.output} holds a model, which this run's will replace", file=sys.stderr)
    arguments.check_log_folder(args.tensorboard)
    # Without a search `train.finetune` locks the folder itself.
    with alone(args.output, "training", keep=False) if args.search else contextlib.nullcontext():
        _finetune(args, pathlib.Path(args.output), examples, dev, columns)


def _finetune(args, output, examples, dev, columns):
    """The training itself, in a folder that no other process writes to."""
    # "auto": a checkpoint with another head may have left the pooler out.
    encoder = heads.find_encoder(arguments.load(args, task="auto"))
    if changes := arguments.encoder_options(args):
        encoder = encoder.with_options(**changes)
    for note in (
        _note_of_vocabulary(examples, encoder.preprocessor, args.model),
        _note_of_words(examples, encoder.preprocessor),
    ):
        if note:
            print(note, flush=True)  # before the wait
    encoder.trainable = not args.freeze
    names = ("warmup", "max_length", "metric", "patience", "fixed_length", "seed")
    options = {name: getattr(args, name) for name in names}
    options["gradient_accumulation_steps"] = args.accumulate
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
        if (output / run_state.STATE_FILE).is_file():
            raise ValueError(
                f"{output}: the run there is not finished; the same command without --search goes "
                f"on with it, or delete {run_state.STATE_FILE} to start afresh"
            )
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
        model, metrics = finetuning.finetune(
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
    report.write_metrics(output, {"task": reading.task_of(model), **metrics})
    if metrics["history"]:
        report.draw_curves(output, metrics["history"])
    if dev is not None and heads.find_output(model).labels is not None:
        answers = inference.answers(model, dev, batch_size=metrics["recipe"]["batch_size"])
        report.draw_confusion(output, model, dev, answers)


def _print_run(model, metrics, examples, dev):
    """Prints the metrics of a run, and what a person should know about them."""
    if metrics["stopped"]:
        print("stopped; what follows is the best so far")
    print(report.table({"examples": len(examples), **metrics}))
    labels = heads.find_output(model).labels
    if "f1" in metrics and reading.task_of(model) in ("classification", "pair"):
        print(f"f1 is that of the label {labels[1]!r}")
    for note in reading.notes(examples, dev, metrics):
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
        options = tabular.GLUE[tabular.find_glue(args.glue)]
        return (
            tabular.read_glue(args.glue, "train", limit=args.limit),
            tabular.read_glue(args.glue, "dev"),
            {name: options.get(name, default) for name, default in reading.COLUMNS.items()},
        )
    if not args.train:
        raise ValueError("finetune needs --train or --glue")
    task, columns = args.task or "classification", reading.columns_of(args)
    examples = reading.read(args.train, task, columns, args.format, limit=args.limit)
    dev = reading.read(args.dev, task, columns, args.format) if args.dev else None
    return examples, dev, columns


def _note_of_words(examples, preprocessor):
    """What a person should know about words that a text does not have; or `None`."""
    if preprocessor is None or not isinstance(examples, tagging.TaggedSentences):
        return None
    sentences = examples.words[:_SAMPLE]
    if tagging.are_characters(sentences):
        return None
    words = [word for sentence in sentences for word in sentence]
    split, _ = tagging.sentences_of(words, preprocessor.tokenizer)
    apart = np.mean([len(found) > 1 for found in split])
    if apart < _MANY_APART:
        return None
    return (
        f"{apart:.1%} of the words hold punctuation, at which a text on the command line or in a "
        "SavedModel is split; predict --input takes words as they are here"
    )


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
