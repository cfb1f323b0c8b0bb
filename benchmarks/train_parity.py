"""Question: do training steps have the losses of transformers' steps, from the same weights?

Both libraries train MiniLM with a head for question answering, with the same initial weights of
the head, the same batches of SQuAD 1.1 (16 windows of at most 128 tokens per step), the schedule
and optimizer of `finetune_tasks.py`, and no dropout, so that only the arithmetic differs. The
script prints the mean loss of both for every ten steps, and the largest difference of a step.

    python benchmarks/train_parity.py ../shared

Needs transformers and torch.
"""

import argparse
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import finetune_tasks as tasks
import numpy as np
import torch
import transformers

import keras_bert
import keras_bert.hub.resolve
from keras_bert import heads, optimizers
from keras_bert.tasks.question_answering.task import QuestionAnswering

question_answering = QuestionAnswering()

BATCH, LENGTH = 16, 128
TOTAL, WARMUP = 426, 43  # steps of the whole run; only the first ones are taken
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
OURS = {  # name in transformers -> ours
    "input_ids": "input_word_ids",
    "attention_mask": "input_mask",
    "token_type_ids": "input_type_ids",
}
TARGETS = {"start_positions": "start_logits", "end_positions": "end_logits"}


def batches(weights, train, steps):
    """Yield dicts of int arrays (BATCH, LENGTH) and targets (BATCH,), with transformers' names."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(weights)
    windows = tasks.QuestionPeer(tasks.TASKS["squad11"], train).features(tokenizer, train)
    windows = [window for window in windows if len(window["input_ids"]) <= LENGTH]
    generator = np.random.default_rng(0)
    for _ in range(steps):
        rows = [windows[row] for row in generator.choice(len(windows), BATCH, replace=False)]
        batch = {
            name: np.array([row[name] + [0] * (LENGTH - len(row[name])) for row in rows])
            for name in OURS
        }
        yield batch | {name: np.array([row[name] for row in rows]) for name in TARGETS}


def transformers_step(weights):
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(
        weights, dtype=torch.float32, **NO_DROPOUT
    )
    model.train()
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": tasks.DECAY},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
        ],
        lr=tasks.RATE,
        eps=1e-6,
    )
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, WARMUP, TOTAL)

    def step(batch):
        loss = model(**{name: torch.tensor(array) for name, array in batch.items()}).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, tasks.CLIP)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        return float(loss.detach())

    head = [value.detach().numpy().copy() for value in model.qa_outputs.parameters()]
    return step, head


def our_step(train, head):
    pretrained = keras_bert.load("minilm")
    encoder = keras_bert.BertEncoder(**{**pretrained.bert_config, **NO_DROPOUT})
    encoder.set_weights(pretrained.get_weights())
    model = question_answering.build(encoder, train)
    kernel, bias = head
    model.get_layer("logits").set_weights([kernel.T, bias])
    model.compile(
        optimizers.adamw(
            tasks.RATE, total_steps=TOTAL, warmup_steps=WARMUP, weight_decay=tasks.DECAY,
            global_clipnorm=tasks.CLIP,
        ),
        **question_answering.compile_options(heads.find_output(model), None),
    )  # fmt: skip

    def step(batch):
        inputs = {ours: batch[name] for name, ours in OURS.items()}
        targets = {ours: batch[name] for name, ours in TARGETS.items()}
        model.reset_metrics()
        return float(model.train_on_batch(inputs, targets, return_dict=True)["loss"])

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="folder with data/")
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    train, _ = tasks.read(tasks.TASKS["squad11"], args.folder, 2000)
    weights = keras_bert.hub.resolve.find("minilm")
    theirs, head = transformers_step(weights)
    ours = our_step(train, head)
    losses = []
    for number, batch in enumerate(batches(weights, train, args.steps), 1):
        losses.append((ours(batch), theirs(batch)))
        if number % 10 == 0:
            mean = np.mean(losses[-10:], axis=0)
            print(f"step {number}: loss {mean[0]:.4f}, transformers {mean[1]:.4f}", flush=True)
    largest = max(abs(mine - their) for mine, their in losses)
    print(f"largest difference of {len(losses)} steps {largest:.4f}")


if __name__ == "__main__":
    main()
