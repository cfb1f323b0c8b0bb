"""Batched requests: few calls, the same outputs as alone, and errors only where they belong."""

import asyncio

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.server import batching, models
from tests import served

TEXT = {"text": tf.TensorSpec((None,), "string")}


def strings(*texts):
    return {"text": np.array([text.encode() for text in texts], object)}


def run(signature, requests, **options):
    """Send requests at the same time; return their outputs or exceptions."""

    async def main():
        queue = batching.BatchQueue(**options)
        try:
            return await asyncio.gather(
                *(queue.run(signature, arrays) for arrays in requests), return_exceptions=True
            )
        finally:
            queue.close()

    return asyncio.run(main())


class Recorder:
    """A signature's function that records the number of rows per call."""

    def __init__(self, answer):
        self.rows = []
        self.answer = answer

    def __call__(self, **tensors):
        self.rows.append(len(next(iter(tensors.values()))))
        return {name: tf.constant(value) for name, value in self.answer(**tensors).items()}


def lengths(inputs=TEXT, answer=lambda text: {"length": tf.strings.length(text)}, shape=(None,)):
    """Return a signature that computes the lengths of texts and records its calls."""
    recorder = Recorder(answer)
    names = answer(**{name: tf.constant(["a"]) for name in inputs})
    return models.Signature(
        inputs, {name: tf.TensorSpec(shape, "int32") for name in names}, recorder
    )


def test_simultaneous_requests_run_in_one_call():
    signature = lengths()
    answers = run(signature, [strings("a" * size) for size in range(50)])
    assert [answer["length"].tolist() for answer in answers] == [[size] for size in range(50)]
    assert signature.function.rows == [50]


def test_request_with_many_rows_is_split():
    signature = lengths()
    (answer,) = run(signature, [strings(*["ab"] * 1000, "abc")])
    assert answer["length"].tolist() == [2] * 1000 + [3]
    assert signature.function.rows == [64] * 15 + [41]
    # Batches of long texts have fewer rows, to bound memory use.
    signature = lengths()
    run(signature, [strings(*["a" * 30_000] * 5)])
    assert signature.function.rows == [2, 2, 1]


def test_a_short_request_runs_between_the_parts_of_a_long_one():
    order = []

    def answer(text):
        order.append(len(text))
        return {"length": tf.strings.length(text)}

    signature = lengths(answer=answer)
    order.clear()
    run(signature, [strings(*["a" * 30_000] * 5), strings("b"), strings("c")])
    assert order == [2, 2, 1, 2], "in the order of arrival; short requests share a batch"


def test_long_texts_do_not_pad_short_ones():
    signature = lengths()
    run(signature, [strings("a" * size) for size in (10, 1000, 20, 300, 30)])
    assert sorted(signature.function.rows) == [1, 1, 3]


def test_invalid_request_does_not_fail_its_batch():
    def answer(text):
        if b"bad" in text.numpy():
            raise tf.errors.InvalidArgumentError(None, None, "a bad text")
        return {"length": tf.strings.length(text)}

    answers = run(lengths(answer=answer), [strings("a"), strings("bad"), strings("bb")])
    assert [answers[0]["length"].tolist(), answers[2]["length"].tolist()] == [[1], [2]]
    assert isinstance(answers[1], ValueError) and str(answers[1]) == "a bad text"


def test_full_queue_refuses_requests():
    answers = run(lengths(), [strings("a")] * 12, max_waiting=10)
    refused = [answer for answer in answers if isinstance(answer, batching.QueueFullError)]
    assert len(refused) == 2 and "requests are waiting" in str(refused[0])


def test_disconnected_client_does_not_block_others():
    async def main():
        queue = batching.BatchQueue()
        signature = lengths()
        requests = [asyncio.create_task(queue.run(signature, strings("a"))) for _ in range(3)]
        await asyncio.sleep(0)
        requests[1].cancel()
        answers = await asyncio.gather(*requests, return_exceptions=True)
        assert isinstance(answers[1], asyncio.CancelledError)
        assert [answer["length"].tolist() for answer in answers[::2]] == [[1], [1]]
        queue.close()
        # A closed queue raises at once.
        with pytest.raises(RuntimeError):
            await asyncio.wait_for(queue.run(signature, strings("a")), 10)

    asyncio.run(main())


def test_numeric_inputs_of_equal_shape_share_a_call():
    recorder = Recorder(lambda x: {"y": tf.reduce_sum(x, axis=1), "all": x * 2})
    signature = models.Signature(
        {"x": tf.TensorSpec((None, None), "float32")},
        {"y": tf.TensorSpec((None,), "float32"), "all": tf.TensorSpec((None, None), "float32")},
        recorder,
    )
    rows = [np.ones([1, 3], "f4"), np.ones([2, 4], "f4"), np.zeros([1, 3], "f4")]
    answers = run(signature, [{"x": row} for row in rows])
    assert [answer["y"].tolist() for answer in answers] == [[3], [4, 4], [0]]
    # Trailing zeros of numeric outputs are values, not padding.
    assert [answer["all"].shape for answer in answers] == [(1, 3), (2, 4), (1, 3)]
    assert sorted(recorder.rows) == [2, 2]


@pytest.mark.parametrize(
    "signature",
    [
        # The outputs have variable length, and their padding is unknown.
        lengths(shape=(None, None), answer=lambda text: {
            "bytes": tf.strings.unicode_decode(text, "UTF-8").to_tensor()}),
        # The inputs or outputs have no batch dimension.
        lengths(inputs={"text": tf.TensorSpec(None, "string")}),
        lengths(inputs={"text": tf.TensorSpec((1,), "string")}),
        lengths(shape=()),
        lengths(shape=None),
    ],
)  # fmt: skip
def test_signatures_that_cannot_batch_run_alone(signature):
    answers = run(signature, [strings("a"), strings("bbb")])
    (name,) = answers[0]
    assert signature.function.rows == [1, 1]
    if name == "bytes":
        assert [answer[name].shape for answer in answers] == [(1, 1), (1, 3)]


def test_outputs_that_are_not_per_row_are_computed_alone():
    signature = lengths(
        answer=lambda text: {"longest": tf.reduce_max(tf.strings.length(text))[None]}
    )
    answers = run(signature, [strings("a"), strings("bbb")])
    assert [answer["longest"].tolist() for answer in answers] == [[1], [3]]


TEXTS = ["this film is so good!", "", "bad", "this [MASK] is [MASK]", "[MASK]", "good bad " * 40]


@pytest.mark.slow
@pytest.mark.parametrize("head", ["classification", "tagging", "blanks"])
def test_batched_outputs_equal_those_of_single_requests(head, tmp_path, one_tokenizer):
    model = models.load(served.head(head, tmp_path) / "1", trusted=True)
    signature = model.signatures["serving_default"]
    calls = []
    counted = models.Signature(
        signature.inputs,
        signature.outputs,
        lambda **tensors: calls.append(1) or signature.function(**tensors),
    )
    requests = [strings(text) for text in TEXTS] + [strings("so good", "this is a film")]
    together = run(counted, requests)
    assert len(calls) == 2, "one call for the short texts, one for the long text"
    for request, answer in zip(requests, together, strict=True):
        alone = signature(request)
        assert {k: v.shape for k, v in answer.items()} == {k: v.shape for k, v in alone.items()}
        for name, values in alone.items():
            if values.dtype == object:
                assert answer[name].tolist() == values.tolist()
            else:
                np.testing.assert_allclose(answer[name], values, atol=1e-5)
    # The concatenated parts of a split request have the shapes of one call.
    many = strings(*TEXTS[:5] * 20, *TEXTS)
    (parts,) = run(signature, [many])
    for name, values in signature(many).items():
        assert parts[name].shape == values.shape
        assert parts[name].dtype == values.dtype
