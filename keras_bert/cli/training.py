"""`finetune`: train a model on a labeled file; write the model, its metrics and plots."""

import dataclasses
import functools
import pathlib
import sys

import keras

import keras_bert
from keras_bert import heads, provenance
from keras_bert.cli import options, reading
from keras_bert.data import tabular
from keras_bert.hub import loading
from keras_bert.runtime.files import exclusive_lock
from keras_bert.runtime.terminal import metrics_table, print_line
from keras_bert.tasks import registry
from keras_bert.tasks.embedding.data import EmbeddingExamples
from keras_bert.tasks.embedding.head import as_embedder
from keras_bert.tasks.embedding.retrieval import RetrievalData
from keras_bert.training import finetuning, report, run_state, search

_SHOWN_LABELS = 5


def finetune(args: options.Finetune) -> None:
    """Train a model, and write it with its metrics and plots."""
    # Read the files first, so that a wrong column is reported before the model loads.
    examples, dev, columns = _read_training_data(args)
    if dev is None and args.search:
        raise ValueError("--search needs --dev, the data to score")
    if pathlib.Path(args.output, loading.MODEL_FILE).is_file():
        print_line(f"this run will replace the model in {args.output}", file=sys.stderr)
    encoder, start = _starting_point(args, examples)
    if args.teacher:
        examples = _teacher_targets(args, examples)
        start = _with_width_of_targets(start, encoder, examples)
    if args.freeze or not encoder.trainable:  # other layers stay frozen as they are
        encoder.trainable = not args.freeze
    save = functools.partial(_save, args, encoder, examples, dev, columns)
    if args.search:
        if start is not encoder:
            raise ValueError("--search needs an encoder of the width of its data. Remove --search")
        model, metrics = _search(args, encoder, examples, dev, save)
    else:  # `finetune` locks the folder
        folder = pathlib.Path(args.output)
        model, metrics = finetuning.finetune(
            start, examples, dev, folder=folder, on_end=save, **_recipe(args)
        )
    _print_run(model, metrics, examples, dev)
    print_line(f"saved in {args.output}")


def _search(args, encoder, examples, dev, save):
    """Train with the recipes of the paper; save and return the best model and its metrics."""
    with exclusive_lock(args.output, "training", keep=False):
        if pathlib.Path(args.output, run_state.STATE_FILE).is_file():
            raise ValueError(
                f"{args.output} has an unfinished run. Run the same command without --search to "
                f"resume it, or delete {run_state.STATE_FILE} to start over"
            )
        recipe = _recipe(args)
        choices = {name: values for name, values in search.GRID.items() if name not in recipe}
        trials = search.grid(
            encoder, examples, dev, choices=choices, on_trial=_print_trial, **recipe
        )
        _print_trial(trials.best, "best: ")
        tried = [{"options": trial["options"], "value": trial["value"]} for trial in trials.runs]
        # A stopped search is incomplete, even if its best trial was not stopped.
        metrics = trials.best["metrics"] | {"stopped": trials.stopped}
        save(trials.model, metrics, search=tried)
        return trials.model, metrics


def _recipe(args):
    """Return the arguments of `finetune` that the command line sets."""
    names = [field.name for field in dataclasses.fields(options.FinetuneRecipe)]
    values = {name: getattr(args, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def _starting_point(args, examples):
    """Return the encoder, and what is trained: the encoder with a new head, or a model with it."""
    loaded = reading.load_for_training(args)
    loaded_encoder = heads.find_encoder(loaded)
    task = registry.find(loaded)
    wanted = registry.by_name(args.task) if args.task else registry.for_data(examples)
    if task is wanted and task.reads_encoders:
        _check_options_of_embedder(args, loaded)
        return loaded_encoder, loaded  # with its pooling, dense layers and prompts
    encoder = _with_options(args, loaded_encoder)
    is_replaced = task is not None and (task.is_pretraining or task.reads_encoders)
    if loaded is loaded_encoder or is_replaced:
        with_head = wanted.with_pretrained_head(loaded, encoder)
        return encoder, encoder if with_head is None else with_head
    if encoder is loaded_encoder and not args.search and _fits(loaded, examples, wanted):
        print_line(f"training goes on with the head of {args.model}, {_head_text(loaded)}")
        return encoder, loaded
    print_line(f"a new head replaces the head of {args.model}, {_head_text(loaded)}")
    return encoder, encoder


def _check_options_of_embedder(args, model):
    """Check that the command line does not change an embedder, which is trained as it is."""
    if args.pooling:
        as_embedder(model, args.pooling)  # raises an error for another pooling
    if args.keep_layers or reading.encoder_options(args):
        raise ValueError(
            f"--keep-layers, --dtype and --rematerialize cannot change {args.model}, which is an "
            "embedder. Remove them"
        )


def _with_options(args, encoder):
    """Return the encoder with the pooling, layers and dtype that the command line sets."""
    if args.keep_layers:
        encoder = encoder.keep_layers(args.keep_layers)
    changes = reading.encoder_options(args)
    if args.pooling:
        changes["pooling"] = args.pooling
    return encoder.with_options(**changes) if changes else encoder


def _fits(model, examples, task):
    """Return True if a model has the head that the data of a task need, with all labels."""
    output = heads.find_output(model)
    if output is None or registry.by_name(output.task) is not task:
        return False
    new = heads.find_output(task.build(heads.find_encoder(model), examples))
    options = ("task", "pairs", "multi_label", "characters")
    return (
        all(getattr(new, name) == getattr(output, name) for name in options)
        and (output.no_answer or not new.no_answer)
        and set(new.labels or ()) <= set(output.labels or ())
    )


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
    task = registry.for_data(examples)
    if not task.reads_encoders:
        teacher = keras_bert.load(args.teacher, trusted=args.trusted, task=task.name)
        return keras_bert.pipeline(teacher).as_teacher(examples)
    teacher = keras_bert.load(args.teacher, trusted=args.trusted, task="auto")
    pipe = keras_bert.pipeline(task.from_encoder(teacher))
    targets = {None: "vectors", "cosent": "scores", "cosine_similarity": "scores"}
    if args.loss not in targets:
        raise ValueError(
            "--teacher works with --loss cosent or cosine_similarity, or without --loss; received "
            f"{args.loss}"
        )
    return pipe.as_teacher(examples, target=targets[args.loss])


def _with_width_of_targets(start, encoder, examples):
    """Return an embedder with a dense layer if the teacher's vectors have another width."""
    is_embedding = isinstance(examples, EmbeddingExamples)
    if start is not encoder or not is_embedding or examples.vectors is None:
        return start
    width = examples.vectors.shape[1]
    if encoder.bert_config["hidden_size"] == width:
        return start
    return heads.embedder(encoder, layers=[keras.layers.Dense(width, name="dense")])


def _save(args, encoder, examples, dev, columns, model, metrics, **more):
    """Write the model, its metrics and plots."""
    metrics = {
        "task": reading.task_of(model),
        **more,
        **metrics,
        "columns": columns,
        "recipe": {"freeze": args.freeze, "dtype": encoder.dtype_policy.name} | metrics["recipe"],
    }
    report.clear(args.output)
    provenance.remember_run(model, encoder, examples, dev, metrics)
    keras_bert.save(model, args.output)  # with the metrics and the columns of the data
    if metrics["history"]:
        report.draw_curves(args.output, metrics["history"])
    if dev is not None:
        report.draw_confusion(args.output, model, dev, metrics["recipe"]["batch_size"])


def _print_run(model, metrics, examples, dev):
    """Print the metrics of a run, and notes about the data."""
    if metrics["stopped"]:
        print_line("stopped early; these are the best results so far")
    print_line(metrics_table({"examples": len(examples), **metrics}))
    labels = heads.find_output(model).labels
    of_model = registry.for_model(model)
    if "f1" in metrics and of_model.has_labels and of_model.answers_texts:
        print_line(f"f1 is computed for the label {labels[1]!r}")
    for note in reading.notes(examples, dev, metrics):
        print_line(note)
    if dev is None:
        print_line("nothing was scored, since --dev was not given. Use keras-bert evaluate")


def _print_trial(trial, prefix=""):
    options = ", ".join(f"{name} {value}" for name, value in trial["options"].items())
    print_line(f"{prefix}{options}: {trial['metric']} {trial['value']:.3f}")


def _read_training_data(args):
    """Return training data, dev data, and the columns that they were read from."""
    if bool(args.glue) == bool(args.train) or (args.glue and (args.dev or args.task)):
        raise ValueError("give either --glue, or --train with --dev and --task")
    if args.glue:
        _check_options_of_glue(args)
        glue_columns = tabular.GLUE[tabular.find_glue(args.glue)]
        columns = {name: glue_columns.get(name, value) for name, value in reading.COLUMNS.items()}
        examples = tabular.read_glue(args.glue, "train", limit=args.limit)
        return examples, tabular.read_glue(args.glue, "dev"), columns
    name = args.task or registry.TASKS[0].name
    task = registry.by_name(name)
    if task.is_pretraining or name not in task.reads:
        raise ValueError(f"finetune does not train the task {name}; use keras-bert pretrain")
    _check_options_of_task(args, task, name)
    columns = reading.columns_of(args)
    if args.teacher and task.reads_encoders:
        columns["negatives"] = []
    parts = [
        reading.read(path, name, columns, args.format, limit=args.limit) for path in args.train
    ]
    examples = EmbeddingExamples.of_sets(parts) if len(parts) > 1 else parts[0]
    dev = None
    if args.dev and RetrievalData in task.data:
        dev = reading.read_retrieval(args.dev, "dev")
    if args.dev and dev is None:
        # Negatives of embeddings are only for training.
        unused: dict = {"negatives": []} if RetrievalData in task.data else {}
        dev = reading.read(args.dev, name, columns | unused, args.format)
    return examples, dev, columns


def _check_options_of_glue(args):
    """Raise an error for an option that --glue replaces, or that its tasks ignore."""
    given = reading.given_columns(args)
    given |= {option: getattr(args, option) for option in ("format", "teacher", "pooling")}
    for option, value in given.items():
        if value is not None:
            raise ValueError(f"{reading.flag(option, value)} does not apply to --glue. Remove it")


def _check_options_of_task(args, task, name):
    """Raise an error for an option that the task ignores."""
    reading.check_columns(args, name)
    ignored = []
    if not task.reads_encoders:
        ignored.append("pooling")
        if not task.has_teachers:
            ignored.append("teacher")
        if len(args.train) > 1:
            raise ValueError(f"the task {name} takes one --train file; received {len(args.train)}")
    for option in ignored:
        if getattr(args, option) is not None:
            raise ValueError(f"--{option} does not apply to the task {name}. Remove it")
