// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/observe/timeline_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string_view>

namespace refit::observe {
namespace {

// Pixels.
constexpr double kWidth = 1100;
constexpr double kLeft = 96;  // lane names
constexpr double kRight = 24;
constexpr double kPlot = kWidth - kLeft - kRight;
constexpr double kTop = 84;  // title and legend
constexpr double kLegendRow = 20;
constexpr double kLane = 26;
constexpr double kBar = 18;
constexpr double kPanelHead = 30;
constexpr double kAxis = 34;
constexpr double kBarMin = 1.5;        // so that what took microseconds is seen
constexpr double kLabelPerLetter = 7;  // a name is written into a bar that is wide enough

// Okabe and Ito's colours, told apart by colour-blind readers too; the long phases have the strong ones.
struct PhaseColour {
  std::string_view name;
  std::string_view colour;
};
constexpr auto kColours = std::to_array<PhaseColour>({
    {"transfer", "#0072B2"},
    {"send", "#56B4E9"},
    {"lease", "#CC79A7"},
    {"attempt", "#999999"},
    {"onload(weights)", "#B0A080"},
    {"pause", "#D55E00"},
    {"flush", "#E69F00"},
    {"begin", "#F0E442"},
    {"end", "#8DD3A8"},
    {"activate", "#009E73"},
    {"release", "#BBBBBB"},
});
constexpr std::string_view kOtherColour = "#444444";  // abort, hold, kill: something went wrong

std::string_view ColourOf(std::string_view name) {
  const auto* const found =
      std::find_if(kColours.begin(), kColours.end(), [name](const PhaseColour& phase) { return phase.name == name; });
  return found == kColours.end() ? kOtherColour : found->colour;
}

std::string Escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '"': out += "&quot;"; break;
      default: out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

std::string Milliseconds(double seconds) {
  const double millis = seconds * 1000;
  return fmt::format("{:.{}f} ms", millis, millis < 10 ? 2 : 0);
}

// 1, 2 or 5 times a power of ten: about eight marks over `span`.
double TickStep(double span) {
  const double rough = span / 8;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double factor = rough / power;
  return power * (factor <= 1 ? 1 : factor <= 2 ? 2 : factor <= 5 ? 5 : 10);
}

std::set<std::string> LanesOf(const TimelinePanel& panel) {
  std::set<std::string> lanes;
  for (const TimelineSpan& span : panel.spans) {
    lanes.insert(span.lane);
  }
  return lanes;
}

std::string DrawLegend(const std::vector<TimelinePanel>& panels) {
  std::set<std::string> names;
  for (const TimelinePanel& panel : panels) {
    for (const TimelineSpan& span : panel.spans) {
      names.insert(span.name);
    }
  }
  std::string out;
  double x = kLeft;
  const auto add = [&](const std::string& name) {
    out += fmt::format(
        "<rect x=\"{:.1f}\" y=\"46\" width=\"12\" height=\"12\" rx=\"2\" fill=\"{}\"/>"
        "<text x=\"{:.1f}\" y=\"56\" class=\"small\">{}</text>\n",
        x, ColourOf(name), x + 17, Escape(name));
    x += 34 + kLabelPerLetter * static_cast<double>(name.size());
  };
  for (const PhaseColour& phase : kColours) {  // in the order of a sync, not of the alphabet
    if (names.erase(std::string(phase.name)) > 0) {
      add(std::string(phase.name));
    }
  }
  for (const std::string& name : names) {
    add(name);
  }
  return out;
}

std::string DrawBar(const TimelineSpan& span, double y, double scale) {
  const double begin = std::max(span.begin_seconds, 0.0);
  const double width = std::max((span.end_seconds - begin) * scale, kBarMin);
  const double x = kLeft + begin * scale;
  std::string out = fmt::format(
      "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.0f}\" rx=\"2\" fill=\"{}\"><title>{} {}: {} – {} "
      "({})</title></rect>",
      x, y, width, kBar, ColourOf(span.name), Escape(span.lane), Escape(span.name), Milliseconds(span.begin_seconds),
      Milliseconds(span.end_seconds), Milliseconds(span.end_seconds - span.begin_seconds));
  const std::string label = fmt::format("{} {}", span.name, Milliseconds(span.end_seconds - span.begin_seconds));
  if (width > kLabelPerLetter * static_cast<double>(label.size())) {
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"bar\">{}</text>", x + 6, y + kBar - 5, Escape(label));
  }
  return out + "\n";
}

std::string DrawPanel(const TimelinePanel& panel, double top) {
  const std::set<std::string> lanes = LanesOf(panel);
  double end = 0;
  for (const TimelineSpan& span : panel.spans) {
    end = std::max(end, span.end_seconds);
  }
  end = std::max(end, 1e-6) * 1.01;
  const double scale = kPlot / end;
  const double lanes_top = top + kPanelHead;
  const double lanes_bottom = lanes_top + kLane * static_cast<double>(lanes.size());
  std::string out =
      fmt::format("<text x=\"{:.0f}\" y=\"{:.1f}\" class=\"panel\">{}</text>\n", kLeft, top + 18, Escape(panel.title));

  const double step = TickStep(end);
  for (int i = 0; i * step <= end; ++i) {
    const double x = kLeft + i * step * scale;
    out += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\" stroke=\"#e2e2e2\"/>"
        "<text x=\"{0:.1f}\" y=\"{3:.1f}\" class=\"small\" text-anchor=\"middle\">{4}</text>\n",
        x, lanes_top, lanes_bottom, lanes_bottom + 15, i == 0 ? "0" : Milliseconds(i * step));
  }
  double y = lanes_top;
  for (const std::string& lane : lanes) {
    out += fmt::format("<text x=\"{:.0f}\" y=\"{:.1f}\" class=\"lane\" text-anchor=\"end\">{}</text>\n", kLeft - 10,
                       y + 18, Escape(lane));
    for (const TimelineSpan& span : panel.spans) {
      if (span.lane == lane) {
        out += DrawBar(span, y + (kLane - kBar) / 2, scale);
      }
    }
    y += kLane;
  }
  return out;
}

}  // namespace

std::string DrawTimeline(const std::string& title, const std::vector<TimelinePanel>& panels) {
  double height = kTop;
  std::string body;
  for (const TimelinePanel& panel : panels) {
    body += DrawPanel(panel, height);
    height += kPanelHead + kLane * static_cast<double>(LanesOf(panel).size()) + kAxis;
  }
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
             "{1:.0f}\">\n"
             "<style>text {{ font-family: sans-serif; fill: #222 }} .title {{ font-size: 18px; font-weight: bold }} "
             ".panel {{ font-size: 14px; font-weight: bold }} .lane {{ font-size: 13px }} .small {{ font-size: 11px; "
             "fill: #555 }} "
             ".bar {{ font-size: 11px; fill: #fff }}</style>\n"
             "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
             "<text x=\"{2:.0f}\" y=\"30\" class=\"title\">{3}</text>\n",
             kWidth, height + 8, kLeft, Escape(title)) +
         DrawLegend(panels) + body + "</svg>\n";
}

}  // namespace refit::observe
