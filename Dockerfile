# The dashboard in a container, open to strangers unless told otherwise. docs/operations.md says how to run it.
#   docker build -t kvviz .                          on the processor
#   docker build -t kvviz --build-arg DEVICE=cuda .  on an NVIDIA GPU; run it with --gpus all
FROM python:3.11-slim

ARG DEVICE=cpu

RUN useradd --create-home --uid 1000 kvviz && install --directory --owner=kvviz --group=kvviz /app /data
WORKDIR /app

# torch's own index has wheels without CUDA, a tenth of the size; the usual one has them with it
COPY requirements.txt ./
RUN case "$DEVICE" in \
      cpu) pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu "$(grep '^torch==' requirements.txt)" ;; \
      cuda) ;; \
      *) echo "DEVICE is $DEVICE; it is cpu or cuda" >&2; exit 2 ;; \
    esac \
    && pip install --no-cache-dir -r requirements.txt

COPY app.py LICENSE ./
COPY .streamlit ./.streamlit
COPY kvviz ./kvviz
COPY pages ./pages
COPY docs/space/kvviz.toml ./space.toml

ENV HOST=0.0.0.0 \
    PORT=8501 \
    KVVIZ_HOME=/data \
    KVVIZ_PUBLIC=1 \
    KVVIZ_LOG=json \
    HF_HOME=/data/huggingface \
    PYTHONDONTWRITEBYTECODE=1

USER 1000
VOLUME /data
EXPOSE 8501
HEALTHCHECK --interval=30s --timeout=10s --start-period=90s --retries=3 CMD ["python", "-c", "import os, sys; from kvviz.cli.port import health_at; sys.exit((health_at('127.0.0.1', int(os.environ['PORT'])) or {}).get('status') != 'ok')"]
CMD ["python", "app.py"]
