#!/usr/bin/env bash
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
#
# unpack.sh BUNDLE DIR: unpacks what make_bundle.sh packed into DIR (site/ and jit/, 190 MB, 6 s), whole or not at all.
# Python does it, since a GPU machine need not have xz.
set -euo pipefail

bundle=${1:?usage: unpack.sh BUNDLE DIR}
dir=${2:?usage: unpack.sh BUNDLE DIR}
rm -rf "$dir.part"
mkdir -p "$dir.part"
python3 -c "
import sys, tarfile
with tarfile.open(sys.argv[1]) as archive:
    archive.extractall(sys.argv[2], filter='data')" "$bundle" "$dir.part"
rm -rf "$dir"
mv "$dir.part" "$dir"
