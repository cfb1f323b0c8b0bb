"""Files in the layouts of published data sets. Each reads right, or ends in one line with a remedy.

The contents are made up. `source` says where the layout is described.
"""

import dataclasses
import json
from typing import Any

import pytest

import keras_bert
from tests.tiny import write_file

PAIR = {"text": "sentence1", "text_pair": "sentence2"}


@dataclasses.dataclass
class Layout:
    """A file, the options to read it with, and what is read or the error."""

    name: str
    source: str
    content: str | bytes
    expected: Any
    task: str = "classification"
    file: str = "a.tsv"
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __str__(self):
        return self.name


def tsv(*rows):
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)


def lines(*rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def squad(version, *questions):
    paragraph = {"context": "It was Ada.", "qas": list(questions)}
    article = {"title": "t", "paragraphs": [paragraph]}
    return json.dumps({"version": version, "data": [article]}, indent=2)


ADA = [{"text": "Ada", "answer_start": 7}]
TEXTS = [
    Layout(
        "NSMC", "github.com/e9t/nsmc",
        tsv(("id", "document", "label"), (7, '"좋다...', 1), (8, "별로", 0)),
        ['"좋다...', 1, "별로", 0], file="ratings.txt", options={"text": "document"},
    ),
    Layout(
        "KorSTS", "github.com/kakaobrain/KorNLUDatasets",
        tsv(("genre", "filename", "year", "id", "score", "sentence1", "sentence2"),
            ("main", "MSRvid", "2012", "0001", "5.000", "가", "나")),
        ["가", "나", 5.0], "regression", options={**PAIR, "label": "score"},
    ),
    Layout(
        "STS benchmark", "ixa2.si.ehu.eus/stswiki",  # some rows have two more columns
        tsv(("main", "MSRvid", "2012", "1", "5.000", "a", "b"),
            ("main", "forum", "2015", "2", "2.5", "c", "d", "x", "y")),
        ["a", "b", 5.0, "c", "d", 2.5], "regression",
        options={"text": 6, "text_pair": 7, "label": 5, "header": False},
    ),
    Layout(
        "Jigsaw", "kaggle.com/c/jigsaw-toxic-comment-classification-challenge",
        'id,comment_text,toxic,severe_toxic,obscene\n01,"a\n""b""",1,0,1\n02,c,0,0,0\n',
        ['a\n"b"', ("toxic", "obscene"), "c", ()], "multi_label", "train.csv",
        {"text": "comment_text", "label": ["toxic", "severe_toxic", "obscene"]},
    ),
    Layout(
        "AG News", "github.com/mhjabreel/CharCnn_Keras", '"3","title","text, of it"\n"1","t","u"\n',
        ["text, of it", 3, "u", 1], file="a.csv",
        options={"text": 3, "label": 1, "header": False},
    ),
]  # fmt: skip

MODU = {
    "document": [{"sentence": [{"form": "경찰은", "NE": [{"label": "OG", "begin": 0, "end": 2}]}]}]
}
TAGGED = [
    Layout(
        "KLUE-NER", "github.com/KLUE-benchmark/KLUE",
        "## 토큰, 레이블 구분자 : \\t\n## 컬럼명 : CHAR\tNE_TAG\n## klue-0\t<경찰:OG> 또\n"
        "경\tB-OG\n찰\tI-OG\n \tO\n또\tO\n\n## klue-1\t은\n은\tO\n",
        ([["경", "찰", " ", "또"], ["은"]], [["B-OG", "I-OG", "O", "O"], ["O"]]),
    ),
    Layout(
        "Naver NER", "github.com/naver/nlp-challenge",
        "1\t비토리오\tPER_B\n2\t양일\tDAT_B\n3\t만에\t-\n\n1\t영사관\tORG_B\n",
        ([["비토리오", "양일", "만에"], ["영사관"]], [["PER_B", "DAT_B", "-"], ["ORG_B"]]),
        file="train_data",
    ),
    Layout(
        "KMOU NER", "github.com/kmounlp/NER",
        "## 1\n## 유대치는 간다\n## <유대치:PER>는 간다\n"
        "유대치\t유대치\tNNP\tB-PER\n는\t는\tJX\tO\n"
        "_\t_\t_\tO\n간다\t가+다\tVV\tO\n\n",
        ([["유대치", "는", "_", "간다"]], [["B-PER", "O", "O", "O"]]), file="a.txt",
    ),
    Layout(
        "Modu corpus", "corpus.korean.go.kr", json.dumps(MODU, ensure_ascii=False, indent=4),
        "line 1 is not JSON.*Write an object a line", file="NXNE.json",
    ),
    Layout(
        "CoNLL-2003", "clips.uantwerpen.be/conll2003/ner",
        "-DOCSTART- -X- -X- O\n\nEU NNP I-NP I-ORG\nsays VBZ I-VP O\n\nBob NNP I-NP I-PER\n",
        ([["EU", "says"], ["Bob"]], [["I-ORG", "O"], ["I-PER"]]), file="eng.train",
    ),
    Layout(
        "WNUT 2017", "github.com/leondz/emerging_entities_17",
        "@a\tO\nParis\tB-location\n\t\n#b\tO\n",
        ([["@a", "Paris"], ["#b"]], [["O", "B-location"], ["O"]]), file="a.conll",
    ),
    Layout(
        "GermEval 2014", "sites.google.com/site/germeval2014ner",
        "#\thttp://a.b [2009-10-17]\n1\tAnn\tB-PER\tO\n2\tgeht\tO\tO\n\n",
        ([["Ann", "geht"]], [["B-PER", "O"]]), options={"tag": 3},
    ),
    Layout(
        "CoNLL-2003 of Hugging Face", "huggingface.co/datasets/eriktks/conll2003",
        lines({"id": "0", "tokens": ["EU", "says"], "ner_tags": [3, 0]}),
        ([["EU", "says"]], [[3, 0]]), file="a.jsonl",
        options={"word": "tokens", "tag": "ner_tags"},
    ),
    Layout(
        "NER on Kaggle", "kaggle.com/datasets/abhinavwalia95/entity-annotated-corpus",
        'Sentence #,Word,POS,Tag\nSentence: 1,London,NNP,B-geo\n,",",",",O\nSentence: 2,Go,VB,O\n',
        ([["London", ","], ["Go"]], [["B-geo", "O"], ["O"]]), file="ner_dataset.csv",
        options={"word": "Word", "tag": "Tag"},
    ),
]  # fmt: skip

ROW = {"id": "q", "title": "t", "context": "It was Ada.", "question": "Who?"}
HTML = {
    "title": "t",
    "context": "It was Ada.",
    "qas": [{"id": "q", "question": "Who?", "answer": {}}],
}
QUESTIONS = [
    Layout(
        "SQuAD 1.1", "rajpurkar.github.io/SQuAD-explorer",
        squad("1.1", {"id": "q", "question": "Who?", "answers": ADA}), (["q"], [[("Ada", 7)]]),
    ),
    Layout(
        "SQuAD 2.0", "rajpurkar.github.io/SQuAD-explorer",
        squad("v2.0", {"id": "q", "question": "?", "answers": [], "plausible_answers": ADA,
                       "is_impossible": True}), (["q"], [[]]),
    ),
    Layout(
        "KorQuAD 1.0", "korquad.github.io/KorQuad%201.0",
        squad("KorQuAD_v1.0_dev", {"id": "q", "question": "누구?", "answers": ADA}),
        (["q"], [[("Ada", 7)]]),
    ),
    Layout(
        "KLUE-MRC", "github.com/KLUE-benchmark/KLUE",
        squad("klue-mrc-v1_train", {"guid": "q", "question": "누구?", "question_type": 1,
                                    "is_impossible": False, "answers": ADA}),
        (["q"], [[("Ada", 7)]]),
    ),
    Layout(
        "KorQuAD 2.1", "korquad.github.io", json.dumps({"version": "KorQuAD_2.1", "data": [HTML]}),
        "article 't': must have the key 'paragraphs'",
    ),
    Layout(
        "SQuAD of Hugging Face", "huggingface.co/datasets/rajpurkar/squad",
        lines({**ROW, "answers": {"text": ["Ada"], "answer_start": [7]}}),
        (["q"], [[("Ada", 7)]]),
    ),
]  # fmt: skip

CHOICES = [
    Layout(
        "SWAG", "github.com/rowanz/swagaf",
        ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,label\n"
        "0,v,1,s,A man,He,gold,runs.,sits.,1\n",
        (["A man"], [["He runs.", "He sits."]], [1]), file="train.csv",
    ),
]  # fmt: skip


def read(folder, layout, task):
    file = write_file(folder / layout.file, layout.content)
    if isinstance(layout.expected, str):
        with pytest.raises(ValueError, match=layout.expected) as caught:
            keras_bert.read(file, task, **layout.options)
        assert "\n" not in str(caught.value)
        return None
    return keras_bert.read(file, task, **layout.options)


@pytest.mark.filterwarnings("ignore:.* rows were left out")
@pytest.mark.parametrize("layout", TEXTS, ids=str)
def test_texts(tmp_path, layout):
    examples = read(tmp_path, layout, layout.task)
    if examples is None:
        return
    columns = [examples.texts, examples.text_pairs]
    columns += [examples.labels, examples.label_sets, examples.scores]
    rows = zip(*(column for column in columns if column is not None), strict=True)
    assert [value for row in rows for value in row] == layout.expected


@pytest.mark.parametrize("layout", TAGGED, ids=str)
def test_tagged_words(tmp_path, layout):
    sentences = read(tmp_path, layout, "tagging")
    if sentences is not None:
        assert (sentences.words, sentences.tags) == layout.expected


@pytest.mark.parametrize("layout", QUESTIONS, ids=str)
def test_questions(tmp_path, layout):
    layout.file = "a.json"
    questions = read(tmp_path, layout, "question_answering")
    if questions is not None:
        assert (questions.ids, questions.answers) == layout.expected
        assert questions.characters == ("KorQuAD" in layout.name)


@pytest.mark.parametrize("layout", CHOICES, ids=str)
def test_choices(tmp_path, layout):
    choices = read(tmp_path, layout, "multiple_choice")
    if choices is not None:
        assert (choices.texts, choices.choices, choices.labels) == layout.expected
