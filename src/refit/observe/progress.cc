// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/observe/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace refit::observe {
namespace {

constexpr std::size_t kBarCells = 30;
constexpr std::size_t kPhaseColumns = 13;  // "transferring"
constexpr std::size_t kDefaultColumns = 80;

std::size_t TerminalColumns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kDefaultColumns;
}

void WriteError(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    if (written <= 0) {
      return;
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

// Of UTF-8 text: every byte but the continuation bytes begins a column.
std::size_t Columns(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string Repeat(std::string_view text, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) {
    out += text;
  }
  return out;
}

// Decimal units, so that bytes / seconds / 1e9 can be checked by eye.
struct Scaled {
  double value;
  std::string_view unit;
};
Scaled Scale(ByteCount bytes) {
  constexpr std::string_view kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 999.95 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return {value, kUnits[unit]};
}

}  // namespace

std::string FormatBytes(ByteCount bytes) {
  const Scaled scaled = Scale(bytes);
  return bytes < 1000 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", scaled.value, scaled.unit);
}

std::string FormatSeconds(double seconds) {
  return seconds < 10 ? fmt::format("{:.3f} s", seconds) : fmt::format("{:.1f} s", seconds);
}

std::string FormatCount(std::uint64_t count) {
  std::string digits = std::to_string(count);
  for (std::size_t at = digits.size(); at > 3; at -= 3) {
    digits.insert(at - 3, 1, ',');
  }
  return digits;
}

std::string FormatBar(const ProgressState& state, std::size_t columns, Glyphs glyphs) {
  const std::string phase = fmt::format("{:<{}}", state.phase, kPhaseColumns);
  if (state.total == 0) {
    return phase.substr(0, columns);
  }
  const ByteCount done = std::min(state.done, state.total);
  const double share = static_cast<double>(done) / static_cast<double>(state.total);
  const auto filled = static_cast<std::size_t>(share * static_cast<double>(kBarCells));
  const bool unicode = glyphs == Glyphs::kUnicode;
  const std::string bar = Repeat(unicode ? "█" : "#", filled) + Repeat(unicode ? "░" : "-", kBarCells - filled);
  const std::string numbers =
      fmt::format("{:3.0f} %  {} of {}", share * 100, FormatBytes(done), FormatBytes(state.total));
  const std::string whole = fmt::format("{} {}  {}", phase, bar, numbers);
  if (Columns(whole) <= columns) {
    return whole;
  }
  return fmt::format("{} {}", phase, numbers).substr(0, columns);  // ASCII: a cut is safe
}

void ProgressLine::Show(const ProgressState& state) {
  if (style_ == ProgressStyle::kBar) {
    WriteError("\r\x1b[K" + FormatBar(state, TerminalColumns() - 1, glyphs_));
    drawn_ = true;
  } else if (style_ == ProgressStyle::kLines && state.phase != phase_) {
    WriteError(state.phase + "\n");
  }
  phase_ = state.phase;
}

void ProgressLine::Clear() {
  if (drawn_) {
    WriteError("\r\x1b[K");
    drawn_ = false;
  }
}

ProgressStyle StyleOfTerminal() { return isatty(STDERR_FILENO) == 1 ? ProgressStyle::kBar : ProgressStyle::kLines; }

Glyphs GlyphsOfLocale(std::string_view locale) {
  return locale.find("UTF-8") != std::string_view::npos || locale.find("utf8") != std::string_view::npos
             ? Glyphs::kUnicode
             : Glyphs::kAscii;
}

std::string FormatTable(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (std::size_t column = 0; column < header.size(); ++column) {
    std::size_t width = Columns(header[column]);
    for (const auto& row : rows) {
      width = std::max(width, Columns(row[column]));
    }
    widths.push_back(width);
  }
  std::vector<bool> right(header.size());
  for (std::size_t column = 0; column < header.size(); ++column) {
    right[column] = !rows.empty() && std::all_of(rows.begin(), rows.end(), [column](const auto& row) {
      return row[column] == "-" || (!row[column].empty() && row[column][0] >= '0' && row[column][0] <= '9');
    });
  }
  std::string out;
  const auto append = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t column = 0; column < cells.size(); ++column) {
      const std::string padding(widths[column] - Columns(cells[column]), ' ');
      line += (column == 0 ? "" : "  ") + (right[column] ? padding + cells[column] : cells[column] + padding);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  };
  append(header);
  for (const auto& row : rows) {
    append(row);
  }
  return out;
}

}  // namespace refit::observe
