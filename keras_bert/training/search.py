"""Hyperparameter search over the paper's grid (section A.3): batch size, learning rate, epochs."""

import dataclasses
import itertools
import pathlib
import sys

import keras

from keras_bert.encoder import BertEncoder
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.files import check_subfolder
from keras_bert.runtime.memory import OutOfMemory
from keras_bert.runtime.terminal import print_line
from keras_bert.training import callbacks, finetuning

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
        stopped: True if Ctrl-C ended the search.
        model: Model of the best run.
    """

    runs: list
    stopped: bool = False
    model: keras.Model | None = None

    @property
    def best(self):
        """The run with the best value, the first one if several are equal."""
        return max(self.runs, key=lambda run: callbacks.goodness(run["metric"], run["value"]))


def grid(encoder, train_data, dev, *, choices=None, on_trial=None, tensorboard=None, **options):
    """Fine-tune once per combination of hyperparameters, each time from the same weights: `Trials`.

    `encoder` is a `BertEncoder`, which `finetune` copies, and `dev` has labels. `choices` is a dict
    from option to values, by default `GRID`. `on_trial` is called with the dict of each run.
    `tensorboard` is a folder that gets a subfolder per run. Ctrl-C ends the search and returns the
    completed runs; without any, it raises `KeyboardInterrupt`. A run that diverges or does not fit
    into the memory is left out, with a line on stderr.
    """
    if not isinstance(encoder, BertEncoder):
        raise ValueError(
            f"each run starts from the same encoder; received {shown(encoder)}. Give the encoder "
            "of the model, keras_bert.heads.find_encoder(model)"
        )
    if dev is None:
        raise ValueError("the search needs dev, the data to score; received None")
    choices = GRID if choices is None else choices
    for name, values in choices.items():
        if not isinstance(values, (list, tuple)) or not values:
            raise ValueError(f"the choices of {name} must be a list; received {shown(values)}")
    trials = Trials([])
    failure = None
    try:
        for values in itertools.product(*choices.values()):
            chosen = dict(zip(choices, values, strict=True))
            if tensorboard is not None:
                name = ", ".join(f"{option} {value}" for option, value in chosen.items())
                options["tensorboard"] = pathlib.Path(tensorboard, name)
                check_subfolder(options["tensorboard"])
            try:
                model, metrics = finetuning.finetune(
                    encoder, train_data, dev, **{**options, **chosen}
                )
            except (callbacks.Diverged, OutOfMemory) as error:
                failure = error
                print_line(f"{chosen}: {error}", file=sys.stderr)
                continue
            metric = metrics["metric"]
            trials.stopped = metrics["stopped"]
            trials.runs.append(
                {"options": chosen, "metric": metric, "value": metrics[metric], "metrics": metrics}
            )
            if trials.best is trials.runs[-1]:
                trials.model = model
            if on_trial:
                on_trial(trials.runs[-1])
            if trials.stopped:
                break
    except KeyboardInterrupt:  # between two runs, or before the first step of a run
        if not trials.runs:
            raise
        trials.stopped = True
    if failure is not None and not trials.runs:
        raise failure
    return trials
