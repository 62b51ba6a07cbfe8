#!/usr/bin/env bash
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
#
# run.sh BUILD [--full]: refits unmodified SGLang servers on the CPU, 0.5.17 (no sessions) and 0.5.23 (sessions), one
# server at a time. Installs them first, into virtual environments that are kept (tools/sglang/install_cpu.sh).
# Without --full: everything at TP 1, a few refits at TP 2. With it: everything at TP 2 as well, and every call that
# kills a server. VERSIONS="0.5.23" and TPS="1" narrow it down. The last line is "N passed, 0 failed".
set -uo pipefail
cd "$(dirname "$0")/../.."

build=${1:?run.sh: name the build folder}
full=${2:-}
bin=$build/bin
versions=${VERSIONS:-0.5.17 0.5.23}
tps=${TPS:-1 2}
work=$(mktemp -d "${TMPDIR:-/tmp}/refit-sglang.XXXXXX")
passed=0
failed=0
runs=0

count() {  # JSON file, name of passed, name of failed
  local numbers
  if ! numbers=$(python3 -c 'import json,sys; d=json.load(open(sys.argv[1])); f=d.get("failures", d.get("failed"))
p=d["passed"] if "passed" in d else d["tests"] - f - d.get("disabled", 0) - sum(
    t.get("result") == "SKIPPED" for s in d["testsuites"] for t in s["testsuite"])
print(p, f)' "$1"); then
    numbers="0 1"
  fi
  passed=$((passed + ${numbers% *}))
  failed=$((failed + ${numbers#* }))
}

refits() {  # version, tp, more arguments of check_refit.py...
  local version=$1 tp=$2 folder
  shift 2
  runs=$((runs + 1))
  folder=$work/refits-$runs
  echo "== SGLang $version, TP $tp: refits $*"
  (
    TP=$tp
    source tools/sglang/cpu_environment.sh
    python3 tests/sglang/check_refit.py --bin "$bin" --python "$python" --tp "$tp" --work "$folder" "$@" -- \
      "${sglang_cpu_arguments[@]}"
  )
  count "$folder/counts.json"
}

conformance() {  # version, tp, GoogleTest filter
  local version=$1 tp=$2 folder=$work/conformance-$1-tp$2
  mkdir -p "$folder"
  echo "== SGLang $version, TP $tp: conformance $3"
  "$bin/write-checkpoint" tiny 1 "$folder/model"
  (
    TP=$tp
    source tools/sglang/cpu_environment.sh
    "$bin/engine-conformance" --python "$python" --model "$folder/model" --tp "$tp" --log "$folder/server.log" \
      --gtest_brief=1 --gtest_filter="$3" --gtest_output="json:$folder/report.json" -- "${sglang_cpu_arguments[@]}"
  )
  count "$folder/report.json"
}

for version in $versions; do
  SECONDS=0
  python=$(tools/sglang/install_cpu.sh "$version" | tail -n 1)
  if [ -z "$python" ]; then
    echo "SGLang $version: not installed (see above)"
    failed=$((failed + 1))
    continue
  fi
  torch=$("$python" -c 'import torch; print(torch.__version__)')
  echo "== SGLang $version with $("$python" --version), torch $torch, installed in ${SECONDS} s"
  mode=abort
  [ "$version" = 0.5.17 ] || mode=retract  # without sessions a retract pause could never be flushed
  for tp in $tps; do
    SECONDS=0
    if [ "$tp" = 1 ] || [ -n "$full" ]; then
      refits "$version" "$tp" --pause-mode "$mode" --load-bytes 1KiB
      conformance "$version" "$tp" 'Engines/EngineConformance.*'
    fi
    if [ "$tp" != 1 ]; then
      refits "$version" "$tp" --short
    fi
    echo "== SGLang $version, TP $tp: ${SECONDS} s"
  done
  if [ -n "$full" ]; then
    conformance "$version" 1 'Engines/EngineDeaths.*'
  fi
done
[ "$failed" -gt 0 ] && echo "logs: $work" || rm -rf "$work"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
