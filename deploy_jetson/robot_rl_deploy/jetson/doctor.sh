#!/usr/bin/env bash
# Checks this machine: real-time kernel, isolated cores, clocks, heat, permissions, TensorRT, network cards.
# With sudo it checks more. After the installation, --service checks with the permissions of the service.
set -euo pipefail
cd "$(dirname "$0")"
if [ "${1:-}" = --service ]; then
    exec sudo systemd-run --quiet --pipe --wait --uid=robot-rl -p LimitRTPRIO=95 -p LimitMEMLOCK=infinity \
        python3 /opt/robot-rl/current/bin/doctor.py "${@:2}"
fi
exec python3 bin/doctor.py "$@"
