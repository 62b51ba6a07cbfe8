#!/bin/sh
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
#
# Fetches the wheel of NIXL into the cache (tools/cache.sh) and unpacks it; prints its folder. PYTHON names another
# python3.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../cache.sh"

find_or_begin nixl-cu13-1.5.1 .nixl_cu13.mesonpy.libs/libnixl_capi.so
echo "fetching NIXL into $cache (230 MB unpacked, once)" >&2
network="check the network and pip's settings, then run this again"
# A pip of its own: not every system's python3 has one.
quietly "cannot make a Python environment" "install python3-venv, then run this again" \
  "${PYTHON:-python3}" -m venv "$work/venv"
quietly "cannot fetch NIXL's wheel" "$network" env PYTHON="$work/venv/bin/python" "$here/../deps.sh" --nixl "$work/nixl"
finish nixl
