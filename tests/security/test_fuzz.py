"""The limits of the fuzzer."""

import subprocess
import sys

import pytest

from tests.security import fuzz

REPORT = """
import json, time
print(json.dumps({"started": 7}), flush=True)
%s
print(json.dumps({"outcome": "refused", "problem": None}), flush=True)
"""


@pytest.fixture
def follow(monkeypatch):
    """A function that follows a process which runs some code for a file, and returns findings."""
    monkeypatch.setattr(fuzz, "_POLL_SECONDS", 0.1)
    monkeypatch.setattr(fuzz, "SECONDS_A_FILE", 0.5)

    def run(code):
        command = [sys.executable, "-c", REPORT % code]
        findings = []
        with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as process:
            fuzz._follow(process, 7, {}, findings, float("inf"))
            process.kill()
        return findings

    return run


def test_the_limit_of_a_file_is_cpu_time(follow):
    assert follow("time.sleep(1)") == []
    [(number, problem)] = follow("while True: pass")
    assert number == 7 and "seconds of CPU time" in problem


def test_a_process_that_waits_forever_is_found(follow, monkeypatch):
    monkeypatch.setattr(fuzz, "_HANG_SECONDS", 0.5)
    [(number, problem)] = follow("time.sleep(60)")
    assert number == 7 and "no answer" in problem
