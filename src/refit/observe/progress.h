// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// How far something is, for a person: one line that is redrawn on a terminal, a line per phase elsewhere. And the two
// other things that a person looks at: sizes and tables as text.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "refit/base/bytes.h"

namespace refit::observe {

struct ProgressState {
  std::string phase;
  ByteCount done = 0;
  ByteCount total = 0;  // 0: not known
};

enum class ProgressStyle { kSilent, kLines, kBar };
enum class Glyphs { kAscii, kUnicode };

// "transferring ██████░░░░  60 %  484.2 of 807.0 MB", at most `columns` wide.
std::string FormatBar(const ProgressState& state, std::size_t columns, Glyphs glyphs);

// Writes to standard error. Thread: one at a time.
class ProgressLine {
 public:
  ProgressLine(ProgressStyle style, Glyphs glyphs) : style_(style), glyphs_(glyphs) {}
  ~ProgressLine() { Clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void Show(const ProgressState& state);
  void Clear();  // before other output: the bar leaves no trace

 private:
  const ProgressStyle style_;
  const Glyphs glyphs_;
  std::string phase_;  // of the last line
  bool drawn_ = false;
};

// The bar where standard error is a terminal, Unicode where the locale's name says so.
ProgressStyle StyleOfTerminal();
Glyphs GlyphsOfLocale(std::string_view locale);  // "en_US.UTF-8"

std::string FormatBytes(ByteCount bytes);      // decimal: "269.1 MB"
std::string FormatSeconds(double seconds);     // "0.183 s", "12.4 s"
std::string FormatCount(std::uint64_t count);  // "1,632"

// Columns as wide as their widest cell, two spaces between; numbers (and what begins like one) to the right.
std::string FormatTable(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows);

}  // namespace refit::observe
