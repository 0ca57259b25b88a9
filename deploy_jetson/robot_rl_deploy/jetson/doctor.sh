#!/usr/bin/env bash
# Looks at this machine: real-time kernel, isolated cores, clocks, heat, permissions, TensorRT, network cards.
# With sudo it sees more. Once installed, --service looks with the permissions that the service has.
set -euo pipefail
cd "$(dirname "$0")"
if [ "${1:-}" = --service ]; then
    exec sudo systemd-run --quiet --pipe --wait --uid=robot-rl -p LimitRTPRIO=95 -p LimitMEMLOCK=infinity \
        /opt/robot-rl/current/bin/robot-rl-infer --doctor "${@:2}"
fi
exec bin/robot-rl-infer --doctor "$@"
