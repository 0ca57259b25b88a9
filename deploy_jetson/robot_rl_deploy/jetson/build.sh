#!/usr/bin/env bash
# Builds robot-rl-infer on a Jetson with JetPack 7 (Jetson Linux R38 or later), or on any Linux, and checks the bundle.
#
#   ./build.sh [--packages] [--toolchain FILE] [--jobs N]
#
#   --packages        install the compiler, CMake, Ninja and CycloneDDS with apt first
#   --toolchain FILE  cross-compile; EMULATOR="qemu-aarch64 -L ..." then runs the check
#   --jobs N          compile N files at a time
set -euo pipefail
cd "$(dirname "$0")"

packages=no toolchain="" jobs=""
while [ $# -gt 0 ]; do
    case $1 in
        --packages) packages=yes ;;
        --toolchain) toolchain=${2:?--toolchain needs a file} && shift ;;
        --jobs) jobs=${2:?--jobs needs a number} && shift ;;
        *) echo "build.sh: '$1' is unknown; it takes --packages, --toolchain FILE, --jobs N" >&2 && exit 2 ;;
    esac
    shift
done

say() { echo "== $*"; }

say "files"
sha256sum -c --quiet SHA256SUMS

if [ "$packages" = yes ]; then
    say "packages"
    sudo apt-get update -q
    sudo apt-get install -q -y --no-install-recommends g++ cmake ninja-build python3-pip cyclonedds-dev cyclonedds-tools
fi

if [ -z "$toolchain" ]; then
    if [ -r /etc/nv_tegra_release ]; then
        release=$(sed -n 's/^# R\([0-9]*\).*/\1/p' /etc/nv_tegra_release)
        [ "${release:-0}" -ge 38 ] || echo "build.sh: Jetson Linux R$release is older than JetPack 7 (R38); continuing" >&2
        [ -e /usr/include/aarch64-linux-gnu/NvInfer.h ] ||
            echo "build.sh: no NvInfer.h, so TensorRT is left out; 'sudo apt install nvidia-jetpack' installs it" >&2
    else
        echo "build.sh: this is not a Jetson; continuing"
    fi
fi

mkdir -p bin
if ! ls bin/libonnxruntime.so* >/dev/null 2>&1; then
    say "ONNX Runtime"
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    if ls onnxruntime-*.whl >/dev/null 2>&1; then
        cp onnxruntime-*.whl "$scratch"
    else
        python3 -m pip --disable-pip-version-check download -q --no-deps --only-binary=:all: -d "$scratch" -r onnxruntime.txt
    fi
    python3 -m zipfile -e "$scratch"/onnxruntime-*.whl "$scratch"
    cp "$scratch"/onnxruntime/capi/libonnxruntime.so* bin/
fi

say "robot-rl-infer"
generator=()
if command -v ninja >/dev/null; then generator=(-G Ninja); fi
cmake -S runtime -B build "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DROBOT_RL_PYTHON=OFF \
    ${toolchain:+-DCMAKE_TOOLCHAIN_FILE="$(realpath "$toolchain")"} >build.log || { tail -20 build.log >&2; exit 1; }
cmake --build build --target robot-rl-infer --parallel ${jobs:-$(nproc)} >>build.log || { tail -40 build.log >&2; exit 1; }
cp build/robot-rl-infer doctor.py bin/

say "golden replay"
if [ -z "$toolchain" ] || [ -n "${EMULATOR:-}" ]; then
    # EMULATOR is a command and its options.
    ${EMULATOR:-} bin/robot-rl-infer --bundle bundle --check --onnxruntime bin
fi
say "done: ./doctor.sh looks at this machine, sudo ./install.sh installs"
