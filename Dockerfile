# syntax=docker/dockerfile:1.10
# The image that docs/kubernetes.md runs on a cluster. For a CPU:
#   docker build -t robot-rl:0.2.0 .
# For NVIDIA GPUs; the CUDA libraries come with PyTorch, the driver with the node:
#   docker build -t robot-rl:0.2.0 --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130 .

FROM python:3.11.14-slim-bookworm AS build
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG EXTRAS=ray,prometheus
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/robot-rl
ENV PATH=/opt/robot-rl/bin:$PATH
WORKDIR /build
COPY constraints.txt ./
# First and by its exact version: a later package would pull in the newest build with another CUDA.
RUN pip install -c constraints.txt --index-url "$TORCH_INDEX" torch
COPY pyproject.toml README.md LICENSE ./
COPY robot_rl robot_rl
COPY envs envs
COPY tasks tasks
COPY sim_assets sim_assets
COPY deploy_jetson deploy_jetson
RUN pip install -c constraints.txt ".[$EXTRAS]"

# The robot's image, without PyTorch or a simulator, also for aarch64 (Jetson Thor): docker build --target robot ...
# It has the binary with ONNX Runtime; TensorRT and the real-time service come with `robot-rl deploy` (docs/robot.md).
FROM python:3.11.14-slim-bookworm AS robot-build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends g++ && python -m venv /opt/robot-rl
COPY constraints.txt /build/
COPY deploy_jetson /build/deploy_jetson
WORKDIR /build
RUN /opt/robot-rl/bin/pip install -c constraints.txt ./deploy_jetson ./deploy_jetson/runtime

FROM python:3.11.14-slim-bookworm AS robot
RUN groupadd --gid 1000 robot && useradd --uid 1000 --gid 1000 --create-home robot
COPY --from=robot-build /opt/robot-rl /opt/robot-rl
ENV PATH=/opt/robot-rl/bin:$PATH
USER 1000:1000
WORKDIR /home/robot
CMD ["robot-rl-infer", "--help"]

FROM python:3.11.14-slim-bookworm
# EGL and Mesa for cameras and films, tini to pass signals on, wget for the probes that KubeRay writes.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends libegl1 libegl-mesa0 libgl1-mesa-dri libgomp1 tini wget \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 1000 robot \
    && useradd --uid 1000 --gid 1000 --create-home robot
COPY --from=build /opt/robot-rl /opt/robot-rl
ENV PATH=/opt/robot-rl/bin:$PATH PYTHONUNBUFFERED=1 MUJOCO_GL=egl RAY_USAGE_STATS_ENABLED=0 \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics
USER 1000:1000
WORKDIR /home/robot
ENTRYPOINT ["tini", "--"]
CMD ["robot-rl", "--help"]
