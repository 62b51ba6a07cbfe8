// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "sim/client.h"

#include <utility>

#include "refit/base/str.h"
#include "sim/checks.h"
#include "sim/controller_process.h"
#include "sim/faults.h"
#include "sim/network.h"
#include "sim/timing.h"
#include "sim/world.h"

namespace refit::sim {
namespace {

// The client is a person's or a trainer's process: nobody harms it, its messages take the controller's links.
constexpr Process kClient{ProcessKind::kController, 0xfff};
constexpr std::uint32_t kTries = 12;

// Nothing happened: refused at once, or nobody could say.
bool MayAskAgain(const control::SyncAnswered& answer) {
  const StatusCode code = answer.status.code();
  return (code == StatusCode::kUnavailable || code == StatusCode::kResourceExhausted ||
          (answer.outcome.has_value() && answer.outcome->in_doubt)) &&
         !(answer.outcome.has_value() && answer.outcome->committed);
}

}  // namespace

Client::Client(World& world) : world_(world) {}

void Client::Ask(std::uint32_t count, std::function<void()> done) {
  left_ = count;
  done_ = std::move(done);
  Next();
}

void Client::Next() {
  if (left_ == 0) {
    if (const auto done = std::exchange(done_, nullptr)) {
      done();
    }
    return;
  }
  --left_;
  if (requests_ == 0 || last_->ok() || world_.OneIn(2)) {
    world_.StepTrainer();
  }
  ++requests_;
  current_ = Current{StrCat("sync-", requests_), world_.NewestSource(), 0, 0, 0, {}};
  Send();
}

void Client::Send() {
  Current& current = *current_;
  if (current.tries++ >= kTries) {
    return Finish(Unavailable("nobody answered for long"));
  }
  current.asking = next_asking_++;
  current.asked = world_.now();
  ControllerProcess* const controller = world_.controller();
  if (controller == nullptr) {
    return Retry(Millis(500));
  }
  current.controller = controller->number();
  const Duration budget = world_.plan().sync_budget;
  world_.network().Send(
      kClient, controller->id(),
      [controller, id = current.id, source = current.source, budget, asking = current.asking] {
        controller->Run([controller, id, source, budget, asking] { controller->Request(id, source, budget, asking); });
      });
  world_.After(budget + 3 * kReplyMargin, [this, asking = current.asking] {
    if (current_.has_value() && current_->asking == asking) {
      world_.checks().OnUnanswered(current_->id, current_->asked, current_->controller);
      Send();
    }
  });
}

void Client::Retry(Duration pause) {
  world_.After(pause, [this, asking = current_->asking] {
    if (current_.has_value() && current_->asking == asking) {
      Send();
    }
  });
}

void Client::Answer(ControllerProcess& from, std::uint64_t asking, const control::SyncAnswered& answer) {
  world_.network().Send(from.id(), kClient, [this, asking, answer] {
    if (!current_.has_value() || current_->asking != asking) {
      return;
    }
    if (world_.faults().Take(FaultKind::kRepeatRequest, 0)) {
      return Send();  // the answer is lost on its way: the caller asks again
    }
    world_.Note("client: ", answer.request_id, " is ", answer.status.ToString());
    if (MayAskAgain(answer)) {
      return Retry(world_.Between(Millis(300), Millis(700)));
    }
    if (answer.outcome.has_value() && answer.outcome->committed) {
      published_ = std::max(published_, answer.outcome->version);
    }
    Finish(answer.status);
  });
}

void Client::Finish(const Status& status) {
  last_ = status;
  current_.reset();
  world_.After(world_.plan().request_interval, [this] { Next(); });
}

void Client::Cancel() {
  ControllerProcess* const controller = world_.controller();
  if (current_.has_value() && controller != nullptr) {
    world_.network().Send(kClient, controller->id(), [controller, id = current_->id] {
      controller->Run([controller, id] { controller->Cancel(id); });
    });
  }
}

void Client::AskConcurrently() {
  ControllerProcess* const controller = world_.controller();
  if (controller != nullptr) {
    const std::string id = StrCat("other-", next_asking_);
    const std::uint64_t asking = next_asking_++;
    const Duration budget = world_.plan().sync_budget;
    world_.network().Send(kClient, controller->id(), [controller, id, source = world_.NewestSource(), budget, asking] {
      controller->Run([controller, id, source, budget, asking] { controller->Request(id, source, budget, asking); });
    });
  }
}

void Client::OnControllerLost(std::uint32_t number) {
  if (current_.has_value() && current_->controller == number) {
    Retry(world_.Between(Millis(10), Millis(300)));
  }
}

void Client::OnNewController() {}

}  // namespace refit::sim
