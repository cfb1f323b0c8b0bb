"""The pipeline of question answering."""

from keras_bert.tasks import results
from keras_bert.tasks.inputs import SOURCE, check_not_given, check_texts, is_pair, listed
from keras_bert.tasks.pipeline import Pipeline
from keras_bert.tasks.question_answering.data import Questions
from keras_bert.tasks.question_answering.scores import are_right


class QuestionAnsweringPipeline(Pipeline):
    """Pipeline of `heads.span_selector`."""

    columns = ("question", "context")
    options = ("top_k", "max_answer_length", "null_threshold")
    data = (Questions,)
    long_texts_options = ("window",)

    def _rows(self, inputs=None, text_pair=None, question=None, context=None, **others):
        check_not_given(**others)
        question = inputs if question is None else question
        context = text_pair if context is None else context
        if context is not None:
            questions, is_single = listed(question, "question")
            contexts, is_shared = listed(context, "context")
            if is_shared:
                contexts *= len(questions)
            if len(questions) != len(contexts):
                raise ValueError(
                    f"context must be one text, or one for each question; received {len(contexts)}"
                )
            rows = list(zip(questions, contexts, strict=True))
        else:  # (question, context), or a list of such pairs
            is_single = isinstance(question, tuple) and all(isinstance(x, str) for x in question)
            rows = [question] if is_single else listed(question, "question")[0]
        for number, row in enumerate(rows, 1):
            if not is_pair(row):
                raise ValueError(
                    f"input {number} must be a question and a context; received {row!r:.80}. Use "
                    "question= and context="
                )
            check_texts(row, f"input {number}, text")
        return rows, is_single

    def _examples(self, rows):
        questions, contexts = map(list, zip(*rows, strict=True))
        return Questions(questions, contexts, source=SOURCE)

    def _answers(self, examples, batch_size, on_batch=None, **options):
        if "null_threshold" in options and not self.output.no_answer:
            raise ValueError(
                f"{self._engine.name!r} always gives an answer. To use null_threshold, load it "
                'with keras_bert.load(name, task="question_answering", no_answer=True)'
            )
        return super()._answers(examples, batch_size, on_batch, **options)

    def _decoding(self, options):
        return options

    def _results(self, examples, answers, *, top_k=None, **options):
        pairs = zip(examples.contexts, answers, strict=True)
        if top_k is None:
            return [results.Answer(result_of(answer), context) for context, answer in pairs]
        return [
            results.Entities(map(result_of, ranked), context, None) for context, ranked in pairs
        ]

    def _mistakes(self, examples, answers):
        mistakes = []
        is_right = are_right(examples, answers)
        for index, answer in enumerate(answers):
            if is_right[index]:
                continue
            accepted = [text for text, _ in examples.answers[index]]
            question = {"question": examples.questions[index], "context": examples.contexts[index]}
            mistakes.append(question | {"expected": accepted} | result_of(answer))
        return sorted(mistakes, key=lambda mistake: -mistake["score"])


def result_of(answer):
    """Return an answer of the task as a result of the pipeline."""
    return {"answer": answer["text"]} | {key: answer[key] for key in ("score", "start", "end")}
