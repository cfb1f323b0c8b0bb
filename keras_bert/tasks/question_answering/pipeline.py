"""The pipeline of question answering."""

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
        if context is None and question is None and text_pair is not None:
            context = text_pair
            text_pair = None
        check_not_given(text_pair=text_pair)
        if inputs is not None and context is not None and question is None:
            question = inputs
            inputs = None
        if inputs is not None:  # (question, context), or a list of such pairs
            is_single = isinstance(inputs, tuple) and all(isinstance(x, str) for x in inputs)
            rows = [inputs] if is_single else listed(inputs)[0]
            for number, row in enumerate(rows, 1):
                if not is_pair(row):
                    raise ValueError(
                        f"input {number} must be a question and a context; received {row!r:.80}. "
                        "Use question= and context="
                    )
        elif question is None or context is None:
            raise ValueError("question answering needs question= and context=")
        else:
            questions, is_single = listed(question, "question")
            contexts, is_shared = listed(context, "context")
            if is_shared:
                contexts *= len(questions)
            if len(questions) != len(contexts):
                raise ValueError(
                    f"context must be one text or one for each of the {len(questions)} questions; "
                    f"received {len(contexts)}"
                )
            rows = list(zip(questions, contexts, strict=True))
        for number, row in enumerate(rows, 1):
            check_texts(row, f"input {number}, text")
        return rows, is_single

    def _examples(self, rows):
        questions = [question for question, _ in rows]
        contexts = [context for _, context in rows]
        return Questions(questions, contexts, source=SOURCE)

    def _answers(self, examples, batch_size, on_batch=None, **options):
        if "null_threshold" in options and not self.output.no_answer:
            raise ValueError(
                f"null_threshold needs a model with no_answer=True; {self._engine.name!r} always "
                "gives an answer. If it was trained on unanswerable questions, load it with "
                'keras_bert.load(name, task="question_answering", no_answer=True)'
            )
        return super()._answers(examples, batch_size, on_batch, **options)

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
    """Return an answer as a plain dict."""
    return {
        "answer": answer["text"],
        "score": float(answer["score"]),
        "start": int(answer["start"]),
        "end": int(answer["end"]),
    }
