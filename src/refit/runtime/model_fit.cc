// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/model_fit.h"

#include <filesystem>

#include "refit/checkpoint/checkpoint.h"
#include "refit/weights/model_config.h"

namespace refit::runtime {

Status CheckModelFits(const std::vector<std::string>& engine_args, std::uint32_t tp_size) {
  for (std::size_t i = 0; i + 1 < engine_args.size(); ++i) {
    std::error_code error;
    const bool names_model = engine_args[i] == "--model" || engine_args[i] == "--model-path";
    if (!names_model || !std::filesystem::exists(engine_args[i + 1] + "/config.json", error)) {
      continue;
    }
    REFIT_ASSIGN_OR_RETURN(const weights::ModelConfig config, checkpoint::ReadModelConfig(engine_args[i + 1]));
    REFIT_RETURN_IF_ERROR(weights::CheckTpSize(config, tp_size));
  }
  return OkStatus();
}

}  // namespace refit::runtime
