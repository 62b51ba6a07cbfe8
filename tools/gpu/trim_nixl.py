#!/usr/bin/env python3
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""trim_nixl.py NIXL OUT: copies what a GPU machine without RDMA needs of an unpacked NIXL (tools/deps.sh --nixl NIXL).

That is the C library, the UCX plug-in, UCX's modules for CUDA, shared memory and TCP, and whatever these are linked
with: a fifth of the wheel. OUT keeps the wheel's layout, since the libraries find each other through it. CUDA's runtime
comes along where this machine has it: there it may be in no folder that the loader looks into.
"""

import glob
import os
import re
import shutil
import subprocess
import sys

CORE, OTHERS = ".nixl_cu13.mesonpy.libs", "nixl_cu13.libs"
ROOTS = (f"{CORE}/libnixl_capi.so", f"{CORE}/plugins/libplugin_UCX.so")
MODULES = re.compile(r"libuc[tm]_(cma|cuda)\.so")


def needed(path):
    text = subprocess.run(["readelf", "-d", path], check=True, capture_output=True, text=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", text)


def closure(nixl):
    """(paths below nixl, names that the system must have)"""
    modules = [f"{OTHERS}/ucx/{name}" for name in os.listdir(f"{nixl}/{OTHERS}/ucx") if MODULES.match(name)]
    found, missing, left = set(), set(), [*ROOTS, *modules]
    while left:
        path = left.pop()
        if path in found:
            continue
        found.add(path)
        for name in needed(f"{nixl}/{path}"):
            beside = [f"{folder}/{name}" for folder in (CORE, OTHERS) if os.path.exists(f"{nixl}/{folder}/{name}")]
            if beside:
                left.append(beside[0])
            else:
                missing.add(name)
    return sorted(found), sorted(missing)


def main():
    nixl, out = sys.argv[1:]
    paths, system = closure(nixl)
    runtimes = [path for name in system if name.startswith("libcudart")
                for path in glob.glob(f"/usr/local/cuda*/lib64/{name}") + glob.glob(f"/usr/lib/*/{name}")][:1]
    for path in paths:
        os.makedirs(os.path.dirname(f"{out}/{path}"), exist_ok=True)
        shutil.copy(f"{nixl}/{path}", f"{out}/{path}")
    for path in glob.glob("*.dist-info/METADATA", root_dir=nixl):  # which version it is
        os.makedirs(os.path.dirname(f"{out}/{path}"), exist_ok=True)
        shutil.copy(f"{nixl}/{path}", f"{out}/{path}")
    for path in runtimes:
        shutil.copy(path, f"{out}/{OTHERS}/{os.path.basename(path)}")
        system.remove(os.path.basename(path))
    size = sum(os.path.getsize(f"{out}/{path}") for path in paths)
    print(f"NIXL: {len(paths)} libraries, {size / 1e6:.0f} MB; the system has: {' '.join(system)}")


if __name__ == "__main__":
    main()
