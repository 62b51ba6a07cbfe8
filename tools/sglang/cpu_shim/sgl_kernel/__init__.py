# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""Stands in for the package `sgl_kernel`, whose wheel has CUDA code only, where SGLang runs on the CPU.

A dense text model with `--attention-backend torch_native` calls none of it; SGLang only wants the names to exist at
import. So every name resolves, and raises when it is called. No `torch.ops.sgl_kernel` is defined, so that SGLang's own
probe for a CPU build of the package says no and the plain torch paths are taken.

One function of torch is replaced, none of SGLang's: `torch.cuda.synchronize`, which 0.5.17's checksum calls without
asking whether there is a GPU, does nothing where there is none.
"""

import torch

__version__ = "0.4.5"

if not torch.cuda.is_available():
    torch.cuda.synchronize = lambda *args, **kwargs: None


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*args, **kwargs):
        raise NotImplementedError(f"sgl_kernel.{name} is not there: this is the stand-in for the CPU")

    missing.__name__ = name
    return missing
