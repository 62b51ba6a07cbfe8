// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Where models are kept outside the tree, as tools/demo_model/fetch.sh keeps them.

#pragma once

#include <string>

namespace refit::cli {

std::string CacheFolder();      // $REFIT_CACHE, or ${XDG_CACHE_HOME:-~/.cache}/refit
std::string DemoModelFolder();  // that the demo takes where none is named

}  // namespace refit::cli
