"""Tests of questions with their answers, and of files in SQuAD's format."""

import json

import numpy as np
import pytest

import keras_bert
from keras_bert.tasks.question_answering import data as squad
from keras_bert.tasks.question_answering.data import Questions
from tests.tiny import write_file


def write(path, content):
    content = content if isinstance(content, str | bytes) else json.dumps(content)
    return write_file(path, content)


def squad_json(*items, context="this film is so good", title="Films"):
    paragraph = {"context": context, "qas": list(items)}
    return {"version": "1", "data": [{"title": title, "paragraphs": [paragraph]}]}


def item(id="q1", *answers, question="is this good", **more):
    answers = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": id, "question": question, "answers": answers, **more}


def one_question(context, *answers):
    return Questions(["is this good"], [context], [list(answers)])


def test_questions_of_a_paragraph_share_their_context(tmp_path):
    file = squad_json(item("a", ("so good", 13), ("good", 16)), item("b", ("film", 5)))
    file["data"].append({"paragraphs": [{"context": "bad", "qas": [item("c", ("bad", 0))]}]})
    examples = squad.read(write(tmp_path / "a.json", file))
    assert examples.questions == ["is this good"] * 3
    assert examples.contexts == ["this film is so good"] * 2 + ["bad"]
    assert examples.contexts[0] is examples.contexts[1]
    assert examples.answers == [[("so good", 13), ("good", 16)], [("film", 5)], [("bad", 0)]]
    assert examples.ids == ["a", "b", "c"]
    assert examples.source == str(tmp_path / "a.json")
    assert len(examples) == 3


def test_questions_without_answer(tmp_path):
    plausible = [{"text": "film", "answer_start": 5}]
    file = squad_json(
        item("a", is_impossible=True, plausible_answers=plausible),
        item("b", ("good", 16), is_impossible=True),
        item("c"),
        item("d", ("good", 16), is_impossible=False),
        {"id": "e", "question": "", "is_impossible": True},
    )
    examples = squad.read(write(tmp_path / "a.json", file))
    assert examples.answers == [[], [], [], [("good", 16)], []]


def test_limit_and_unlabeled_files(tmp_path):
    file = write(tmp_path / "a.json", squad_json({"id": 7, "question": "is"}, item("b"), item("c")))
    examples = squad.read(file, limit=2, labeled=False)
    assert (examples.ids, examples.answers) == (["7", "b"], None)


def test_byte_order_mark_is_skipped(tmp_path):
    file = write(tmp_path / "a.json", "\ufeff" + json.dumps(squad_json(item())))
    assert squad.read(file).ids == ["q1"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"a\.json is not JSON \(Expecting"),
        ("[" * 200_000, r"a\.json, line 1 is not JSON"),
        (b'{"data": "\xff"}', r"a\.json, line 1: must be UTF-8; received the byte 0xff"),
        ([1], r"a\.json, item 1: must be a JSON object"),
        (3, r"a\.json: must be an object with the key 'data'; received 3"),
        ({"version": "1"}, r"a\.json has no key 'data'"),
        ({"data": {}}, r"a\.json: 'data' must be a list; received \{\}"),
        ({"data": []}, r"a\.json contains no questions"),
        ({"data": [{"paragraphs": [{"context": "", "qas": []}]}]}, "contains no questions"),
        ({"data": [3]}, r"article 1: must be an object with the key 'paragraphs'; received 3"),
        ({"data": [{"title": "Films"}]}, r"a\.json, article 'Films' has no key 'paragraphs'"),
        ({"data": [{"paragraphs": [{}]}]}, r"article 1, paragraph 1 has no key 'context'"),
        (squad_json(context=None), r"article 'Films', paragraph 1: 'context' must be a string"),
        (squad_json({}), r"paragraph 1, question 1 has no key 'id'"),
        (squad_json(item(), "x"), r"paragraph 1, question 2: must be an object with the key 'id'"),
        (squad_json(item(True)), r"question 1: 'id' must be a string; received true"),
        (squad_json({"id": "q1"}), r"question 'q1' has no key 'question'"),
        (squad_json(item(question=2)), r"question 'q1': 'question' must be a string; received 2"),
        (squad_json({"id": "q1", "question": ""}), r"question 'q1' has no key 'answers'"),
        (squad_json(item(is_impossible=0)), r"'q1': 'is_impossible' must be a bool; received 0"),
        (squad_json(item("q1", ("good", "1"))), r"answer: 'answer_start' must be an integer; .*1"),
        (squad_json(item("q1", ("good", True))), r"'answer_start' must be an integer; .* true"),
        (squad_json(item("q1", (5, 1))), r"'q1', answer: 'text' must be a string; received 5"),
        (squad_json(item("q1", ("", 1))), r"'q1': the text of an answer must not be empty"),
    ],
)  # fmt: skip
def test_errors_name_file_and_question(tmp_path, content, message):
    with pytest.raises(ValueError, match=message) as caught:
        squad.read(write(tmp_path / "a.json", content))
    assert str(caught.value).startswith(str(tmp_path / "a.json"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("start", "found"),
    [(0, 0), (1, 0), (4, 0), (6, 10), (9, 10), (12, 10), (99, 20), (-5, 0), (5, 0), (15, 10)],
)
def test_misplaced_answers_move_to_the_nearest_occurrence(start, found):
    examples = one_question("good film good film good", ("good", start))
    assert examples.answers == [[("good", found)]]
    assert (examples.moved_answers, examples.lost_answers) == (int(start != found), 0)


def test_lost_answers_are_kept_and_counted():
    examples = Questions(
        ["is"] * 2, ["good film"] * 2, [[("bad", 0), ("film", 1)], [("Good", 0), ("bad", -1)]]
    )
    assert examples.answers == [[("bad", -1), ("film", 5)], [("Good", -1), ("bad", -1)]]
    assert (examples.moved_answers, examples.lost_answers) == (1, 3)


def test_columns_may_be_arrays_and_ids_integers():
    examples = Questions(np.array(["a"]), ("good",), [[["good", np.int64(0)]]], [7])
    assert (examples.questions, examples.contexts, examples.ids) == (["a"], ["good"], ["7"])
    assert examples.answers == [[("good", 0)]]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (("is", ["a"]), "the file: questions must be a list of strings; received one string"),
        ((["is"], "a"), "the file: contexts must be a list of strings; received one string"),
        ((["is"], ["a", "b"]), "contexts must have the same length as questions, 1; received 2"),
        ((["is"], ["a"], []), "answers must have the same length as questions, 1; rec"),
        ((["is"], ["a"], [[]], ["1", "2"]), "ids must have the same length as questions, 1; rec"),
        ((["is", None], ["a"] * 2), "the file: questions must be strings; received None"),
        ((["is"], [3]), "the file: contexts must be strings; received 3"),
        ((["is"] * 2, ["a"] * 2, [[], "a"]), "the file, question 2: .* list of pairs.*; .* 'a'"),
        ((["is"], ["a"], [[("a",)]]), "question 1: the answers must be a list of pairs"),
        ((["is"], ["a"], [[("a", "0")]]), "question 1: the answers must be a list of pairs"),
        ((["is"], ["a"], [[("", 0)]]), "pairs of a non-empty text and its start"),
    ],
)  # fmt: skip
def test_malformed_columns_are_rejected(columns, message):
    with pytest.raises(ValueError, match=message):
        Questions(*columns, source="the file")


def test_ids_must_be_strings_or_integers():
    assert Questions(["a"], ["b"], ids=np.array([7])).ids == ["7"]
    for wrong in (None, 1.5):
        with pytest.raises(ValueError, match=f"ids must be strings; received {wrong}"):
            Questions(["a"], ["b"], ids=[wrong])


ROW = {"id": "q1", "title": "t", "question": "Who?", "context": "It was Ada."}
FOUND = {"answers": {"text": ["Ada"], "answer_start": [7]}}
NONE = {"answers": {"text": [], "answer_start": []}}


def test_klue_calls_the_id_guid(tmp_path):
    question = item("q1", ("good", 16))
    question["guid"] = "klue-mrc-v1_train_1"
    del question["id"]
    assert squad.read(write(tmp_path / "a.json", squad_json(question))).ids == [question["guid"]]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", "{}\n{}\n"),
        ("a.json", "{}\n{}\n"),
        ("a.json", "[{}, {}]"),
        ("a.json", '{{"version": "2", "data": [{}, {}]}}'),
    ],
)
def test_rows_of_hugging_face(tmp_path, name, text):
    rows = [json.dumps(ROW | FOUND), json.dumps(ROW | NONE)]
    questions = squad.read(write(tmp_path / name, text.format(*rows)))
    assert questions.answers == [[("Ada", 7)], []]
    assert (questions.ids, questions.questions) == (["q1", "q1"], ["Who?", "Who?"])
    assert squad.read(tmp_path / name, labeled=False, limit=1).contexts == ["It was Ada."]


def test_errors_of_rows_name_the_row(tmp_path):
    for row, message in (
        ({"answers": []}, r"a\.jsonl, line 1 has no key 'context'"),
        (ROW, r"line 1, question 'q1' has no key 'answers'"),
        (ROW | {"answers": {"text": ["a"], "answer_start": []}}, "same length; received 1 and 0"),
        (ROW | {"answers": {"text": ["a"]}}, "has no key 'answer_start'"),
        (ROW | {"answers": "Ada"}, "'answers' must be a list, or an object with the lists text"),
    ):
        with pytest.raises(ValueError, match=message):
            squad.read(write(tmp_path / "a.jsonl", row))


def test_answers_in_columns_of_their_own(tmp_path):
    pandas = pytest.importorskip("pandas")
    rows = [{**ROW, "answer": "Ada", "answer_start": 7}, {**ROW, "answer": None}]
    questions = keras_bert.read(pandas.DataFrame(rows), "question_answering")
    assert questions.answers == [[("Ada", 7)], []]
    rows[1]["answer_start"] = None
    assert squad.read(write(tmp_path / "a.json", rows)).answers == questions.answers
    with pytest.warns(UserWarning, match="not read.* no column answer_start"):
        table = {"question": ["Who?"], "context": ["It was Ada."], "answer": ["Ada"]}
        assert keras_bert.read(table, "question_answering").answers is None


@pytest.mark.parametrize("answers", [FOUND["answers"], [{"text": "Ada", "answer_start": 7}]])
def test_questions_from_a_table(answers):
    pandas = pytest.importorskip("pandas")
    rows = [{**ROW, "answers": answers}, {**ROW, **NONE}]
    for table in (pandas.DataFrame(rows), {key: [row[key] for row in rows] for key in rows[0]}):
        questions = keras_bert.read(table, "question_answering")
        assert questions.answers == [[("Ada", 7)], []]
        assert questions.ids == ["q1", "q1"]
    arrays = {key: np.array(value) for key, value in FOUND["answers"].items()}  # as in Parquet
    frame = pandas.DataFrame({"question": ["Who?"], "context": ["It was Ada."]})
    assert keras_bert.read(frame, "question_answering").answers is None
    assert keras_bert.read(frame.assign(answers=[arrays]), "question_answering").answers == [
        [("Ada", 7)]
    ]
    with pytest.raises(ValueError, match="no column 'context'; it has question"):
        keras_bert.read(frame[["question"]], "question_answering")
