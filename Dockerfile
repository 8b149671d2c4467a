# The images of this repository, for people with Docker: docker build --build-arg TARGET=worker -t docker.io/ringfleet/worker:0.1.0 .
# Without Docker: go run ./hack/image build. This file is not built by this repository's tests.

# manager, router, worker, or worker-cuda, the worker for NVIDIA's GPUs.
ARG TARGET=manager
ARG GO_IMAGE=golang:1.26.8-bookworm
# The worker's base: glibc 2.34 or later with apt-get.
ARG WORKER_BASE=debian:bookworm-slim

FROM ${GO_IMAGE} AS source
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY api api
COPY charts charts
COPY controllers controllers
COPY hack hack
COPY router router
COPY worker worker
RUN printf 'root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n' > /passwd && \
    sed -n 's/^appVersion: //p' charts/ringfleet/Chart.yaml > /version

FROM source AS build-manager
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$(cat /version)" -o /out/manager ./controllers

FROM source AS build-router
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$(cat /version)" -o /out/router ./router

FROM source AS build-worker
RUN CGO_ENABLED=1 go build -trimpath -buildvcs=false -tags netgo,osusergo -ldflags "-s -w -X main.version=$(cat /version)" -o /out/worker ./worker
# The libraries of llama.cpp, pinned by digest.
RUN cp -a "$(go run ./hack/image libs)" /out/llama

# llama.cpp's part for CUDA, and NVIDIA's libraries for it, which are under NVIDIA's license (the CUDA Toolkit EULA): whoever
# builds this stage agrees to it. Pinned by digest.
FROM source AS fetch-cuda
RUN mkdir -p /out && dirs=$(go run ./hack/image cuda) && for dir in $dirs; do cp -a "$dir"/. /out/ || exit 1; done

FROM scratch AS manager
COPY --from=source /passwd /etc/passwd
COPY --from=source /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build-manager /out/manager /manager
USER 65532:65532
ENTRYPOINT ["/manager"]

FROM scratch AS router
COPY --from=source /passwd /etc/passwd
COPY --from=source /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build-router /out/router /router
USER 65532:65532
ENTRYPOINT ["/router"]

FROM ${WORKER_BASE} AS worker
RUN apt-get update && \
    apt-get install -y --no-install-recommends ca-certificates libffi8 libgcc-s1 libstdc++6 && \
    rm -rf /var/lib/apt/lists/*
COPY --from=build-worker /out/llama /lib/llama
COPY --from=build-worker /out/worker /worker
USER 65532:65532
ENTRYPOINT ["/worker"]

# The driver's own libraries stay out: NVIDIA's container runtime mounts the node's into one of the folders of the path. Which
# GPUs a container sees is for the device plugin to say. The pod mounts something writable at /tmp.
FROM worker AS worker-cuda
COPY --from=fetch-cuda /out/*.so.13 /usr/lib/x86_64-linux-gnu/
COPY --from=fetch-cuda /out/LICENSE.* /licenses/
COPY --from=fetch-cuda /out/libggml-cuda.so /lib/llama/
ENV LD_LIBRARY_PATH=/usr/local/nvidia/lib64:/usr/lib64:/usr/lib/x86_64-linux-gnu \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    CUDA_CACHE_PATH=/tmp/cuda

FROM ${TARGET}
