"""The limits of the fuzzer."""

import subprocess
import sys

import pytest

from tests.security import fuzz

PROGRAM = """
import json, resource, time
resource.setrlimit(resource.RLIMIT_CPU, (1, resource.getrlimit(resource.RLIMIT_CPU)[1]))
print(json.dumps({"started": 7}), flush=True)
%s
print(json.dumps({"outcome": "refused", "problem": None}), flush=True)
"""


@pytest.mark.parametrize(
    ("code", "hang_seconds", "problem"),
    [
        ("time.sleep(1)", 60, None),
        ("while True: pass", 60, "seconds of CPU time"),
        ("time.sleep(60)", 0.5, "no answer"),
    ],
)
def test_slow_readers_are_found(monkeypatch, code, hang_seconds, problem):
    monkeypatch.setattr(fuzz, "_HANG_SECONDS", hang_seconds)
    findings = []
    command = [sys.executable, "-c", PROGRAM % code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as process:
        fuzz._follow(process, 7, {}, findings, float("inf"))
        process.kill()
    assert [number for number, _ in findings] == [7] * (problem is not None)
    assert all(problem in text for _, text in findings)
