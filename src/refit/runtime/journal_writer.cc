// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/journal_writer.h"

#include <utility>

#include "refit/base/str.h"
#include "refit/exec/clock.h"
#include "refit/exec/mailbox.h"
#include "refit/observe/log.h"
#include "refit/runtime/read_history.h"

namespace refit::runtime {
namespace {

constexpr std::size_t kQueue = 1024;

}  // namespace

JournalWriter::JournalWriter(std::unique_ptr<store::Store> store, Term term,
                             std::function<void(control::ControllerEvent)> post)
    : store_(std::move(store)), term_(term), post_(std::move(post)), lane_(kQueue) {}

// What still waits is not written any more: nobody hears of it. Nor is a medium asked that did not answer just now.
JournalWriter::~JournalWriter() {
  over_ = true;
  const Status posted = lane_.Post([this] {
    if (answers_) {
      static_cast<void>(store_->Release(term_));
    }
  });
  static_cast<void>(posted);
}

void JournalWriter::Post(std::function<void()> task, const std::function<void(const Status&)>& refused) {
  const auto unless_over = [this, task = std::move(task)] {
    if (!over_) {
      task();
    }
  };
  if (const Status posted = lane_.Post(unless_over); !posted.ok()) {
    refused(posted.WithContext("the journal's queue"));
  }
}

void JournalWriter::Announce(const std::string& address) {
  const auto failed = [](const Status& status) {
    observe::LogError(StrCat("nobody will find this controller: ", status.ToString()));
  };
  Post(
      [this, address, failed] {
        if (const Status announced = store_->Announce(term_, address); !announced.ok()) {
          failed(announced);
        }
      },
      failed);
}

void JournalWriter::Append(const control::Append& append) {
  Post(
      [this, append] {
        const Status written = store_->Append(term_, append.record);
        answers_ = written.ok();
        if (written.code() == StatusCode::kAborted) {
          return TellTerm();
        }
        post_(control::Appended{append.append, written});
      },
      [this, append](const Status& status) { post_(control::Appended{append.append, status}); });
}

void JournalWriter::CheckTerm() {
  if (!checking_.exchange(true)) {  // while the medium does not answer, one question is enough
    Post([this] { TellTerm(); }, [this](const Status&) { checking_ = false; });
  }
}

Result<control::History> JournalWriter::ReadHistory(Duration deadline) {
  const auto ticket = std::make_shared<exec::Mailbox<Result<control::History>>>(1);
  Post([this, ticket] { static_cast<void>(ticket->Push(runtime::ReadHistory(*store_))); },
       [ticket](const Status& status) { static_cast<void>(ticket->Push(status)); });
  return ticket->Pop(exec::Now() + deadline).value_or(DeadlineExceeded("the journal is busy", "try again"));
}

void JournalWriter::TellTerm() {
  const auto holder = store_->ReadHolder();
  answers_ = holder.has_value();
  checking_ = false;
  if (holder.has_value()) {
    post_(control::TermChecked{holder->term});
  }
}

}  // namespace refit::runtime
