"""A paragraph cut into sentences, well enough for next-sentence prediction.

One regular expression finds where a sentence may end, in Latin, Korean, Chinese and Japanese
text; a short look at the words around says no to abbreviations, initials and the like. Nothing
in it goes back over what it has seen, so the time grows with the length, whatever the text.
"""

import re

# What may stand between the end of a sentence and the next one, and before its first letter.
_CLOSING = "\"'”’»›)\\]}」』）】》〉〕］"
_NEVER_FIRST = "”’»›)]}」』）】》〉〕］,;:，、；："
_OPENING = "\"'“‘„«‹([{「『（【《〈〔［¿¡-–—*"

# Full stops of Latin and Korean text end a sentence before white space, the ideographic ones
# anywhere; in careless Korean no space follows the verb's ending either. The quantifiers are
# possessive: what they took is not tried again.
_BOUNDARY = re.compile(
    rf"[.!?…](?:[{_CLOSING}]*+\s++(?![a-z])|(?<=[다요죠까]\.)(?=[가-힣]))"
    rf"|[。！？｡]++[。！？｡.!?…]*+[{_CLOSING}]*+\s*+"
)

# Never the end of a sentence.
_TITLES = frozenset(
    {
        "mr", "mrs", "ms", "messrs", "mme", "mlle", "dr", "prof", "rev", "fr", "hon", "gen", "col",
        "maj", "capt", "cpt", "cmdr", "lt", "sgt", "cpl", "gov", "sen", "rep", "pres", "st", "ste",
        "mt", "ft", "vs", "v", "cf", "e.g", "i.e", "viz", "ca", "c", "approx", "al", "fig", "figs",
        "eq", "eqs", "vol", "vols", "pp", "p", "ch", "sec", "ed", "eds", "trans", "op", "cit",
        "ibid", "nr", "nos", "esp", "incl", "z.b", "d.h", "u.a", "bzw",
    }
)  # fmt: skip
# The end of one if what follows begins as sentences do.
_ABBREVIATIONS = frozenset(
    {
        "jr", "sr", "inc", "ltd", "co", "corp", "bros", "etc", "dept", "univ", "assn", "ave",
        "blvd", "rd", "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "sept", "oct", "nov",
        "dec", "mon", "tue", "wed", "thu", "fri", "sat", "sun", "ph.d", "m.d", "b.a", "m.a",
    }
)  # fmt: skip
_STARTERS = frozenset(
    {
        "The", "A", "An", "This", "That", "These", "Those", "He", "She", "It", "They", "We", "You",
        "I", "In", "On", "At", "By", "For", "From", "With", "After", "Before", "When", "While",
        "If", "As", "But", "And", "However", "Although", "There", "Here", "His", "Her", "Its",
        "Their", "Our", "My", "What", "Who", "Why", "How", "Some", "Many", "Most", "Since",
        "During", "Because", "So", "Then", "Thus", "Later", "Today",
    }
)  # fmt: skip
_WORD = re.compile(r"\w+")
# After a quotation the sentence goes on with these.
_GOES_ON = re.compile(
    r"(?:이?라[고는며면던]|하고|하며|고 |며 |[と、，,])|(?:って|という|[がはのをにもでや])"
)
_LONGEST = 24  # characters of a word before a full stop that are looked at


def split(paragraph):
    r"""Cuts a paragraph into its sentences.

    Args:
        paragraph: a string without line ends.

    Returns:
        The sentences, a list of strings without white space around. Together they are the
        paragraph; only white space between them is gone.

    Example:

    >>> split('Dr. J. Smith paid $3.14. "Why?" he asked. "I was in the U.S. Army."')
    ['Dr. J. Smith paid $3.14.', '"Why?" he asked.', '"I was in the U.S. Army."']
    >>> split("비가 왔다. 그래서 쉬었다."), split("下雨了。我们休息！")
    (['비가 왔다.', '그래서 쉬었다.'], ['下雨了。', '我们休息！'])
    """
    found, begin = [], 0
    for match in _BOUNDARY.finditer(paragraph):
        end = match.end()
        if _is_end(paragraph, begin, match.start(), end):
            sentence = paragraph[begin:end].strip()
            if sentence:
                found.append(sentence)
            begin = end
    rest = paragraph[begin:].strip()
    if rest:
        found.append(rest)
    return found


def _is_end(text, begin, mark, end):
    """Whether the full stop at `mark` ends the sentence that began at `begin`."""
    following = text[end : end + 1]
    if not following:
        return True
    kind = text[mark]
    if kind in "。！？｡":
        closed = text[end - 1] not in "。！？｡.!?… \u3000"
        return not (closed and _GOES_ON.match(text, end))
    # In brackets or quotes before it: the first letter counts.
    if following in _NEVER_FIRST:
        return False
    if following.islower() or (following in _OPENING and _starts_lower(text, end)):
        return False
    if mark + 1 < end and not text[mark + 1].isspace() and _GOES_ON.match(text, end):
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
    r"""Splits whole documents, the work that other processes can do.

    Args:
        documents: `corpus.Document`s, or others with `paragraphs()`.

    Returns:
        A list of sentences for each document.

    Example:

    >>> from keras_bert.pretraining.corpus import Document
    >>> of_documents([Document("a", "One. Two.\nThree."), Document("b", "Four.")])
    [['One.', 'Two.', 'Three.'], ['Four.']]
    """
    return [
        [sentence for paragraph in document.paragraphs() for sentence in split(paragraph)]
        for document in documents
    ]
