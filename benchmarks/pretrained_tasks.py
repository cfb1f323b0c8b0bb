"""Question: how well does a pretrained model fine-tune, compared with random weights?

    python examples/pretrain.py CORPUS --output my_bert
    python benchmarks/pretrained_tasks.py my_bert/model ../shared
    python benchmarks/pretrained_tasks.py my_bert/model ../shared --tasks sst2-6000 --rows 1000
    python benchmarks/pretrained_tasks.py my_bert/model ../shared --tasks sst2-6000 --mean --frozen

The script fine-tunes the model, and a model of the same configuration and vocabulary with random
weights, on SST-2 (6,000 training rows, or all with `--tasks sst2`) and WNUT-17, with the same
settings and seeds. It prints each dev score, their means and standard deviations. Pretrained and
random weights need different learning rates, so both are trained with each of `--rates`, and the
best means are compared. Dropout is 0.1 for both, regardless of the value in pretraining. With
`--mean`, the classifier uses the mean over the tokens of a text instead of [CLS]. With `--frozen`,
only the head is trained.
"""

import argparse
import dataclasses
import itertools
import os
import pathlib
import statistics

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import finetune_tasks as tasks
import keras

import keras_bert
from keras_bert import heads
from keras_bert.tasks.keras_predictor import KerasPredictor
from keras_bert.training.finetuning import finetune

NAMES = ("sst2-6000", "wnut17", "sst2")
DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}


def encoder(folder, is_random):
    pretrained = heads.find_encoder(keras_bert.load(folder))
    config = {**pretrained.bert_config, **DROPOUT}
    made = keras_bert.BertEncoder(**config, preprocessor=pretrained.preprocessor)
    if not is_random:
        made.set_weights(pretrained.get_weights())
    return made


def mean_classifier(bert, labels):
    """Return a classifier on the mean over the tokens of a text."""
    inputs = {key: keras.Input((None,), dtype="int32", name=key) for key in bert.input}
    x = bert(inputs)["sequence_output"]
    mask = keras.ops.not_equal(inputs["input_mask"], 0)
    x = keras.layers.GlobalAveragePooling1D()(x, mask=mask)
    x = keras.layers.Dropout(DROPOUT["hidden_dropout_prob"])(x)
    logits = keras.layers.Dense(len(labels))(x)
    return keras.Model(inputs, heads.TaskOutput("classification", labels=labels)(logits))


def run(name, args, seed, is_random, rate):
    task = tasks.TASKS[name]
    if args.rows is not None:
        task = dataclasses.replace(task, rows=args.rows)
    train, dev = tasks.read(task, args.shared, None)
    keras.utils.set_random_seed(seed)
    model = bert = encoder(args.model, is_random)
    bert.trainable = not args.frozen
    if args.mean and task.kind == "label":
        model = mean_classifier(bert, train.label_names())
    model, _ = finetune(
        model, train, epochs=args.epochs, batch_size=tasks.BATCH, learning_rate=rate,
        warmup=tasks.WARMUP, max_length=task.max_length, seed=seed, show_progress=False,
    )  # fmt: skip
    answers = KerasPredictor(model).answers(tasks.without_labels(dev), batch_size=64)
    if task.kind == "label":
        labels = train.label_names()
        answers = [labels[row.argmax()] for row in answers]
    return tasks.score(task, dev, answers)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="folder of a pretrained model")
    parser.add_argument("shared", type=pathlib.Path, help="folder with data/")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-4, 3e-4])
    parser.add_argument("--tasks", nargs="+", choices=NAMES, default=NAMES[:2])
    parser.add_argument("--rows", type=int, help="maximum number of training rows")
    parser.add_argument("--mean", action="store_true", help="classify by the mean over the tokens")
    parser.add_argument("--frozen", action="store_true", help="train only the head")
    args = parser.parse_args()
    for name in args.tasks:
        metric = tasks.TASKS[name].metrics[0]
        data = name if args.rows is None else f"{args.rows:,} rows of {name}"
        best = {}
        for is_random, rate in itertools.product((False, True), args.rates):
            found = [run(name, args, seed, is_random, rate) for seed in range(args.seeds)]
            values = [score[metric] for score in found]
            mean = statistics.mean(values)
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            best[is_random] = max(mean, best.get(is_random, -1.0))
            print(
                f"{data}, {'random weights' if is_random else 'pretrained'}, rate {rate:g}: "
                f"{metric} {mean:.4f} \u00b1 {spread:.4f} "
                f"({', '.join(f'{value:.4f}' for value in values)}); "
                f"majority {found[0]['majority']:.3f}",
                flush=True,
            )
        print(f"{data}: pretrained {best[False]:.4f}, random weights {best[True]:.4f}", flush=True)


if __name__ == "__main__":
    main()
