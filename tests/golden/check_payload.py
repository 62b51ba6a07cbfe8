#!/usr/bin/env python3
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""check_payload.py WRITE_PAYLOAD_GOLDENS: reads our payloads back with CPython's unpickler.

Standard library only. Only the names that every supported server admits are admitted here (RC-PAY-07), the rebuild
calls are recorded instead of run, and their arguments are compared with docs/spec/sglang-wire.md 2.3-2.12.
"""
import hashlib
import io
import pathlib
import pickle
import pickletools
import subprocess
import sys
import tempfile

REDUCTIONS = "torch.multiprocessing.reductions"


class Size(tuple):
    """Stands for torch.Size: made from one tuple."""


class FlattenedTensorMetadata:
    """Stands for the server's plain dataclass: state arrives through the instance dict."""


class Recorder:
    """A rebuild function that returns what it was called with."""

    def __init__(self, name):
        self.name = name

    def __call__(self, *arguments):
        return (self.name, arguments)


ADMITTED = {
    ("torch", "Size"): Size,
    ("torch", "Tensor"): "torch.Tensor",
    ("torch", "uint8"): "torch.uint8",
    ("torch", "bfloat16"): "torch.bfloat16",
    ("torch", "float16"): "torch.float16",
    ("torch", "float32"): "torch.float32",
    ("torch.storage", "TypedStorage"): "torch.storage.TypedStorage",
    ("torch.storage", "UntypedStorage"): "torch.storage.UntypedStorage",
    ("sglang.srt.weight_sync.tensor_bucket", "FlattenedTensorMetadata"): FlattenedTensorMetadata,
    (REDUCTIONS, "rebuild_cuda_tensor"): Recorder("rebuild_cuda_tensor"),
    (REDUCTIONS, "rebuild_tensor"): Recorder("rebuild_tensor"),
    (REDUCTIONS, "rebuild_typed_storage"): Recorder("rebuild_typed_storage"),
    (REDUCTIONS, "rebuild_storage_filename"): Recorder("rebuild_storage_filename"),
}


class AllowListUnpickler(pickle.Unpickler):
    def find_class(self, module, name):
        if (module, name) not in ADMITTED:
            raise pickle.UnpicklingError(f"not admitted: {module}.{name}")
        return ADMITTED[module, name]


def load(data):
    listing = io.StringIO()
    pickletools.dis(data, out=listing)
    last = listing.getvalue().strip().splitlines()[-1]
    assert last == "highest protocol among opcodes = 4", last
    assert not any(op.name == "FRAME" for op, _, _ in pickletools.genops(data))
    stream = io.BytesIO(data)
    payload = AllowListUnpickler(stream).load()
    assert stream.read() == b"", "bytes after STOP"
    assert type(payload) is dict and list(payload) == ["flattened_tensor", "metadata"], payload
    return payload


def equal(actual, expected):
    assert actual == expected and type(actual) is type(expected), f"\n  is       {actual!r}\n  expected {expected!r}"


def check_metadata(metadata, expected):
    equal(len(metadata), len(expected))
    for entry, (name, shape, dtype, begin, end) in zip(metadata, expected):
        fields = vars(entry)
        equal(list(fields), ["name", "shape", "dtype", "start_idx", "end_idx", "numel"])
        equal(tuple(fields.values()), (name, shape, dtype, begin, end, end - begin))
        equal(type(fields["shape"]), Size)


ONE = [("w", (2, 3), "torch.bfloat16", 0, 12)]
THREE = [
    ("model.embed_tokens.weight", (151936, 4096), "torch.bfloat16", 0, 1244659712),
    ("s", (), "torch.float32", 1244659712, 1244659716),
    ("b", (1, 2, 3, 4), "torch.float16", 1244659968, 1244660016),
]


def check_cuda(data, digest, load_size, storage_size, storage_offset, counter, metadata):
    equal(hashlib.sha256(data).hexdigest(), digest)
    payload = load(data)
    equal(
        payload["flattened_tensor"],
        ("rebuild_cuda_tensor", (
            "torch.Tensor", Size((load_size,)), (1,), 0, "torch.storage.TypedStorage", "torch.uint8",
            "00112233-4455-6677-8899-aabbccddeeff", bytes(range(64)), storage_size, storage_offset, False,
            b"/refit_rc_1", counter, b"", False)))
    check_metadata(payload["metadata"], metadata)


def check_host(data):
    payload = load(data)
    untyped = ("rebuild_storage_filename",
               ("torch.storage.UntypedStorage", b"", b"/refit-4711-88231-e0-a", 1244660016))
    typed = ("rebuild_typed_storage", (untyped, "torch.uint8"))
    equal(payload["flattened_tensor"],
          ("rebuild_tensor", ("torch.Tensor", typed, (0, Size((1244660016,)), (1,), False))))
    check_metadata(payload["metadata"], THREE)


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], folder], check=True)
        read = lambda name: pathlib.Path(folder, name).read_bytes()
        check_cuda(read("payload_a.pickle"), "cd16b7442b243275a1428a4fb5b16a3747fad2b5e2c3c273367e6391bfd81e0b",
                   512, 512, 0, 0, ONE)
        check_cuda(read("payload_b.pickle"), "94d2b853fd3af0ca148a1f93113ada4c6f4f1aa9bcd98ec8fb2fb6e0a2e7d931",
                   6442450944, 6442450944, 2097152, 7, THREE)
        check_host(read("payload_host.pickle"))
    print("3 payloads read back, all as specified")


if __name__ == "__main__":
    main()
