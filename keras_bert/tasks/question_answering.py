"""Questions whose answer is a span of a text: SQuAD 1.1 and 2.0, and KorQuAD 1.0.

    questions and contexts
      -> pieces, each distinct context tokenized once            `encode`
      -> windows [CLS] question [SEP] part of the context [SEP]  `EncodedQuestions`
      -> for each position how well an answer starts or ends there: the model
      -> the best span of all windows, cut out of the context    `decode`
      -> F1 and exact match                                      `score`

Source: section 4.2 and 4.3 of the paper; google-research/bert `run_squad.py`.
"""

import collections
import dataclasses
import json
import numbers
import pathlib
import re
import string

import keras
import numpy as np
import scipy.special
import tensorflow as tf

from keras_bert import heads
from keras_bert.data.batching import REDUCTION
from keras_bert.data.tabular import check_limit, not_utf8
from keras_bert.text.fast_tokenizer import tokenize_function

HEADS = ("span_selector",)
MAX_LENGTH = 384

_OUTPUTS = ("start_logits", "end_logits")
_CHUNK = 1_000_000  # characters tokenized at once
_LEAST_LENGTH = 5  # [CLS] question [SEP] context [SEP], a piece each
_KINDS = {dict: "an object", list: "a list", str: "a string", int: "a whole number", bool: "a bool"}

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
# KorQuAD: quotation marks and brackets part words, other punctuation goes without a trace.
_KOREAN_PUNCTUATION = str.maketrans(
    {**dict.fromkeys(string.punctuation), **dict.fromkeys("'\"()<>《》〈〉‘’", " ")}
)


@dataclasses.dataclass(frozen=True)
class Questions:
    """Questions, the texts that answer them, and the answers if they are known.

    An answer that does not stand where it is said to is looked for in the context: the
    occurrence nearest to that place is taken. If there is none, its start becomes -1: it counts
    when answers are scored, but nothing is learned from it.

    Attributes:
        questions: the questions.
        contexts: the text of each question; the same text may serve many.
        answers: for each question its acceptable answers, as (text, index of its first character
            in the context); an empty list where the context holds no answer. `None`: not known.
        ids: name of each question, or `None`.
        source: where they come from, for messages.
        characters: whether they are scored as KorQuAD's are, see `score`.
        moved_answers: number of answers that were found at another place.
        lost_answers: number of answers that do not occur in their context.

    Raises:
        ValueError: the columns differ in length, or hold something of another type.

    Example:

    >>> examples = Questions(["Who?"], ["It was Ada."], [[("Ada", 0), ("Bob", 7)]])
    >>> examples.answers, examples.moved_answers, examples.lost_answers
    ([[('Ada', 7), ('Bob', -1)]], 1, 1)
    """

    questions: list[str]
    contexts: list[str]
    answers: list[list[tuple[str, int]]] | None = None
    ids: list[str] | None = None
    source: str = "the questions"
    characters: bool = False
    moved_answers: int = dataclasses.field(init=False, default=0)
    lost_answers: int = dataclasses.field(init=False, default=0)

    def __post_init__(self):
        for name in ("questions", "contexts", "answers", "ids"):
            column = getattr(self, name)
            if column is None and name in ("answers", "ids"):
                continue
            if isinstance(column, str):
                raise ValueError(f"{name} must be a list; received one string")
            column = list(column)
            if name == "ids":  # numbers are names, too
                column = [
                    str(item) if isinstance(item, numbers.Integral) else item for item in column
                ]
            if len(column) != len(self.questions):
                raise ValueError(
                    f"{self.source}: {name} must be as many as the questions, "
                    f"{len(self.questions)}; received {len(column)}"
                )
            wrong = [item for item in column if not isinstance(item, str)]
            if wrong and name != "answers":
                raise ValueError(
                    f"{self.source}: {name} must be strings; received {wrong[0]!r:.80}"
                )
            object.__setattr__(self, name, column)
        if self.answers is not None:
            self._place_answers(self.answers)

    def _place_answers(self, column):
        answers, moved, lost = [], 0, 0
        for number, (context, given) in enumerate(zip(self.contexts, column, strict=True), 1):
            placed = []
            for text, start in self._checked(number, given):
                place = _find_nearest(context, text, start)
                placed.append((text, place))
                moved += 0 <= place != start
                lost += place < 0
            answers.append(placed)
        object.__setattr__(self, "answers", answers)
        object.__setattr__(self, "moved_answers", moved)
        object.__setattr__(self, "lost_answers", lost)

    def _checked(self, number, answers):
        """The answers of one question, which must be pairs (text, start)."""
        if isinstance(answers, (list, tuple)):
            pairs = [tuple(item) if isinstance(item, (list, tuple)) else item for item in answers]
            if all(_is_answer(pair) for pair in pairs):
                return pairs
        raise ValueError(
            f"{self.source}, question {number}: the answers must be a list of pairs, a text that "
            f"is not empty and its start; received {answers!r:.80}"
        )

    def __len__(self):
        return len(self.questions)


def _is_answer(pair):
    if not isinstance(pair, tuple) or len(pair) != 2:
        return False
    text, start = pair
    is_number = isinstance(start, (int, np.integer)) and not isinstance(start, bool)
    return isinstance(text, str) and bool(text) and is_number


def _find_nearest(context, text, start):
    """Where `text` occurs in `context`, as near to `start` as can be; -1 if nowhere."""
    start = int(start)
    if start >= 0 and context.startswith(text, start):
        return start
    near = min(max(start, 0), len(context))
    before = context.rfind(text, 0, near + len(text))
    after = context.find(text, near)
    if before < 0 or after < 0:
        return max(before, after)
    return before if near - before <= after - near else after


def read(path, *, limit=None, labelled=True, characters=None):
    """Reads a file in SQuAD's JSON format.

    A question has no answer where `is_impossible` is true (SQuAD 2), or its list of answers is
    empty; `plausible_answers` mean nothing here.

    Args:
        path: the file, UTF-8.
        limit: read no more than so many questions.
        labelled: whether the answers are wanted; if not, they may be missing.
        characters: whether they are scored as KorQuAD's are; default: if the file's `version`
            says that it is KorQuAD.

    Returns:
        The `Questions`; those of one paragraph share their context.

    Raises:
        ValueError: the file is not JSON of that format, or holds no questions; the message names
            the article, the paragraph and the question.
        OSError: the file cannot be read.

    Source: Rajpurkar et al. (2016 and 2018), SQuAD; Lim et al. (2019), KorQuAD 1.0.

    Example:

    >>> import tempfile
    >>> question = {"id": "q1", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 7}]}
    >>> paragraph = {"context": "It was Ada.", "qas": [question]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "train.json")
    ...     _ = file.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    ...     read(file).answers
    [[('Ada', 7)]]
    """
    path = pathlib.Path(path)
    check_limit(limit)
    try:
        file = json.loads(path.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise not_utf8(path) from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is not JSON ({error})") from error
    columns = collections.defaultdict(list)
    for paragraph, number, context, item in _items(path, file):
        columns["ids"].append(_id(f"{paragraph}, question {number}", item))
        place = f"{paragraph}, question {columns['ids'][-1]!r:.80}"
        columns["questions"].append(_get(place, item, "question", str))
        columns["contexts"].append(context)
        if labelled:
            columns["answers"].append(_answers(place, item))
        if limit is not None and len(columns["ids"]) >= limit:
            break
    if not columns:
        raise ValueError(f"{path}: holds no questions")
    if characters is None:
        characters = str(file.get("version")).startswith("KorQuAD")
    return Questions(**columns, source=str(path), characters=characters)


def _items(path, file):
    """For each question of a file its paragraph's place, its number there, context and object."""
    for number, article in enumerate(_get(str(path), file, "data", list), 1):
        title = article.get("title") if isinstance(article, dict) else None
        name = title if isinstance(title, str) else number
        place = f"{path}, article {name!r:.80}"
        for index, paragraph in enumerate(_get(place, article, "paragraphs", list), 1):
            where = f"{place}, paragraph {index}"
            context = _get(where, paragraph, "context", str)
            for question, item in enumerate(_get(where, paragraph, "qas", list), 1):
                yield where, question, context, item


def _id(place, item):
    """The id of a question; some files number their questions."""
    number = isinstance(item, dict) and type(item.get("id")) is int
    return str(item["id"]) if number else _get(place, item, "id", str)


def _answers(place, item):
    """The answers of a question as Questions wants them."""
    if "is_impossible" in item and _get(place, item, "is_impossible", bool):
        return []
    answers = []
    for answer in _get(place, item, "answers", list):
        text = _get(f"{place}, answer", answer, "text", str)
        if not text:
            raise ValueError(f"{place}: an answer must not be empty; a list of answers may be")
        answers.append((text, _get(f"{place}, answer", answer, "answer_start", int)))
    return answers


def _get(place, item, key, kind):
    """The value of a key, which must be there and of that type."""
    if not isinstance(item, dict):
        raise ValueError(f"{place}: must be an object with the key {key!r}; received {_show(item)}")
    if key not in item:
        raise ValueError(f"{place}: has no key {key!r}")
    if type(item[key]) is not kind:
        raise ValueError(f"{place}: {key!r} must be {_KINDS[kind]}; received {_show(item[key])}")
    return item[key]


def _show(value):
    return json.dumps(value)[:80]


def build(encoder, train):
    """Builds the model for some training questions.

    Args:
        encoder: a `BertEncoder`.
        train: `Questions` with answers; whether any has none decides whether the model may find
            that there is none.

    Returns:
        The `keras.Model` of `heads.span_selector`.

    Raises:
        ValueError: the answers are not known.

    Example:

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
        raise ValueError(f"{examples.source}: the answers are not known")
    return examples.answers


def compile_options(model):
    """What to compile a model of this task with: the mean of the losses of start and end.

    Args:
        model: from `build`.

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
            for name in _OUTPUTS
        },
        "loss_weights": dict.fromkeys(_OUTPUTS, 0.5),
        "weighted_metrics": {},
    }


def encode(model, examples, max_length, *, stride=128, max_question_length=64):
    """Cuts questions and contexts into windows of at most `max_length` positions.

    A context that is too long for one window is read in several that overlap. To leave it room,
    a question has at most half of a window; and a window moves by at most half of what it
    shows of the context, so that an answer of up to that length is whole in one.

    Args:
        model: a model with one `BertEncoder` that has a preprocessor.
        examples: `Questions`.
        max_length: positions of a window, at least 5.
        stride: pieces of the context by which a window moves.
        max_question_length: pieces at which a question is cut.

    Returns:
        The `EncodedQuestions`.

    Raises:
        ValueError: the encoder has no preprocessor, or a number is too small.

    Source: `convert_examples_to_features` in google-research/bert `run_squad.py`.

    Example:

    >>> from keras_bert.encoder import BertEncoder
    >>> from keras_bert.text.preprocessor import Preprocessor
    >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "who", "it", "was", "ada"]
    >>> encoder = BertEncoder(vocab_size=8, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8,
    ...                       preprocessor=Preprocessor(pieces))
    >>> examples = Questions(["Who"], ["It was Ada"], [[("Ada", 7)]])
    >>> encoded = encode(encoder, examples, max_length=6)
    >>> inputs, targets, weights = encoded.batch([0, 1], length=6)
    >>> inputs["input_word_ids"].tolist()  # the context does not fit into one window
    [[2, 4, 3, 5, 6, 3], [2, 4, 3, 6, 7, 3]]
    >>> targets["start_logits"].tolist()  # the first window does not hold the answer
    [0, 4]
    """
    for name, value, least in (
        ("max_length", max_length, _LEAST_LENGTH),
        ("stride", stride, 1),
        ("max_question_length", max_question_length, 1),
    ):
        if value < least:
            raise ValueError(f"{name} must be at least {least}; received {value}")
    preprocessor = heads.find_encoder(model).preprocessor
    if preprocessor is None:
        raise ValueError(f"the encoder of {model.name!r} has no preprocessor to read text with")
    return EncodedQuestions(
        preprocessor.tokenizer, examples, max_length, stride, max_question_length
    )


class EncodedQuestions:
    """Questions as windows of ids, from `encode`.

    All is flat: pieces of all distinct contexts, pieces of all questions, then the windows.

    Args:
        tokenizer: a `WordPieceTokenizer`.
        examples: `Questions`.
        max_length: positions of the longest window.
        stride: pieces of the context by which a window moves, if half of it is not less.
        max_question_length: pieces at which a question is cut.

    Attributes:
        cut_questions: how many questions are longer than a window has room for, or than
            `max_question_length`, and were cut.
        without_pieces: how many questions, and texts to answer them, are empty or invisible.
        cut_answers: how many answers no window holds as a whole; nothing is learned from those.
        invisible_answers: how many answers are white space or what the tokenizer drops; neither.
        max_length: as given.
        lengths: positions each window takes; int (windows,).
        question: the question of each window; int (windows,).
        first: the piece of its context with which each window starts; int (windows,).
        size: pieces of the context in each window; int (windows,).
        question_size: pieces of each question; int (questions,).
        window_splits: the windows of question `i` go from `window_splits[i]` up to
            `window_splits[i + 1]`; int (questions + 1,).
        context: the distinct context of each question; int (questions,).
        context_splits: where in `starts` and `limits` each distinct context begins;
            int (contexts + 1,).
        starts, limits: for each piece of the distinct contexts the index of its first character,
            and of the one after its last; int32 (pieces,).
    """

    def __init__(self, tokenizer, examples, max_length, stride, max_question_length):
        self.max_length = max_length
        self._cls, self._sep, self._pad = map(tokenizer.token_id, ("[CLS]", "[SEP]", "[PAD]"))
        texts = list(dict.fromkeys(examples.contexts))
        numbers = {text: number for number, text in enumerate(texts)}
        self.context = np.array([numbers[text] for text in examples.contexts], int)
        self._ids, self.starts, self.limits, self.context_splits = _read_contexts(tokenizer, texts)
        self._question_ids, splits = _read_questions(tokenizer, examples.questions)
        self._question_first = splits[:-1]
        self.question_size = np.minimum(
            np.diff(splits), min(max_question_length, (max_length - 3) // 2)
        )
        self.cut_questions = int((np.diff(splits) > self.question_size).sum())
        empty = np.diff(splits) == 0, np.diff(self.context_splits) == 0
        self.without_pieces = int(sum(these.sum() for these in empty))

        room = max_length - 3 - self.question_size
        step = np.maximum(1, np.minimum(stride, room // 2))
        pieces = np.diff(self.context_splits)[self.context]
        # The last window is the first one that reaches the end; an empty context has one too.
        windows = 1 + np.maximum(0, -(-(pieces - room) // step))
        self.window_splits = _splits(windows)
        self.question = np.repeat(np.arange(len(examples)), windows)
        self.first = _ranges(np.zeros_like(windows), windows) * step[self.question]
        self.size = np.minimum(room[self.question], pieces[self.question] - self.first)
        self.lengths = 3 + self.question_size[self.question] + self.size

        self.cut_answers = self.invisible_answers = 0
        self._learned = None if examples.answers is None else self._learn(examples, texts)

    def __len__(self):
        return len(self.lengths)

    def _learn(self, examples, texts):
        """What each window is to answer: {output: position}, both int32 (windows,), and weights.

        0, which is [CLS], where a window does not hold all of the answer, but another one does.
        """
        first, last, lost = self._answer_pieces(examples, texts)
        question = self.question
        shift = 2 + self.question_size[question]
        there = first >= 0
        first, last = first[question] - self.first, last[question] - self.first
        whole = (first >= 0) & (last >= first) & (last < self.size)
        cut = there & (np.bincount(question, whole, len(there)) == 0)
        self.cut_answers = int(cut.sum())
        targets = {
            name: np.where(whole, shift + piece, 0).astype(np.int32)
            for name, piece in zip(_OUTPUTS, (first, last), strict=True)
        }
        return targets, (~(lost | cut)[question]).astype(np.float32)

    def _answer_pieces(self, examples, texts):
        """The first and last piece of each question's answer, and whether that was lost.

        Returns:
            int (questions,) twice, -1 where there is no answer, and bool (questions,).
        """
        # The first answer that there is in the context, as in training with run_squad.py.
        answers = [
            next((answer for answer in answers if answer[1] >= 0), ("", -1))
            for answers in examples.answers
        ]
        start = np.array([start for _, start in answers], int)
        limit = np.array([start + len(text) for text, start in answers], int)
        # All contexts one behind the other, so that one search does.
        shift = _splits([len(text) for text in texts])[:-1]
        of_piece = np.repeat(shift, np.diff(self.context_splits))
        first = np.searchsorted(self.limits + of_piece, start + shift[self.context], "right")
        last = np.searchsorted(self.starts + of_piece, limit + shift[self.context], "left") - 1
        # Nothing is left of an answer of white space alone.
        found = (start >= 0) & (first <= last)
        self.invisible_answers = int(((start >= 0) & ~found).sum())
        lost = ~found & np.array([bool(answers) for answers in examples.answers], bool)
        begin = self.context_splits[self.context]
        return np.where(found, first - begin, -1), np.where(found, last - begin, -1), lost

    def batch(self, rows, length):
        """Some windows as the model takes them.

        Args:
            rows: which windows, int (batch,).
            length: positions of the result, at least those of the longest of these windows.

        Returns:
            `(inputs, targets, weights)`: the encoder's three inputs, int32 (batch, length);
            positions of the first and the last piece of the answer, int32 (batch,), 0 where a
            window does not hold it; float32 (batch,), 0 where there is nothing to learn, since
            the answer was lost. All are dicts; the last two are `None` without answers.

        Raises:
            ValueError: the length is too small.
        """
        rows = np.asarray(rows, int)
        longest = self.lengths[rows].max(initial=0)
        if length < longest:
            raise ValueError(
                f"length must be at least {longest}, as the windows; received {length}"
            )
        question = self.question[rows]
        question_size, size = self.question_size[question], self.size[rows]
        position = np.arange(length)
        context_first = 2 + question_size[:, None]
        context_limit = context_first + size[:, None]
        in_question = (position >= 1) & (position < context_first - 1)  # (batch, length)
        in_context = (position >= context_first) & (position < context_limit)

        word_ids = np.full((len(rows), length), self._pad, np.int32)
        word_ids[:, 0] = self._cls
        word_ids[in_question] = self._question_ids[
            _ranges(self._question_first[question], question_size)
        ]
        word_ids[(position == context_first - 1) | (position == context_limit)] = self._sep
        begin = self.context_splits[self.context[question]] + self.first[rows]
        word_ids[in_context] = self._ids[_ranges(begin, size)]
        inputs = {
            "input_word_ids": word_ids,
            "input_mask": (position <= context_limit).astype(np.int32),
            "input_type_ids": (in_context | (position == context_limit)).astype(np.int32),
        }
        if self._learned is None:
            return inputs, None, None
        targets, weights = self._learned
        targets = {name: target[rows] for name, target in targets.items()}
        return inputs, targets, dict.fromkeys(_OUTPUTS, weights[rows])


def _splits(sizes):
    """Where each of several parts of these sizes begins, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(sizes, dtype=int)])


def _ranges(starts, sizes):
    """The numbers from each start on, so many as its size, one range behind the other."""
    return np.repeat(starts - _splits(sizes)[:-1], sizes) + np.arange(sizes.sum())


def _chunks(texts):
    """Cuts a list of texts into lists of about `_CHUNK` characters."""
    first, characters = 0, 0
    for limit, text in enumerate(texts, 1):
        characters += len(text)
        if characters >= _CHUNK or limit == len(texts):
            yield texts[first:limit]
            first, characters = limit, 0


def _read_questions(tokenizer, questions):
    """Tokenizes questions: ids int32 (pieces,) and splits int (questions + 1,)."""
    tokenize = tokenize_function(tokenizer)
    ids, sizes = [np.zeros(0, np.int32)], [np.zeros(0, int)]
    for chunk in _chunks(questions):
        pieces = tokenize(tf.constant([text.encode("utf-8", "ignore") for text in chunk]))
        ids.append(pieces.flat_values.numpy())
        sizes.append(pieces.row_lengths().numpy())
    return np.concatenate(ids), _splits(np.concatenate(sizes))


def _read_contexts(tokenizer, texts):
    """Tokenizes contexts.

    Returns:
        `(ids, starts, limits, splits)`, int32 (pieces,) three times and int (contexts + 1,);
        starts and limits count the characters of each text.
    """
    flat = [np.zeros((3, 0), np.int32)]
    sizes = [np.zeros(0, int)]
    for chunk in _chunks(texts):
        encoded = [text.encode("utf-8", "ignore") for text in chunk]
        ids, _, starts, limits = tokenizer.tokenize_with_offsets(tf.constant(encoded))
        size = ids.row_lengths().numpy()
        # Bytes of all texts of the chunk, one behind the other, and their characters.
        of_byte = _characters_of_bytes("".join(chunk))
        first_byte = np.repeat(_splits([len(text) for text in encoded])[:-1], size)
        first_character = np.repeat(_splits([len(text) for text in chunk])[:-1], size)
        starts = of_byte[starts.flat_values.numpy() + first_byte] - first_character
        limits = of_byte[limits.flat_values.numpy() + first_byte - 1] + 1 - first_character
        flat.append(np.stack([ids.flat_values.numpy(), starts, limits]).astype(np.int32))
        sizes.append(size)
    ids, starts, limits = np.concatenate(flat, axis=1)
    return ids, starts, limits, _splits(np.concatenate(sizes))


def _characters_of_bytes(text):
    """For each byte of a text in UTF-8 the index of its character."""
    code_points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    sizes = 1 + np.searchsorted([0x80, 0x800, 0x10000], code_points, "right")
    # A lone surrogate, which JSON can hold and UTF-8 cannot, was left out of the bytes.
    sizes[(code_points >= 0xD800) & (code_points < 0xE000)] = 0
    return np.repeat(np.arange(len(code_points)), sizes)


def decode(model, examples, encoded, outputs, *, max_answer_length=30, null_threshold=0.0):
    """Turns the model's outputs into answers.

    A span is looked for in all windows of a question. Where several windows hold it, the one
    counts in which its first piece has the most context on its shorter side. So each span has one
    logit, and the score of an answer is its probability under a softmax over all spans of the
    context. If the model may give no answer, no answer is one more option. The exported model
    computes the same.

    Args:
        model: from `heads.span_selector`.
        examples: `Questions`.
        encoded: their `EncodedQuestions`.
        outputs: for each window, in order, a dict of `start_logits` and `end_logits`, arrays
            (seq,); what comes after the window's own length does not matter.
        max_answer_length: pieces of the longest answer.
        null_threshold: a model that may find no answer does so where that scores higher than the
            best span by more than this.

    Returns:
        For each question a dict: `text`, the answer as it stands in the context, "" for none;
        `start` and `end`, index of its first character and of the one after its last; `score`,
        its probability, 0 to 1.

    Raises:
        ValueError: not one output for each window, or a number below 1.

    Source: `write_predictions` in google-research/bert `run_squad.py`. There a span is lost if
        the one window that counts for its first piece cuts it off; here another one counts.

    Example:

    >>> from keras_bert.encoder import BertEncoder
    >>> from keras_bert.text.preprocessor import Preprocessor
    >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "who", "it", "was", "ada"]
    >>> encoder = BertEncoder(vocab_size=8, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8,
    ...                       preprocessor=Preprocessor(pieces))
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
            f"{examples.source}: there must be one output for each of the {len(encoded)} windows; "
            f"received {len(outputs)}"
        )
    no_answer = heads.find_output(model).no_answer
    answers = []
    for question, context in enumerate(examples.contexts):
        rows = range(*encoded.window_splits[question : question + 2])
        best, first, last, total = _best_span(encoded, outputs, rows, max_answer_length)
        piece = encoded.context_splits[encoded.context[question]]
        start = end = 0
        if no_answer:
            none = _null_score(outputs, rows)
            total = np.logaddexp(total, none)
        if no_answer and none - best > null_threshold:
            best = none
        elif np.isfinite(best):  # there is a piece to point at
            start, end = int(encoded.starts[piece + first]), int(encoded.limits[piece + last])
        score = float(np.exp(best - total)) if np.isfinite(best) else 0.0
        answers.append({"text": context[start:end], "start": start, "end": end, "score": score})
    return answers


def _null_score(outputs, rows):
    """The logit of no answer: that of the window in which it is lowest."""
    return min(float(sum(outputs[row][name][0] for name in _OUTPUTS)) for row in rows)


def _best_span(encoded, outputs, rows, max_answer_length):
    """The best span over the windows of one question.

    Returns:
        `(logit, first, last, total)`: its logit, its first and last piece in the context, and the
        logarithm of the sum of the exponentials of all spans' logits. `logit` and `total` are
        minus infinity if there is no span.
    """
    owners = _owners(encoded, rows, max_answer_length)
    best, total = (-np.inf, 0, 0), -np.inf
    for row in rows:
        first, size = encoded.first[row], encoded.size[row]
        if not size:
            continue
        begin = 2 + encoded.question_size[encoded.question[row]]
        start, end = (
            np.asarray(outputs[row][name], np.float64)[begin : begin + size] for name in _OUTPUTS
        )
        # Row i: the logits of the spans that start at piece i, shortest first.
        end = np.concatenate([end, np.full(max_answer_length - 1, -np.inf)])
        table = start[:, None] + np.lib.stride_tricks.sliding_window_view(end, max_answer_length)
        table[owners[first : first + size] != row] = -np.inf
        total = np.logaddexp(total, scipy.special.logsumexp(table))
        place = int(table.argmax())
        piece, more = divmod(place, max_answer_length)
        if table[piece, more] > best[0]:
            best = float(table[piece, more]), first + piece, first + piece + more
    return (*best, total)


def _owners(encoded, rows, max_answer_length):
    """The window that counts for each span, by its first piece and its length less one.

    Returns:
        int (pieces of the context, max_answer_length), -1 where no window holds the span.
    """
    shape = (encoded.first[rows[-1]] + encoded.size[rows[-1]], max_answer_length)
    owners, most = np.full(shape, -1), np.full(shape, -1)
    for row in rows:
        first, size = encoded.first[row], encoded.size[row]
        left = np.arange(size)
        right = size - 1 - left
        # As in run_squad.py, times 100: the shorter side plus 0.01 x the size of the window.
        context = (100 * np.minimum(left, right) + size)[:, None]
        is_whole = np.arange(max_answer_length) <= right[:, None]
        better = is_whole & (context > most[first : first + size])
        owners[first : first + size][better] = row
        most[first : first + size] = np.where(better, context, most[first : first + size])
    return owners


def score(model, examples, answers, *, characters=None):
    """Scores answers as the official scripts do.

    An answer and the acceptable ones are compared without case, punctuation, articles and
    differences of white space; the best match counts. F1 is over words. Where a question has no
    answer, right is the empty answer alone.

    Args:
        model: what gave the answers; it does not matter here.
        examples: `Questions` with answers.
        answers: from `decode`.
        characters: score as KorQuAD does: F1 over characters, articles count; default: as the
            examples say.

    Returns:
        A dict, all 0 to 1: `f1`, the main one, and `exact_match`, over all questions; if some
        have no answer, also `has_answer_f1` over the others (if there are any) and
        `no_answer_accuracy` over these.

    Raises:
        ValueError: the answers are not known, or are not as many as the questions.

    Source: `evaluate-v2.0.py` of SQuAD; `evaluate-v1.1.py` and KorQuAD's `evaluate-v1.0.py` agree
        with it on all that has a letter or digit left to compare.

    Example:

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
        # What has no letter left, such as "the", is as good as no answer in the official script.
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
    """The names that `score` will give, the first the one that counts.

    Args:
        model: it does not matter here.
        examples: `Questions` with answers.

    Returns:
        A tuple of strings.

    Example:

    >>> metric_names(None, Questions(["Who?"], ["It was Ada."], [[]]))
    ('f1', 'exact_match', 'no_answer_accuracy')
    """
    has_answer = [bool(right) for right in _known_answers(examples)]
    names = ["f1", "exact_match"]
    if not all(has_answer):
        names += ["has_answer_f1"] * any(has_answer) + ["no_answer_accuracy"]
    return tuple(names)


def _words(text):
    """A text as SQuAD compares it, whole and as words."""
    words = _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()
    return " ".join(words), words


def _characters(text):
    """A text as KorQuAD compares it, whole and as characters."""
    words = text.translate(_KOREAN_PUNCTUATION).lower().split()
    return " ".join(words), list("".join(words))


def _f1(given, wanted):
    """The harmonic mean of precision and recall of two bags of words or characters."""
    if not given or not wanted:
        return float(given == wanted)
    common = (collections.Counter(given) & collections.Counter(wanted)).total()
    return 2 * common / (len(given) + len(wanted))


def _check_number(examples, answers):
    if len(answers) != len(examples):
        raise ValueError(
            f"{examples.source}: there must be one answer for each of the {len(examples)} "
            f"questions; received {len(answers)}"
        )


def _names(examples):
    """The ids; numbers from 1 where there are none."""
    if examples.ids is not None:
        return examples.ids
    return [str(number) for number in range(1, len(examples) + 1)]


def header(model):
    """The first line of a file of answers: tab-separated names of columns."""
    return "id\tanswer\tscore\tstart\tend"


def lines(model, examples, answers):
    r"""Gives the answers as lines of a TSV file, below `header`.

    Args:
        model: what gave the answers; it does not matter here.
        examples: `Questions`; without ids they are numbered from 1.
        answers: from `decode`.

    Returns:
        An iterator of strings without line ends; tabs and line ends in ids and answers are spaces.

    Raises:
        ValueError: the answers are not as many as the questions.

    Example:

    >>> answer = {"text": "Ada", "start": 7, "end": 10, "score": 0.9}
    >>> list(lines(None, Questions(["Who?"], ["It was Ada."], ids=["q1"]), [answer]))
    ['q1\tAda\t0.9000\t7\t10']
    """
    _check_number(examples, answers)
    # A function of its own, so that the check does not wait for the first line.
    return (
        f"{_field(name)}\t{_field(answer['text'])}\t{answer['score']:.4f}"
        f"\t{answer['start']}\t{answer['end']}"
        for name, answer in zip(_names(examples), answers, strict=True)
    )


def records(model, examples, answers):
    """The answers by name, for other files than TSV.

    Args:
        model, examples, answers: as for `lines`.

    Returns:
        An iterator of a dict for each question: `id`, `answer`, `score`, `start`, `end`.

    Raises:
        ValueError: the answers are not as many as the questions.

    Example:

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
    """Gives the answers as the official scoring scripts take them, once written as JSON.

    Args:
        examples: `Questions`; without ids they are numbered from 1.
        answers: from `decode`.

    Returns:
        A dict from a question's id to the text of its answer, "" for none.

    Raises:
        ValueError: the answers are not as many as the questions, or two questions have one id.

    Example:

    >>> predictions(Questions(["Who?"], ["It was Ada."], ids=["q1"]), [{"text": "Ada"}])
    {'q1': 'Ada'}
    """
    _check_number(examples, answers)
    names = _names(examples)
    repeated = [name for name, count in collections.Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(f"{examples.source}: an id names one question; {repeated[0]!r} names more")
    return {name: answer["text"] for name, answer in zip(names, answers, strict=True)}
