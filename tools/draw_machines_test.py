# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""Which arrows draw_machines.py sees in a source, on small machines."""

import unittest

import draw_machines
from tidy import code_only

HEADER = """
class Other {
 public:
  void Start();
};
class Door {
 public:
  void Handle(int event);

 private:
  void Open();
  void Close();
  bool Locked() const;
  DoorPhase phase_ = DoorPhase::kShut;
};
"""
STATES = ["kShut", "kOpen", "kStuck", "kGone"]


class ArrowsTest(unittest.TestCase):
    def arrows(self, *methods):
        source = "".join(f"{head} {{\n{body}\n}}\n\n" for head, body in methods)
        machine = draw_machines.Machine("DoorPhase", STATES, HEADER, [draw_machines.without_mutants(code_only(source))])
        self.assertEqual(machine.initial, "kShut")
        return {f"{source[1:]} {target[1:]} {method}" for source, target, method in machine.arrows}

    def handle(self, body):
        return {arrow.removesuffix(" Handle") for arrow in self.arrows(("void Door::Handle(int event)", body))}

    def test_nothing_around_it_means_from_every_other_state(self):
        self.assertEqual(self.handle("phase_ = DoorPhase::kGone;"), {"Shut Gone", "Open Gone", "Stuck Gone"})

    def test_a_condition_and_its_else(self):
        self.assertEqual(self.handle("if (phase_ == DoorPhase::kShut && event > 0) { phase_ = DoorPhase::kOpen; }"
                                     "else if (phase_ != DoorPhase::kShut) phase_ = DoorPhase::kShut;"),
                         {"Shut Open", "Open Shut", "Stuck Shut", "Gone Shut"})
        self.assertEqual(self.handle("if (!(phase_ == kShut || phase_ >= kStuck)) { phase_ = kGone; }"), {"Open Gone"})
        self.assertEqual(self.handle("if (int a = f(); phase_ < kStuck && a) { phase_ = kStuck; }"),
                         {"Shut Stuck", "Open Stuck"})

    def test_a_guard_that_returns(self):
        self.assertEqual(self.handle("if (phase_ != kShut || event == 0) { return; }\nphase_ = kOpen;"), {"Shut Open"})
        self.assertEqual(self.handle("if (phase_ != kShut && event == 0) { return; }\nphase_ = kOpen;"),
                         {"Shut Open", "Stuck Open", "Gone Open"})

    def test_what_follows_an_assignment_starts_from_it(self):
        self.assertEqual(self.handle("if (phase_ != kShut) return;\nphase_ = kOpen;\nphase_ = kStuck;"),
                         {"Shut Open", "Open Stuck"})

    def test_both_sides_of_a_choice(self):
        self.assertEqual(self.handle("if (phase_ == kShut) { phase_ = event ? DoorPhase::kOpen : DoorPhase::kStuck; }"),
                         {"Shut Open", "Shut Stuck"})

    def test_a_switch_with_fall_through_and_default(self):
        self.assertEqual(self.handle("switch (phase_) {\n case DoorPhase::kShut: phase_ = kOpen; break;\n"
                                     " case kOpen:\n case kStuck: { phase_ = kGone; break; }\n"
                                     " default: phase_ = kShut;\n}\n"),
                         {"Shut Open", "Open Gone", "Stuck Gone", "Gone Shut"})
        self.assertEqual(self.handle("if (phase_ != kShut) return;\n"
                                     "switch (event) { case kOne: return; case kTwo: phase_ = kGone; break; }\n"
                                     "phase_ = kOpen;"), {"Shut Gone", "Gone Open"})

    def test_a_loop_comes_round_again(self):
        self.assertEqual(self.handle("if (phase_ != kShut) return;\nfor (;;) { if (event) { break; }\n"
                                     "if (phase_ == kOpen) { phase_ = kStuck; continue; } phase_ = kOpen; }"),
                         {"Shut Open", "Open Stuck", "Stuck Open"})

    def test_a_method_is_reached_from_where_it_is_called_and_returns_to_it(self):
        self.assertEqual(self.arrows(("void Door::Handle(int event)", "if (phase_ == kShut) { Open();\n  Close(); }"),
                                     ("void Door::Open()", "if (Locked()) { return; }\n  phase_ = kOpen;"),
                                     ("bool Door::Locked() const", "return phase_ == kStuck;"),
                                     ("void Door::Close()", "if (phase_ == kOpen) { phase_ = kShut; }")),
                         {"Shut Open Open", "Open Shut Close"})

    def test_a_call_from_one_place_does_not_colour_another(self):
        arrows = self.arrows(("void Door::Handle(int event)",
                              "if (phase_ == kGone) { Close(); return; }\nClose();\n"
                              "if (phase_ != kShut) return;\nOpen();"),
                             ("void Door::Open()", "phase_ = kOpen;"),
                             ("void Door::Close()", "event_ = 1;"))
        self.assertEqual(arrows, {"Shut Open Open"})

    def test_a_call_of_a_method_that_assigns_its_argument_is_an_assignment(self):
        self.assertEqual(self.arrows(("void Door::Handle(int event)", "if (phase_ == kShut) { Enter(Phase::kOpen); }"),
                                     ("void Door::Enter(Phase phase)",
                                      "phase_ = phase;\nif (phase_ == kOpen) { Close(); }"),
                                     ("void Door::Close()", "phase_ = kGone;")),
                         {"Shut Open Handle", "Open Gone Close"})

    def test_another_objects_member_and_another_class_are_not_this_machine(self):
        self.assertEqual(self.arrows(("void Other::Start()", "phase_ = kOpen;"),
                                     ("void Door::Handle(int event)", "other->phase_ = kOpen; other.Open();"),
                                     ("void Door::Open()", "phase_ = kOpen;")), set())

    def test_a_mutant_is_what_it_should_be(self):
        self.assertEqual(self.handle('if (REFIT_MUTANT("a, b", phase_ == kShut, true)) { phase_ = kOpen; }'),
                         {"Shut Open"})


class PageTest(unittest.TestCase):
    def test_a_table_is_drawn_as_it_stands(self):
        text = ("constexpr Arrow kOther[] = {\n    {kA, kB},\n};\n"
                "constexpr Arrow kDoorArrows[] = {\n    {Door::kShut, Door::kOpen},  // a push\n"
                "    // from anywhere\n    {kOpen, kGone, true},\n};\n")
        self.assertEqual(draw_machines.table_of_arrows(STATES, [text]),
                         {("kShut", "kOpen", "a push"), ("kOpen", "kGone", "")})
        self.assertIsNone(draw_machines.table_of_arrows(["kShut"], [text]))

    def test_states_and_their_comments(self):
        self.assertEqual(draw_machines.read_states("\n  kShut,\n  kOpen,  // lets\n         // cats in\n  kGone\n"),
                         {"kShut": "", "kOpen": "lets cats in", "kGone": ""})

    def test_arrows_from_nearly_everywhere_become_one(self):
        states = dict.fromkeys([*STATES, "kLost"], "")
        arrows = {(state, "kGone", "Kill") for state in states if state != "kGone"} | {("kShut", "kOpen", "Push: hard")}
        self.assertEqual(draw_machines.draw(states, "kShut", arrows)[2:-2],
                         ["  [*] --> Shut", '  state "any other" as Any', "  Shut --> Open: Push, hard",
                          "  Any --> Gone: Kill"])


if __name__ == "__main__":
    unittest.main()
