"""The processes of `accelerator.py` read requests and write answers, each a line of JSON."""

import json
import os
import sys
import time


def serve(jobs, peak_memory):
    """Do what the requests on stdin ask for, until stdin ends.

    The first request names a job of `jobs`, a dict of classes, and its options. Its answer has
    `seconds`, the time to make the job, and the job's `facts`, a dict. Each further request has
    the arguments of the job's `run`, whose answer is a dict too. All answers get the peak memory
    of the device in bytes, the result of `peak_memory`.
    """
    # Libraries print to stdout. Only answers may appear there.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def answer(**values):
        print(json.dumps(values | {"memory": peak_memory()}), file=answers, flush=True)

    first = json.loads(sys.stdin.readline())
    start = time.perf_counter()
    job = jobs[first["job"]](**first["options"])
    answer(seconds=time.perf_counter() - start, **job.facts)
    for line in sys.stdin:
        answer(**job.run(**json.loads(line)))
