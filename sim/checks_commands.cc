// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <tuple>
#include <variant>

#include "refit/base/str.h"
#include "sim/checks.h"
#include "sim/world.h"

namespace refit::sim {

using sync::AgentCommand;
using Kind = sync::AgentCommandKind;

namespace {

// These speak about a life, whatever attempt it is in.
bool NamesNoAttempt(Kind kind) {
  return kind == Kind::kBind || kind == Kind::kHold || kind == Kind::kKill || kind == Kind::kRelease ||
         kind == Kind::kAbort || kind == Kind::kAttempt;
}

// What has to be done in the same attempt before it.
std::optional<Kind> Needs(Kind kind) {
  switch (kind) {
    case Kind::kFlush: return Kind::kPause;
    case Kind::kBegin: return Kind::kFlush;
    case Kind::kTransfer: return Kind::kBegin;
    case Kind::kEnd: return Kind::kTransfer;
    default: return std::nullopt;
  }
}

bool TookEffect(const AgentCommand& command, const peer::EngineAgentEffects& effects) {
  return std::any_of(effects.begin(), effects.end(), [&command](const peer::EngineAgentEffect& effect) {
    const auto* reply = std::get_if<peer::SendReply>(&effect);
    return reply == nullptr || (reply->reply.stamp == command.stamp && reply->reply.kind == sync::ReplyKind::kDone);
  });
}

bool Answered(const AgentCommand& command, const peer::EngineAgentEffects& effects, sync::ReplyKind kind) {
  return std::any_of(effects.begin(), effects.end(), [&command, kind](const peer::EngineAgentEffect& effect) {
    const auto* reply = std::get_if<peer::SendReply>(&effect);
    return reply != nullptr && reply->reply.stamp == command.stamp && reply->reply.kind == kind;
  });
}

}  // namespace

void Checks::OnLife(const Engine& engine, Term floor) {
  static_cast<void>(floor);  // what the machine was told is not what must be
  books_[engine.incarnation()].term = world_.disk().term();
}

std::optional<Content> Checks::ContentOf(WeightVersion version) const {
  for (const Committed& committed : committed_) {
    if (committed.version == version) {
      return committed.content;
    }
  }
  return std::nullopt;
}

std::optional<std::string> Checks::WrongContents(const Engine& engine, const Book& book,
                                                 const AgentCommand& command) const {
  const std::optional<Content> holds = engine.content();
  if (command.kind == Kind::kActivate) {
    const std::optional<Content> meant = world_.weights().WithRoot(command.digest);
    if (!meant.has_value() || holds != meant) {
      return "the engine does not hold what the digest stands for";
    }
  }
  if (command.kind == Kind::kResumeOld) {
    if (book.opened || book.held) {
      return book.opened ? "this attempt has begun to overwrite it" : "it was held";
    }
    const bool launched = command.stamp.version == WeightVersion(0);  // whatever an attached one had is its version 0
    const std::optional<Content> meant = launched ? engine.first() : ContentOf(command.stamp.version);
    if ((!launched && !meant.has_value()) || holds != meant) {
      return "the engine does not hold that version";
    }
  }
  return std::nullopt;
}

std::optional<std::string> Checks::MustRefuse(const Engine& engine, const Book& book,
                                              const AgentCommand& command) const {
  const sync::Stamp& stamp = command.stamp;
  if (stamp.run != world_.disk().run()) {
    return "it is of another run";
  }
  if (stamp.incarnation != engine.incarnation()) {
    return "it is for another life";
  }
  if (std::tuple(stamp.term, stamp.seq) <= std::tuple(book.term, book.seq)) {
    return StrCat("term ", book.term, " seq ", book.seq, " was accepted already");
  }
  if (command.kind == Kind::kAttempt && stamp.attempt <= book.attempt) {
    return "it is in that attempt or a later one";
  }
  if (!NamesNoAttempt(command.kind)) {
    if (stamp.attempt != book.attempt) {
      return "it is in another attempt";
    }
    if (command.kind != Kind::kResumeOld && stamp.version != book.version) {
      return "this attempt installs another version";
    }
  }
  if (const auto before = Needs(command.kind); before.has_value() && !book.done.contains(*before)) {
    return StrCat(ToString(*before), " is not done");
  }
  return WrongContents(engine, book, command);
}

void Checks::BeforeCommand(const Engine& engine, const AgentCommand& command) {
  Book& book = books_[engine.incarnation()];
  book.refuse = MustRefuse(engine, book, command);
}

void Checks::AfterCommand(const Engine& engine, const AgentCommand& command, const peer::EngineAgentEffects& effects) {
  Book& book = books_[engine.incarnation()];
  if (book.refuse.has_value()) {
    if (TookEffect(command, effects)) {
      const std::string what =
          StrCat("engine ", engine.slot(), " life ", engine.incarnation().low, " acted on ", ToString(command.kind),
                 " term ", command.stamp.term, " seq ", command.stamp.seq, ", but ", *book.refuse);
      if (command.stamp.incarnation != engine.incarnation()) {
        world_.Report(Checker::kS4, what);
      }
      world_.Report(Checker::kRefused, what);
    }
    return;
  }
  if (Answered(command, effects, sync::ReplyKind::kStale)) {
    return;  // it may be busy, or know more than we do
  }
  book.term = command.stamp.term;
  book.seq = command.stamp.seq;
  if (command.kind == Kind::kAttempt && !Answered(command, effects, sync::ReplyKind::kUnbound)) {
    book.attempt = command.stamp.attempt;
    book.version = command.stamp.version;
    book.opened = false;
    book.done.clear();
  }
  if (command.kind == Kind::kTransfer) {
    book.done.erase(Kind::kTransfer);
  }
  accepted_[{command.stamp.seq, engine.incarnation()}] = command.kind;
  if (command.kind != Kind::kHold && command.kind != Kind::kAbort && command.kind != Kind::kKill) {
    book.cause = command.stamp.term;
  }
  NoteReplies(book, effects);
  CheckCause(engine, book, effects);
}

void Checks::AfterEvent(const Engine& engine, const peer::EngineAgentEffects& effects) {
  Book& book = books_[engine.incarnation()];
  NoteReplies(book, effects);
  CheckCause(engine, book, effects);
}

void Checks::NoteReplies(Book& book, const peer::EngineAgentEffects& effects) {
  for (const peer::EngineAgentEffect& effect : effects) {
    const auto* reply = std::get_if<peer::SendReply>(&effect);
    if (reply == nullptr || reply->reply.kind != sync::ReplyKind::kDone) {
      continue;
    }
    const auto found = accepted_.find({reply->reply.stamp.seq, reply->reply.stamp.incarnation});
    if (found == accepted_.end()) {
      continue;
    }
    switch (found->second) {
      case Kind::kHold: book.held = true; break;
      case Kind::kActivate: book.held = false; break;
      default: book.done.insert(found->second); break;
    }
    accepted_.erase(found);
  }
}

// INV-4: once a higher term was accepted, nothing more is called for a lower one.
void Checks::CheckCause(const Engine& engine, const Book& book, const peer::EngineAgentEffects& effects) {
  for (const peer::EngineAgentEffect& effect : effects) {
    const bool calls =
        std::holds_alternative<peer::CallEngine>(effect) || std::holds_alternative<peer::PostUpdate>(effect);
    // A HOLD pauses by itself what its own term found unpaused.
    const auto* call = std::get_if<peer::CallEngine>(&effect);
    const bool by_hold = call != nullptr && call->operation == sync::Operation::kPause;
    if (calls && !by_hold && book.cause < book.term) {
      world_.Report(Checker::kInv4, StrCat("engine ", engine.slot(), " is called for term ", book.cause,
                                           " although term ", book.term, " was accepted"));
    }
  }
}

}  // namespace refit::sim
