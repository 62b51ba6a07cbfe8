// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A picture of who did what when: one panel per event, one lane per process, bars coloured by what was done.

#pragma once

#include <string>
#include <vector>

namespace refit::observe {

struct TimelineSpan {
  std::string lane;
  std::string name;
  double begin_seconds = 0;
  double end_seconds = 0;
};

struct TimelinePanel {
  std::string title;
  std::vector<TimelineSpan> spans;
};

// A whole SVG file. Lanes in byte order of their names; each panel has its own time axis.
std::string DrawTimeline(const std::string& title, const std::vector<TimelinePanel>& panels);

}  // namespace refit::observe
