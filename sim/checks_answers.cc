// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include "refit/base/str.h"
#include "sim/checks.h"
#include "sim/controller_process.h"
#include "sim/world.h"

namespace refit::sim {

Checks::Request Checks::OnRequest(const Router::Entry& entry) const { return {world_.now(), entry.late}; }

// Stale: no token's version was the last committed at any instant between arrival and last byte (settled C9).
void Checks::OnAnswer(const Request& request, const Router::Entry& entry, const Generated& generated) {
  bool current = generated.tokens.empty() || request.excused;
  for (const Token& token : generated.tokens) {
    if (token.mixed) {
      world_.Report(Checker::kInv1, StrCat("engine ", entry.entry.slot, " life ", entry.entry.incarnation.low,
                                           " answered with a mixed token"));
    }
    for (std::size_t i = 0; i < committed_.size(); ++i) {
      const bool over = i + 1 < committed_.size() && committed_[i + 1].since < request.arrived;
      current = current || (!over && committed_[i].content == token.content);
    }
  }
  if (!current) {
    world_.Report(Checker::kInv2,
                  StrCat("engine ", entry.entry.slot, " life ", entry.entry.incarnation.low, " answered with content ",
                         generated.tokens.front().content, ", committed is version ", committed_version()));
  }
}

void Checks::CheckRouted(const Router::Entry& entry) {
  const Engine* const engine = world_.router().Listener(entry);
  if (engine == nullptr || entry.late || !engine->generates() || engine->content() == committed_content()) {
    return;
  }
  const std::optional<Content> holds = engine->content();
  world_.Report(Checker::kInv2,
                StrCat("engine ", entry.entry.slot, " life ", entry.entry.incarnation.low, " is routed and serves ",
                       holds.has_value() ? StrCat("content ", *holds) : std::string("a mix"), ", committed is version ",
                       committed_version()));
}

void Checks::OnServes(const Engine& engine) {
  for (const Router::Entry& entry : world_.router().entries()) {
    if (world_.router().Listener(entry) == &engine) {
      CheckRouted(entry);
    }
  }
}

void Checks::OnRouterWrite(const ControllerProcess& from, const std::vector<Router::Entry>& entries) {
  static_cast<void>(from);
  for (const Router::Entry& entry : entries) {
    CheckRouted(entry);
  }
}

}  // namespace refit::sim
