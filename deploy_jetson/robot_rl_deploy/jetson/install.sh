#!/usr/bin/env bash
# Installs what build.sh built: /opt/robot-rl/<digest> with a link `current`, settings in /etc/robot-rl, the service.
# Nothing is started. Existing settings are kept. DESTDIR=... installs below that folder, without root.
set -euo pipefail
cd "$(dirname "$0")"
root=${DESTDIR:-}
[ -x bin/robot-rl-infer ] || { echo "install.sh: bin/robot-rl-infer is missing; run ./build.sh first" >&2; exit 2; }
[ -n "$root" ] || [ "$(id -u)" -eq 0 ] || { echo "install.sh: run it with sudo" >&2; exit 2; }

digest=$(cat SHA256SUMS bin/robot-rl-infer | sha256sum | cut -c1-16)
home=$root/opt/robot-rl
mkdir -p "$home/$digest" "$root/etc/robot-rl" "$root/etc/systemd/system"
cp -r bin bundle "$home/$digest/"
if [ -e key.pub ]; then cp key.pub "$home/$digest/"; fi
ln -sfn "$digest" "$home/.current" && mv -T "$home/.current" "$home/current"
for name in settings.json robot-rl.env; do
    if [ -e "$root/etc/robot-rl/$name" ] && ! cmp -s "$name" "$root/etc/robot-rl/$name"; then
        cp "$name" "$root/etc/robot-rl/$name.new"
        echo "install.sh: /etc/robot-rl/$name is kept; the new one is $name.new" >&2
    else
        cp "$name" "$root/etc/robot-rl/$name"
    fi
done
cp robot-rl.service "$root/etc/systemd/system/"
if [ -z "$root" ]; then
    id robot-rl >/dev/null 2>&1 || useradd --system --no-create-home --shell /usr/sbin/nologin robot-rl
    for group in video render; do
        if getent group $group >/dev/null; then usermod -a -G $group robot-rl; fi
    done
    systemctl daemon-reload
fi
echo "installed as /opt/robot-rl/$digest; check /etc/robot-rl, then: sudo systemctl start robot-rl"
