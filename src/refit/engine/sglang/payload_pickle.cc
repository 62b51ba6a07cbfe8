// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/sglang/payload_pickle.h"

#include <cstdint>
#include <variant>
#include <vector>

#include "refit/base/check.h"

namespace refit::engine::sglang {
namespace {

constexpr std::string_view kReductions = "torch.multiprocessing.reductions";

// Appends pickle opcodes. A value method leaves exactly one object on the reader's stack.
class Emitter {
 public:
  void Raw(std::string_view opcodes) { out_ += opcodes; }

  void Text(std::string_view text) { Sized(text, '\x8c', 'X'); }   // SHORT_BINUNICODE, BINUNICODE
  void Binary(std::string_view bytes) { Sized(bytes, 'C', 'B'); }  // SHORT_BINBYTES, BINBYTES

  void Integer(std::uint64_t value) {
    REFIT_CHECK(value <= static_cast<std::uint64_t>(INT64_MAX), "a pickled integer fits 63 bits");
    if (value <= 0xff) {
      Raw("K");  // BININT1
      LittleEndian(value, 1);
    } else if (value <= 0xffff) {
      Raw("M");  // BININT2
      LittleEndian(value, 2);
    } else if (value <= 0x7fffffff) {
      Raw("J");  // BININT
      LittleEndian(value, 4);
    } else {
      Raw("\x8a\x08");  // LONG1, eight bytes
      LittleEndian(value, 8);
    }
  }
  void False() { Raw("\x89"); }

  void Global(std::string_view module, std::string_view name) {
    Text(module);
    Text(name);
    Raw("\x93");  // STACK_GLOBAL
  }
  void Mark() { Raw("("); }
  void TupleFromMark() { Raw("t"); }
  void Tuple1() { Raw("\x85"); }
  void Tuple2() { Raw("\x86"); }
  void Tuple3() { Raw("\x87"); }
  void Call() { Raw("R"); }  // REDUCE: the callable and its tuple of arguments are on the stack

  // torch.Size of these dimensions.
  template <typename Dimensions>
  void Size(const Dimensions& dimensions) {
    Global("torch", "Size");
    const auto count = dimensions.size();
    if (count == 0) {
      Raw(")");
    } else if (count > 3) {
      Mark();
    }
    for (const auto dimension : dimensions) {
      Integer(static_cast<std::uint64_t>(dimension));
    }
    switch (count) {
      case 0: break;
      case 1: Tuple1(); break;
      case 2: Tuple2(); break;
      case 3: Tuple3(); break;
      default: TupleFromMark(); break;
    }
    Tuple1();
    Call();
  }

  std::string Take() { return std::move(out_); }

 private:
  void LittleEndian(std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) {
      out_ += static_cast<char>((value >> (8 * i)) & 0xff);
    }
  }
  void Sized(std::string_view bytes, char short_opcode, char long_opcode) {
    REFIT_CHECK(bytes.size() <= 0xffffffff, "a pickled string is shorter than 4 GiB");
    if (bytes.size() <= 0xff) {
      out_ += short_opcode;
      LittleEndian(bytes.size(), 1);
    } else {
      out_ += long_opcode;
      LittleEndian(bytes.size(), 4);
    }
    out_ += bytes;
  }

  std::string out_;
};

void EmitMetadata(Emitter& emit, const PayloadTensor& tensor) {
  const Result<ByteCount> size = weights::SizeOf(tensor.spec);
  REFIT_CHECK(size.has_value(), "the payload's tensors were validated");
  emit.Global("sglang.srt.weight_sync.tensor_bucket", "FlattenedTensorMetadata");
  emit.Raw(")\x81}(");  // an object made without arguments, then its state as a dict
  emit.Text("name");
  emit.Text(tensor.spec.name);
  emit.Text("shape");
  emit.Size(tensor.spec.shape);
  emit.Text("dtype");
  emit.Global("torch", weights::TorchName(tensor.spec.dtype));
  emit.Text("start_idx");
  emit.Integer(tensor.offset);
  emit.Text("end_idx");
  emit.Integer(tensor.offset + *size);
  emit.Text("numel");  // bytes, as native senders write it
  emit.Integer(*size);
  emit.Raw("ub");
}

// The bucket's dict; `emit_flat` puts the tensor that covers the whole load.
template <typename EmitFlat>
std::string Bucket(const std::vector<PayloadTensor>& tensors, EmitFlat emit_flat) {
  Emitter emit;
  emit.Raw("\x80\x04}(");
  emit.Text("flattened_tensor");
  emit_flat(emit);
  emit.Text("metadata");
  emit.Raw("](");
  for (const PayloadTensor& tensor : tensors) {
    EmitMetadata(emit, tensor);
  }
  emit.Raw("eu.");
  return emit.Take();
}

std::string PickleHostLoad(const HostLoad& load, const std::vector<PayloadTensor>& tensors) {
  return Bucket(tensors, [&load](Emitter& emit) {
    emit.Global(kReductions, "rebuild_tensor");
    emit.Global("torch", "Tensor");
    emit.Global(kReductions, "rebuild_typed_storage");
    emit.Global(kReductions, "rebuild_storage_filename");
    emit.Mark();
    emit.Global("torch.storage", "UntypedStorage");
    emit.Binary("");  // no manager of ours: the receiver starts its own
    emit.Binary(load.shm_name);
    emit.Integer(load.data_size);
    emit.TupleFromMark();
    emit.Call();
    emit.Global("torch", "uint8");
    emit.Tuple2();
    emit.Call();
    emit.Mark();
    emit.Integer(0);  // the tensor's offset, in elements
    emit.Size(std::vector<ByteCount>{load.data_size});
    emit.Integer(1);  // stride
    emit.Tuple1();
    emit.False();  // requires_grad
    emit.TupleFromMark();
    emit.Tuple3();
    emit.Call();
  });
}

std::string PickleCudaLoad(const CudaLoad& load, const std::vector<PayloadTensor>& tensors) {
  return Bucket(tensors, [&load](Emitter& emit) {
    emit.Global(kReductions, "rebuild_cuda_tensor");
    emit.Mark();
    emit.Global("torch", "Tensor");
    emit.Size(std::vector<ByteCount>{load.load_size});
    emit.Integer(1);  // stride
    emit.Tuple1();
    emit.Integer(0);  // the tensor's offset, in elements
    emit.Global("torch.storage", "TypedStorage");
    emit.Global("torch", "uint8");
    emit.Text(load.device_uuid);
    emit.Binary(load.ipc_handle);
    emit.Integer(load.storage_size);
    emit.Integer(load.storage_offset);
    emit.False();  // requires_grad
    emit.Binary(load.counter_name);
    emit.Integer(load.counter_index);
    emit.Binary("");  // no event: our writes are complete before the POST
    emit.False();     // so none is waited for
    emit.TupleFromMark();
    emit.Call();
  });
}

}  // namespace

std::string PicklePayload(const RankPayload& payload) {
  const auto* const cuda = std::get_if<CudaLoad>(&payload.load);
  return cuda != nullptr ? PickleCudaLoad(*cuda, payload.tensors)
                         : PickleHostLoad(std::get<HostLoad>(payload.load), payload.tensors);
}

std::string Base64(std::string_view bytes) {
  static constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out((bytes.size() + 2) / 3 * 4, '=');
  char* to = out.data();
  const auto put = [&to](std::uint32_t group, int digits) {
    for (int j = 0; j < digits; ++j) {
      *to++ = kAlphabet[(group >> (18 - 6 * j)) & 63];
    }
  };
  const auto byte = [&bytes](std::size_t i) { return std::uint32_t{static_cast<unsigned char>(bytes[i])}; };
  std::size_t i = 0;
  for (; i + 3 <= bytes.size(); i += 3) {
    put((byte(i) << 16) | (byte(i + 1) << 8) | byte(i + 2), 4);
  }
  if (bytes.size() - i == 2) {
    put((byte(i) << 16) | (byte(i + 1) << 8), 3);
  } else if (bytes.size() - i == 1) {
    put(byte(i) << 16, 2);
  }
  return out;
}

}  // namespace refit::engine::sglang
