#!/bin/sh
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
#
# Fetches the wheel of NIXL into the cache outside the tree and unpacks it. The last line printed is its folder. Does
# nothing, and needs no network, when it is there already. REFIT_CACHE names another cache folder; PYTHON another
# python3.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${REFIT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/refit}
nixl=$cache/nixl-cu13-1.5.1

if [ -e "$nixl/.nixl_cu13.mesonpy.libs/libnixl_capi.so" ]; then
  echo "$nixl"
  exit 0
fi

work=
fail() {  # what, remedy
  echo "fetch.sh: $1 ($2)" >&2
  exit 1
}
clean_up() {
  if [ -n "$work" ]; then rm -rf "$work"; fi
}
trap clean_up EXIT
trap 'exit 130' INT TERM

mkdir -p "$cache" || fail "cannot create the cache folder $cache" "set REFIT_CACHE to a folder you may write to"
work=$(mktemp -d "$cache/fetch.XXXXXX") || fail "cannot write to $cache" "set REFIT_CACHE to a folder you may write to"

echo "fetching NIXL into $cache (230 MB unpacked, once)" >&2
# A pip of its own: not every system's python3 has one.
if ! { "${PYTHON:-python3}" -m venv "$work/venv" &&
       PYTHON="$work/venv/bin/python" "$here/../deps.sh" --nixl "$work/nixl"; } >"$work/log" 2>&1; then
  tail -n 3 "$work/log" >&2
  fail "cannot fetch NIXL's wheel" "check the network and pip's settings, then run this again"
fi

# Whole or not: the folder appears under its name complete. Another fetch may have been faster, which is fine.
if ! mv -T "$work/nixl" "$nixl" 2>"$work/log" && [ ! -e "$nixl/.nixl_cu13.mesonpy.libs/libnixl_capi.so" ]; then
  fail "cannot move NIXL to $nixl" "remove $nixl, then run this again"
fi
echo "$nixl"
