#!/usr/bin/env bash
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
#
# make_bundle.sh OUT: packs an unmodified SGLang 0.5.17 for a GPU machine that has Python 3.12, torch 2.11.0 (CUDA 13)
# and no package index: OUT/bundle.tar.xz, 35 MB. No GPU is needed here; nvcc 13.0, ninja, g++, strip and xz are.
#
#   VENV=DIR   a virtual environment with torch 2.11.0 on Python 3.12; otherwise one is made under OUT/work (5 GB)
#
# Takes 3 to 5 minutes; OUT/work may be deleted afterwards. There, unpack.sh unpacks it and environment.sh says how its
# SGLang is started.
set -euo pipefail

out=${1:?usage: make_bundle.sh OUT}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$out/work
bundle=$work/bundle
log=$work/log.txt
for program in nvcc ninja g++ strip xz; do
  command -v "$program" >/dev/null || { echo "make_bundle.sh: $program is missing (install it)" >&2; exit 1; }
done
rm -rf "$bundle" "$out/bundle.tar.xz"
mkdir -p "$work/wheels" "$work/stub" "$bundle/site" "$bundle/jit"
: >"$log"
say() { echo "[${SECONDS} s] $*"; }
run() {  # what, command...: shows the end of the output only when it fails
  local what=$1
  shift
  "$@" >>"$log" 2>&1 || { tail -n 20 "$log" >&2; echo "make_bundle.sh: $what failed (output: $log)" >&2; exit 1; }
}

if [ -z "${VENV:-}" ]; then
  PYTHON=${PYTHON:-python3.12} "$here/../install_cpu.sh" 0.5.17 "$work/cpu" >/dev/null
  VENV=$work/cpu/venv
fi
python=$VENV/bin/python
run "finding torch 2.11.0 on Python 3.12 in $VENV" "$python" -c "
import sys, torch
versions = sys.version_info[:2], torch.__version__.split('+')[0]
assert versions == ((3, 12), '2.11.0'), versions"

# 1. The wheels: 0.5 GB, most of it kernels for other GPUs.
run "downloading the wheels" "$python" -m pip download --quiet --disable-pip-version-check --no-deps \
  --only-binary=:all: --python-version 3.12 --implementation cp --abi cp312 --abi abi3 --abi none \
  --platform manylinux_2_34_x86_64 --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 \
  --platform manylinux2014_x86_64 --platform manylinux1_x86_64 \
  --dest "$work/wheels" -r "$here/requirements-0.5.17.txt"
say "$(find "$work/wheels" -name '*.whl' | wc -l) wheels, $(du -sh "$work/wheels" | cut -f 1)"

# 2. What a dense text model on an sm_90 GPU loads of them.
run "unpacking the wheels" "$python" "$here/unpack_wheels.py" "$work/wheels" "$bundle/site"
# sgl_kernel prefers flashinfer's norm wherever flashinfer can be imported; its CUDA sources stay behind, so its own.
sed -i 's/^    _has_flashinfer = True/    _has_flashinfer = False/' "$bundle/site/sgl_kernel/elementwise.py"
if grep -q '_has_flashinfer = True' "$bundle/site/sgl_kernel/elementwise.py"; then
  echo "make_bundle.sh: sgl_kernel/elementwise.py has changed (look at how it chooses its norm)" >&2
  exit 1
fi
say "unpacked, $(du -sh "$bundle/site" | cut -f 1)"

# 3. The kernels that SGLang compiles when first used, for an emulated sm_90 GPU. Two processes share the work.
nvcc=$(readlink -f "$(command -v nvcc)")
export CUDA_HOME=${CUDA_HOME:-${nvcc%/bin/nvcc}}
stub=$(find -L "$CUDA_HOME"/lib* "$CUDA_HOME"/targets -path '*stubs/libcuda.so' 2>/dev/null | head -n 1 || true)
ln -sf "$stub" "$work/stub/libcuda.so.1"
emulated() {
  LD_LIBRARY_PATH=$work/stub PYTHONPATH=$here:$bundle/site:$work/there PYTHONDONTWRITEBYTECODE=1 \
    SGLANG_IS_FLASHINFER_AVAILABLE=false TVM_FFI_CACHE_DIR=$work/jit "$python" "$@"
}
rm -rf "$work/jit"
mkdir "$work/jit"
emulated "$here/precompile.py" 0 2 >"$work/jit-0.log" 2>&1 &
other=$!
run "compiling kernels" emulated "$here/precompile.py" 1 2
wait "$other" || { tail -n 20 "$work/jit-0.log" >&2; echo "make_bundle.sh: compiling kernels failed" >&2; exit 1; }
(cd "$work/jit" && find . -name '*.so' -exec cp --parents {} "$bundle/jit" \;)
kernels=$(find "$bundle/jit" -name '*.so' | wc -l)
say "$kernels kernels"
[ "$kernels" -eq 13 ] || { echo "make_bundle.sh: $kernels kernels instead of 13 (see $log)" >&2; exit 1; }

# 4. Stripped, imported once to prove that nothing is missing, packed. Two packages are there already.
run "installing what the GPU machine has" "$python" -m pip install --quiet --disable-pip-version-check --no-deps \
  --upgrade --target "$work/there" nvidia-ml-py==13.615.71 tabulate==0.10.0
find "$bundle/site" -name '*.so' -exec strip {} +
run "importing the bundle" emulated -c "
import emulated_cuda, sglang, sglang.launch_server, sglang.srt.entrypoints.http_server, sgl_kernel, transformers
import sglang.srt.managers.scheduler, sglang.srt.models.qwen3
for module in (sglang, sgl_kernel, transformers): assert module.__file__.startswith('$bundle/site/'), module.__file__"
tar -C "$bundle" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf - site jit |
  xz -6 -T1 >"$out/bundle.tar.xz"
say "$(du -h --apparent-size "$out/bundle.tar.xz" | cut -f 1)B in $out/bundle.tar.xz"
