"""Download single files over HTTP."""

import pathlib
import shutil
import socket
import sys
import urllib.parse
import urllib.request

from keras_bert.runtime.escaping import printable
from keras_bert.runtime.files import atomic_write, remove_stale_temporaries, sha256_of

_CONNECTION_TIMEOUT = 2.0  # seconds
_TIMEOUT = 10.0  # seconds to wait for each block
_PORTS = {"http": 80, "https": 443}  # other schemes are those of SOCKS proxies
_BLOCK_BYTES = 2**20


def fetch(url, path, *, sha256=None):
    """Download a file. It gets its name only when it is complete and has the right hash.

    An existing file is not downloaded again, and a redirect from https to http is refused. Two
    processes must not fetch the same path at once; see `cache.locked`. Raise `ValueError` for a
    wrong hash, and `OSError` if the server cannot be reached or refuses.
    """
    path = pathlib.Path(path)
    if path.is_file():
        check_sha256(path, sha256, path, "delete it to download it again")
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_stale_temporaries(path)
    with atomic_write(path, durable=True) as temporary:
        _download(url, temporary)
        check_sha256(temporary, sha256, public_address(url), "check the address or try again")
    return path


def is_offline():
    """Return True if HF_HUB_OFFLINE forbids downloads."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def ask(url, request):
    """Return `request()`. Raise `OSError` if its server accepts no connection in two seconds.

    Libraries have one timeout for the connection and the answer, which is much longer.
    """
    parts = urllib.parse.urlsplit(url)
    if not urllib.request.proxy_bypass(parts.hostname):
        proxies = urllib.request.getproxies()
        proxy = proxies.get(parts.scheme) or proxies.get("all") or url  # "all" is ALL_PROXY
        parts = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    server = (parts.hostname, parts.port or _PORTS.get(parts.scheme, 1080))
    try:
        socket.create_connection(server, _CONNECTION_TIMEOUT).close()
    except TimeoutError as error:
        seconds = f"{_CONNECTION_TIMEOUT:g} seconds"
        raise OSError(f"{public_address(url)} does not answer within {seconds}") from error
    except OSError:
        pass  # the request reports it
    return request()


def public_address(url):
    """Return an address without its user, password and query, which may be secret."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def check_sha256(file, expected, shown, remedy):
    """Raise `ValueError` if the hash of a file is not `expected`, unless that is `None`."""
    if expected is None:
        return
    actual = sha256_of(file)
    if actual != expected:
        raise ValueError(f"{shown} must have the SHA-256 {expected}; received {actual}; {remedy}")


def _download(url, file):
    import pooch
    import requests

    shown = public_address(url)
    outer = sys.exception()  # an exception that the caller handles
    responses = []

    def on_response(response, **_):
        responses.append(response)
        _check_response(shown, file.parent, response)

    downloader = pooch.HTTPDownloader(
        progressbar=sys.stderr.isatty(),
        chunk_size=_BLOCK_BYTES,
        timeout=(_CONNECTION_TIMEOUT, _TIMEOUT),
        headers={"User-Agent": "keras_bert", "Accept-Encoding": "identity"},
        hooks={"response": on_response},
    )
    try:
        downloader(url, str(file), None)
    except requests.RequestException as error:
        # The messages of requests may contain secrets of the address, so use the original cause.
        cause: BaseException = error
        while cause.__context__ not in (None, outer):
            cause = cause.__context__
        reason = getattr(cause, "strerror", None) or type(cause).__name__
        reason = f"{reason}. Check the network and try again"
        raise OSError(f"{shown} could not be downloaded: {reason}") from error
    finally:
        for response in responses:
            response.close()  # pooch leaves it open after an error


def _check_response(shown, folder, response):
    """Raise OSError unless a response is a safe redirect or a file of known size that fits."""
    if response.is_redirect:
        target = urllib.parse.urljoin(response.url, response.headers["Location"])
        allowed = ("https",) if response.url.startswith("https:") else ("https", "http")
        if urllib.parse.urlsplit(target).scheme not in allowed:
            rule = f"the scheme must be {' or '.join(allowed)}"
            raise OSError(f"{shown} redirects to {public_address(target)}; {rule}")
        return
    if response.status_code != 200:
        answer = printable(f"{response.status_code} {response.reason}", 200)
        raise OSError(f"{shown}: the server answers {answer}")
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise OSError(f"{shown}: the server must send the file uncompressed")
    size = response.raw.length_remaining
    free = shutil.disk_usage(folder).free
    if size is None:  # a cut connection would look like the end of the file
        raise OSError(f"{shown}: the server must send the length of the file")
    if size > free:
        raise OSError(f"{folder} needs {size} free bytes for {shown}; it has {free}")
