"""Prose from wikitext: removed markup, kept text, and real pages."""

import re
import time

import pytest

from keras_bert.pretraining import corpus
from keras_bert.pretraining.wikitext import paragraphs


@pytest.mark.parametrize(
    ("wikitext", "expected"),
    [
        # Links are replaced by their labels.
        ("A [[link]] and [[page|label]]s, [[:Category:X|X]].", "A link and labels, X."),
        ("See [http://a.org the page] or [http://a.org].", "See the page or."),
        ("[[2001: A Space Odyssey]] is [[w:de:Film|a film]].", "2001: A Space Odyssey is a film."),
        # Style is removed, and entities become characters.
        ("'''Bold''' ''it'' <b>b</b><sup>2</sup> <!-- no -->a&nbsp;&amp; b", "Bold it b2 a & b"),
        ("It's the ''dog's'' '''''own'''''.", "It's the dog's own."),
        ("One<br/>two <span style='x'>three</span> <small>four</small>", "One two three four"),
        ("<nowiki>[[aa]]</nowiki> b", "aa b"),
        # Markup that is not prose is removed.
        ("One.{{cite|x={{y|[[z]]}}}} Two.", "One. Two."),
        ("One.<ref name=x>[[b]] {{c}}</ref><ref name='y' /> Two.<ref name=z/>", "One. Two."),
        ("Where <math>x_{1}|y|</math> is.<gallery>\nA.jpg|b\n</gallery>", "Where is."),
        ("[[File:A b.jpg|thumb|200px|A [[caption]] {{x}}.<ref>r</ref>]]Text here.", "Text here."),
        ("[[Файл:А.JPG|мини|текст]]Текст [[Image:A.svg]].", "Текст."),
        ("[[파일:A.png|섬네일]]글자 [[바탕:X|thumb|말]].", "글자."),
        ("__NOTOC__Text __FORCETOC__here.", "Text here."),
        ("One {{{argument|x}}} two", "One two"),
        # Remains of templates are tidied.
        (
            "Ice ({{IPA|x}}) is ( ; {{lang|y}}, born 1950 ; ) cold , {{x}}, ok .",
            "Ice is (born 1950) cold, ok.",
        ),
        ("Ice （{{x}}） and (IPA: {{x}}) was ((){{x}}).", "Ice and was."),
        ("an area of {{convert|1|km}}.", "an area of."),
        ("He waited ... and left.", "He waited ... and left."),
    ],
)  # fmt: skip
def test_paragraph(wikitext, expected):
    assert paragraphs(wikitext) == ([expected] if expected else [])


def test_page():
    wikitext = """{{Infobox
| name = {{nowrap|X}}
}}
[[File:A.jpg|thumb|Caption]]
First paragraph,
on two lines.

== Heading ==
Second.
=== Another ===
* item [[a]]
** item
# number
: indented
; term : what it means
{| class="wikitable"
|-
! head
|-
| cell || {{x}} [[b]]
{|
| inner
|}
|}
Third.
<blockquote>Quoted.</blockquote>
<div class="references">
<references />
</div>

== References ==
{{reflist}}
[[Category:A]]
[[Category:B| ]]
[[fr:A]] [[de:B]]
"""
    assert paragraphs(wikitext) == [
        "First paragraph, on two lines.",
        "Second.",
        "Third.",
        "Quoted.",
    ]


@pytest.mark.parametrize(
    "wikitext",
    [
        "", "{{aa}}", "* aa\n* bb", "== Aa ==", "aa {{broken\n| x = 1", "{| aa\n| bb", "()", "1",
        "[[Aa|", "aa | bb || cc", "x",
    ],
)  # fmt: skip
def test_wikitext_without_prose(wikitext):
    assert paragraphs(wikitext) == []


@pytest.mark.parametrize(
    "unit",
    [
        "{{", "}}", "[[", "{|", "<ref>", "<math><ref>", "<!--", "''", "&", "<b>", "* ", "(", "( ",
        "[[a|", "<a ", "http://", "\n{|\n|\n", ",", " ;", "\n", "[[a|b] ]", "[http://a ", "==a",
        "<nowiki>", "<ref name=a ", "{{a|[[b|<b>", "[[a]] ", "<b>a</b>", "&#x", "=", "-", "#a\n",
    ],
)  # fmt: skip
def test_time_is_linear(unit):
    def seconds(count):
        began = time.perf_counter()
        paragraphs(unit * count)
        return time.perf_counter() - began

    seconds(100)
    small = max(min(seconds(10_000) for _ in range(3)), 1e-3)
    assert min(seconds(80_000) for _ in range(2)) < 40 * small  # 8 if linear, 64 if quadratic


def test_real_pages_have_no_markup_left(shared):
    markup = re.compile(
        r"\{\{|\}\}|\[\[|\]\]|\{\||\|\}|''|\|\w+=|</?[a-zA-Z]|&[a-z]+;|\bthumb\||__[A-Z]|\( ?\)|https?://"
    )
    documents = list(corpus.documents(shared / "data/mediawiki/enwiki*.bz2"))
    texts = [text for document in documents for text in document.paragraphs()]
    assert [text for text in texts if markup.search(text)] == []
    # All prose is kept.
    assert len(texts) > 4800
    assert sum(map(len, texts)) > 2_500_000
