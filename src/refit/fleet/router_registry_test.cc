// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/fleet/router_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "refit/base/str.h"

namespace refit::fleet {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr SlotIndex kSlot(0);
constexpr Incarnation kLife{{0, 1}};
constexpr Incarnation kNext{{0, 2}};
constexpr SlotIndex kOther(1);
constexpr Incarnation kOthers{{0, 3}};

struct Describe {
  std::string operator()(const CallRouter& e) const { return std::visit(*this, e.action); }
  std::string operator()(const RouterList&) const { return "list"; }
  std::string operator()(const RouterAdd& e) const { return StrCat("add ", e.slot, "/", e.incarnation.low); }
  std::string operator()(const RouterDelete& e) const { return "delete " + e.id; }
  std::string operator()(const EntryGone& e) const { return StrCat("gone ", e.slot, "/", e.incarnation.low); }
  std::string operator()(const EntryListed& e) const { return StrCat("listed ", e.slot, "/", e.incarnation.low); }
};

// The registry, and a router that answers at once unless it is told otherwise.
class RouterRegistryTest : public ::testing::Test {
 protected:
  void SetUp() override { registry_.Start(now_); }

  enum class Router { kAnswers, kSilent, kAcceptsOnly, kRefusesAdds, kForgetsDeletes };

  std::vector<std::string> Take() {
    std::vector<std::string> text;
    for (const RouterEffect& effect : out_) {
      if (const auto* call = std::get_if<CallRouter>(&effect)) {
        call_ = *call;
      }
      text.push_back(std::visit(Describe{}, effect));
    }
    out_.clear();
    return text;
  }
  std::vector<std::string> Want(SlotIndex slot, Incarnation incarnation) {
    registry_.Want(slot, incarnation, now_, out_);
    return Take();
  }
  std::vector<std::string> Remove(SlotIndex slot, Incarnation incarnation) {
    registry_.Remove(slot, incarnation, now_, out_);
    return Take();
  }
  std::vector<std::string> Answer(const Status& status = OkStatus()) {
    const std::vector<RouterEntry> none;
    registry_.OnAnswer(call_.call, status, std::holds_alternative<RouterList>(call_.action) ? entries_ : none, now_,
                       out_);
    return Take();
  }
  Status Serve(const RouterAction& action) {
    if (const auto* add = std::get_if<RouterAdd>(&action)) {
      if (router_ == Router::kRefusesAdds) {
        return InvalidArgument("no");
      }
      if (router_ != Router::kAcceptsOnly) {
        entries_.push_back({StrCat("id", ++ids_), add->slot, add->incarnation});
      }
    } else if (const auto* entry = std::get_if<RouterDelete>(&action)) {
      if (router_ != Router::kForgetsDeletes &&
          std::erase_if(entries_, [&](const RouterEntry& e) { return e.id == entry->id; }) == 0) {
        return NotFound("unknown worker");
      }
    }
    return OkStatus();
  }
  // Calls are answered as they come, time passes from deadline to deadline.
  std::vector<std::string> Advance(Duration duration) {
    std::vector<std::string> all;
    const Instant end = now_ + duration;
    const auto note = [&all](const std::vector<std::string>& text) { all.insert(all.end(), text.begin(), text.end()); };
    note(Take());
    for (int i = 0; i < 10000; ++i) {
      if (router_ != Router::kSilent && is_called()) {
        note(Answer(Serve(call_.action)));
      } else if (registry_.next_deadline() <= end) {
        now_ = std::max(now_, registry_.next_deadline());
        registry_.HandleDeadline(now_, out_);
        note(Take());
      } else {
        break;
      }
    }
    now_ = end;
    return all;
  }
  bool is_called() const {
    return registry_.phase() == RouterPhase::kListing || registry_.phase() == RouterPhase::kActing;
  }
  static std::ptrdiff_t Count(const std::vector<std::string>& text, std::string_view what) {
    return std::count(text.begin(), text.end(), what);
  }

  Instant now_{};
  RouterRegistry registry_{RouterOptions{.add_settles = seconds(5)}};
  RouterEffects out_;
  CallRouter call_;
  Router router_ = Router::kAnswers;
  std::vector<RouterEntry> entries_;
  int ids_ = 0;
};

// RC-RTR-01: it is listed when the router lists it, not when it accepts it.
TEST_F(RouterRegistryTest, ALifeCountsAsListedOnlyOnceTheRouterListsIt) {
  router_ = Router::kAcceptsOnly;
  EXPECT_THAT(Want(kSlot, kLife), ElementsAre("list"));
  EXPECT_THAT(Answer(), ElementsAre("add 0/1"));
  EXPECT_THAT(Answer(), ElementsAre("list")) << "at once";
  EXPECT_THAT(Advance(milliseconds(300)), Not(Contains("listed 0/1")));
  entries_.push_back({"id", kSlot, kLife});
  EXPECT_THAT(Advance(milliseconds(100)), ElementsAre("list", "listed 0/1")) << "soon after a change";
  EXPECT_THAT(Advance(seconds(5)), Not(Contains("listed 0/1"))) << "said once";
  Want(kSlot, kLife);
  EXPECT_THAT(Advance({}), ElementsAre("listed 0/1")) << "to each that asks";
}

// RC-RTR-02: found in the list, deleted by id.
TEST_F(RouterRegistryTest, RemovingFindsTheEntryAndDeletesItById) {
  Want(kSlot, kLife);
  Advance(seconds(10));
  EXPECT_THAT(Remove(kSlot, kLife), ElementsAre("list"));
  EXPECT_THAT(Advance({}), ElementsAre("delete id1", "list", "gone 0/1"));
  EXPECT_THAT(Advance(seconds(10)), Not(Contains("gone 0/1")));
}

TEST_F(RouterRegistryTest, WhatIsNotThereIsGoneAtOnce) {
  EXPECT_THAT(Remove(kSlot, kLife), ElementsAre("list"));
  EXPECT_THAT(Advance({}), ElementsAre("gone 0/1"));
}

// RC-RTR-02: somebody was faster.
TEST_F(RouterRegistryTest, AnEntryThatIsNotFoundIsDeletedAllTheSame) {
  entries_ = {{"id", kSlot, kLife}};
  Remove(kSlot, kLife);
  EXPECT_THAT(Answer(), ElementsAre("delete id"));
  entries_.clear();
  EXPECT_THAT(Answer(NotFound("unknown worker")), ElementsAre("list"));
  EXPECT_THAT(Answer(), ElementsAre("gone 0/1"));
}

// RX-LEAD-03: an answer to the delete proves nothing; the list does.
TEST_F(RouterRegistryTest, ADeleteThatTheRouterForgetsIsSeenAndRepeated) {
  Want(kSlot, kLife);
  Advance(seconds(10));
  router_ = Router::kForgetsDeletes;
  Remove(kSlot, kLife);
  std::vector<std::string> text = Advance(seconds(3));
  EXPECT_EQ(Count(text, "gone 0/1"), 0);
  EXPECT_GE(Count(text, "delete id1"), 3);
  EXPECT_LE(Count(text, "delete id1"), 4) << "once in a period";
  router_ = Router::kAnswers;
  EXPECT_THAT(Advance(seconds(1)), Contains("gone 0/1"));
}

// RC-RTR-04: a router accepts an add long before it has the entry.
TEST_F(RouterRegistryTest, NothingIsGoneWhileAnAddOfOursMayStillLand) {
  router_ = Router::kAcceptsOnly;
  Want(kSlot, kLife);
  EXPECT_THAT(Advance(milliseconds(100)), Contains("add 0/1"));
  Remove(kSlot, kLife);
  EXPECT_THAT(Advance(seconds(4)), Not(Contains("gone 0/1")));
  router_ = Router::kAnswers;
  entries_.push_back({"late", kSlot, kLife});
  EXPECT_THAT(Advance(seconds(1)), Contains("delete late"));
  EXPECT_THAT(Advance(seconds(10)), Not(Contains("gone 0/1"))) << "was said right after the delete";
}

TEST_F(RouterRegistryTest, AnAddThatDidNotLandInTimeNeverDoes) {
  router_ = Router::kAcceptsOnly;
  Want(kSlot, kLife);
  Advance(milliseconds(100));
  Remove(kSlot, kLife);
  EXPECT_THAT(Advance(milliseconds(4800)), Not(Contains("gone 0/1")));
  EXPECT_THAT(Advance(milliseconds(1200)), Contains("gone 0/1"));
}

// RC-RTR-04: the same of an add that was not answered at all.
TEST_F(RouterRegistryTest, AnAddWithoutAnAnswerMayStillLand) {
  Want(kSlot, kLife);
  EXPECT_THAT(Answer(), ElementsAre("add 0/1"));
  router_ = Router::kSilent;
  EXPECT_THAT(Advance(seconds(1)), ElementsAre("list"));
  Remove(kSlot, kLife);
  router_ = Router::kAnswers;
  EXPECT_THAT(Advance(seconds(4)), Not(Contains("gone 0/1")));
  entries_.push_back({"late", kSlot, kLife});
  std::vector<std::string> text = Advance(seconds(2));
  EXPECT_THAT(text, Contains("delete late"));
  EXPECT_THAT(text, Contains("gone 0/1"));
}

TEST_F(RouterRegistryTest, AnAddThatWasRefusedCannotLand) {
  router_ = Router::kRefusesAdds;
  Want(kSlot, kLife);
  std::vector<std::string> text = Advance(seconds(3));
  EXPECT_GE(Count(text, "add 0/1"), 3);
  EXPECT_LE(Count(text, "add 0/1"), 4) << "once in a period";
  Remove(kSlot, kLife);
  EXPECT_THAT(Advance({}), ElementsAre("gone 0/1"));
}

// RC-RTR-04: one add was seen, but two were sent.
TEST_F(RouterRegistryTest, OfTwoAddsOneMayStillLandWhenTheOtherIsSeen) {
  router_ = Router::kAcceptsOnly;
  Want(kSlot, kLife);
  EXPECT_EQ(Count(Advance(seconds(1)), "add 0/1"), 2);
  entries_.push_back({"first", kSlot, kLife});
  router_ = Router::kAnswers;
  EXPECT_THAT(Advance(seconds(1)), Contains("listed 0/1"));
  Remove(kSlot, kLife);
  EXPECT_THAT(Advance(seconds(2)), Not(Contains("gone 0/1")));
  EXPECT_THAT(Advance(seconds(3)), Contains("gone 0/1"));
}

// RC-RTR-04: added by hand, or by a controller of before.
TEST_F(RouterRegistryTest, WhatNobodyHereWantsIsDeletedWithinASecond) {
  Want(kSlot, kLife);
  Advance(seconds(10));
  entries_.push_back({"by hand", SlotIndex(0), Incarnation{}});
  entries_.push_back({"of before", kSlot, kNext});
  entries_.push_back({"twice", kSlot, kLife});
  std::vector<std::string> text = Advance(seconds(1));
  EXPECT_THAT(text, Contains("delete by hand"));
  EXPECT_THAT(text, Contains("delete of before"));
  EXPECT_THAT(text, Contains("delete twice"));
  ASSERT_EQ(entries_.size(), 1U);
  EXPECT_EQ(entries_[0].id, "id1");
}

// RC-RTR-04, S47: a router that restarts is empty.
TEST_F(RouterRegistryTest, ARouterThatForgetsIsToldAgainWithinASecond) {
  Want(kSlot, kLife);
  Want(kOther, kOthers);
  Advance(seconds(10));
  entries_.clear();
  std::vector<std::string> text = Advance(seconds(1));
  EXPECT_THAT(text, Contains("add 0/1"));
  EXPECT_THAT(text, Contains("add 1/3"));
  EXPECT_THAT(text, Contains("listed 0/1"));
  EXPECT_EQ(entries_.size(), 2U);
}

// RC-RTR-04, S47: calls are bounded, so that a router that comes back is up to date a second later.
TEST_F(RouterRegistryTest, ARouterThatHangsIsAskedEachSecond) {
  Want(kSlot, kLife);
  router_ = Router::kSilent;
  std::vector<std::string> text = Advance(seconds(10));
  EXPECT_GE(Count(text, "list"), 9);
  EXPECT_LE(Count(text, "list"), 10);
  router_ = Router::kAnswers;
  EXPECT_THAT(Advance(seconds(1)), Contains("listed 0/1"));
}

TEST_F(RouterRegistryTest, ARouterThatIsDownIsAskedOnceASecond) {
  Want(kSlot, kLife);
  Advance(seconds(5));
  for (int i = 0; i < 3; ++i) {
    now_ = registry_.next_deadline();
    registry_.HandleDeadline(now_, out_);
    EXPECT_THAT(Take(), ElementsAre("list"));
    EXPECT_THAT(Answer(Unavailable("connection refused")), IsEmpty());
    EXPECT_EQ(registry_.next_deadline(), now_ + seconds(1));
  }
}

TEST_F(RouterRegistryTest, AnAnswerThatIsTooLateIsIgnored) {
  Want(kSlot, kLife);
  const CallRouter late = call_;
  router_ = Router::kSilent;
  EXPECT_THAT(Advance(seconds(1)), ElementsAre("list"));
  registry_.OnAnswer(late.call, OkStatus(), {}, now_, out_);
  EXPECT_THAT(Take(), IsEmpty());
}

// RC-RTR-04: a delete that hangs each time does not keep a life out of traffic.
TEST_F(RouterRegistryTest, OneCallThatHangsHoldsUpNoOther) {
  entries_ = {{"stuck", SlotIndex(7), Incarnation{{0, 7}}}};
  Want(kSlot, kLife);
  EXPECT_THAT(Answer(), ElementsAre("delete stuck"));
  router_ = Router::kSilent;
  EXPECT_THAT(Advance(seconds(1)), ElementsAre("add 0/1"));
  EXPECT_THAT(Answer(), ElementsAre("list"));
}

// A slot has one life: the one before is deleted, with nobody waiting for it.
TEST_F(RouterRegistryTest, ANewLifeTakesTheSlotsPlace) {
  Want(kSlot, kLife);
  Advance(seconds(10));
  Want(kSlot, kNext);
  EXPECT_FALSE(registry_.wants(kSlot, kLife));
  EXPECT_TRUE(registry_.wants(kSlot, kNext));
  EXPECT_THAT(Advance({}), ElementsAre("delete id1", "add 0/2", "list", "listed 0/2"));
}

TEST_F(RouterRegistryTest, WhatIsWantedAgainIsNotGone) {
  Want(kSlot, kLife);
  Advance(seconds(10));
  Remove(kSlot, kLife);
  EXPECT_THAT(Answer(), ElementsAre("delete id1"));
  Want(kSlot, kLife);
  EXPECT_THAT(Advance(seconds(1)), Not(Contains("gone 0/1")));
  ASSERT_EQ(entries_.size(), 1U);
}

// A change while calls are out: what an older list has planned is not done any more.
TEST_F(RouterRegistryTest, PlansOfBeforeAChangeAreDropped) {
  entries_ = {{"a", SlotIndex(7), Incarnation{{0, 7}}}, {"b", kSlot, kLife}};
  Advance({});
  EXPECT_THAT(entries_, IsEmpty());
  entries_ = {{"c", SlotIndex(7), Incarnation{{0, 7}}}, {"d", kSlot, kLife}};
  router_ = Router::kSilent;
  EXPECT_THAT(Advance(seconds(1)), ElementsAre("list"));
  EXPECT_THAT(Answer(), ElementsAre("delete c"));
  EXPECT_THAT(Want(kSlot, kLife), IsEmpty());
  router_ = Router::kAnswers;
  EXPECT_THAT(Advance({}), ElementsAre("list", "listed 0/1"));
}

TEST(RouterRegistry, NothingIsCalledBeforeItIsStarted) {
  RouterRegistry registry;
  RouterEffects out;
  registry.Want(kSlot, kLife, Instant{}, out);
  registry.HandleDeadline(Instant{} + seconds(10), out);
  EXPECT_THAT(out, IsEmpty());
  EXPECT_EQ(registry.next_deadline(), kNever);
  registry.Start(Instant{} + seconds(10));
  registry.HandleDeadline(Instant{} + seconds(10), out);
  EXPECT_EQ(out.size(), 1U);
}

TEST(RouterRegistry, PhasesHaveNames) {
  EXPECT_EQ(ToString(RouterPhase::kOff), "off");
  EXPECT_EQ(ToString(RouterPhase::kWaiting), "waiting");
  EXPECT_EQ(ToString(RouterPhase::kListing), "listing");
  EXPECT_EQ(ToString(RouterPhase::kActing), "acting");
}

}  // namespace
}  // namespace refit::fleet
