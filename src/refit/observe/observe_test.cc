// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "refit/observe/progress.h"
#include "refit/observe/timeline_svg.h"

namespace refit::observe {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Bar, ShowsShareAndBytes) {
  const ProgressState half{"transferring", 403'500'000, 807'000'000};
  EXPECT_EQ(FormatBar(half, 100, Glyphs::kAscii),
            "transferring  ###############---------------   50 %  403.5 MB of 807.0 MB");
  EXPECT_THAT(FormatBar(half, 100, Glyphs::kUnicode), HasSubstr("███████████████░░░░░░░░░░░░░░░"));
}

TEST(Bar, FitsNarrowTerminalsAndNeverPassesTheEnd) {
  const ProgressState beyond{"transferring", 900, 800};
  EXPECT_THAT(FormatBar(beyond, 100, Glyphs::kAscii), HasSubstr("100 %  800 B of 800 B"));
  for (std::size_t columns = 0; columns < 60; ++columns) {
    EXPECT_LE(FormatBar(beyond, columns, Glyphs::kUnicode).size(), columns);
  }
  EXPECT_EQ(FormatBar({"pausing", 0, 0}, 80, Glyphs::kAscii), "pausing      ");
}

TEST(Numbers, ReadAsPeopleWriteThem) {
  EXPECT_EQ(FormatBytes(999), "999 B");
  EXPECT_EQ(FormatBytes(269'030'016), "269.0 MB");
  EXPECT_EQ(FormatBytes(999'999'999), "1.0 GB");
  EXPECT_EQ(FormatSeconds(0.1834), "0.183 s");
  EXPECT_EQ(FormatSeconds(12.34), "12.3 s");
  EXPECT_EQ(FormatCount(1), "1");
  EXPECT_EQ(FormatCount(1234567), "1,234,567");
  EXPECT_EQ(GlyphsOfLocale("de_DE.UTF-8"), Glyphs::kUnicode);
  EXPECT_EQ(GlyphsOfLocale("C"), Glyphs::kAscii);
}

TEST(Table, PutsNumbersToTheRight) {
  EXPECT_EQ(FormatTable({"name", "n"}, {{"a", "1"}, {"long", "23"}}), "name   n\na      1\nlong  23\n");
}

// Enough of XML for what we write: every tag is closed, in order.
bool IsWellFormed(const std::string& text) {
  std::vector<std::string> open;
  for (std::size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at + 1)) {
    const std::size_t end = text.find('>', at);
    if (end == std::string::npos) {
      return false;
    }
    const std::string tag = text.substr(at + 1, end - at - 1);
    const std::string name = tag.substr(tag[0] == '/' ? 1 : 0, tag.find(' ') - (tag[0] == '/' ? 1 : 0));
    if (tag[0] == '/') {
      if (open.empty() || open.back() != name) {
        return false;
      }
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
  }
  return open.empty();
}

TEST(Timeline, IsWellFormedWhateverTheNamesAre) {
  const std::string svg = DrawTimeline(
      "a <b> & \"c\"",
      {{"refit 1", {{"engine 0", "transfer", 0.01, 0.5}, {"policy 0", "send", 0.02, 0.49}, {"x<y", "?&", 0, 0}}},
       {"nothing", {}}});
  EXPECT_TRUE(IsWellFormed(svg)) << svg;
  EXPECT_THAT(svg, HasSubstr("a &lt;b&gt; &amp; &quot;c&quot;"));
  EXPECT_THAT(svg, HasSubstr("transfer 490 ms"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

}  // namespace
}  // namespace refit::observe
