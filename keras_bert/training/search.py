"""The paper's grid of recipes (section A.3): batch size, learning rate, epochs."""

import dataclasses
import itertools
import pathlib

import keras

from keras_bert.training import finetuning

GRID = {
    "batch_size": (16, 32),
    "learning_rate": (5e-5, 3e-5, 2e-5),
    "epochs": (2, 3, 4),
}


@dataclasses.dataclass
class Trials:
    """The runs of a search.

    Attributes:
        runs: a dict for each: `options`, `metric`, `value`, and all `metrics`.
        weights: of the encoder before the first run.
        stopped: whether Ctrl-C ended it.
        model: of the best run so far; its weights are those of the last one, see `best_model`.
        model_weights: what they were when it ended.
    """

    runs: list
    weights: list
    stopped: bool = False
    model: keras.Model | None = None
    model_weights: list = dataclasses.field(default_factory=list)


def grid(encoder, train_data, dev, *, choices=None, on_trial=None, tensorboard=None, **options):
    """Fine-tunes once for each recipe, from the same start.

    Ctrl-C ends the search, not the function; where no run is over yet, it is a `KeyboardInterrupt`.

    Args:
        encoder: a `BertEncoder`; see `reset` and `best_model` for its weights afterwards.
        train_data, dev: as for `train.finetune`.
        choices: for each option its values; default: the paper's, 18 runs.
        on_trial: called with each run's dict.
        tensorboard: folder in which each run has one for TensorBoard, or `None`.
        **options: further options of `train.finetune`.

    Returns:
        The `Trials`.

    Raises:
        ValueError: as for `train.finetune`.
    """
    choices = GRID if choices is None else choices
    trials = Trials([], encoder.get_weights())
    try:
        for values in itertools.product(*choices.values()):
            recipe = dict(zip(choices, values, strict=True))
            if tensorboard is not None:
                name = ", ".join(f"{option} {value}" for option, value in recipe.items())
                options["tensorboard"] = pathlib.Path(tensorboard, name)
            reset(encoder, trials)
            model, metrics = finetuning.finetune(encoder, train_data, dev, **{**options, **recipe})
            metric, weights = metrics["metric"], model.get_weights()
            trials.stopped = metrics["stopped"]
            trials.runs.append(
                {"options": recipe, "metric": metric, "value": metrics[metric], "metrics": metrics}
            )
            if best(trials) is trials.runs[-1]:
                trials.model, trials.model_weights = model, weights
            if on_trial:
                on_trial(trials.runs[-1])
            if trials.stopped:
                break
    except KeyboardInterrupt:  # between two runs, or where a run begins
        if not trials.runs:
            raise
        trials.stopped = True
    return trials


def best(trials):
    """The run with the best value, the first of equals.

    Example:

    >>> best(Trials([{"metric": "f1", "value": 0.5}, {"metric": "f1", "value": 0.7}], []))
    {'metric': 'f1', 'value': 0.7}
    """
    return max(trials.runs, key=lambda run: finetuning.goodness(run["metric"], run["value"]))


def reset(encoder, trials):
    """Gives an encoder the weights from before the search."""
    encoder.set_weights(trials.weights)


def best_model(trials):
    """The model of the best run, with the weights that it had at its end.

    Args:
        trials: from `grid`. All of its models share one encoder, which gets these weights.

    Returns:
        The `keras.Model`.
    """
    trials.model.set_weights(trials.model_weights)
    return trials.model
