#!/usr/bin/env bash
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
#
# run.sh BUILD [--full]: refits unmodified SGLang servers on the CPU, 0.5.17 (no sessions) and 0.5.23 (sessions), one
# server at a time. Installs them first, into virtual environments that are kept (tools/sglang/install_cpu.sh).
# Without --full, for each version: everything at TP 2, the demo at TP 1, and every call that kills a server; for the
# newer one, with two servers, the recovery proof and faults.py as well. With it: everything at TP 1 too, the deaths at
# TP 2, and every recovery. VERSIONS="0.5.23" narrows it down; PYTHON_0_5_23=path takes an environment that is there,
# REFIT_ROUTER_PYTHON one that has sglang-router, for faults.py. Every step prints its seconds. The last line is
# "N passed, 0 failed".
set -uo pipefail
cd "$(dirname "$0")/../.."

build=${1:?run.sh: name the build folder}
full=${2:-}
bin=$build/bin
versions=${VERSIONS:-0.5.17 0.5.23}
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

step() {  # name, command...
  local name=$1 start=$SECONDS
  shift
  echo "== SGLang $name"
  "$@"
  echo "== SGLang $name: $((SECONDS - start)) s"
}

refits() {  # version, tp, more arguments of check_refit.py...
  local version=$1 tp=$2 folder
  shift 2
  runs=$((runs + 1))
  folder=$work/refits-$runs
  (
    TP=$tp
    source tools/sglang/cpu_environment.sh
    python3 tests/sglang/check_refit.py --bin "$bin" --python "$python" --tp "$tp" --work "$folder" "$@" -- \
      "${sglang_cpu_arguments[@]}"
  )
  count "$folder/counts.json"
}

conformance() {  # version, tp, GoogleTest filter
  local tp=$2 folder=$work/conformance-$1-tp$2
  mkdir -p "$folder"
  "$bin/write-checkpoint" tiny 1 "$folder/model"
  (
    TP=$tp
    source tools/sglang/cpu_environment.sh
    "$bin/engine-conformance" --python "$python" --model "$folder/model" --tp "$tp" --log "$folder/server.log" \
      --gtest_brief=1 --gtest_filter="$3" --gtest_output="json:$folder/report.json" -- "${sglang_cpu_arguments[@]}"
  )
  count "$folder/report.json"
}

demo() {  # version: three refits of one server at TP 1, verified
  local report
  if report=$(
    source tools/sglang/cpu_environment.sh
    REFIT_CACHE=$work/cache "$bin/refit" demo --engine sglang --python "$python" --random tiny --json -- \
      "${sglang_cpu_arguments[@]}"
  ); then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "$report"
  fi
}

proof() {  # names of tests/integration/recovery_proof_test.py...: two servers at TP 1, one crashes and is replaced
  (
    TP=1
    source tools/sglang/cpu_environment.sh
    SGLANG_ARGUMENTS="${sglang_cpu_arguments[*]}" \
      python3 tests/integration/recovery_proof_test.py "$bin" --python "$python" "$@"
  )
  if [ $? -eq 0 ]; then
    passed=$((passed + $#))
  else
    failed=$((failed + $#))
  fi
}

faults() {  # two servers at TP 1, which are killed and stopped while they serve and while they are refitted
  local folder=$work/faults
  mkdir -p "$folder"
  (
    TP=1
    source tools/sglang/cpu_environment.sh
    SGLANG_ARGUMENTS="${sglang_cpu_arguments[*]}" \
      python3 tests/sglang/faults.py "$bin" --python "$python" --json "$folder/rows.json" --keep "$folder/logs"
  )
  count "$folder/rows.json"
}

# Both at once: most of it is waiting for the network.
install() {
  local version given
  for version in $versions; do
    given=PYTHON_${version//./_}
    if [ -n "${!given:-}" ]; then
      echo "${!given}" >"$work/python-$version"
    else
      tools/sglang/install_cpu.sh "$version" >"$work/python-$version" &
    fi
  done
  wait
}

step "$(echo $versions): install" install
for version in $versions; do
  python=$(tail -n 1 "$work/python-$version")
  if [ -z "$python" ]; then
    echo "SGLang $version: not installed, so not tried (the reason stands above)"
    failed=$((failed + 1))
    continue
  fi
  echo "== SGLang $version with $("$python" --version), torch $("$python" -c 'import torch; print(torch.__version__)')"
  mode=abort
  deaths='Engines/EngineDeaths.*-*OnFamilyB*'  # each case starts a server, even where it is about another family
  if [ "$version" != 0.5.17 ]; then
    mode=retract  # without sessions a retract pause could never be flushed
    deaths='Engines/EngineDeaths.*-*OnFamily*'
  fi
  step "$version, TP 2: refits" refits "$version" 2 --pause-mode "$mode" --load-bytes 1KiB
  step "$version, TP 2: conformance" conformance "$version" 2 'Engines/EngineConformance.*'
  step "$version, TP 1: demo" demo
  if [ -n "$full" ] || [ "$version" != 0.5.17 ]; then
    step "$version, TP 1: recovery" proof Recovery.test_of_a_crash_that_the_monitor_finds_in_strict
  fi
  if [ "$version" != 0.5.17 ]; then  # which does not say of what version each token is
    step "$version, TP 1: faults" faults
  fi
  step "$version, TP 1: deaths" conformance "$version" 1 "$deaths"
  if [ -n "$full" ]; then
    step "$version, TP 1: more recoveries" proof Recovery.test_of_a_crash_that_the_monitor_finds_in_resilient \
      Recovery.test_of_a_crash_that_is_found_at_the_refit_boundary
    step "$version, TP 1: refits" refits "$version" 1 --pause-mode "$mode" --load-bytes 1KiB
    step "$version, TP 1: conformance" conformance "$version" 1 'Engines/EngineConformance.*'
    step "$version, TP 2: deaths" conformance "$version" 2 "$deaths"
  fi
done
[ "$failed" -gt 0 ] && echo "logs: $work" || rm -rf "$work"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
