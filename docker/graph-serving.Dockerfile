# A server for ONNX and OpenVINO folders, without TensorFlow.
#   keras-bert export MODEL saved_models/support --format onnx
#   docker build --file docker/graph-serving.Dockerfile --tag keras-bert-graph-serving .
#   docker run --rm --publish 127.0.0.1:8501:8501 \
#       --volume "$PWD/saved_models/support:/models/support:ro" keras-bert-graph-serving
FROM python:3.12.12-slim-bookworm@sha256:593bd06efe90efa80dc4eee3948be7c0fde4134606dd40d8dd8dbcade98e669c AS build
WORKDIR /source
COPY constraints.txt pyproject.toml setup.cfg README.md LICENSE ./
COPY keras_bert keras_bert
RUN python -m venv /opt/keras_bert && \
    /opt/keras_bert/bin/pip install --no-cache-dir --constraint constraints.txt \
        '.[onnx]' openvino starlette uvicorn

FROM python:3.12.12-slim-bookworm@sha256:593bd06efe90efa80dc4eee3948be7c0fde4134606dd40d8dd8dbcade98e669c
COPY --from=build /opt/keras_bert /opt/keras_bert
COPY examples/serving/graph_server.py /opt/graph_server.py
ENV PATH=/opt/keras_bert/bin:$PATH
RUN useradd --create-home --uid 1000 bert
USER 1000
EXPOSE 8501
# Each request to /health asks the model. If texts come in pairs, add to the command
#   /models/support --example '{"text": "a", "text_pair": "b"}'
HEALTHCHECK --interval=10s --timeout=5s --start-period=1m \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8501/health')"]
ENTRYPOINT ["python", "/opt/graph_server.py", "--host", "0.0.0.0"]
CMD ["/models/support"]
