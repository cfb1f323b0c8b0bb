"""Question: how many short texts per second does the local server answer, for 1 and 32 clients?

MiniLM with a classifier head is exported and served by `keras-bert serve`, in a separate process.
Each client keeps one connection and sends a text after the answer to its previous text, in
TensorFlow Serving's row format. The texts have three to eight words. Runs with one client and with
32 alternate, and the ratio is the median of the rounds. Then 32 clients send 10,000 requests, and
the script prints the server's resident memory after each 1,000. Clients and server run on the same
machine.

    python benchmarks/serve_load.py
"""

import argparse
import asyncio
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

WORDS = "this film was good bad so very long short and i liked it not the music story end"
MIB = 2**20


def texts(count):
    generator, words = random.Random(0), WORDS.split()
    return [" ".join(generator.choices(words, k=generator.randint(3, 8))) for _ in range(count)]


def export(folder):
    import keras_bert

    encoder = keras_bert.load("minilm")
    keras_bert.export(keras_bert.heads.classifier(encoder, labels=["bad", "good"]), folder)


def serve(folder):
    """Start the server.

    Returns:
        The process and its port.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "keras_bert", "serve", str(folder), "--trusted", "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    for line in process.stdout:
        if found := re.search(r"http://127\.0\.0\.1:(\d+) ", line):
            return process, int(found[1])
    sys.exit(f"the server ended with {process.wait()}")


async def client(port, todo, latencies, errors):
    """Send texts from `todo` until it is empty."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while todo:
        body = json.dumps({"instances": [todo.pop()]}).encode()
        start = time.perf_counter()
        writer.write(
            b"POST /v1/models/model:predict HTTP/1.1\r\nhost: localhost\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(body), body)
        )
        head = await reader.readuntil(b"\r\n\r\n")
        answer = await reader.readexactly(int(re.search(rb"content-length: (\d+)", head)[1]))
        latencies.append(time.perf_counter() - start)
        if b" 200 " not in head.partition(b"\r\n")[0] or b"probabilities" not in answer:
            errors.append(answer)
    writer.close()


async def load(port, clients, count):
    """Return requests per second, latencies and errors of `count` requests."""
    todo, latencies, errors = texts(count), [], []
    start = time.perf_counter()
    await asyncio.gather(*(client(port, todo, latencies, errors) for _ in range(clients)))
    return count / (time.perf_counter() - start), latencies, errors


def resident(process):
    """Return the resident memory of a process in bytes."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--requests", type=int, default=10_000, help="requests of the run that measures memory"
    )
    args = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with tempfile.TemporaryDirectory() as folder:
        export(pathlib.Path(folder, "model"))
        process, port = serve(pathlib.Path(folder, "model"))
        try:
            errors, ratios = [], []
            asyncio.run(load(port, args.clients, 500))  # warm
            for turn in range(args.rounds):
                rates = {}
                for clients, count in ((1, 300), (args.clients, 2000)):
                    rates[clients], latencies, wrong = asyncio.run(load(port, clients, count))
                    errors += wrong
                    print(
                        f"round {turn + 1}, {clients} clients: {rates[clients]:.0f} requests/s, "
                        f"median {1000 * statistics.median(latencies):.1f} ms, "
                        f"slowest {1000 * max(latencies):.0f} ms",
                        flush=True,
                    )
                ratios.append(rates[args.clients] / rates[1])
            memory = [resident(process)]
            step = min(1000, args.requests)
            for _ in range(args.requests // step):
                errors += asyncio.run(load(port, args.clients, step))[2]
                memory.append(resident(process))
        finally:
            process.terminate()
            process.wait()
    print(f"{args.clients} clients: {statistics.median(ratios):.2f}x one; {len(errors)} errors")
    print("resident MiB after each", step, "requests:", *(f"{size / MIB:.0f}" for size in memory))


if __name__ == "__main__":
    main()
