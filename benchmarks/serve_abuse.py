"""Question: does the local server survive hostile requests, with constant memory?

32 clients send short texts as in serve_load.py. One in four requests is hostile: broken
JSON, deep nesting, wrong types and names, too many rows, bodies and texts over the limits, bytes
that are not HTTP, clients that disconnect. The script prints the number of answers by status. There
should be no 5xx, and an answer to every good request.

The script prints the resident memory while they run.

    python benchmarks/serve_abuse.py                  # 10 minutes
"""

import argparse
import asyncio
import collections
import json
import os
import pathlib
import random
import re
import statistics
import tempfile
import time

from serve_load import MIB, export, resident, serve, texts

PREDICT = "/v1/models/model:predict"
HOSTILE = [
    lambda r: post(b'{"instances": ["x"'),
    lambda r: post(b"[" * 500_000),
    lambda r: post(b'{"instances": ' + b"[" * 60 + b"]" * 60 + b"}"),
    lambda r: post(json.dumps({"instances": [1, None, {"a": []}]}).encode()),
    lambda r: post(json.dumps({"instances": [""] * 60_000}).encode()),
    lambda r: post(json.dumps({"instances": ["x" * 100_000]}).encode()),
    lambda r: post(json.dumps({"signature_name": "\x1b[2J" * 1000, "instances": ["a"]}).encode()),
    lambda r: post(json.dumps({"instances": [{"b64": "!"}]}).encode()),
    lambda r: post(b'{"instances": ["\xff\xfe\x00"]}'),
    lambda r: post(b'{"inputs": {"text": [' + b"9" * 100_000 + b"]}}"),
    lambda r: post(b"x" * 2_000_000),
    lambda r: post(b"{}", path="/v1/models/" + "a" * 5000 + ":predict"),
    lambda r: post(b"{}", path="/v1/models/model/versions/" + "9" * 3000 + ":predict"),
    lambda r: post(b"{}", host=b"elsewhere.example//localhost"),
    lambda r: post(b"{}", more=b"origin: null\r\n"),
    lambda r: post(b"{}", more=b"sec-fetch-site: cross-site\r\n"),
    lambda r: post(b"{}", more=b"x: " + b"y" * 70_000 + b"\r\n"),
    lambda r: r.randbytes(200) + b"\r\n\r\n",
    lambda r: post(b'{"instances": ["a text"]}')[: r.randint(1, 80)],  # the client disconnects
]


def post(body, path=PREDICT, host=b"localhost", more=b""):
    head = f"POST {path} HTTP/1.1\r\ncontent-length: {len(body)}\r\n".encode()
    return head + b"host: " + host + b"\r\n" + more + b"\r\n" + body


async def ask(port, request, is_whole=True):
    """Send a request on a new connection. Return the status, or `None` without an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        if not is_whole:
            return None
        line = await asyncio.wait_for(reader.readline(), 60)
        found = re.match(rb"HTTP/1.1 (\d+)", line)
        return int(found[1]) if found else None
    except ConnectionError:
        return None
    finally:
        writer.close()


async def client(port, end, number, statuses, latencies):
    generator = random.Random(number)
    words = texts(1000)
    while time.monotonic() < end:
        if generator.random() < 0.25:
            kind = generator.randrange(len(HOSTILE))
            request = HOSTILE[kind](generator)
            statuses["hostile", await ask(port, request, kind < len(HOSTILE) - 1)] += 1
        else:
            start = time.perf_counter()
            body = json.dumps({"instances": [generator.choice(words)]}).encode()
            statuses["good", await ask(port, post(body))] += 1
            latencies.append(time.perf_counter() - start)


async def abuse(process, port, clients, minutes):
    """Return counts of (kind, status), latencies of good requests, and memory after each tenth."""
    statuses, latencies, memory = collections.Counter(), [], []
    end = time.monotonic() + 60 * minutes
    work = [client(port, end, number, statuses, latencies) for number in range(clients)]

    async def watch():
        while time.monotonic() < end:
            await asyncio.sleep(60 * minutes / 10)
            memory.append(resident(process))

    await asyncio.gather(watch(), *work)
    return statuses, latencies, memory


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--minutes", type=float, default=10)
    args = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with tempfile.TemporaryDirectory() as folder:
        export(pathlib.Path(folder, "model"))
        process, port = serve(pathlib.Path(folder, "model"))
        try:
            asyncio.run(abuse(process, port, args.clients, args.minutes / 20))  # warm
            found = asyncio.run(abuse(process, port, args.clients, args.minutes))
            statuses, latencies, memory = found
            alive = process.poll() is None
        finally:
            process.terminate()
            process.wait()
    for (kind, status), count in sorted(statuses.items(), key=str):
        print(f"{kind:8} {status or 'no answer':>9}: {count}")
    print(f"good: median {1000 * statistics.median(latencies):.0f} ms; alive: {alive}")
    print("resident MiB:", *(f"{size / MIB:.0f}" for size in memory))


if __name__ == "__main__":
    main()
