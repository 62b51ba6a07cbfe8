// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Bind: which links carry an engine's streams. Links of pairs that did not change stay as they are (RC-BIND-02, -04);
// a number is never used twice, so an attempt can name exactly the link that it means (RC-BIND-06, RX-BIND-06).

#include <algorithm>
#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/peer/engine_agent.h"

namespace refit::peer {

using sync::ReplyKind;
using sync::StreamSource;

std::vector<StreamSource> EngineAgent::links() const {
  std::vector<StreamSource> links;
  for (const auto& [rank, link] : links_) {
    links.push_back(link);
  }
  return links;
}

void EngineAgent::StartBind(Instant now, EngineAgentEffects& out) {
  opened_links_.clear();
  const std::vector<StreamSource> wanted = running_->command.streams;
  const auto is_wanted = [&wanted](const StreamSource& link) {
    return std::any_of(wanted.begin(), wanted.end(), [&link](const auto& each) { return each.SamePair(link); });
  };
  // Disconnect before connect (RC-BIND-03): the old peer is gone, and dropping a dead one succeeds.
  for (auto link = links_.begin(); link != links_.end();) {
    if (is_wanted(link->second) && REFIT_MUTANT("RC-BIND-04/reconnect-all", true, false)) {
      ++link;
      continue;
    }
    if (REFIT_MUTANT("RC-BIND-03/connect-without-disconnect", true, false)) {
      out.emplace_back(CloseLink{link->second.link});
    }
    link = links_.erase(link);
  }
  for (const StreamSource& source : wanted) {
    if (const auto bound = links_.find(source.policy); bound != links_.end()) {
      continue;
    }
    StreamSource link = source;
    link.link = std::exchange(next_link_, next_link_.Next());
    opening_.emplace(link.link, link);
    out.emplace_back(OpenLink{link.link, running_->command.stamp, link, running_->deadline - now});
  }
  if (opening_.empty()) {
    Finish(ReplyKind::kDone, OkStatus(), out);
  }
}

void EngineAgent::OnLinkOpened(const LinkOpened& event, EngineAgentEffects& out) {
  const auto found = opening_.find(event.link);
  if (found == opening_.end()) {
    return;  // given up meanwhile, and closed
  }
  const StreamSource link = found->second;
  if (!event.status.ok()) {
    return Finish(ReplyKind::kFailed, event.status.WithContext(StrCat("policy rank ", link.policy)), out);
  }
  opening_.erase(found);
  opened_links_.push_back(link);
  if (!opening_.empty()) {
    return;
  }
  for (const StreamSource& opened : std::exchange(opened_links_, {})) {
    links_.insert_or_assign(opened.policy, opened);
  }
  Finish(ReplyKind::kDone, OkStatus(), out);
}

// A bind that failed leaves nothing behind (RX-BIND-04).
void EngineAgent::CloseOpening(EngineAgentEffects& out) {
  for (const auto& [id, link] : std::exchange(opening_, {})) {
    out.emplace_back(CloseLink{id});
  }
  for (const StreamSource& link : std::exchange(opened_links_, {})) {
    if (REFIT_MUTANT("RX-BIND-04/leak-a-link", true, false)) {
      out.emplace_back(CloseLink{link.link});
    }
  }
}

bool EngineAgent::UsesBoundLinks(const sync::AgentCommand& command) const {
  return std::all_of(command.streams.begin(), command.streams.end(), [this](const StreamSource& stream) {
    const auto bound = links_.find(stream.policy);
    return bound != links_.end() && bound->second == stream;
  });
}

}  // namespace refit::peer
