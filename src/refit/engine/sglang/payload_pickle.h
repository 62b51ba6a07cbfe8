// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Emits the pickle that update_weights_from_tensor takes with load_format "flattened_bucket", from a fixed template
// (docs/spec/sglang-wire.md §2). Opcode level, protocol 4, no FRAME, no memo. Never decodes one (RC-PAY-07).

#pragma once

#include <string>
#include <string_view>

#include "refit/engine/engine_payload.h"

namespace refit::engine::sglang {

std::string PicklePayload(const RankPayload& payload);

std::string Base64(std::string_view bytes);  // standard alphabet, padded, no line breaks

}  // namespace refit::engine::sglang
