"""Files from the web and out of zip archives, none of them trusted: `fetch` and `unpack`.

What is not whole has another name than what is, so a killed download never looks complete; and
what an archive says about itself is checked before anything of it is written.
"""

import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import re
import shutil
import stat
import unicodedata
import urllib.error
import urllib.parse
import urllib.request
import zipfile
import zlib

from keras_bert.runtime.terminal import progress, waiting

_TIMEOUT = 10.0  # seconds in which a server must say something
_ATTEMPTS = 3  # connections in a row that may bring nothing new
_BLOCK = 2**20
_MOST_ENTRIES = 10_000
_MOST_GROWTH = 100  # times its size that an archive may unpack to; weights hardly shrink
_ALWAYS_FINE = 2**20  # bytes that any archive may unpack to
# What zipfile raises over a broken archive, and over a method of packing it does not know.
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OverflowError)


@contextlib.contextmanager
def locked(path):
    """Holds a lock that one process has at a time; who comes later waits.

    It ends with the process, however that ends. Its file stays: to remove it would let two
    processes hold the lock.

    Args:
        path: file of the lock; its folder is made.

    Raises:
        OSError: the file cannot be written.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, locked(folder + "/one.lock"):
    ...     os.listdir(folder)
    ['one.lock']
    """
    import filelock

    path = pathlib.Path(path)
    lock = filelock.FileLock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(blocking=False)
        except filelock.Timeout:
            with waiting(f"Waiting for another process, which holds {path}"):
                lock.acquire()
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OSError(f"{path.parent} must be a folder that can be written: {reason}") from error
    try:
        yield
    finally:
        lock.release()


def digest(file):
    """The SHA-256 of a file.

    Args:
        file: its path.

    Returns:
        64 hexadecimal digits.

    Raises:
        OSError: it cannot be read.

    Example:

    >>> digest(os.devnull)[:8]
    'e3b0c442'
    """
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def fetch(url, path, *, sha256=None):
    """Downloads a file; it appears under its name when it is whole and has the right hash.

    What came before the connection was cut, or the process killed, is kept beside it, and the
    next call goes on from there if the server still has the same file. Two processes must not
    fetch to one path at once: see `locked`.

    Args:
        url: an http or https address; https stays https when it is redirected.
        path: where to; its folder is made. A file that is there is not downloaded again.
        sha256: hash that the file must have.

    Returns:
        `path`, as a `pathlib.Path`.

    Raises:
        ValueError: another kind of address, or the file has another hash.
        OSError: the server cannot be reached or does not give the file, or the disk is full.

    Example:

    >>> fetch("ftp://example.org/bert.zip", "bert.zip")
    Traceback (most recent call last):
    ...
    ValueError: ftp://example.org/bert.zip must be an http or https address
    """
    path = pathlib.Path(path)
    shown = shown_address(url)
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"{shown} must be an http or https address")
    part, note = (path.with_name(path.name + ending) for ending in (".part", ".part.json"))
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with progress("MB") as bar:
            task = bar.add_task(f"Downloading {path.name}", total=None)

            def on_bytes(done, total):
                bar.update(task, completed=done / 1e6, total=total / 1e6)

            _fetch_part(url, shown, part, note, sha256, on_bytes)
        found = digest(part) if sha256 else None
        note.unlink(missing_ok=True)
        if found != sha256:
            part.unlink()  # to go on from wrong bytes would be wrong for ever
            raise ValueError(f"{shown} must have the SHA-256 {sha256}; received {found}")
        os.replace(part, path)
    elif sha256 and (found := digest(path)) != sha256:
        raise ValueError(f"{path} must have the SHA-256 {sha256}; received {found}")
    return path


def shown_address(url):
    """An address without what may be secret in it: user, password, query.

    Args:
        url: the address.

    Returns:
        A string.

    Example:

    >>> shown_address("https://me:mine@example.org/bert.zip?key=1")
    'https://example.org/bert.zip'
    """
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


class _Cut(Exception):
    """The connection ended before the file did."""


def _fetch_part(url, shown, part, note, sha256, on_bytes):
    """Fills `part`, over as many connections as bring something new."""
    best, fruitless = _size(part), 0
    while True:
        try:
            return _connect(url, shown, part, note, sha256, on_bytes)
        except _Cut as error:
            size = _size(part)
            fruitless = 0 if size > best else fruitless + 1
            best = max(best, size)
            if fruitless == _ATTEMPTS:
                raise OSError(
                    f"{shown}: {error}; another call goes on after {size} bytes"
                ) from error


def _connect(url, shown, part, note, sha256, on_bytes):
    """One connection: all that `part` lacks, or `_Cut`."""
    request = urllib.request.Request(
        url, headers={"User-Agent": "keras_bert", "Accept-Encoding": "identity"}
    )
    start, validator = _size(part), _read_note(note, url)
    if start and validator:
        request.add_header("Range", f"bytes={start}-")
        # Without it, the end of a new file would be put after the beginning of an old one.
        request.add_header("If-Range", validator)
    try:
        response = urllib.request.build_opener(_Redirects).open(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and start:
            if sha256 and error.headers.get("Content-Range") == f"bytes */{start}":
                return  # it is whole, if the hash says so
            part.unlink()
            raise _Cut("the server has a shorter file now") from error
        raise OSError(f"{shown}: the server answers {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        reason = getattr(reason, "strerror", None) or reason
        raise OSError(f"{shown} cannot be reached: {reason}") from error
    with response:
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise OSError(f"{shown}: the server must send the file as it is, not compressed")
        if response.status == http.HTTPStatus.PARTIAL_CONTENT:
            span = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
            if span is None or not 0 < start == int(span[1]):
                part.unlink(missing_ok=True)
                raise _Cut("the server sent another part than the one asked for")
            total = int(span[2])
        elif response.status == http.HTTPStatus.OK:
            start, total = 0, response.length
            if total is None:  # it could end too early, or never
                raise OSError(f"{shown}: the server must say how long the file is")
        else:
            raise OSError(f"{shown}: the server answers {response.status}")
        free = shutil.disk_usage(part.parent).free
        if total - start > free:
            raise OSError(
                f"{part.parent} must have room for {total - start} bytes more; it has {free}"
            )
        if not start:
            _write_note(part, note, url, response.headers)
        _copy(response, part, start, total, on_bytes)
    size = _size(part)
    if size > total:
        part.unlink()
        raise _Cut("the server sent more than it said")
    if size < total:
        raise _Cut(f"the connection ended after {size} of {total} bytes")


def _copy(response, part, start, total, on_bytes):
    """Appends what comes to `part`; what came is kept whatever happens."""
    done = start
    try:
        with open(part, "ab" if start else "wb") as file:
            while True:
                on_bytes(done, total)
                try:
                    block = response.read1(_BLOCK)
                except (OSError, http.client.HTTPException) as error:
                    raise _Cut("the connection was cut") from error
                if not block:
                    break
                file.write(block)
                done += len(block)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OSError(f"{part} could not be written: {error.strerror or error}") from error


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to the web only, and never from https to what anyone can change."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        allowed = ("https:",) if req.full_url.startswith("https:") else ("https:", "http:")
        if not newurl.lower().startswith(allowed):
            fp.close()
            raise OSError(f"it is redirected to {shown_address(newurl)}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _size(file):
    return file.stat().st_size if file.is_file() else 0


def _read_note(note, url):
    """What tells whether the server still has the file that `part` is the beginning of."""
    try:
        noted = json.loads(note.read_text(encoding="utf-8"))
        return noted["validator"] if noted["url"] == url else None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # then it is downloaded from the beginning


def _write_note(part, note, url, headers):
    etag = headers.get("ETag", "")
    # A weak ETag stands for files that may differ in bytes; If-Range does not take it.
    validator = headers.get("Last-Modified") if etag.startswith("W/") else etag
    validator = validator or headers.get("Last-Modified")
    try:
        part.unlink(missing_ok=True)  # first: a note must not be about an older beginning
        note.write_text(json.dumps({"url": url, "validator": validator}), encoding="utf-8")
    except OSError as error:
        raise OSError(f"{note} could not be written: {error.strerror or error}") from error


def unpack(archive, folder):
    """Unpacks a zip archive that may be hostile; all of it, or nothing.

    Refused are names that lead out of the folder or mean another file elsewhere, two entries of
    one name, links and other things that are no files, encrypted entries, more than 10,000
    entries, and archives that grow a hundredfold; entries are held to the size they say.

    Args:
        archive: the archive.
        folder: a folder that is not there yet.

    Raises:
        ValueError: no archive, a broken one, or one that is refused.
        OSError: it cannot be read or unpacked: no room, no permission.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with zipfile.ZipFile(folder + "/a.zip", "w") as archive:
    ...         archive.writestr("../vocab.txt", "[PAD]")
    ...     try:
    ...         unpack(folder + "/a.zip", folder + "/a")
    ...     except ValueError as error:
    ...         print(str(error).rpartition("a.zip")[2])
    : entries must stay in the folder; received '../vocab.txt'
    """
    archive, folder = pathlib.Path(archive), pathlib.Path(folder)
    try:
        zipped = zipfile.ZipFile(archive)
    except (*_BROKEN, OSError) as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        raise _broken(archive, error) from error  # places that lie before the file, say
    with zipped:
        entries = zipped.infolist()
        _check_entries(archive, entries)
        try:
            folder.mkdir(parents=True)
            try:
                needed, free = sum(e.file_size for e in entries), shutil.disk_usage(folder).free
                if needed > free:
                    raise OSError(f"it takes {needed} bytes, and there are {free}")
                for entry in entries:
                    _unpack_entry(archive, zipped, entry, folder / entry.filename)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        except OSError as error:
            reason = error.strerror or error
            raise OSError(f"{archive} could not be unpacked into {folder}: {reason}") from error


def _unpack_entry(archive, zipped, entry, target):
    if entry.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with open(target, "xb") as file:
        try:
            with zipped.open(entry) as packed:
                while block := packed.read(_BLOCK):
                    written += len(block)
                    if written > entry.file_size:
                        break
                    file.write(block)
        except _BROKEN as error:
            raise _broken(archive, error) from error
    if written != entry.file_size:
        raise ValueError(
            f"{archive}: {entry.filename!r} must have the {entry.file_size} bytes it says; "
            f"received {'more' if written > entry.file_size else written}"
        )


def _check_entries(archive, entries):
    """Raises ValueError unless an archive may be unpacked, by what its directory says."""

    def refuse(rule, received):
        raise ValueError(f"{archive}: {rule}; received {received}")

    if len(entries) > _MOST_ENTRIES:
        refuse(f"an archive must have at most {_MOST_ENTRIES} entries", len(entries))
    files: set[str] = set()
    folders: set[str] = set()
    for entry in entries:
        if len(folders) > _MOST_ENTRIES:  # a name may be of many folders
            refuse(
                f"an archive must have at most {_MOST_ENTRIES} folders", f"{len(folders)} or more"
            )
        name = entry.filename
        # Also as it is written there: zipfile cuts a name at the first zero byte.
        if not all(_stays_inside(n) for n in (name, entry.orig_filename)):
            refuse("entries must stay in the folder", repr(entry.orig_filename))
        # Without the flag (bit 11) other characters are in an encoding nobody knows.
        if not name.isascii() and not entry.flag_bits & 0x800:
            refuse("names must be in UTF-8", repr(name))
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            refuse("entries must be files or folders", f"a link or device, {name!r}")
        if entry.flag_bits & 1:
            refuse("entries must not be encrypted", repr(name))
        # As a disk that knows no case would have it.
        parts = unicodedata.normalize("NFC", name).casefold().rstrip("/").split("/")
        key = "/".join(parts)
        folders |= {"/".join(parts[:end]) for end in range(1, len(parts))}
        if entry.is_dir():
            folders.add(key)
        elif key in files:
            refuse("entries must have names of their own", f"{name!r} twice")
        else:
            files.add(key)
    if both := files & folders:
        refuse("entries must have names of their own", f"{min(both)!r} as file and as folder")
    total, size = sum(entry.file_size for entry in entries), archive.stat().st_size
    # What is packed is summed as well: entries that overlap share their bytes.
    if total > max(_MOST_GROWTH * size, _ALWAYS_FINE) or size < sum(
        entry.compress_size for entry in entries
    ):
        refuse(f"an archive must unpack to less than {_MOST_GROWTH} times its size", total)


def _stays_inside(name):
    # "\\" and ":" are separators and drives elsewhere; there, "a." and "a " are "a" as well.
    parts = name.removesuffix("/").split("/")
    return (
        not re.search(r'[\x00-\x1f\x7f\\:*?"<>|]', name)
        and all(part and part == part.rstrip(". ") for part in parts)
        and len(os.fsencode(name)) < 1024
    )


def _broken(archive, error):
    reason = " ".join(str(error).split()) or type(error).__name__
    return ValueError(f"{archive} must be a whole zip archive: {reason}")
