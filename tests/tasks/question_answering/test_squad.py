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
    examples = squad.read(write(tmp_path / "a.json", "\ufeff" + json.dumps(file)))
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
    # KLUE calls the id guid.
    file = write(
        tmp_path / "a.json", squad_json({"guid": 7, "question": "is"}, item("b"), item("c"))
    )
    examples = squad.read(file, limit=2, labeled=False)
    assert (examples.ids, examples.answers) == (["7", "b"], None)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"a\.json is not JSON \(Expecting.*SQuAD.* JSON Lines"),
        ("[" * 200_000, r"a\.json is not JSON"),
        (b'{"data": "\xff"}', r"a\.json, line 1: must be UTF-8; received the byte 0xff"),
        (3, r"a\.json: must have the key 'data' with a list; received None"),
        ({"data": [{"paragraphs": [{"context": "", "qas": []}]}]}, "contains no questions"),
        ({"data": [{"title": "Films"}]}, r"a\.json, article 'Films': .* the key 'paragraphs'"),
        (squad_json(item(), context=None), r"paragraph 1, question 1: .* 'context' with a str"),
        (squad_json(item(), "x"), r"'Films', paragraph 1, question 2: .* the key 'question'"),
        (squad_json({"id": "q1", "question": ""}), r"question 1 needs 'answers'"),
        (squad_json(item("q1", ("good", "1"))), "question 1: the answers .* received .*'1'"),
    ],
)
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
        ((["is"], ["a", "b"]), "contexts must have the same length as questions, 1; received 2"),
        ((["is"], [3]), "the file: contexts must be strings; received 3"),
        ((["is"] * 2, ["a"] * 2, [[], "a"]), "the file, question 2: .* list of pairs.*; .* 'a'"),
        ((["is"], ["a"], [[("a", "0")]]), "question 1: the answers must be a list of pairs"),
    ],
)
def test_malformed_columns_are_rejected(columns, message):
    with pytest.raises(ValueError, match=message):
        Questions(*columns, source="the file")


ROW = {"id": "q1", "title": "t", "question": "Who?", "context": "It was Ada."}
FOUND = {"answers": {"text": ["Ada"], "answer_start": [7]}}
NONE = {"answers": {"text": [], "answer_start": []}}


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
    wrong = [{"answers": []}, {"text": ["a"], "answer_start": []}, {"text": ["a"]}, "Ada"]
    for answers in wrong:
        with pytest.raises(ValueError, match=r"a\.jsonl, item 1 needs 'answers', a list"):
            squad.read(write(tmp_path / "a.jsonl", ROW | {"answers": answers}))


def test_answers_in_columns_of_their_own(tmp_path):
    pandas = pytest.importorskip("pandas")
    rows = [{**ROW, "answer": "Ada", "answer_start": 7}, {**ROW, "answer": None}]
    questions = keras_bert.read(pandas.DataFrame(rows), "question_answering")
    assert questions.answers == [[("Ada", 7)], []]
    assert squad.read(write(tmp_path / "a.json", rows)).answers == questions.answers


@pytest.mark.parametrize(("text", "start"), [("", 0), ("", -1), (None, None), (float("nan"), -1)])
def test_an_empty_text_is_no_answer(text, start):
    lists = {"text": [text], "answer_start": [start]}
    for answers in ({"answers": lists}, {"answers": [{"text": text, "answer_start": start}]},
                    {"answer": text, "answer_start": start}):  # fmt: skip
        columns = {key: [value] for key, value in {**ROW, **answers}.items()}
        assert keras_bert.read(columns, "question_answering").answers == [[]]
