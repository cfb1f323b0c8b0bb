"""Question answering: the answer is a span of the context, as in SQuAD and KorQuAD 1.0.

Questions and contexts are cut into windows. The answer is the best span of all windows.

Source: sections 4.2 and 4.3 of the BERT paper; google-research/bert `run_squad.py`.
"""

import os
import typing

import numpy as np

from keras_bert.runtime.arguments import check_one_of
from keras_bert.tasks import results
from keras_bert.tasks.question_answering import data as squad
from keras_bert.tasks.question_answering import scores as squad_scores
from keras_bert.tasks.question_answering import windows as question_windows
from keras_bert.tasks.question_answering.data import Questions
from keras_bert.tasks.question_answering.pipeline import QuestionAnsweringPipeline, result_of
from keras_bert.tasks.question_answering.windows import OUTPUTS, EncodedQuestions
from keras_bert.tasks.task import Task

_PROGRAM = """\
answers = []
for row, (encoding, (question, context)) in enumerate(zip(encodings, texts)):
    tokens = [index for index, text in enumerate(encoding.sequence_ids) if text == 1]  # the context
    start = outputs["start_logits"][row][tokens]
    end = outputs["end_logits"][row][tokens]
    scores = start[:, None] + end[None, :]
    spans = np.triu(np.tril(np.ones_like(scores), 29))  # of at most 30 tokens
    first, last = np.unravel_index(np.where(spans == 1, scores, -np.inf).argmax(), scores.shape)
    begin, _ = encoding.offsets[tokens[first]]
    _, stop = encoding.offsets[tokens[last]]
    answers.append(context[begin:stop])"""


class QuestionAnswering(Task):
    """Question answering: the answer is a span of the context, as in SQuAD and KorQuAD 1.0."""

    name = "question_answering"
    data = (Questions,)
    reads: typing.ClassVar = {"question_answering": ("limit", "characters")}
    max_length = 384
    training_options = question_windows.WindowOptions
    answer_options = question_windows.AnswerOptions
    pipeline = QuestionAnsweringPipeline
    input_names = ("question", "context")
    reads_windows = True
    graph_outputs = OUTPUTS
    has_predictions_file = True
    uses_pooler = False
    weights_group = "span_selector"
    head_fields = ("no_answer", "dropout")
    default_dropout = 0.0
    hub_tag = "question-answering"

    def head_function(self):
        from keras_bert.tasks.question_answering.head import span_selector

        return span_selector

    def read(self, name, data, options):
        is_file = isinstance(data, (str, os.PathLike))
        return squad.read(data, **options) if is_file else squad.read_table(data, **options)

    def read_in_parts(self, name, path, options):
        return [squad.read(path, labeled=False)]  # the file is a single JSON object

    def of_texts(self, model, texts, source):
        if len(texts) != 2:
            raise ValueError("question answering needs two texts, a question and a context")
        return Questions(texts[:1], texts[1:], source=source)

    def needs_header(self, output):
        return True

    def check_inputs(self, examples):
        for number, question in enumerate(examples.questions, 1):
            if not question.strip():
                raise ValueError(
                    f"{examples.source}: question {number} is empty. Write a question, or remove it"
                )

    def describe(self, output):
        return "Answers a question with a span of the context."

    def columns_of(self, examples, output):
        return [list(examples.questions), list(examples.contexts)]

    def is_labeled(self, examples):
        return examples.answers is not None

    def build(self, encoder, train):
        """Build a model of `heads.span_selector` for `Questions` with answers.

        If some questions have no answer, the model can predict that there is no answer.
        """
        return self.head_function()(encoder, no_answer=not all(train.answers))

    def compile_options(self, output, encoded):
        """Return the losses of start and end, of which the mean is used."""
        import keras

        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return {
            "loss": dict.fromkeys(OUTPUTS, loss),
            "loss_weights": dict.fromkeys(OUTPUTS, 0.5),
            "weighted_metrics": {},
        }

    def model_of_batches(self, model):
        """Return the model without answers in padding, so that padding does not change the loss."""
        from keras_bert.tasks.question_answering.head import without_padding

        return without_padding(model)

    def encode(self, model, examples, max_length, options):
        """Cut questions and contexts into windows of at most `max_length` tokens.

        Each distinct context is tokenized once.
        Source: `convert_examples_to_features` in google-research/bert `run_squad.py`.
        """
        return EncodedQuestions(examples, model.tokenizer, max_length, options)

    def decode(self, model, examples, encoded, outputs, options):
        """Return a dict per question, see `question_windows.decode`.

        `outputs` has a dict of `start_logits` and `end_logits`, (seq,), per window.
        """
        return question_windows.decode(examples, encoded, outputs, model.output.no_answer, options)

    def score(self, output, examples, answers):
        """Score answers as SQuAD's `evaluate-v2.0.py` does: `f1` and `exact_match`.

        If some questions have no answer: also `has_answer_f1` and `no_answer_accuracy`, and
        of models with `no_answer` the best scores of all values of `null_threshold` with
        these values: `best_f1`, `best_f1_threshold`, `best_exact_match` and
        `best_exact_match_threshold`. `examples.characters` selects KorQuAD's rules, F1 over
        characters with articles. `evaluate-v1.1.py` gives the same results for answers that
        hold a letter or a digit.
        """
        accepted = examples.answers
        units = squad_scores.units_of(examples)
        f1, exact = squad_scores.scores_of(units, [answer["text"] for answer in answers], accepted)
        metrics = {"f1": f1.mean(), "exact_match": exact.mean()}
        has_answer = np.array([bool(right) for right in accepted])
        if not has_answer.all():
            if has_answer.any():
                metrics["has_answer_f1"] = f1[has_answer].mean()
            metrics["no_answer_accuracy"] = exact[~has_answer].mean()
            if output is not None and output.no_answer:
                metrics |= squad_scores.best_thresholds(units, answers, accepted)
        return {name: float(value) for name, value in metrics.items()}

    def metric_names(self, output, examples):
        """Return the names of the metrics of `score`, the main one first, without thresholds."""
        has_answer = [bool(right) for right in examples.answers]
        names = ["f1", "exact_match"]
        if not all(has_answer):
            if any(has_answer):
                names.append("has_answer_f1")
            names.append("no_answer_accuracy")
            if output is not None and output.no_answer:
                names += ["best_f1", "best_exact_match"]
        return tuple(names)

    def results(self, output, examples, answers, *, top_k=None, **options):
        pairs = zip(examples.contexts, answers, strict=True)
        if top_k is None:
            return [results.Result(result_of(answer), context) for context, answer in pairs]
        return [
            results.Entities(map(result_of, ranked), context, None) for context, ranked in pairs
        ]

    def rows(self, output, examples, answers, probabilities=False):
        """Yield a dict per question: `id`, `answer`, `score`, `start`, `end`."""
        for id, answer in zip(_ids(examples), answers, strict=True):
            yield {"id": id} | result_of(answer)

    def predictions(self, examples, answers):
        """Return the answers as the official scoring scripts read them: a dict from id to text."""
        ids = _ids(examples)
        text_of_id = {id: answer["text"] for id, answer in zip(ids, answers, strict=True)}
        if len(text_of_id) < len(ids):
            raise ValueError(f"{examples.source}: ids must be unique; some occur twice")
        return text_of_id

    def signatures(self, predict, output, preprocessor, max_sequence_length):
        from keras_bert.tasks.question_answering import serving

        return serving.span_selector(predict, output, preprocessor, max_sequence_length)

    def add_onnx_head(self, graph, model, encoded):
        x = graph.dense_layer(encoded.sequence, model.get_layer("logits"))
        for index, name in enumerate(OUTPUTS):
            graph.node("Gather", x, graph.constant(index, np.int64), axis=-1, output=name)
        return dict.fromkeys(OUTPUTS, ("batch_size", "sequence_length"))

    def graph_program(self, output):
        return _PROGRAM

    def target(self, explained, target):
        """Explain "start" or "end" of the answer, at its most probable token of the context."""
        target = "start" if target is None else target
        check_one_of("target", target, ("start", "end"))
        output = f"{target}_logits"
        context = [p for word in explained.words if word.text for p in word.positions]
        if not context:
            raise ValueError("the context has no tokens; give a text_pair with words")
        position = context[int(explained.outputs()[output][context].argmax())]
        return target, lambda logits: logits[output][:, position], position


def _ids(examples):
    """Return the ids of questions, by default numbers from 1."""
    return examples.ids or [str(number) for number in range(1, len(examples) + 1)]
