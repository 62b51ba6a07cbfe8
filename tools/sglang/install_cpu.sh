#!/usr/bin/env bash
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
#
# install_cpu.sh VERSION [DIR]: an unmodified SGLang 0.5.17 or 0.5.23 for the CPU, in a virtual environment of its own
# (about 6 GB, 2 to 4 minutes; done already: a second). The last line printed is the environment's Python.
#
#   DIR           default: sglang-VERSION in the cache folder (REFIT_CACHE, default ~/.cache/refit)
#   PYTHON=path   the interpreter, 3.11 or 3.12; otherwise one on PATH, then pyenv's
#
# Exit status 3: no fitting Python.
set -euo pipefail

version=${1:-}
case $version in
  0.5.17 | 0.5.23) ;;
  *) echo "usage: install_cpu.sh 0.5.17|0.5.23 [DIR]" >&2; exit 2 ;;
esac
here=$(cd "$(dirname "$0")" && pwd)
cache=${REFIT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/refit}
dir=${2:-$cache/sglang-$version}
done_mark=$dir/installed

find_python() {
  local minor candidate ask='import ensurepip, sys, venv; print("%d.%d" % sys.version_info[:2])'
  for minor in 3.11 3.12; do
    for candidate in ${PYTHON:-} "python$minor" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/$minor.*/bin/python; do
      # A shim on PATH may be there and yet refuse to run: ask it.
      if [ "$("$candidate" -c "$ask" 2>/dev/null)" = "$minor" ]; then
        echo "$candidate"
        return
      fi
    done
  done
  echo "install_cpu.sh: no Python 3.11 or 3.12 with venv (install one, or name it: PYTHON=path)" >&2
  return 3
}

# What was installed from the same lists is used as it is.
wanted=$(cat "$here/requirements-cpu-$version.txt" "$here"/cpu_shim/sgl_kernel/__init__.py | sha256sum | cut -c 1-64)
if [ -x "$dir/venv/bin/python" ] && [ "$(cat "$done_mark" 2>/dev/null)" = "$wanted" ]; then
  echo "$dir/venv/bin/python"
  exit 0
fi

python=$(find_python) || exit 3
mkdir -p "$dir"
rm -f "$done_mark"
log=$dir/install.log
run() {  # what, command...: shows the end of the output only when it fails
  local what=$1
  shift
  "$@" >>"$log" 2>&1 && return
  tail -n 15 "$log" >&2
  if grep -qE 'from versions: none|NewConnectionError|NameResolutionError|ConnectTimeout|ProxyError' "$log"; then
    what="$what (no package registry can be reached, or none that has them)"
  fi
  echo "install_cpu.sh: SGLang $version: $what failed (whole output: $log)" >&2
  exit 1
}
: >"$log"
echo "installing SGLang $version with $("$python" --version) into $dir (once)" >&2
[ -x "$dir/venv/bin/pip" ] || run "making the environment" "$python" -m venv "$dir/venv"
# Compiling every file of every package would take a minute; Python compiles what is imported.
pip=("$dir/venv/bin/pip" install --quiet --disable-pip-version-check --no-compile)
run "installing the packages" "${pip[@]}" -r "$here/requirements-cpu-$version.txt"
run "installing sglang" "${pip[@]}" --no-deps "sglang==$version"
run "importing sglang" env PYTHONPATH="$here/cpu_shim" SGLANG_USE_CPU_ENGINE=1 CUDA_VISIBLE_DEVICES= \
  "$dir/venv/bin/python" -c "
import sglang, sglang.srt.entrypoints.http_server
assert sglang.__version__ == '$version', sglang.__version__"
echo "$wanted" >"$done_mark"
echo "$dir/venv/bin/python"
