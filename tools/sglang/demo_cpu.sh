#!/usr/bin/env bash
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
#
# demo_cpu.sh [0.5.17|0.5.23] [arguments of refit demo...]: `refit demo --engine sglang` on a machine without a GPU.
# Installs that SGLang first, once (install_cpu.sh, about 6 GB). BUILD names the build folder, `build` otherwise.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
version=0.5.23
case ${1:-} in
  0.*) version=$1; shift ;;
esac
python=$("$here/install_cpu.sh" "$version" | tail -n 1)
source "$here/cpu_environment.sh"
exec "${BUILD:-$here/../../build}/bin/refit" demo --engine sglang --python "$python" "$@" -- \
  "${sglang_cpu_arguments[@]}"
