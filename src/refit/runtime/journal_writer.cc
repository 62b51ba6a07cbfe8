// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/journal_writer.h"

#include <utility>

#include "refit/base/str.h"
#include "refit/observe/log.h"

namespace refit::runtime {
namespace {

constexpr std::size_t kQueue = 1024;

}  // namespace

JournalWriter::JournalWriter(std::unique_ptr<store::Store> store, Term term,
                             std::function<void(control::ControllerEvent)> post)
    : store_(std::move(store)), term_(term), post_(std::move(post)), lane_(kQueue) {}

JournalWriter::~JournalWriter() {
  Post([this] { static_cast<void>(store_->Release(term_)); }, [](const Status&) {});
}

void JournalWriter::Post(std::function<void()> task, const std::function<void(const Status&)>& refused) {
  if (const Status posted = lane_.Post(std::move(task)); !posted.ok()) {
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
        if (written.code() == StatusCode::kAborted) {
          return TellTerm();
        }
        post_(control::Appended{append.append, written});
      },
      [this, append](const Status& status) { post_(control::Appended{append.append, status}); });
}

void JournalWriter::CheckTerm() {
  Post([this] { TellTerm(); }, [](const Status&) {});
}

void JournalWriter::TellTerm() {
  if (const auto holder = store_->ReadHolder(); holder.has_value()) {
    post_(control::TermChecked{holder->term});
  }
}

}  // namespace refit::runtime
