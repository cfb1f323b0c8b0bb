"""Sentence splitting in several languages, with abbreviations, and in linear time."""

import random
import time

import pytest

from keras_bert.pretraining.corpus import Document
from keras_bert.pretraining.sentences import of_documents, split

# Each line is a paragraph with its sentences separated by |.
ENGLISH = """
One. |Two! |Three? |Four
Dr. Smith met Mrs. Jones. |They left.
J. K. Rowling and J. Smith wrote. |W. left.
It costs $3.14. |It is 3.5 km.
He said (see Fig. 3) it. |She (who knew. ) left.
"Why?" |"No reason." |He went.
"Why?" he asked. |“Go!” she cried. |‘Yes.’ |It was.
He came to the U.S. Army. |He left the U.S. |The end.
Fruit, e.g. Apples, i.e. Red ones, vs. Pears. |End.
At 5 p.m. on Monday. |It was 6 a.m. |The sun rose.
Wait... |What? |Wait... no. |Well… |Yes.
She has a Ph.D. from Yale. |Acme Inc. is old. |Acme Inc. |The firm.
Yahoo! is a firm. |Why?! |What!? |So.
He met John Jr. in Jan. 1990. |In 1990. |The cat sat.
1. First of all. |2 came next.
(All of it.) |[Some.] |{None.}
See p. 5 and pp. 6 ff. and No. 7. |Roe v. Wade. |Smith et al. wrote.
It was fun.  |  Really.
St. Paul is in the Mt. Hood area. |Gen. Lee, Lt. Col. Ray.
Is it? |— Yes. |- No.
¿Qué es? |¡Hola! |À bientôt. |Über uns. |Еще раз. |Да.
"""
KOREAN = """
비가 왔다. |그래서 쉬었다. |정말요? |네!
그는 "왜 그래?"라고 물었다. |"가자." 라고 했다. |"가자."고 했다.
값은 3.5배이다.|그리고 1953년이다. |끝
그는 (1999년) 갔다. |'좋아.' |그랬다. |음…
"간다." |"안 가요." |"이라고"는 말이다.
"""
CHINESE = """
下雨了。|我们休息！|真的吗？！|是。
他说：“下雨了。”|我们休息。|（完。）|好……是的。
价格是3.5元。|Python很好。|好。 |空格。
「好。」、「不好。」、都行。
"""
JAPANESE = """
雨が降った。|休んだ！|本当？|はい。
「行くよ。」と言った。|「はい！」|彼女は答えた。|『終わり。』
「行く？」って聞いた。|終わり。
"""


@pytest.mark.parametrize("paragraphs", [ENGLISH, KOREAN, CHINESE, JAPANESE])
def test_sentences(paragraphs):
    for paragraph in paragraphs.strip().split("\n"):
        expected = [sentence.strip() for sentence in paragraph.split("|")]
        assert split(paragraph.replace("|", "")) == expected


@pytest.mark.parametrize("paragraph", ["", " ", "\u3000 \t"])
def test_empty_paragraph_has_no_sentences(paragraph):
    assert split(paragraph) == []


def test_sentences_of_documents():
    documents = [Document("a", "One. Two.\nThree."), Document("b", "Four.")]
    assert of_documents(documents) == [["One.", "Two.", "Three."], ["Four."]]


def test_text_is_preserved():
    generator = random.Random(7)
    alphabet = "aB1 .!?…。！？｡다요\"'”’)」』(「“ 가é漢と…-,\u3000\xa0"
    for _ in range(5_000):
        text = "".join(generator.choices(alphabet, k=generator.randrange(60)))
        sentences = split(text)
        assert "".join("".join(sentences).split()) == "".join(text.split())
        assert all(sentence and sentence == sentence.strip() for sentence in sentences)


@pytest.mark.parametrize(
    "unit",
    [
        ".", "a", "(", " ", ". ", ".)", ".(", ". (", "a.\t", "A. ", "1. ", "。", "。」", "다.", "…",
        '"', "? -", "! )", "。 と",
    ],
)  # fmt: skip
def test_time_is_linear(unit):
    def seconds(size):
        text = unit * (size // len(unit))
        began = time.perf_counter()
        split(text)
        return time.perf_counter() - began

    small = max(min(seconds(1 << 15) for _ in range(3)), 1e-3)
    assert (
        min(seconds(1 << 18) for _ in range(2)) < 40 * small
    )  # 8 by rights, 64 if it were the square


def test_real_text_has_plausible_sentence_lengths(shared):
    from keras_bert.pretraining import corpus

    for name, least, most in (("en_wiki", 90, 150), ("en_books", 70, 160), ("ko_wiki", 35, 80)):
        lengths = []
        for document in corpus.documents(shared / f"corpus/{name}.txt.xz"):
            for paragraph in document.paragraphs():
                lengths += map(len, split(paragraph))
            if len(lengths) > 20_000:
                break
        assert least < sum(lengths) / len(lengths) < most, name
        assert sum(length < 4 for length in lengths) < len(lengths) / 100, name
