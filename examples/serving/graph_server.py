"""Serve an ONNX or OpenVINO folder by HTTP, without Keras and TensorFlow.

A request is that of TensorFlow Serving's REST API. Each instance is a text, or an object with the
texts by name: {"question": "...", "context": "..."}. An answer is what the pipeline returns.

Command:   keras-bert export MODEL saved_models/support --format onnx
           python examples/serving/graph_server.py saved_models/support
           curl http://127.0.0.1:8501/v1/models/support:predict -d '{"instances": ["my parcel"]}'
Time:      a second to start
Expected:  {"predictions": [{"label": "delivery", "score": 0.71}]}
"""

import argparse
import json
import pathlib

import numpy as np
import starlette.applications
import starlette.exceptions
import starlette.responses
import starlette.routing
import uvicorn

import keras_bert

MAX_INSTANCES = 1024


def make_app(folder, example):
    """Return the ASGI application for a folder. Its name is that of the model.

    `example` is an instance; /health asks the model for its answer.
    """
    pipeline = keras_bert.pipeline(folder)
    name = pathlib.Path(folder).resolve().name

    def answer(instance):
        if isinstance(instance, str):
            return pipeline(instance)
        texts = {name: value for name, value in instance.items() if name != "text"}
        return pipeline(instance.get("text"), **texts)

    def answers(instances):
        if all(isinstance(instance, str) for instance in instances):
            return pipeline(instances)  # in batches
        return [answer(instance) for instance in instances]

    async def predict(request):
        try:
            body = await request.json()
            instances = body["instances"]
            if not isinstance(instances, list) or len(instances) > MAX_INSTANCES:
                raise ValueError(f"instances must be a list of at most {MAX_INSTANCES}")
            text = json.dumps({"predictions": answers(instances)}, default=np.ndarray.tolist)
            return starlette.responses.Response(text, media_type="application/json")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise starlette.exceptions.HTTPException(400, str(error)) from None

    async def health(request):
        answers([example])
        return starlette.responses.PlainTextResponse("ok")

    route = starlette.routing.Route
    routes = [route(f"/v1/models/{name}:predict", predict, methods=["POST"])]
    return starlette.applications.Starlette(routes=[*routes, route("/health", health)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="ONNX or OpenVINO folder")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8501)
    parser.add_argument(
        "--example", type=json.loads, default='"a"', help="instance for /health, JSON"
    )
    args = parser.parse_args()
    app = make_app(args.folder, args.example)
    uvicorn.run(app, host=args.host, port=args.port, log_level="warning")


if __name__ == "__main__":
    main()
