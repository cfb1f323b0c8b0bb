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
        return _POSITIONS[match["position"]], match.groupdict().get("type", _ONLY_TYPE)


def find_scheme(tags: Iterable[str]) -> TagScheme | None:
    """Return the scheme of the tags of a data set, or `None` if the tags mark no entities.

    Example:

    >>> find_scheme(["-", "PER_B", "PER_I"]).split("PER_I")
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
    return None


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
