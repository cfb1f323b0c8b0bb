"""Requests answered together: in few runs, each as it would be alone, none by another's fault."""

import asyncio
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.server import batching, models
from keras_bert.server.rest import Spec
from tests import served

TEXT = {"text": Spec("object", (None,))}
NUMBER = {"x": Spec("float32", (None,))}


def strings(*texts):
    return {"text": np.array([text.encode() for text in texts], object)}


def run(signature, requests, **options):
    """The answers to requests that come at once; exceptions as they are."""

    async def main():
        lanes = batching.Lanes(**options)
        try:
            return await asyncio.gather(
                *(lanes.run(signature, arrays) for arrays in requests), return_exceptions=True
            )
        finally:
            lanes.close()

    return asyncio.run(main())


class Recorder:
    """A signature's function that notes the rows of its calls."""

    def __init__(self, answer):
        self.rows = []
        self.answer = answer

    def __call__(self, **tensors):
        self.rows.append(len(next(iter(tensors.values()))))
        return {name: tf.constant(value) for name, value in self.answer(**tensors).items()}


def lengths(inputs=TEXT, answer=lambda text: {"length": tf.strings.length(text)}, shape=(None,)):
    """A signature, to the lengths of texts, and its calls."""
    recorder = Recorder(answer)
    names = answer(**{name: tf.constant(["a"]) for name in inputs})
    return models.Signature(inputs, {name: Spec("int32", shape) for name in names}, recorder)


def test_requests_that_come_together_run_together():
    signature = lengths()
    answers = run(signature, [strings("a" * size) for size in range(50)])
    assert [answer["length"].tolist() for answer in answers] == [[size] for size in range(50)]
    assert signature.function.rows == [50]


def test_requests_of_several_rows():
    signature = lengths()
    answers = run(signature, [strings("a", "bb"), strings("ccc"), strings(), strings("dd", "e")])
    assert [answer["length"].tolist() for answer in answers] == [[1, 2], [3], [], [2, 1]]
    assert signature.function.rows == [5]


def test_a_batch_has_64_rows():
    signature = lengths()
    run(signature, [strings("a")] * 150)
    assert signature.function.rows == [64, 64, 22]


def test_a_request_of_many_rows_runs_in_parts():
    signature = lengths()
    (answer,) = run(signature, [strings(*["ab"] * 1000, "abc")])
    assert answer["length"].tolist() == [2] * 1000 + [3]
    assert signature.function.rows == [64] * 15 + [41]
    # Of long texts fewer, so that what is in memory at once has a bound.
    signature = lengths()
    run(signature, [strings(*["a" * 30_000] * 5)])
    assert signature.function.rows == [2, 2, 1]


def test_many_empty_texts_do_not_hold_a_short_one_up():
    started, done = threading.Event(), threading.Event()

    def answer(text):
        if text.numpy()[0] == b"":
            started.set()
            assert done.wait(30), "the short one waits for these, and these for it"
        return {"length": tf.strings.length(text)}

    async def main():
        lanes = batching.Lanes()
        signature = lengths(answer=answer)
        many = asyncio.create_task(lanes.run(signature, strings(*[""] * 100_000)))
        await asyncio.to_thread(started.wait, 30)
        assert (await lanes.run(signature, strings("a")))["length"].tolist() == [1]
        done.set()
        assert len((await many)["length"]) == 100_000
        lanes.close()

    asyncio.run(main())


def test_long_texts_do_not_pad_short_ones():
    signature = lengths()
    run(signature, [strings("a" * size) for size in (10, 1000, 20, 300, 30)])
    assert sorted(signature.function.rows) == [1, 1, 3]


def test_what_one_request_does_wrong_is_its_own_error():
    def answer(text):
        if b"bad" in text.numpy():
            raise tf.errors.InvalidArgumentError(None, None, "a bad text")
        return {"length": tf.strings.length(text)}

    answers = run(lengths(answer=answer), [strings("a"), strings("bad"), strings("bb")])
    assert [answers[0]["length"].tolist(), answers[2]["length"].tolist()] == [[1], [2]]
    assert isinstance(answers[1], ValueError) and str(answers[1]) == "a bad text"


def test_a_short_text_does_not_wait_for_a_long_one():
    done = threading.Event()

    def answer(text):
        if len(text.numpy()[0]) > 10_000:
            assert done.wait(30), "the short one waits for this one, and this one for it"
        return {"length": tf.strings.length(text)}

    async def main():
        lanes = batching.Lanes()
        signature = lengths(answer=answer)
        long = asyncio.create_task(lanes.run(signature, strings("a" * 5_000_000)))
        await asyncio.sleep(0.05)
        assert (await lanes.run(signature, strings("a")))["length"].tolist() == [1]
        assert not long.done()
        done.set()
        assert (await long)["length"].tolist() == [5_000_000]
        lanes.close()

    asyncio.run(main())


def test_what_waits_has_a_bound():
    answers = run(lengths(), [strings("a")] * 12, max_waiting=10)
    refused = [answer for answer in answers if isinstance(answer, ConnectionRefusedError)]
    assert len(refused) == 2 and "try again later" in str(refused[0])


def test_a_client_that_leaves_holds_nobody_up():
    async def main():
        lanes = batching.Lanes()
        signature = lengths()
        requests = [asyncio.create_task(lanes.run(signature, strings("a"))) for _ in range(3)]
        await asyncio.sleep(0)
        requests[1].cancel()
        answers = await asyncio.gather(*requests, return_exceptions=True)
        assert isinstance(answers[1], asyncio.CancelledError)
        assert [answer["length"].tolist() for answer in answers[::2]] == [[1], [1]]
        lanes.close()
        # Closed, it answers with an error at once, not never.
        with pytest.raises(RuntimeError):
            await asyncio.wait_for(lanes.run(signature, strings("a")), 10)

    asyncio.run(main())


def test_numbers_of_one_shape_run_together():
    recorder = Recorder(lambda x: {"y": tf.reduce_sum(x, axis=1), "all": x * 2})
    signature = models.Signature(
        {"x": Spec("float32", (None, None))},
        {"y": Spec("float32", (None,)), "all": Spec("float32", (None, None))},
        recorder,
    )
    rows = [np.ones([1, 3], "f4"), np.ones([2, 4], "f4"), np.zeros([1, 3], "f4")]
    answers = run(signature, [{"x": row} for row in rows])
    assert [answer["y"].tolist() for answer in answers] == [[3], [4, 4], [0]]
    # Zeros at the end are numbers like others there.
    assert [answer["all"].shape for answer in answers] == [(1, 3), (2, 4), (1, 3)]
    assert sorted(recorder.rows) == [2, 2]


@pytest.mark.parametrize(
    "signature",
    [
        # Answers of a length of their own: nobody knows what is padding.
        lengths(shape=(None, None), answer=lambda text: {
            "bytes": tf.strings.unicode_decode(text, "UTF-8").to_tensor()}),
        # No rows in, or none out.
        lengths(inputs={"text": Spec("object", None)}),
        lengths(inputs={"text": Spec("object", (1,))}),
        lengths(shape=()),
        lengths(shape=None),
    ],
)  # fmt: skip
def test_what_cannot_be_told_apart_again_runs_alone(signature):
    answers = run(signature, [strings("a"), strings("bbb")])
    (name,) = answers[0]
    assert signature.function.rows == [1, 1]
    if name == "bytes":
        assert [answer[name].shape for answer in answers] == [(1, 1), (1, 3)]


def test_an_answer_that_is_not_one_a_row_is_asked_for_again_alone():
    signature = lengths(
        answer=lambda text: {"longest": tf.reduce_max(tf.strings.length(text))[None]}
    )
    answers = run(signature, [strings("a"), strings("bbb")])
    assert [answer["longest"].tolist() for answer in answers] == [[1], [3]]


TEXTS = ["this film is so good!", "", "bad", "this [MASK] is [MASK]", "[MASK]", "good bad " * 40]


@pytest.mark.parametrize("head", ["classifier", "tagger", "blanks"])
def test_an_answer_is_the_one_that_a_request_gets_alone(head, tmp_path, one_tokenizer):
    version = models.load(served.head(head, tmp_path) / "1", 1)
    signature = version.signatures["serving_default"]
    calls = []
    counted = models.Signature(
        signature.inputs,
        signature.outputs,
        lambda **tensors: calls.append(1) or signature.function(**tensors),
    )
    requests = [strings(text) for text in TEXTS] + [strings("so good", "this is a film")]
    together = run(counted, requests)
    assert len(calls) == 2, "short ones, and the long one"
    for request, answer in zip(requests, together, strict=True):
        alone = signature(request)
        assert {k: v.shape for k, v in answer.items()} == {k: v.shape for k, v in alone.items()}
        for name, values in alone.items():
            if values.dtype == object:
                assert answer[name].tolist() == values.tolist()
            else:
                np.testing.assert_allclose(answer[name], values, atol=1e-5)
    # And the parts of one that is too long, put together, are what one run gives.
    many = strings(*TEXTS[:5] * 20, *TEXTS)
    (parts,) = run(signature, [many])
    for name, values in signature(many).items():
        assert parts[name].shape == values.shape
        assert parts[name].dtype == values.dtype


def test_32_clients_are_answered_in_few_runs():
    """A run costs 5 ms, whatever its rows: together they cost what few cost."""

    def answer(text):
        time.sleep(0.005)
        return {"length": tf.strings.length(text)}

    async def client(lanes, signature):
        for _ in range(20):
            await lanes.run(signature, strings("a"))

    async def main(clients):
        lanes, signature = batching.Lanes(), lengths(answer=answer)
        await asyncio.gather(*(client(lanes, signature) for _ in range(clients)))
        lanes.close()
        return len(signature.function.rows)

    assert asyncio.run(main(1)) == 20
    assert asyncio.run(main(32)) <= 60
