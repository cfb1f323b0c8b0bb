"""Questions answered by a span of a text, from files in SQuAD's format.

The passages are of manuals of invented devices; the dev passages are about a device that the
training passages do not know. 180 questions are next to nothing (SQuAD has 88,000), and MiniLM
was never trained to answer any: the lesson is how it is done, not how good it gets.

Command:   python examples/answer_questions.py
Time:      about two minutes on 2 CPU cores
Expected:  F1 0.56 and exact match 0.40 on the dev questions (seed 0); the whole passage as the
           answer gets F1 0.15
"""

import argparse
import os
import pathlib

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras_bert
from keras_bert.data import squad
from keras_bert.tasks import inference, question_answering
from keras_bert.training import finetuning

DATA = pathlib.Path(__file__).parent / "data"
CONTEXT = (
    "The kettle holds 1.7 litres. Open the lid with the grey button, and never boil less than a "
    "cup of water. It switches itself off after four minutes. Clean it with lemon juice."
)
QUESTIONS = [
    "How much does the kettle hold?",
    "When does it switch itself off?",
    "What should it be cleaned with?",
]


def main():
    """Trains, scores and asks the model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="minilm", help="any name or path that `load` takes")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--limit", type=int, help="learn from the first questions only")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    asked = squad.read(DATA / "manual_train.json", limit=args.limit)
    dev = squad.read(DATA / "manual_dev.json")
    everything = question_answering.score(
        None, dev, [{"text": context} for context in dev.contexts]
    )

    bert = keras_bert.load(args.model)
    model, metrics = finetuning.finetune(
        bert, asked, dev, epochs=args.epochs, batch_size=8, learning_rate=1e-4, seed=args.seed
    )
    print(f"F1 {metrics['f1']:.2f}, exact match {metrics['exact_match']:.2f}", end=" ")
    print(f"on {len(dev)} dev questions; F1 {everything['f1']:.2f} for the whole passage")

    answers = inference.answers(model, squad.Questions(QUESTIONS, [CONTEXT] * len(QUESTIONS)))
    for question, answer in zip(QUESTIONS, answers, strict=True):
        print(f"  {question} {answer['text']} ({answer['score']:.2f})")


if __name__ == "__main__":
    main()
