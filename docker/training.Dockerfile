# Fine-tuning on NVIDIA GPUs, with JAX and its CUDA libraries. Models, data and the cache are in the
# current folder.
#   docker build --file docker/training.Dockerfile --tag keras-bert-training .
#   docker run --rm --gpus all --user "$(id -u):$(id -g)" --volume "$PWD:/data" \
#       keras-bert-training finetune --train train.tsv --output my_model
FROM python:3.12.12-slim-bookworm@sha256:593bd06efe90efa80dc4eee3948be7c0fde4134606dd40d8dd8dbcade98e669c AS build
WORKDIR /source
COPY constraints.txt pyproject.toml setup.cfg README.md LICENSE ./
COPY keras_bert keras_bert
RUN python -m venv /opt/keras_bert && \
    /opt/keras_bert/bin/pip install --no-cache-dir --constraint constraints.txt '.[jax]' 'jax[cuda12]'

FROM python:3.12.12-slim-bookworm@sha256:593bd06efe90efa80dc4eee3948be7c0fde4134606dd40d8dd8dbcade98e669c
COPY --from=build /opt/keras_bert /opt/keras_bert
# HOME is the mounted folder, so that a user of any ID can write caches there.
ENV PATH=/opt/keras_bert/bin:$PATH KERAS_BACKEND=jax HOME=/data
RUN useradd --no-create-home --home-dir /data --uid 1000 bert && install --directory --owner bert /data
USER 1000
WORKDIR /data
ENTRYPOINT ["keras-bert"]
