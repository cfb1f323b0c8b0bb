"""Asks TensorFlow Serving by REST; nothing but Python's standard library.

The server says itself what the model takes: its metadata names the inputs. So one client does for a
classifier, a tagger, a reader and what else `keras_bert.export` writes.

Command:   python examples/serving/rest_client.py --model support "where is my parcel"
           python examples/serving/rest_client.py --model reader "Who came?" --second "Ada came."
Time:      below a second on 2 CPU cores, once a server runs (see README.md here)
Expected:  one answer for each text, such as: label delivery, score 0.71
"""

import argparse
import contextlib
import json
import sys
import urllib.error
import urllib.parse
import urllib.request

# The inputs that models have, in the order in which a person gives them.
INPUTS = (("text",), ("text", "text_pair"), ("question", "context"), ("text", "choices"))


def call(url, request=None, timeout=30.0):
    """The JSON behind a URL; a request makes it a POST."""
    body = None if request is None else json.dumps(request).encode()
    try:
        with urllib.request.urlopen(url, body, timeout) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:  # what the server has against it
        content = error.read().decode(errors="replace")
        # Without that, it was not the server but something before it.
        with contextlib.suppress(ValueError, KeyError, TypeError):
            content = json.loads(content)["error"]
        sys.exit(f"{error.code} {error.reason}: {content}")
    except OSError as error:
        sys.exit(f"{url}: no answer: {getattr(error, 'reason', error)}")


def input_names(model_url):
    """The inputs of the signature `serving_default`, in a person's order."""
    metadata = call(f"{model_url}/metadata")["metadata"]
    found = metadata["signature_def"]["signature_def"]["serving_default"]["inputs"]
    for names in INPUTS:
        if set(names) == set(found):
            return names
    sys.exit(f"this client knows no model of the inputs {', '.join(found)}")


def rows(names, texts, seconds):
    """The instances of a request: an object for each text."""
    if len(names) == 1 and not seconds:
        return [{names[0]: text} for text in texts]
    if names[-1] == "choices":  # all of them for each text
        seconds = [seconds] * len(texts) if seconds else []
    elif len(seconds) == 1:  # one context for many questions
        seconds = seconds * len(texts)
    if len(names) == 1 or not seconds or len(seconds) != len(texts):
        takes = " and ".join(names)
        sys.exit(f"the model takes {takes}; received {len(texts)} texts, {len(seconds)} --second")
    return [dict(zip(names, both, strict=True)) for both in zip(texts, seconds, strict=True)]


def lines(answer):
    """An answer for a person; a model with one output gives it without a name."""
    if not isinstance(answer, dict):
        answer = {"answer": answer}
    if "token" in answer:  # lists of words, filled up behind the real ones
        for number in range(answer["count"]):
            token, tag, score = (answer[key][number] for key in ("token", "tag", "score"))
            place = f"bytes {answer['start'][number]} to {answer['end'][number]}"
            yield f"  {token:14} {tag:12} {score:.2f}  {place}"
        return
    for name, value in answer.items():
        yield f"  {name:14} {json.dumps(value, ensure_ascii=False)}"


def main():
    """Asks and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", nargs="+", help="texts, or questions")
    parser.add_argument(
        "--second",
        action="append",
        default=[],
        help="second text, context or choice; once for all texts, or once for each; any of choices",
    )
    parser.add_argument("--model", default="support", help="its name (default: support)")
    parser.add_argument("--version", type=int, help="default: the newest")
    parser.add_argument("--label", help="of a version, such as stable, if models.config has any")
    parser.add_argument("--url", default="http://127.0.0.1:8501", help="of the server")
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
