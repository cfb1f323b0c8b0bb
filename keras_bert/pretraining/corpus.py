"""The documents of a corpus: files of any size and several formats."""

import collections
import fnmatch
import glob
import itertools
import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from keras_bert.pretraining import corpus_formats, mediawiki_dump
from keras_bert.pretraining.corpus_formats import Document
from keras_bert.pretraining.decompression import open_decompressed
from keras_bert.runtime.escaping import printable
from keras_bert.untrusted import links

__all__ = ["Document", "check_outside", "documents", "files"]

Paths: TypeAlias = str | os.PathLike | Iterable[str | os.PathLike]

_ADVICE = ", or give the target of the link as a path of the corpus"
_HEAD = 4096  # bytes that determine the format of a file


def files(paths: Paths) -> list[pathlib.Path]:
    """Return the files of a corpus, sorted `pathlib.Path`s without duplicates.

    `paths` is as for `documents`. A path that matches nothing, a broken link and a file that cannot
    be read more than once, such as a pipe, are a `ValueError`.
    """
    file_per_target: dict[str, pathlib.Path] = {}
    for path in _as_list(paths):
        files_of_path: list[pathlib.Path] = []
        for match in [path] if os.path.exists(path) else glob.glob(path, recursive=True):
            if match != path:
                links.check_link(match, _fixed_part(path), _ADVICE)
            files_of_path += _below(pathlib.Path(match))
        if not files_of_path:
            raise ValueError(f"{path}: no such file, folder or pattern, or it contains no files")
        for file in files_of_path:
            file_per_target.setdefault(os.path.realpath(file), file)
            if not file.is_file():
                problem = "not a regular file" if file.exists() else "a broken link"
                raise ValueError(f"{file} is {problem}; use files, which can be read repeatedly")
            if printable(str(file)) != str(file):
                raise ValueError(
                    f"{os.fsencode(file)!r:.1000}: the file name must be UTF-8 without control "
                    "characters; rename it"
                )
    return sorted(file_per_target.values())


def _as_list(paths):
    """Return one path or several as a list of strings."""
    return list(map(os.fspath, [paths] if isinstance(paths, (str, os.PathLike)) else paths))


def check_outside(folder: str | os.PathLike, paths: Paths) -> None:
    """Raise a `ValueError` if an output folder is inside the corpus.

    A later call would read the output as a part of the corpus. `paths` is as for `documents`.
    """
    target = pathlib.Path(folder).resolve()
    for path in _as_list(paths):
        if os.path.exists(path):
            inside = os.path.isdir(path) and target.is_relative_to(pathlib.Path(path).resolve())
        else:
            inside = _matches(os.path.abspath(path), target)
        if inside:
            raise ValueError(f"{folder}: must not be inside the corpus, {path}; use another folder")


def _matches(pattern, folder):
    """Return True if a pattern matches a folder, a parent of it, or future files in it."""
    # In `fnmatch` "*" also matches "/". This is correct: folders are read with all subfolders.
    if fnmatch.fnmatch(str(folder), pattern):
        return True
    return "**" in pattern and any(
        fnmatch.fnmatch(str(folder / name), pattern) for name in ("a.json", "a.tfrecord", "a.txt")
    )


def _fixed_part(pattern):
    """Return the folder of a pattern, the part before the first wildcard."""
    folder = pathlib.Path(pattern)
    while glob.has_magic(str(folder)):
        folder = folder.parent
    return folder


def _below(path):
    """Yield the files in a folder and its subfolders. A link out of the folder is an error."""
    if not path.is_dir():
        yield path
        return

    def fail(error):  # by default `os.walk` ignores errors
        raise error

    seen = set()  # a link may lead back to a parent folder
    for folder, names, leaves in os.walk(path, onerror=fail, followlinks=True):
        seen.add(os.path.realpath(folder))
        names[:] = [name for name in names if not name.startswith(".")]
        leaves = [leaf for leaf in leaves if not leaf.startswith(".")]
        for name in names + leaves:
            file = os.path.join(folder, name)
            if os.path.islink(file):
                links.check_link(file, path, _ADVICE)
        names[:] = [
            name for name in names if os.path.realpath(os.path.join(folder, name)) not in seen
        ]
        for leaf in leaves:
            yield pathlib.Path(folder, leaf)


def documents(
    paths: Paths, *, counts: collections.Counter[str] | None = None
) -> Iterator[Document]:
    r"""Read the documents of a corpus.

    The content of a file determines its format: plain text (one paragraph per line, blank lines
    between documents), JSON Lines (`"text"` is a string or a list of paragraphs, and is not
    changed) or a MediaWiki XML dump (the last revision of articles, without redirects). Files may
    be compressed by gzip, bzip2, xz or zstd. The encoding is UTF-8. Documents longer than
    `corpus_formats.LONGEST` are split into parts, between paragraphs if possible.

    Args:
        paths: A path or a list of paths: files, folders (with all subfolders, without hidden
            files) and patterns such as `"wiki/**/*.bz2"`. A link in a folder must stay inside it
            or lead to the Hugging Face Hub's cache; give other files and folders as paths.
        counts: A `collections.Counter` to fill: `"files"`, `"documents"`, and the repairs:
            `"invalid_utf8"`, the lines with bytes that were replaced by U+FFFD; `"long_lines"`, the
            lines that were cut; `"long_documents"`, the documents that were split. Of a dump also
            what is left out: `"redirects"`, `"other_namespaces"`, `"other_models"` (pages that are
            not wikitext), `"empty_pages"` and `"older_revisions"`. For each kind, a key such as
            `"invalid_utf8_at"` names the file, and the line or page of the first one.

    Yields:
        `Document`s.

    Raises:
        ValueError: If a path matches nothing, a link leads out of its folder, or a file is damaged,
            truncated or not text. The message names the file, and the line or page.
        OSError: If a file cannot be read.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "a.txt")
    ...     _ = file.write_text("One.\nTwo.\n\nThree.\n")
    ...     [document.paragraphs() for document in documents(file)]
    [['One.', 'Two.'], ['Three.']]
    """
    counts = collections.Counter() if counts is None else counts
    # `files` runs at once, so that it raises its errors before the first document is read.
    return itertools.chain.from_iterable(_documents_of(file, counts) for file in files(paths))


def _documents_of(path, counts):
    for key in ("files", "documents", "invalid_utf8", "long_lines", "long_documents"):
        counts.setdefault(key, 0)
    counts["files"] += 1
    with open_decompressed(path) as file:
        head = file.read(_HEAD).lstrip()
    if corpus_formats.is_json_lines(path, head):
        found = corpus_formats.read_json_lines(path, counts)
    elif mediawiki_dump.is_xml(head):
        found = mediawiki_dump.read(path, counts)
    else:
        found = corpus_formats.read_plain(path, counts)
    for document in found:
        counts["documents"] += 1
        if document.part == 2:
            whole = document.source.removesuffix(", part 2")
            corpus_formats.count(counts, "long_documents", whole)
        yield document
