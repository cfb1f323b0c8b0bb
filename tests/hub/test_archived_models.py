"""Models in zip archives: Google's, local ones and those at an address."""

import hashlib
import shutil

import pytest

from keras_bert import checkpoints
from keras_bert.hub import cache, download, hub_source, resolve
from tests.hub.model_files import (
    ARCHIVE,
    FILES,
    STEM,
    add_source,
    cached_files,
    make_zip,
    no_hub,
    write_files,
)


@pytest.mark.parametrize("inner", ["", f"{STEM}/"])
def test_archive_of_google_with_and_without_an_inner_folder(web, monkeypatch, inner):
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in ARCHIVE.items()}
    add_source(monkeypatch, archive_sha256=hashes)
    make_zip(web.google / f"{STEM}.zip", ARCHIVE, inner)
    folder = resolve.find("some")
    assert folder == cache.cache_folder() / "some" / "google" / STEM
    assert {name: (folder / name).read_bytes() for name in ARCHIVE} == ARCHIVE
    assert checkpoints.detect(folder) == "google"
    assert cached_files(folder.parent) == sorted(
        f"{STEM}/{name}" for name in [*ARCHIVE, "checked.txt"]
    )
    assert resolve.find("some") == folder
    assert len(web.asked) == 1


def test_wrong_archive_is_not_cached(web, monkeypatch):
    add_source(monkeypatch, archive_sha256={"vocab.txt": "0" * 64})
    make_zip(web.google / f"{STEM}.zip", ARCHIVE)
    with pytest.raises(ValueError, match=r"zip/vocab\.txt must have the SHA-256 000.*; received"):
        resolve.find("some")
    assert cached_files(cache.cache_folder()) == []


def test_archive_without_an_expected_file_is_an_error(web, monkeypatch):
    add_source(monkeypatch, archive_sha256={"vocab.txt": "0" * 64})
    make_zip(web.google / f"{STEM}.zip", {"bert_config.json": b"{}"})
    with pytest.raises(OSError, match=r"zip/vocab\.txt is missing"):
        resolve.find("some")


def test_archive_by_the_user_comes_first(web, monkeypatch, tmp_path):
    add_source(monkeypatch)
    monkeypatch.setattr(hub_source, "snapshot", None)
    monkeypatch.setattr(download, "is_offline", lambda: True)
    file = make_zip(cache.cache_folder() / "some" / "google" / f"{STEM}.zip", ARCHIVE)
    assert checkpoints.detect(resolve.find("some")) == "google"
    shutil.rmtree(file.with_suffix(""))
    make_zip(file, {"vocab.txt": b"of another model"})
    monkeypatch.setattr(hub_source, "snapshot", no_hub)
    with pytest.raises(ValueError, match=r"zip must have the SHA-256"):
        resolve.find("some")
    assert file.is_file()  # only the user deletes it
    shutil.rmtree(cache.cache_folder())
    write_files(cache.cache_folder() / "some" / "main", FILES)
    assert checkpoints.detect(resolve.find("some")) == "huggingface"


@pytest.mark.parametrize(
    ("inner", "found"), [("", "my bert"), (f"{STEM}/", STEM), (f"a/b/{STEM}/", STEM)]
)
def test_local_archive(web, tmp_path, inner, found):
    entries = {"__MACOSX/._bert_config.json": b"", **{inner + k: v for k, v in ARCHIVE.items()}}
    path = make_zip(tmp_path / "my bert.zip", entries)
    folder = resolve.find(path)
    assert folder.name == found
    assert cache.cache_folder() in folder.parents
    assert {name: (folder / name).read_bytes() for name in ARCHIVE} == ARCHIVE
    assert checkpoints.detect(folder) == "google"
    assert path.is_file()
    marker = folder / "vocab.txt"
    before = marker.stat().st_ino
    assert resolve.find(path) == folder
    assert marker.stat().st_ino == before  # unpacked once
    marker.write_bytes(b"swapped")
    with pytest.raises(ValueError, match=r"vocab\.txt must have the SHA-256"):
        resolve.find(path)
    make_zip(path, {**entries, "more": b""})
    assert (resolve.find(path) / "vocab.txt").read_bytes() == ARCHIVE["vocab.txt"]


def test_the_name_of_an_archive_does_not_select_another_folder(web, tmp_path):
    path = make_zip(tmp_path / "...zip", ARCHIVE)  # without its suffix, the name is ".."
    folder = resolve.find(path)
    assert (folder / "vocab.txt").read_bytes() == ARCHIVE["vocab.txt"]
    assert folder.parent.parent == cache.cache_folder() / "archives"


def test_topmost_model_of_an_archive_is_used(web, tmp_path):
    entries = {**FILES, "1_Pooling/config.json": b"{}"}
    folder = resolve.find(make_zip(tmp_path / "a.zip", entries, "some/"))
    assert folder.name == "some"


def test_local_archive_needs_one_model(web, tmp_path):
    path = make_zip(tmp_path / "a.zip", {"a/model.keras": b"", "b/model.keras": b""})
    with pytest.raises(ValueError, match=r"a\.zip must hold one model; received a, b"):
        resolve.find(path)
    path = make_zip(tmp_path / "b.zip", {"read.me": b""})
    with pytest.raises(ValueError, match="no checkpoint"):
        checkpoints.detect(resolve.find(path))


def test_refused_archive_leaves_no_file(web, tmp_path):
    path = make_zip(tmp_path / "a.zip", {**ARCHIVE, "../x": b""})
    with pytest.raises(ValueError, match="must stay inside the folder"):
        resolve.find(path)
    write_files(web.folder / "example.org", {"a.zip": path.read_bytes()})
    with pytest.raises(ValueError, match="must stay inside the folder"):
        resolve.find("https://example.org/a.zip")
    assert cached_files(cache.cache_folder()) == []


def test_other_local_files_are_refused(web, tmp_path):
    write_files(tmp_path, {"a.zip": b"not an archive", "a.txt": b""})
    with pytest.raises(ValueError, match=r"a\.zip: must be a complete zip archive"):
        resolve.find(tmp_path / "a.zip")
    assert cached_files(cache.cache_folder()) == []
    with pytest.raises(ValueError, match=r"a\.txt must be a folder or a \.keras file, or a \.zip"):
        resolve.find(tmp_path / "a.txt")


def test_address_of_an_archive(web):
    make_zip(web.folder / "example.org" / "x" / "cased_mine.zip", ARCHIVE, "cased_mine/")
    folder = resolve.find("https://example.org/x/cased_mine.zip")
    assert folder.name == "cased_mine"
    assert checkpoints.detect(folder) == "google"
    assert resolve.find("https://example.org/x/cased_mine.zip") == folder
    assert len(web.asked) == 1
    with pytest.raises(OSError, match=r"cannot be reached\. Without a network, put .*/b\.zip$"):
        resolve.find("https://example.org/x/b.zip")


@pytest.mark.parametrize("address", ["http://example.org/a.zip", "https://example.org/a.tar.gz"])
def test_other_addresses_are_refused(web, address):
    with pytest.raises(ValueError, match=r"must be the https address of a \.zip"):
        resolve.find(address)
    assert web.asked == []
