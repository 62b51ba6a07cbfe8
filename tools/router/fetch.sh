#!/bin/sh
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
#
# Installs sglang-router 0.3.2 into a Python environment in the cache (tools/cache.sh); prints that environment's
# Python. PYTHON names another python3.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../cache.sh"

find_or_begin sglang-router-0.3.2 installed bin/python
echo "installing sglang-router into $cache (150 MB, once)" >&2
network="check the network and pip's settings, then run this again"
quietly "cannot install sglang-router" "$network" "$here/../deps.sh" --router "$work/router"
quietly "cannot import sglang-router" "$network" \
  "$work/router/bin/python" -c 'import sglang_router.launch_router, sglang_router.router'
touch "$work/router/installed"
finish router  # its Python works wherever it lies
