#!/usr/bin/env python3
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""unpack_wheels.py WHEELS SITE: unpacks what a dense text model on an sm_90 GPU loads of SGLang's wheels."""

import glob
import os
import re
import sys
import zipfile

LEFT_OUT = re.compile(r"""
    sglang/(multimodal_gen|test|benchmark)/             # other programs
  | sglang/srt/(grpc|multimodal|server)/_core\.         # optional Rust libraries, 23 MB
  | sgl_kernel/(sm100/|flash_ops|flashmla_ops|infllm_ops|spatial_ops)  # loaded when used, 1.2 GB; sm90 stays
  | flashinfer/data/ | build_backend\.py | build_utils\.py | tools/    # of flashinfer: Python files only
  | jedi/third_party/ | xgrammar/lib/libxgrammar\.a
  | [^/]+\.data/                                        # console scripts, manual pages
""", re.X)


def main():
    wheels, site = sys.argv[1:]
    for wheel in sorted(glob.glob(f"{wheels}/*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.infolist():
                if entry.is_dir() or LEFT_OUT.match(entry.filename):
                    continue
                path = archive.extract(entry, site)
                mode = entry.external_attr >> 16 & 0o777
                os.chmod(path, (mode or 0o644) | 0o644)


if __name__ == "__main__":
    main()
