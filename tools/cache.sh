# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
#
# Sourced by what fetches something into the cache outside the tree: the last line that such a script prints is where it
# is. It does nothing, and needs no network, when it is there already. REFIT_CACHE names another cache folder.
#
#   find_or_begin NAME MARK [PART]   prints CACHE/NAME/PART and exits where CACHE/NAME/MARK exists; else makes $work
#   quietly WHAT REMEDY COMMAND...   shows the end of the command's output only when it fails
#   finish FOLDER                    $work/FOLDER becomes CACHE/NAME
cache=${REFIT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/refit}
work=

fail() {  # what, remedy
  echo "${0##*/tools/}: $1 ($2)" >&2
  exit 1
}

clean_up() {
  if [ -n "$work" ]; then rm -rf "$work"; fi
}
trap clean_up EXIT
trap 'exit 130' INT TERM

find_or_begin() {
  target=$cache/$1
  mark=$2
  printed=$target${3:+/$3}
  if [ -e "$target/$mark" ]; then
    echo "$printed"
    exit 0
  fi
  remedy="set REFIT_CACHE to a folder you may write to"
  mkdir -p "$cache" || fail "cannot create the cache folder $cache" "$remedy"
  work=$(mktemp -d "$cache/fetch.XXXXXX") || fail "cannot write to $cache" "$remedy"
}

quietly() {
  what=$1
  remedy=$2
  shift 2
  "$@" >"$work/log" 2>&1 || { tail -n 5 "$work/log" >&2; fail "$what" "$remedy"; }
}

# Whole or not: the folder appears under its name complete. Another fetch may have been faster, which is fine.
finish() {
  if ! mv -T "$work/$1" "$target" 2>"$work/log" && [ ! -e "$target/$mark" ]; then
    fail "cannot move it to $target" "remove $target, then run this again"
  fi
  echo "$printed"
}
