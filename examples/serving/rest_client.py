"""Send requests to TensorFlow Serving by REST, with Python's standard library only.

The server's metadata lists the inputs of the model, so this client works for every task that
`keras_bert.export` supports.

Command:   python examples/serving/rest_client.py --model support "where is my parcel"
           python examples/serving/rest_client.py --model reader "Who came?" --second "Ada came."
Time:      less than a second on 2 CPU cores, with a running server (see README.md here)
Expected:  one answer for each text, such as: label delivery, score 0.71
"""

import argparse
import contextlib
import json
import sys
import urllib.error
import urllib.parse
import urllib.request

# The possible inputs, in the order of the command line.
INPUTS = (
    ("text",),
    ("text", "text_pair"),
    ("query", "document"),
    ("question", "context"),
    ("text", "choices"),
)


def call(url, request=None, timeout=30.0):
    """Return the JSON response of a GET, or of a POST if there is a request."""
    body = None if request is None else json.dumps(request).encode()
    try:
        with urllib.request.urlopen(url, body, timeout) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        content = error.read().decode(errors="replace")
        # The body of a proxy's error may not be JSON.
        with contextlib.suppress(ValueError, KeyError, TypeError):
            content = json.loads(content)["error"]
        sys.exit(f"{error.code} {error.reason}: {content}")
    except OSError as error:
        sys.exit(f"{url}: no answer: {getattr(error, 'reason', error)}")


def input_names(model_url):
    """Return the names of the inputs of `serving_default`, in the order of the command line."""
    metadata = call(f"{model_url}/metadata")["metadata"]
    found = metadata["signature_def"]["signature_def"]["serving_default"]["inputs"]
    for names in INPUTS:
        if set(names) == set(found):
            return names
    sys.exit(f"this client does not support the inputs {', '.join(found)}")


def rows(names, texts, seconds):
    """Return the instances of a request, one for each text."""
    if len(names) == 1 and not seconds:
        return [{names[0]: text} for text in texts]
    if names[-1] == "choices":  # every text gets all choices
        seconds = [seconds] * len(texts) if seconds else []
    elif len(seconds) == 1:  # all questions have the same context
        seconds = seconds * len(texts)
    if len(names) == 1 or not seconds or len(seconds) != len(texts):
        takes = " and ".join(names)
        sys.exit(f"the model takes {takes}; received {len(texts)} texts, {len(seconds)} --second")
    return [dict(zip(names, both, strict=True)) for both in zip(texts, seconds, strict=True)]


def lines(answer):
    """Yield the lines to print for an answer. The answer of a model with one output has no name."""
    if not isinstance(answer, dict):
        answer = {"answer": answer}
    if "token" in answer:  # lists of words, padded to the longest text of the request
        for number in range(answer["count"]):
            token, tag, score = (answer[key][number] for key in ("token", "tag", "score"))
            span = f"bytes {answer['start'][number]} to {answer['end'][number]}"
            yield f"  {token:14} {tag:12} {score:.2f}  {span}"
        return
    for name, value in answer.items():
        yield f"  {name:14} {json.dumps(value, ensure_ascii=False)}"


def main():
    """Send the texts and print the answers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", nargs="+", help="texts, or questions")
    parser.add_argument(
        "--second",
        action="append",
        default=[],
        help="second text or context, once for all texts or once per text; or one of the choices",
    )
    parser.add_argument("--model", default="support", help="name of the model (default: support)")
    parser.add_argument("--version", type=int, help="number of the version (default: the newest)")
    parser.add_argument("--label", help="label of the version, as in models.config")
    parser.add_argument("--url", default="http://127.0.0.1:8501", help="address of the server")
    args = parser.parse_args()

    url = f"{args.url.rstrip('/')}/v1/models/{urllib.parse.quote(args.model, safe='')}"
    if args.label:
        url += f"/labels/{args.label}"
    elif args.version is not None:
        url += f"/versions/{args.version}"
    instances = rows(input_names(url), args.texts, args.second)
    answers = call(f"{url}:predict", {"instances": instances})
    for text, answer in zip(args.texts, answers["predictions"], strict=True):
        print(text)
        for line in lines(answer):
            print(line)


if __name__ == "__main__":
    main()
