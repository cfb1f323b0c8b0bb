# The local server of keras_bert, for testing. In production, use TensorFlow Serving: an export
# contains a compose.yaml for it.
#   keras-bert export MODEL saved_models/support
#   docker build --file docker/serving.Dockerfile --tag keras-bert-serving .
#   docker run --rm --publish 127.0.0.1:8501:8501 \
#       --volume "$PWD/saved_models/support:/models/support:ro" keras-bert-serving /models --trusted
# A SavedModel is a program, which runs only with --trusted.
FROM python:3.12.12-slim-bookworm@sha256:593bd06efe90efa80dc4eee3948be7c0fde4134606dd40d8dd8dbcade98e669c AS build
WORKDIR /source
COPY constraints.txt pyproject.toml setup.cfg README.md LICENSE ./
COPY keras_bert keras_bert
RUN python -m venv /opt/keras_bert && \
    /opt/keras_bert/bin/pip install --no-cache-dir --constraint constraints.txt '.[serve]'

FROM python:3.12.12-slim-bookworm@sha256:593bd06efe90efa80dc4eee3948be7c0fde4134606dd40d8dd8dbcade98e669c
COPY --from=build /opt/keras_bert /opt/keras_bert
COPY docker/health.py /opt/health.py
ENV PATH=/opt/keras_bert/bin:$PATH KERAS_BACKEND=tensorflow
RUN useradd --create-home --uid 1000 bert
USER 1000
EXPOSE 8501
HEALTHCHECK --interval=10s --timeout=5s --start-period=2m CMD ["python", "/opt/health.py"]
ENTRYPOINT ["keras-bert", "serve", "--host", "0.0.0.0"]
CMD ["/models"]
