"""Files in the layouts of published data sets. Each reads right, or ends in one line with a remedy.

The contents are made up. `source` says where the layout is described.
"""

import dataclasses
import json
from typing import Any

import pytest

import keras_bert
from tests.tiny import write_file


@dataclasses.dataclass
class Layout:
    """A file, the options to read it with, and the columns that are read, or the error."""

    name: str
    source: str
    content: str
    task: str
    expected: Any
    file: str = "a.tsv"
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __str__(self):
        return self.name


def tsv(*rows):
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)


def squad(version, **question):
    questions = [{"id": "q", "question": "Who?", **question}]
    paragraph = {"context": "It was Ada.", "qas": questions}
    article = {"title": "t", "paragraphs": [paragraph]}
    return json.dumps({"version": version, "data": [article]}, indent=2)


ADA = [{"text": "Ada", "answer_start": 7}]
HTML = {"title": "t", "context": "It was Ada.", "qas": [{"id": "q", "question": "?", "answer": {}}]}
LAYOUTS = [
    Layout(
        "NSMC", "github.com/e9t/nsmc",
        tsv(("id", "document", "label"), (7, '"좋다...', 1), (8, "별로", 0)),
        "classification", {"texts": ['"좋다...', "별로"], "labels": [1, 0]},
        "ratings.txt", {"text": "document"},
    ),
    Layout(
        "STS benchmark", "ixa2.si.ehu.eus/stswiki",  # some rows have two more columns
        tsv(("main", "MSRvid", "2012", "1", "5.000", "a", "b"),
            ("main", "forum", "2015", "2", "2.5", "c", "d", "x", "y")),
        "regression", {"texts": ["a", "c"], "text_pairs": ["b", "d"], "scores": [5.0, 2.5]},
        options={"text": 6, "text_pair": 7, "label": 5, "header": False},
    ),
    Layout(
        "Jigsaw", "kaggle.com/c/jigsaw-toxic-comment-classification-challenge",
        'id,comment_text,toxic,severe_toxic,obscene\n01,"a\n""b""",1,0,1\n02,c,0,0,0\n',
        "multi_label", {"texts": ['a\n"b"', "c"], "label_sets": [("toxic", "obscene"), ()]},
        "train.csv", {"text": "comment_text", "label": ["toxic", "severe_toxic", "obscene"]},
    ),
    Layout(
        "KLUE-NER", "github.com/KLUE-benchmark/KLUE",
        "## 토큰, 레이블 구분자 : \\t\n## 컬럼명 : CHAR\tNE_TAG\n## klue-0\t<경찰:OG> 또\n"
        "경\tB-OG\n찰\tI-OG\n \tO\n또\tO\n\n## klue-1\t은\n은\tO\n",
        "tagging",
        {"words": [["경", "찰", " ", "또"], ["은"]], "tags": [["B-OG", "I-OG", "O", "O"], ["O"]]},
    ),
    Layout(
        "Naver NER", "github.com/naver/nlp-challenge",
        "1\t비토리오\tPER_B\n2\t양일\tDAT_B\n3\t만에\t-\n\n1\t영사관\tORG_B\n",
        "tagging",
        {"words": [["비토리오", "양일", "만에"], ["영사관"]],
         "tags": [["PER_B", "DAT_B", "-"], ["ORG_B"]]},
        "train_data",
    ),
    Layout(
        "KMOU NER", "github.com/kmounlp/NER",
        "## 1\n## 유대치는 간다\n## <유대치:PER>는 간다\n"
        "유대치\t유대치\tNNP\tB-PER\n는\t는\tJX\tO\n"
        "_\t_\t_\tO\n간다\t가+다\tVV\tO\n\n",
        "tagging",
        {"words": [["유대치", "는", "_", "간다"]], "tags": [["B-PER", "O", "O", "O"]]}, "a.txt",
    ),
    Layout(
        "GermEval 2014", "sites.google.com/site/germeval2014ner",
        "#\thttp://a.b [2009-10-17]\n1\tAnn\tB-PER\tO\n2\tgeht\tO\tO\n\n",
        "tagging", {"words": [["Ann", "geht"]], "tags": [["B-PER", "O"]]}, options={"tag": 3},
    ),
    Layout(
        "SQuAD 2.0", "rajpurkar.github.io/SQuAD-explorer",
        squad("v2.0", answers=[], plausible_answers=ADA, is_impossible=True),
        "question_answering", {"ids": ["q"], "answers": [[]], "characters": False}, "a.json",
    ),
    Layout(
        "KorQuAD 1.0", "korquad.github.io/KorQuad%201.0",
        squad("KorQuAD_v1.0_dev", answers=ADA), "question_answering",
        {"ids": ["q"], "answers": [[("Ada", 7)]], "characters": True}, "a.json",
    ),
    Layout(
        "KorQuAD 2.1", "korquad.github.io", json.dumps({"version": "KorQuAD_2.1", "data": [HTML]}),
        "question_answering", "article 't': must have the key 'paragraphs'", "a.json",
    ),
    Layout(
        "SWAG", "github.com/rowanz/swagaf",
        ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,label\n"
        "0,v,1,s,A man,He,gold,runs.,sits.,1\n", "multiple_choice",
        {"texts": ["A man"], "choices": [["He runs.", "He sits."]], "labels": [1]}, "train.csv",
    ),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:.* rows were left out")
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_layouts(tmp_path, layout):
    file = write_file(tmp_path / layout.file, layout.content)
    if isinstance(layout.expected, str):
        with pytest.raises(ValueError, match=layout.expected) as caught:
            keras_bert.read(file, layout.task, **layout.options)
        assert "\n" not in str(caught.value)
        return
    data = keras_bert.read(file, layout.task, **layout.options)
    assert {name: getattr(data, name) for name in layout.expected} == layout.expected
