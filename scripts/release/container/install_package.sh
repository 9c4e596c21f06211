#!/bin/sh
# Installs a Debian package of `make deb` in a container of Debian 12, as root, and tries it.
# Usage: install_package.sh FILE.deb
set -eu
export DEBIAN_FRONTEND=noninteractive
# The packages of a container have no documents; ours are its inputs and its guide, in /usr/share/megatron_train.
apt-get update
apt-get install --yes --no-install-recommends "$1"
apt-get clean
rm -rf /var/lib/apt/lists/*
megatron_train --version
megatron_train /usr/share/megatron_train/inputs/demo.toml --dry-run --ranks 8 > /dev/null
