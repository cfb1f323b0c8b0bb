"""Send requests to TensorFlow Serving by gRPC, with the package `tensorflow-serving-api`.

A request has one tensor with all texts for each input. The response has one tensor for each output.
Strings are bytes in UTF-8 in both directions.

Command:   python examples/serving/grpc_client.py --model support "where is my parcel"
           python examples/serving/grpc_client.py --model reader "Who came?" --second "Ada came."
Time:      a few seconds on 2 CPU cores, mostly for the import of TensorFlow
Expected:  one answer for each text, such as: label delivery, score 0.71
"""

import argparse
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import grpc
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)

# The possible inputs, in the order of the command line.
INPUTS = (
    ("text",),
    ("text", "text_pair"),
    ("query", "document"),
    ("question", "context"),
    ("text", "choices"),
)
SIGNATURE = "serving_default"
TIMEOUT = 30.0  # seconds; without a timeout, a call can wait forever


def set_model(spec, args):
    """Set the model in a request, and the version if the command line has its number or label."""
    spec.name = args.model
    if args.label:
        spec.version_label = args.label
    elif args.version is not None:
        spec.version.value = args.version


def input_names(stub, args):
    """Return the names of the inputs of `serving_default`, in the order of the command line."""
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    set_model(request.model_spec, args)
    packed = stub.GetModelMetadata(request, timeout=TIMEOUT).metadata["signature_def"]
    signatures = get_model_metadata_pb2.SignatureDefMap()
    packed.Unpack(signatures)
    found = signatures.signature_def[SIGNATURE].inputs
    for names in INPUTS:
        if set(names) == set(found):
            return names
    sys.exit(f"this client does not support the inputs {', '.join(found)}")


def columns(names, texts, seconds):
    """Return a list for each input, with one item for each text."""
    if len(names) == 1 and not seconds:
        return {names[0]: texts}
    if names[-1] == "choices":  # every text gets all choices
        seconds = [seconds] * len(texts) if seconds else []
    elif len(seconds) == 1:  # all questions have the same context
        seconds = seconds * len(texts)
    if len(names) == 1 or not seconds or len(seconds) != len(texts):
        takes = " and ".join(names)
        sys.exit(f"the model takes {takes}; received {len(texts)} texts, {len(seconds)} --second")
    return {names[0]: texts, names[1]: seconds}


def predict(stub, args, inputs):
    """Return a dict of the outputs, NumPy arrays with one row for each text."""
    request = predict_pb2.PredictRequest()
    set_model(request.model_spec, args)
    request.model_spec.signature_name = SIGNATURE
    for name, values in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(values, tf.string))
    response = stub.Predict(request, timeout=TIMEOUT)
    return {name: tf.make_ndarray(tensor) for name, tensor in response.outputs.items()}


def plain(value):
    """Convert a value or array to Python values, with strings decoded and numbers rounded."""
    if isinstance(value, bytes):
        return value.decode()
    if getattr(value, "ndim", 0):
        return [plain(item) for item in value]
    return round(float(value), 4) if value.dtype.kind == "f" else value.item()


def lines(outputs, row):
    """Yield the lines to print for the answer to one text."""
    answer = {name: plain(outputs[name][row]) for name in sorted(outputs)}
    if "token" in answer:  # lists of words, padded to the longest text of the request
        for number in range(answer["count"]):
            token, tag, score = (answer[key][number] for key in ("token", "tag", "score"))
            span = f"bytes {answer['start'][number]} to {answer['end'][number]}"
            yield f"  {token:14} {tag:12} {score:.2f}  {span}"
        return
    for name, value in answer.items():
        yield f"  {name:14} {value}"


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
    parser.add_argument("--address", default="127.0.0.1:8500", help="address of the server")
    args = parser.parse_args()

    # By default a client refuses responses of more than 4 MB.
    options = [("grpc.max_receive_message_length", -1)]
    # Use one channel for all calls of a program: opening a connection is slow.
    with grpc.insecure_channel(args.address, options) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        try:
            inputs = columns(input_names(stub, args), args.texts, args.second)
            outputs = predict(stub, args, inputs)
        except grpc.RpcError as error:
            sys.exit(f"{error.code().name}: {error.details()}")
    for row, text in enumerate(args.texts):
        print(text)
        for line in lines(outputs, row):
            print(line)


if __name__ == "__main__":
    main()
