"""The pipeline of question answering."""

from keras_bert.tasks.inputs import SOURCE, check_not_given, listed
from keras_bert.tasks.pipeline import Pipeline
from keras_bert.tasks.question_answering.data import Questions
from keras_bert.tasks.question_answering.scores import are_right


class QuestionAnsweringPipeline(Pipeline):
    """Pipeline of `heads.span_selector`."""

    options = ("top_k", "max_answer_length", "null_threshold")
    long_texts_options = ("window",)
    data = (Questions,)

    def _rows(self, inputs=None, text_pair=None, question=None, context=None, **others):
        check_not_given(**others)
        questions = inputs if question is None else question
        context = text_pair if context is None else context
        if context is None:
            return super()._rows(questions)
        if isinstance(context, str) and not isinstance(questions, str):  # shared by all questions
            questions, _ = listed(questions, "question")
            context = [context] * len(questions)
        return super()._rows(questions, context=context)

    def _examples(self, rows):
        questions, contexts = map(list, zip(*rows, strict=True))
        return Questions(questions, contexts, source=SOURCE)

    def _answers(self, examples, call, on_batch=None):
        if "null_threshold" in call.options and not self.output.no_answer:
            raise ValueError(
                f"{self.predictor.name!r} always gives an answer. To use null_threshold, load it "
                'with keras_bert.load(name, task="question_answering", no_answer=True)'
            )
        return super()._answers(examples, call, on_batch)

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
