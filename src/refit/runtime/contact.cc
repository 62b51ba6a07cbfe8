// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/contact.h"

#include <chrono>
#include <utility>

#include "refit/base/str.h"
#include "refit/exec/clock.h"
#include "refit/observe/log.h"

namespace refit::runtime {
namespace {

constexpr Duration kInterval = std::chrono::milliseconds(250);
constexpr Duration kSeekInterval = std::chrono::milliseconds(50);  // while there is no controller
constexpr Duration kCallDeadline = std::chrono::milliseconds(500);

// Of nobody that answers; anything else is a controller's answer.
bool IsSilence(const Status& status) {
  return status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kDeadlineExceeded;
}

}  // namespace

Contact::Contact(ContactOptions options) : options_(std::move(options)), loop_([this] { Loop(); }) {}

Contact::~Contact() {
  state_.With([](State& state) { state.over = true; });
  loop_.join();
}

Result<Contacted> Contact::Register(Duration deadline) {
  const std::uint64_t asked = state_.With([](State& state) {
    state.answer.reset();
    return ++state.asked;
  });
  Result<Contacted> last = Unavailable("no controller was found in time", "start `refit controller`");
  state_.Wait(
      [&](State& state) {
        if (state.answered >= asked && state.answer.has_value()) {
          last = *state.answer;
        }
        return state.over || (state.answered >= asked && (last.has_value() || !IsSilence(last.status())));
      },
      exec::Now() + deadline);
  return last;
}

std::shared_ptr<rpc::ControllerClient> Contact::controller() {
  return state_.With([](State& state) { return state.controller; });
}

void Contact::Loop() {
  while (true) {
    const std::uint64_t asked = state_.With([](State& state) { return state.asked; });
    const Result<Contacted> answer = TryOnce();
    state_.With([&](State& state) { state.controller = controller_; });
    Notice(answer);  // then: whoever waits for the answer finds the member as it is from here on
    state_.With([&](State& state) {
      state.answered = asked;
      state.answer = answer;
    });
    const auto has_news = [asked](const State& state) { return state.over || state.asked != asked; };
    state_.Wait(has_news, exec::Now() + (contact_.has_value() ? kInterval : kSeekInterval));
    if (state_.With([](State& state) { return state.over; })) {
      return;
    }
  }
}

Result<Contacted> Contact::TryOnce() {
  const auto place = FindController(options_.place);
  if (!place.has_value()) {  // one may come
    return Unavailable(place.status().message(), place.status().remedy());
  }
  const FoundController& found = *place;
  if (controller_ == nullptr || address_ != found.address) {
    controller_ = rpc::ControllerClient::Connect(found.address);
    address_ = found.address;
  }
  REFIT_ASSIGN_OR_RETURN(rpc::Membership membership, options_.register_at(*controller_, kCallDeadline));
  if (found.term > Term(0)) {
    membership.term = found.term;
  }
  return Contacted{std::move(membership), found.term};
}

void Contact::Notice(const Result<Contacted>& answer) {
  if (!answer.has_value()) {
    if (answer.status().code() != StatusCode::kCancelled && contact_.has_value()) {
      observe::LogWarning(StrCat("the controller is not heard any more: ", answer.status().ToString()));
      contact_.reset();
      options_.on_lost();
    }
    return;
  }
  const bool same = contact_.has_value() && contact_->membership.term == answer->membership.term &&
                    contact_->membership.run == answer->membership.run;
  contact_ = *answer;
  if (!same) {
    options_.on_made(*answer);
  }
}

}  // namespace refit::runtime
