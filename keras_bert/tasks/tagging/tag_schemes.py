"""Schemes of tags for entities, such as BIO: the position of a word in an entity, and its type."""

import dataclasses
import re
from collections.abc import Iterable

OUTSIDE_TAGS = ("O", "-")  # tags of words outside of all entities

# The letters of BIO, BIOES, BMES, BMEWO and BILOU -> beginning, inside, end, or single word.
_POSITIONS = {"B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "U": "S", "W": "S"}
_LETTERS = "".join(_POSITIONS)
_USUAL = re.compile(rf"(?P<position>[{_LETTERS}])-(?P<type>.+)")  # B-PER
_OTHERS = (
    re.compile(rf"(?P<position>[{_LETTERS}])_(?P<type>.+)"),  # B_PER
    re.compile(rf"(?P<type>.+)-(?P<position>[{_LETTERS}])"),  # PER-B
    re.compile(rf"(?P<type>.+)_(?P<position>[{_LETTERS}])"),  # PER_B
    re.compile(rf"(?P<position>[{_LETTERS}])"),  # B, for entities of one type
)
# The scheme IO: "PER" for each word of an entity. Types of one letter are parts of speech.
_INSIDE = re.compile(r"(?P<type>..+)")
_ONLY_TYPE = "entity"  # the type of entities whose tags name no type


@dataclasses.dataclass(frozen=True)
class TagScheme:
    """How the tags of a data set or a model are written."""

    pattern: re.Pattern[str]

    def split(self, tag: str) -> tuple[str, str]:
        """Return the position, one of B, I, E, S and O, and the type of the entity."""
        if tag in OUTSIDE_TAGS:
            return "O", ""
        match = self.pattern.fullmatch(tag)
        if match is None:
            return "S", tag
        if self.pattern is _INSIDE:
            return "I", tag
        return _POSITIONS[match["position"]], match.groupdict().get("type", _ONLY_TYPE)


def find_scheme(tags: Iterable[str]) -> TagScheme | None:
    """Return the scheme of the tags of a data set, or `None` if the tags mark no entities.

    Example:

    >>> find_scheme(["-", "PER_B", "PER_I"]).split("PER_I")
    ('I', 'PER')
    >>> find_scheme(["O", "PER"]).split("PER")
    ('I', 'PER')
    >>> find_scheme(["NOUN", "VERB"])
    """
    distinct = set(tags)
    entity_tags = distinct.difference(OUTSIDE_TAGS)
    if not entity_tags:
        return None
    has_outside = entity_tags != distinct
    for pattern in (_USUAL, *_OTHERS):
        positions = _positions(pattern, entity_tags)
        fits_all = len(positions) == len(entity_tags)
        if fits_all and (has_outside or {"B", "I"} & set(positions)):
            return TagScheme(pattern)
    if any(tag.startswith(("B-", "I-")) for tag in entity_tags):
        return TagScheme(_USUAL)  # the other tags are entities of one word
    if OUTSIDE_TAGS[0] in distinct and all(map(_INSIDE.fullmatch, entity_tags)):
        return TagScheme(_INSIDE)
    return None


def unknown_tags(tags: Iterable[str]) -> set[str]:
    """Return the tags of a data set that mean that the tag of a word is not known.

    That is -100, as in Hugging Face's data, and "-", as in spaCy's, unless "-" is the tag of words
    outside of entities.

    Example:

    >>> sorted(unknown_tags(["O", "-", "-100", "B-PER"])), unknown_tags(["-", "PER_B"])
    (['-', '-100'], set())
    """
    distinct = set(tags)
    unknown = distinct & {"-100"}
    known = distinct - unknown
    if "-" in known and len(known) > 1 and ("O" in known or find_scheme(known) is None):
        unknown.add("-")
    return unknown


def _positions(pattern, tags):
    """Return the letters of the tags that a pattern matches."""
    matches = map(pattern.fullmatch, tags)
    return [match["position"] for match in matches if match is not None]


def entities(tags: Iterable[str], scheme: TagScheme) -> set[tuple[str, int, int]]:
    """Return the entities of a sentence, a set of (type, first word, end).

    As in CoNLL's script, an inside tag after an outside tag or after another type starts an entity.
    """
    spans = set()
    start = 0
    last_position = "O"
    last_type = ""
    # The outside tag at the end completes the last entity.
    split_tags = [*map(scheme.split, tags), ("O", "")]
    for index, (position, type) in enumerate(split_tags):
        continues = position in "IE" and last_position in "BI" and type == last_type
        if not continues:
            if last_position != "O":
                spans.add((last_type, start, index))
            start = index
        last_position = position
        last_type = type
    return spans
