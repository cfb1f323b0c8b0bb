"""Question answering: the answer is a span of the context, as in SQuAD and KorQuAD 1.0.

`encode` cuts questions and contexts into windows. The model gives the logits of the start and the
end of the answer at each position. `decode` takes the best span of all windows of a question.

Source: sections 4.2 and 4.3 of the BERT paper; google-research/bert `run_squad.py`.
"""

import collections
import re
import string

import keras
import numpy as np
import scipy.special

from keras_bert import heads
from keras_bert.data.batching import REDUCTION
from keras_bert.tasks.question_windows import MIN_LENGTH, OUTPUTS, EncodedQuestions

HEADS = ("span_selector",)
MAX_LENGTH = 384

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
# KorQuAD replaces quotation marks and brackets by spaces, and deletes other punctuation.
_KOREAN_PUNCTUATION = str.maketrans(
    {**dict.fromkeys(string.punctuation), **dict.fromkeys("'\"()<>《》〈〉‘’", " ")}
)


def build(encoder, train):
    """Build a model for training questions.

    Args:
        encoder: A `BertEncoder`.
        train: `Questions` with answers. If a question has none, the model can give no answer.

    Returns:
        A model of `heads.span_selector`.

    Raises:
        ValueError: If the answers are unknown.

    Example:

    >>> from keras_bert.data.squad import Questions
    >>> from keras_bert.encoder import BertEncoder
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> model = build(encoder, Questions(["Who?"], ["It was."], [[]]))
    >>> heads.find_output(model).no_answer
    True
    """
    return heads.span_selector(encoder, no_answer=not all(_known_answers(train)))


def _known_answers(examples):
    if examples.answers is None:
        raise ValueError(f"{examples.source}: has no answers; give questions with `answers`")
    return examples.answers


def compile_options(model):
    """Return the loss of a model: the mean of the losses of start and end.

    Args:
        model: Not used.

    Returns:
        A dict of arguments of `keras.Model.compile`.

    Source: `model_fn_builder` in google-research/bert `run_squad.py`.

    Example:

    >>> compile_options(None)["loss_weights"]
    {'start_logits': 0.5, 'end_logits': 0.5}
    """
    return {
        "loss": {
            name: keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=REDUCTION)
            for name in OUTPUTS
        },
        "loss_weights": dict.fromkeys(OUTPUTS, 0.5),
        "weighted_metrics": {},
    }


def encode(model, examples, max_length, *, stride=128, max_question_length=64):
    """Cut questions and contexts into windows of at most `max_length` tokens.

    A long context is cut into overlapping windows. A question takes at most half of a window, and
    consecutive windows overlap by at least half of their context, so that one of them contains any
    answer of up to that length.

    Args:
        model: A model with one `BertEncoder` that has a preprocessor.
        examples: `Questions`.
        max_length: Maximum length of a window, at least 5.
        stride: Number of context tokens from the start of a window to the start of the next one.
        max_question_length: Maximum number of tokens of a question. Longer ones are truncated.

    Returns:
        The `EncodedQuestions`.

    Raises:
        ValueError: If the encoder has no preprocessor, or a number is too small.

    Source: `convert_examples_to_features` in google-research/bert `run_squad.py`.

    Example:

    >>> from keras_bert.data.squad import Questions
    >>> from keras_bert.encoder import BertEncoder
    >>> from keras_bert.text.preprocessor import Preprocessor
    >>> tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "who", "it", "was", "ada"]
    >>> encoder = BertEncoder(vocab_size=8, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8,
    ...                       preprocessor=Preprocessor(tokens))
    >>> examples = Questions(["Who"], ["It was Ada"], [[("Ada", 7)]])
    >>> encoded = encode(encoder, examples, max_length=6)
    >>> inputs, targets, weights = encoded.batch([0, 1], length=6)
    >>> inputs["input_word_ids"].tolist()  # two windows
    [[2, 4, 3, 5, 6, 3], [2, 4, 3, 6, 7, 3]]
    >>> targets["start_logits"].tolist()  # only the second window contains the answer
    [0, 4]
    """
    for name, value, least in (
        ("max_length", max_length, MIN_LENGTH),
        ("stride", stride, 1),
        ("max_question_length", max_question_length, 1),
    ):
        if value < least:
            raise ValueError(f"{name} must be at least {least}; received {value}")
    preprocessor = heads.find_encoder(model).preprocessor
    if preprocessor is None:
        raise ValueError(
            f"the encoder of {model.name!r} has no preprocessor; set its `preprocessor`"
        )
    return EncodedQuestions(
        preprocessor.tokenizer, examples, max_length, stride, max_question_length
    )


def decode(model, examples, encoded, outputs, *, max_answer_length=30, null_threshold=0.0):
    """Convert the outputs of a model to answers.

    If several windows contain a span, its logit is taken from the window in which the first token
    of the span has the most context on its shorter side. The score of an answer is its probability
    in a softmax over all spans of the context and, if the model can give no answer, no answer.
    Exported models compute the same.

    Args:
        model: From `heads.span_selector`.
        examples: `Questions`.
        encoded: The `EncodedQuestions` of the examples.
        outputs: For each window a dict of `start_logits` and `end_logits`, arrays (seq,), which
            may be padded.
        max_answer_length: Maximum number of tokens of an answer.
        null_threshold: A model that can give no answer does so if the logit of no answer exceeds
            that of the best span by more than this.

    Returns:
        A dict per question: `text`, the answer as in the context, "" for none; `start` and `end`,
        the index of its first character and its end; `score`, its probability.

    Raises:
        ValueError: If there is not one output per window, or `max_answer_length` is below 1.

    Source: `write_predictions` in google-research/bert `run_squad.py`. There, a span is lost if
        the window with the most context for its first token does not contain its end; here, the
        next best window that contains the span is used.

    Example:

    >>> from keras_bert.data.squad import Questions
    >>> from keras_bert.encoder import BertEncoder
    >>> from keras_bert.text.preprocessor import Preprocessor
    >>> tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "who", "it", "was", "ada"]
    >>> encoder = BertEncoder(vocab_size=8, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8,
    ...                       preprocessor=Preprocessor(tokens))
    >>> model = heads.span_selector(encoder)
    >>> examples = Questions(["Who"], ["It was Ada"])
    >>> encoded = encode(model, examples, max_length=16)  # [CLS] who [SEP] it was ada [SEP]
    >>> logits = np.array([0., 0, 0, 0, 0, 9, 0])
    >>> outputs = [{"start_logits": logits, "end_logits": logits}]
    >>> decode(model, examples, encoded, outputs)[0]["text"]
    'Ada'
    """
    if max_answer_length < 1:
        raise ValueError(f"max_answer_length must be at least 1; received {max_answer_length}")
    if len(outputs) != len(encoded):
        raise ValueError(
            f"{examples.source}: give one output for each of the {len(encoded)} windows; "
            f"received {len(outputs)}"
        )
    no_answer = heads.find_output(model).no_answer
    answers = []
    for question, context in enumerate(examples.contexts):
        rows = range(*encoded.window_splits[question : question + 2])
        best, first, last, total = _best_span(encoded, outputs, rows, max_answer_length)
        offset = encoded.context_splits[encoded.context[question]]
        start = end = 0
        if no_answer:
            none = _null_score(outputs, rows)
            total = np.logaddexp(total, none)
        if no_answer and none - best > null_threshold:
            best = none
        elif np.isfinite(best):  # the context has tokens
            start, end = int(encoded.starts[offset + first]), int(encoded.limits[offset + last])
        score = float(np.exp(best - total)) if np.isfinite(best) else 0.0
        answers.append({"text": context[start:end], "start": start, "end": end, "score": score})
    return answers


def _null_score(outputs, rows):
    """Return the logit of no answer: the lowest one of all windows."""
    return min(float(sum(outputs[row][name][0] for name in OUTPUTS)) for row in rows)


def _best_span(encoded, outputs, rows, max_answer_length):
    """Return the best span of all windows of one question.

    Returns `(logit, first, last, total)`: its logit, its first and last token in the context, and
    the log of the sum of the exponentials of the logits of all spans. If there is no span, `logit`
    and `total` are minus infinity.
    """
    windows = _span_windows(encoded, rows, max_answer_length)
    best, total = (-np.inf, 0, 0), -np.inf
    for row in rows:
        first, size = encoded.first[row], encoded.size[row]
        if not size:
            continue
        begin = 2 + encoded.question_size[encoded.question[row]]
        start, end = (
            np.asarray(outputs[row][name], np.float64)[begin : begin + size] for name in OUTPUTS
        )
        # Row i holds the logits of the spans that start at token i, shortest first.
        end = np.concatenate([end, np.full(max_answer_length - 1, -np.inf)])
        table = start[:, None] + np.lib.stride_tricks.sliding_window_view(end, max_answer_length)
        table[windows[first : first + size] != row] = -np.inf
        total = np.logaddexp(total, scipy.special.logsumexp(table))
        token, more = divmod(int(table.argmax()), max_answer_length)
        if table[token, more] > best[0]:
            best = float(table[token, more]), first + token, first + token + more
    return (*best, total)


def _span_windows(encoded, rows, max_answer_length):
    """Return the window of each span, indexed by its first token and its length minus 1.

    Returns int (tokens of the context, max_answer_length), -1 if no window contains the span.
    """
    shape = (encoded.first[rows[-1]] + encoded.size[rows[-1]], max_answer_length)
    windows, most = np.full(shape, -1), np.full(shape, -1)
    for row in rows:
        first, size = encoded.first[row], encoded.size[row]
        left = np.arange(size)
        right = size - 1 - left
        # 100 times the score of run_squad.py: the shorter side + 0.01 x the size of the window.
        context = (100 * np.minimum(left, right) + size)[:, None]
        contained = np.arange(max_answer_length) <= right[:, None]
        better = contained & (context > most[first : first + size])
        windows[first : first + size][better] = row
        most[first : first + size] = np.where(better, context, most[first : first + size])
    return windows


def score(model, examples, answers, *, characters=None):
    """Score answers as the official scripts do.

    Texts are compared without case, punctuation, articles and differences of white space. The
    best match among the acceptable answers counts. F1 is computed over words. If a question has no
    answer, only the empty answer is correct.

    Args:
        model: Not used.
        examples: `Questions` with answers.
        answers: From `decode`.
        characters: If answers are scored as in KorQuAD: F1 over characters, with articles. By
            default as the examples say.

    Returns:
        A dict of floats, 0 to 1: `f1`, the main metric, and `exact_match`, over all questions. If
        some questions have no answer, also `has_answer_f1` over the other questions, if any, and
        `no_answer_accuracy` over these questions.

    Raises:
        ValueError: If the answers of the examples are unknown, or there is not one answer per
            question.

    Source: `evaluate-v2.0.py` of SQuAD. `evaluate-v1.1.py` and KorQuAD's `evaluate-v1.0.py` give
        the same results for answers that hold a letter or a digit.

    Example:

    >>> from keras_bert.data.squad import Questions
    >>> examples = Questions(["Who?"], ["It was the great Ada."], [[("the great Ada", 7)]])
    >>> score(None, examples, [{"text": "Great Ada!"}])
    {'f1': 1.0, 'exact_match': 1.0}
    """
    accepted = _known_answers(examples)
    _check_number(examples, answers)
    if not len(examples):
        raise ValueError(f"{examples.source}: holds no questions to score")
    characters = examples.characters if characters is None else characters
    units = _characters if characters else _words
    f1, exact = np.zeros(len(examples)), np.zeros(len(examples))
    for index, (answer, right) in enumerate(zip(answers, accepted, strict=True)):
        given = units(answer["text"])
        # In the official script, an answer that becomes empty, such as "the", is no answer.
        known = [wanted for wanted in (units(text) for text, _ in right) if wanted[0]] or [("", [])]
        f1[index] = max(_f1(given[1], wanted) for _, wanted in known)
        exact[index] = max(given[0] == wanted for wanted, _ in known)
    metrics = {"f1": f1.mean(), "exact_match": exact.mean()}
    has_answer = np.array([bool(right) for right in accepted])
    if not has_answer.all():
        if has_answer.any():
            metrics["has_answer_f1"] = f1[has_answer].mean()
        metrics["no_answer_accuracy"] = exact[~has_answer].mean()
    return {name: float(value) for name, value in metrics.items()}


def metric_names(model, examples):
    """Return the names of the metrics of `score`, the main one first.

    Args:
        model: Not used.
        examples: `Questions` with answers.

    Returns:
        A tuple of strings.

    Example:

    >>> from keras_bert.data.squad import Questions
    >>> metric_names(None, Questions(["Who?"], ["It was Ada."], [[]]))
    ('f1', 'exact_match', 'no_answer_accuracy')
    """
    has_answer = [bool(right) for right in _known_answers(examples)]
    names = ["f1", "exact_match"]
    if not all(has_answer):
        names += ["has_answer_f1"] * any(has_answer) + ["no_answer_accuracy"]
    return tuple(names)


def _words(text):
    """Return a text as SQuAD compares it, and its words."""
    words = _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()
    return " ".join(words), words


def _characters(text):
    """Return a text as KorQuAD compares it, and its characters."""
    words = text.translate(_KOREAN_PUNCTUATION).lower().split()
    return " ".join(words), list("".join(words))


def _f1(given, wanted):
    """Return the F1 score of two lists of words or characters, ignoring their order."""
    if not given or not wanted:
        return float(given == wanted)
    common = (collections.Counter(given) & collections.Counter(wanted)).total()
    return 2 * common / (len(given) + len(wanted))


def _check_number(examples, answers):
    if len(answers) != len(examples):
        raise ValueError(
            f"{examples.source}: give one answer for each of the {len(examples)} "
            f"questions; received {len(answers)}"
        )


def _names(examples):
    """Return the ids of questions, by default numbers from 1."""
    if examples.ids is not None:
        return examples.ids
    return [str(number) for number in range(1, len(examples) + 1)]


def header(model):
    """Return the first line of a file of answers: the names of its columns, separated by tabs."""
    return "id\tanswer\tscore\tstart\tend"


def lines(model, examples, answers):
    r"""Return the lines of a TSV file of answers, below `header`.

    Args:
        model: Not used.
        examples: `Questions`; without ids, they are numbered from 1.
        answers: From `decode`.

    Returns:
        An iterator of strings without a line end. Tabs and line ends in ids and answers are
        replaced by spaces.

    Raises:
        ValueError: If there is not one answer per question.

    Example:

    >>> from keras_bert.data.squad import Questions
    >>> answer = {"text": "Ada", "start": 7, "end": 10, "score": 0.9}
    >>> list(lines(None, Questions(["Who?"], ["It was Ada."], ids=["q1"]), [answer]))
    ['q1\tAda\t0.9000\t7\t10']
    """
    _check_number(examples, answers)
    return (
        f"{_field(name)}\t{_field(answer['text'])}\t{answer['score']:.4f}"
        f"\t{answer['start']}\t{answer['end']}"
        for name, answer in zip(_names(examples), answers, strict=True)
    )


def records(model, examples, answers):
    """Return the answers as dicts.

    Args:
        model, examples, answers: As in `lines`.

    Returns:
        An iterator of a dict per question: `id`, `answer`, `score`, `start`, `end`.

    Raises:
        ValueError: If there is not one answer per question.

    Example:

    >>> from keras_bert.data.squad import Questions
    >>> answer = {"text": "Ada", "start": 7, "end": 10, "score": 0.9}
    >>> list(records(None, Questions(["Who?"], ["It was Ada."], ids=["q1"]), [answer]))
    [{'id': 'q1', 'answer': 'Ada', 'score': 0.9, 'start': 7, 'end': 10}]
    """
    _check_number(examples, answers)
    return (
        {
            "id": name,
            "answer": answer["text"],
            "score": float(answer["score"]),
            "start": int(answer["start"]),
            "end": int(answer["end"]),
        }
        for name, answer in zip(_names(examples), answers, strict=True)
    )


def _field(text):
    return re.sub(r"[\t\r\n]", " ", text)


def predictions(examples, answers):
    """Return the answers in the format of the official scoring scripts.

    Args:
        examples: `Questions`; without ids, they are numbered from 1.
        answers: From `decode`.

    Returns:
        A dict from the id of each question to the text of its answer, "" for none.

    Raises:
        ValueError: If there is not one answer per question, or two questions have the same id.

    Example:

    >>> from keras_bert.data.squad import Questions
    >>> predictions(Questions(["Who?"], ["It was Ada."], ids=["q1"]), [{"text": "Ada"}])
    {'q1': 'Ada'}
    """
    _check_number(examples, answers)
    names = _names(examples)
    repeated = [name for name, count in collections.Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(f"{examples.source}: ids must be unique; {repeated[0]!r} occurs twice")
    return {name: answer["text"] for name, answer in zip(names, answers, strict=True)}
