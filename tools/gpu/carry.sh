#!/usr/bin/env bash
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
#
# carry.sh BUILD OUT [NIXL]: builds in BUILD what tests/gpu/run needs, for a GPU machine that has a compiler at most (no
# gRPC, no package index), and packs it into OUT: prebuilt.tar.xz (bin/, and in lib/ what they are linked with) and,
# with an unpacked NIXL (tools/deps.sh --nixl NIXL), nixl.tar.xz. Prints the sizes.
#
# There: `tar -xf` into one folder each, then tests/gpu/run --prebuilt FOLDER --nixl-library NIXL/…/libnixl_capi.so.
# The machine's C and C++ libraries must be as new as those here.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=${1:?usage: carry.sh BUILD OUT [NIXL]}
out=${2:?usage: carry.sh BUILD OUT [NIXL]}
nixl=${3:-}
mkdir -p "$out"
out=$(cd "$out" && pwd)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage/prebuilt/bin" "$stage/prebuilt/lib" "$stage/nixl"

# The old kind of RPATH: the new one would not be asked for what a library beside the program is linked with.
# shellcheck disable=SC2016  # $ORIGIN is the loader's
cmake --preset dev -B "$build" --log-level=WARNING -DCMAKE_BUILD_RPATH='$ORIGIN/../lib' \
  -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags >/dev/null
programs=(refit refit-engine write-checkpoint nixl-read)
if cmake --build "$build" --target help | grep -q '^gpu-bench:'; then  # built where CUDA's compiler is
  programs+=(gpu-bench)
fi
# What needs a GPU carries the label gpu; its command lines go along.
ctest --test-dir "$build" -L '^gpu$' --show-only=json-v1 2>/dev/null |
  python3 -c "
import json, os, sys
for test in json.load(sys.stdin).get('tests', []):
    command = test.get('command', [])
    if command: print(os.path.basename(command[0]), *command[1:])" >"$stage/prebuilt/bin/gpu-tests.txt"
while read -r program _; do
  programs+=("$program")
done <"$stage/prebuilt/bin/gpu-tests.txt"
cmake --build "$build" -j "$(nproc)" --target "${programs[@]}" | tail -n 1

for program in "${programs[@]}"; do
  [ -e "$stage/prebuilt/bin/$program" ] || strip -o "$stage/prebuilt/bin/$program" "$build/bin/$program"
done
# All but the C and C++ runtime and the driver's, which are that machine's own.
own='/(ld-linux|lib(c|m|dl|rt|pthread|resolv|util|anl|stdc\+\+|gcc_s|gomp|cuda|nvidia-ml))[-.]'
for program in "${programs[@]}"; do
  ldd "$build/bin/$program"
done | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u | grep -vE "$own" | while read -r library; do
  # Copied under the name that programs ask for, whatever the link points to.
  strip -o "$stage/prebuilt/lib/$(basename "$library")" "$(readlink -f "$library")"
done
for program in "${programs[@]}"; do
  readelf -d "$stage/prebuilt/bin/$program" | grep -q 'RPATH.*ORIGIN/../lib' ||
    { echo "carry.sh: $program has no RPATH (delete $build and try again)" >&2; exit 1; }
done
git describe --always --dirty >"$stage/prebuilt/version.txt" 2>/dev/null || echo unknown >"$stage/prebuilt/version.txt"

pack() {  # name, folder
  tar -C "$2" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf - . | xz -6 -T1 >"$out/$1.tar.xz"
  echo "$1: $(du -sh "$2" | cut -f 1)B, packed $(stat -c %s "$out/$1.tar.xz") bytes"
}
pack prebuilt "$stage/prebuilt"
echo "programs: ${programs[*]}; $(find "$stage/prebuilt/lib" -type f | wc -l) libraries"
if [ -n "$nixl" ]; then
  python3 tools/gpu/trim_nixl.py "$nixl" "$stage/nixl"
  pack nixl "$stage/nixl"
fi
