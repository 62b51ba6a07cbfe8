#!/usr/bin/env python3
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""precompile.py PART PARTS: compiles for sm_90a, without a GPU, what SGLang 0.5.17 compiles when a dense Qwen3 runs.

The libraries land in $TVM_FFI_CACHE_DIR, named by their content: a server finds them there and needs no compiler.
PARTS processes share the work; exit status 1 when a kernel fails.
"""

import sys
import time

import emulated_cuda  # noqa: F401  first: it makes torch claim a GPU
import torch
from sglang.kernels.ops.activation import activation
from sglang.kernels.ops.attention import clamp_position, rope
from sglang.kernels.ops.kvcache import kvcache
from sglang.kernels.ops.layernorm import norm

BF16 = torch.bfloat16
KERNELS = [("clamp_position", lambda name=name: getattr(clamp_position, name)(torch.int64))
           for name in dir(clamp_position) if name.startswith("_jit")]
KERNELS += [
    ("qk norm", lambda: norm._jit_qknorm_module(128, BF16)),
    ("fused add and norm", lambda: norm._jit_fused_add_rmsnorm_module(BF16, False)),
    ("norm", lambda: norm._jit_rmsnorm_module(1024, BF16)),
    ("rotary embedding", rope._jit_rotary_embedding_module),
    ("rope 128", lambda: rope._jit_fused_rope_module(True, 128, BF16, BF16)),
    ("rope 32", lambda: rope._jit_fused_rope_module(True, 32, BF16, BF16)),
    ("activation", lambda: activation.activation_module(BF16)),
]
KERNELS += [(f"kv cache {size}", lambda size=size: kvcache._jit_kvcache_module(size, size))
            for size in (2048, 1024, 512, 128, 64)]


def main():
    part, parts = int(sys.argv[1]), int(sys.argv[2])
    failed = 0
    for name, compile_it in KERNELS[part::parts]:
        start = time.monotonic()
        try:
            compile_it()
            print(f"{name}: {time.monotonic() - start:.1f} s", flush=True)
        except Exception as error:  # whatever it is, the other kernels are worth knowing about
            failed = 1
            print(f"{name}: FAILED: {type(error).__name__}: {str(error)[-800:]}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
