"""Sentence splitting for next sentence prediction.

A regular expression finds possible ends of sentences in Latin, Korean, Chinese and Japanese text.
Rules about the words around them exclude abbreviations, initials and similar. Nothing backtracks,
so the time is linear in the length of the text.
"""

import re

from keras_bert.runtime.words import words

# Characters between two sentences: after the end of one, and before the first letter of the next.
_CLOSING = "\"'”’»›)\\]}」』）】》〉〕］"
_NEVER_FIRST = "”’»›)]}」』）】》〉〕］,;:，、；："
_OPENING = "\"'“‘„«‹([{「『（【《〈〔［¿¡-–—*"

# Latin full stops end a sentence only before white space, ideographic ones anywhere. Informal
# Korean may have no space after a verb ending. Possessive quantifiers avoid backtracking.
_BOUNDARY = re.compile(
    rf"[.!?…](?:[{_CLOSING}]*+\s++(?![a-z])|(?<=[다요죠까]\.)(?=[가-힣]))"
    rf"|[。！？｡]++[。！？｡.!?…]*+[{_CLOSING}]*+\s*+"
)

# Abbreviations that never end a sentence.
_TITLES = words(
    """
    mr mrs ms messrs mme mlle dr prof rev fr hon gen col maj capt cpt cmdr lt sgt cpl gov sen
    rep pres st ste mt ft vs v cf e.g i.e viz ca c approx al fig figs eq eqs vol vols pp p ch
    sec ed eds trans op cit ibid nr nos esp incl z.b d.h u.a bzw
    """
)
# Abbreviations that end a sentence if the next word is one of `_STARTERS`.
_ABBREVIATIONS = words(
    """
    jr sr inc ltd co corp bros etc dept univ assn ave blvd rd jan feb mar apr jun jul aug sep
    sept oct nov dec mon tue wed thu fri sat sun ph.d m.d b.a m.a
    """
)
_STARTERS = words(
    """
    The A An This That These Those He She It They We You I In On At By For From With After
    Before When While If As But And However Although There Here His Her Its Their Our My What
    Who Why How Some Many Most Since During Because So Then Thus Later Today
    """
)
_WORD = re.compile(r"\w+")
# The sentence continues after a quotation if one of these follows.
_CONTINUATION = re.compile(
    r"(?:이?라[고는며면던]|하고|하며|고 |며 |[と、，,])|(?:って|という|[がはのをにもでや])"
)
_LONGEST = 24  # characters before a full stop that are searched for a word


def split(paragraph):
    r"""Split a paragraph into sentences.

    Args:
        paragraph: A string without line ends.

    Returns:
        A list of strings, which contain all of the paragraph except white space between sentences.

    Example:

    >>> split('Dr. J. Smith paid $3.14. "Why?" he asked. "I was in the U.S. Army."')
    ['Dr. J. Smith paid $3.14.', '"Why?" he asked.', '"I was in the U.S. Army."']
    >>> split("비가 왔다. 그래서 쉬었다."), split("下雨了。我们休息！")
    (['비가 왔다.', '그래서 쉬었다.'], ['下雨了。', '我们休息！'])
    """
    sentences = []
    begin = 0
    for match in _BOUNDARY.finditer(paragraph):
        end = match.end()
        if _is_end(paragraph, begin, match.start(), end):
            sentence = paragraph[begin:end].strip()
            if sentence:
                sentences.append(sentence)
            begin = end
    rest = paragraph[begin:].strip()
    if rest:
        sentences.append(rest)
    return sentences


def _is_end(text, begin, mark, end):
    """Return True if the full stop at `mark` ends the sentence that began at `begin`."""
    following = text[end : end + 1]
    if not following:
        return True
    kind = text[mark]
    if kind in "。！？｡":
        closed = text[end - 1] not in "。！？｡.!?… \u3000"
        return not (closed and _CONTINUATION.match(text, end))
    if following in _NEVER_FIRST:
        return False
    # Look at the first letter after opening brackets or quotes.
    if following.islower() or (following in _OPENING and _starts_lower(text, end)):
        return False
    if mark + 1 < end and not text[mark + 1].isspace() and _CONTINUATION.match(text, end):
        return False
    if kind != "." or mark == begin or text[mark - 1] in ".!?…":
        return True
    at = text.rfind(" ", max(begin, mark - _LONGEST), mark) + 1 or max(begin, mark - _LONGEST)
    word = text[at:mark].lstrip(_OPENING)
    if len(word) == 1 and word.isalpha() and word.isupper():
        return False  # an initial
    lower = word.lower()
    if lower in _TITLES:
        return False
    if word.isdecimal() and at == begin:
        return False  # a numbered item
    if lower == "no":
        return not following.isdecimal()
    if lower in _ABBREVIATIONS or (len(word) > 2 and word[1::2].strip(".") == ""):
        if following.isdecimal():
            return False
        first = _WORD.match(text, end)
        return first is None or first.group() in _STARTERS
    return True


def _starts_lower(text, at):
    while at < len(text) and text[at] in _OPENING:
        at += 1
    return text[at : at + 1].islower()


def of_documents(documents):
    """Split `corpus.Document`s into sentences: a list of strings per document."""
    return [
        [sentence for paragraph in document.paragraphs() for sentence in split(paragraph)]
        for document in documents
    ]
