"""Hyperparameter search over the paper's grid (section A.3): batch size, learning rate, epochs."""

import dataclasses
import itertools
import pathlib

import keras

from keras_bert.training import finetuning, loop

GRID = {
    "batch_size": (16, 32),
    "learning_rate": (5e-5, 3e-5, 2e-5),
    "epochs": (2, 3, 4),
}


@dataclasses.dataclass
class Trials:
    """The runs of a search.

    Attributes:
        runs: A dict per run: `options`, `metric`, `value`, and all `metrics`.
        weights: The encoder's weights before the first run.
        stopped: `True` if Ctrl-C ended the search.
        model: The model of the best run. It shares its encoder with the models of all runs, so
            call `best_model` to get the best weights.
        model_weights: The weights at the end of the best run.
    """

    runs: list
    weights: list
    stopped: bool = False
    model: keras.Model | None = None
    model_weights: list = dataclasses.field(default_factory=list)


def grid(encoder, train_data, dev, *, choices=None, on_trial=None, tensorboard=None, **options):
    """Fine-tune once per combination of hyperparameters, each time from the same weights.

    Ctrl-C ends the search and returns the runs so far. If no run is complete, it raises
    `KeyboardInterrupt`.

    Args:
        encoder: A `BertEncoder`. See `reset` and `best_model` for its weights afterwards.
        train_data, dev: Data, as for `finetuning.finetune`.
        choices: A dict from option to values. Default: `GRID`, the paper's 18 combinations.
        on_trial: Function that is called with the dict of each run.
        tensorboard: Folder for TensorBoard with a subfolder per run, or `None`.
        **options: Further options of `finetuning.finetune`.

    Returns:
        The `Trials`.

    Raises:
        ValueError: As for `finetuning.finetune`.
    """
    choices = GRID if choices is None else choices
    trials = Trials([], encoder.get_weights())
    try:
        for values in itertools.product(*choices.values()):
            chosen = dict(zip(choices, values, strict=True))
            if tensorboard is not None:
                name = ", ".join(f"{option} {value}" for option, value in chosen.items())
                options["tensorboard"] = pathlib.Path(tensorboard, name)
            reset(encoder, trials)
            model, metrics = finetuning.finetune(encoder, train_data, dev, **{**options, **chosen})
            metric, weights = metrics["metric"], model.get_weights()
            trials.stopped = metrics["stopped"]
            trials.runs.append(
                {"options": chosen, "metric": metric, "value": metrics[metric], "metrics": metrics}
            )
            if best(trials) is trials.runs[-1]:
                trials.model, trials.model_weights = model, weights
            if on_trial:
                on_trial(trials.runs[-1])
            if trials.stopped:
                break
    except KeyboardInterrupt:  # between two runs, or before the first step of a run
        if not trials.runs:
            raise
        trials.stopped = True
    return trials


def best(trials):
    """Return the run with the best value; of equal runs, the first."""
    return max(trials.runs, key=lambda run: loop.goodness(run["metric"], run["value"]))


def reset(encoder, trials):
    """Set an encoder's weights to those from before the search."""
    encoder.set_weights(trials.weights)


def best_model(trials):
    """Return the model of the best run, with the weights from the end of that run.

    Args:
        trials: The result of `grid`. All its models share one encoder, which gets these weights.

    Returns:
        The `keras.Model`.
    """
    trials.model.set_weights(trials.model_weights)
    return trials.model
