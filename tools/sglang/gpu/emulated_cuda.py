# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""Makes torch claim one H200, for compiling and importing without a GPU: what SGLang asks while it is imported."""

import types

import torch


class EmulatedStream:
    def __init__(self, *_, **__):
        self.cuda_stream = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


PROPERTIES = types.SimpleNamespace(
    major=9, minor=0, name="NVIDIA H200", multi_processor_count=132, total_memory=143771 << 20, uuid="0",
    shared_memory_per_block_optin=232448, gcnArchName="", L2_cache_size=60 << 20)

torch.cuda.is_available = lambda: True
torch.cuda.device_count = lambda: 1
torch.cuda.current_device = lambda: 0
torch.cuda.get_device_capability = lambda *_, **__: (9, 0)
torch.cuda.get_device_name = lambda *_, **__: PROPERTIES.name
torch.cuda.get_device_properties = lambda *_, **__: PROPERTIES
torch.cuda.Stream = EmulatedStream
