"""Question answering: find the answer to a question in a text, with files in SQuAD's format.

The texts are manuals of invented devices. The dev texts describe a device that the training texts
do not mention. 180 questions are very few (SQuAD has 88,000), and MiniLM was not trained to answer
questions, so the example shows the steps rather than good answers.

Command:   python examples/answer_questions.py
Time:      about two minutes on 2 CPU cores
Expected:  F1 0.56 and exact match 0.40 on the dev questions (seed 0); F1 is 0.15 if the whole
           passage is the answer
"""

import argparse
import os
import pathlib

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras_bert
from keras_bert.tasks.question_answering.task import QuestionAnswering

question_answering = QuestionAnswering()

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
    """Train and score the model, and ask it questions."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="minilm", help="name or path for keras_bert.load")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--limit", type=int, help="train on the first questions only")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    train = keras_bert.read(DATA / "manual_train.json", task="question_answering", limit=args.limit)
    dev = keras_bert.read(DATA / "manual_dev.json", task="question_answering")
    whole_passage = question_answering.score(
        None, dev, [{"text": context} for context in dev.contexts]
    )

    bert = keras_bert.load(args.model)
    model, metrics = keras_bert.finetune(
        bert, train, dev, epochs=args.epochs, batch_size=8, learning_rate=1e-4, seed=args.seed
    )
    print(f"F1 {metrics['f1']:.2f}, exact match {metrics['exact_match']:.2f}", end=" ")
    print(f"on {len(dev)} dev questions; F1 {whole_passage['f1']:.2f} for the whole passage")

    ask = keras_bert.pipeline(model)
    for question in QUESTIONS:
        answer = ask(question=question, context=CONTEXT)
        print(f"  {question} {answer['answer']} ({answer['score']:.2f})")


if __name__ == "__main__":
    main()
