#!/bin/sh
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
#
# Installs sglang-router 0.3.2 into a Python environment in the cache outside the tree. The last line printed is that
# environment's Python. Does nothing, and needs no network, when it is there already. REFIT_CACHE names another cache
# folder; PYTHON another python3.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${REFIT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/refit}
router=$cache/sglang-router-0.3.2

if [ -e "$router/installed" ]; then
  echo "$router/bin/python"
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

echo "installing sglang-router into $cache (150 MB, once)" >&2
if ! { "$here/../deps.sh" --router "$work/router" &&
       "$work/router/bin/python" -c 'import sglang_router.launch_router, sglang_router.router'; } \
     >"$work/log" 2>&1; then
  tail -n 3 "$work/log" >&2
  fail "cannot install sglang-router" "check the network and pip's settings, then run this again"
fi
touch "$work/router/installed"

# Whole or not: the folder appears under its name complete, and its Python works wherever it lies.
if ! mv -T "$work/router" "$router" 2>"$work/log" && [ ! -e "$router/installed" ]; then
  fail "cannot move the router to $router" "remove $router, then run this again"
fi
echo "$router/bin/python"
