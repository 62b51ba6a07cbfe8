#!/usr/bin/env bash
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
#
# sim_compilers.sh [SEEDS]: g++ and Clang give the same traces. Builds refit-sim with Clang beside build/ and compares
# the hash of all traces of the first SEEDS seeds (default 20000). Not part of `make test`.
set -euo pipefail
cd "$(dirname "$0")/.."
seeds=${1:-20000}
cmake --preset dev --log-level=WARNING >/dev/null
cmake --preset dev -B build-clang --log-level=WARNING -DCMAKE_CXX_COMPILER=clang++-19 -DCMAKE_C_COMPILER=clang-19 \
  -DREFIT_WERROR=OFF >/dev/null
for folder in build build-clang; do
  ninja -C "$folder" refit-sim >/dev/null
  "$folder"/bin/refit-sim --seeds "$seeds" --json >"$folder"/sim.json || true
  hash=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["hash"])' "$folder"/sim.json)
  printf '%-12s %s\n' "$folder" "$hash"
  hashes="${hashes:-}$hash "
done
read -r first second <<<"$hashes"
if [ "$first" != "$second" ]; then
  echo "the traces of $seeds seeds DIFFER: compare bin/refit-sim --seed N of both folders"
  exit 1
fi
echo "g++ and Clang agree on $seeds seeds"
