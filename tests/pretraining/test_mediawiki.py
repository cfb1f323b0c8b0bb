"""Prose from wikitext: removed markup, kept text, and real pages."""

import re
import sys
import time

import pytest

from keras_bert.pretraining import corpus, mediawiki


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
        ("<nowiki>[[a]]</nowiki> b", ""),  # written out it looks like markup that failed
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
    assert mediawiki.paragraphs(wikitext) == ([expected] if expected else [])


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
    assert mediawiki.paragraphs(wikitext) == [
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
    assert mediawiki.paragraphs(wikitext) == []


@pytest.mark.parametrize(
    "unit",
    [
        "{{", "}}", "[[", "{|", "<ref>", "<math><ref>", "<!--", "''", "&", "<b>", "* ", "(", "( ",
        "[[a|", "<a ", "http://", "\n{|\n|\n", ",", " ;", "\n",
    ],
)  # fmt: skip
def test_time_is_linear(unit):
    def seconds(count):
        began = time.perf_counter()
        mediawiki._cut(unit * count)
        mediawiki._tidy(unit * (count // 10))
        return time.perf_counter() - began

    seconds(100)
    small = max(min(seconds(10_000) for _ in range(3)), 1e-3)
    assert (
        min(seconds(80_000) for _ in range(2)) < 40 * small
    )  # 8 by rights, 64 if it were the square


# Markup on which the parser crashes or takes quadratic time.
@pytest.mark.parametrize(
    "unit",
    [
        "{{ a", "{|\n|a\n", "[[a|", "[[a|b] ]", "[http://a ", "http://a", "==a", "=a=", "<div>",
        "<b></i>", "<nowiki>", "<ref name=a ", '<div a="b ', "<s ", "{{a|[[b|<b>",
        "<b /", "<ref /", "<br /", "<hr ", "<b></b", '<b a="/>', "<hr a='>", '<b a="></b>',
    ],
)  # fmt: skip
def test_elements_without_an_end_are_left_out(unit):
    start = time.perf_counter()
    with pytest.warns(UserWarning, match="1 paragraphs of a wiki page are left out"):
        found = mediawiki.paragraphs("=" + unit * 20_000 + "\n\nGood [[prose]].")
    assert found == ["Good prose."]
    assert time.perf_counter() - start < 3


@pytest.mark.parametrize("unit", ["mailto:a", "a ", "''a''", "[[a]] ", "<b>a</b>", "&#x"])
def test_time_of_complete_elements_is_linear(unit):
    start = time.perf_counter()
    mediawiki.paragraphs(unit * 20_000)
    assert time.perf_counter() - start < 5


def test_missing_mwparserfromhell_raises(monkeypatch):
    monkeypatch.setitem(sys.modules, "mwparserfromhell", None)
    with pytest.raises(ValueError, match=r"run: pip install"):
        mediawiki.paragraphs("text")


def test_removal_before_parsing_changes_nothing(monkeypatch):
    wikitext = """Aa {{b|{{c}}|d=[[e]]}} f.<ref>g {{h}}</ref> i <!-- j --> k.
{|
| l {{m}}
|}
Nn <math>o</math> p.<ref name="q" /> R {{{s|t}}} u.
"""
    found = mediawiki.paragraphs(wikitext)
    monkeypatch.setattr(mediawiki, "_cut", lambda text: text)
    assert mediawiki.paragraphs(wikitext) == found == ["Aa f. i k.", "Nn p. R u."]


def test_real_pages_have_no_markup_left(shared):
    markup = re.compile(
        r"\{\{|\}\}|\[\[|\]\]|\{\||\|\}|''|\|\w+=|</?[a-zA-Z]|&[a-z]+;|\bthumb\||__[A-Z]|\( ?\)|https?://"
    )
    documents = list(corpus.documents(shared / "data/mediawiki/*.bz2"))
    found = [text for document in documents for text in document.paragraphs()]
    assert len(found) > 5000
    assert [text for text in found if markup.search(text)] == []
    assert sum(map(len, found)) > 2_500_000  # and it is not that everything went
    assert any("Григорианския" in text for text in found)
