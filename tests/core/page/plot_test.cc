#include "core/page/plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/property_tree/xml_parser.hpp>
#include <cmath>
#include <cstddef>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace scriptorium::page {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;
using ::testing::SizeIs;

// One each half minute, with these values.
Readings readings(const std::vector<std::optional<double>>& values) {
  Readings list;
  for (const auto& value : values)
    list.push_back({.time = 30.0 * static_cast<double>(list.size()), .value = value});
  return list;
}

Readings wave(std::size_t count) {
  Readings list;
  for (std::size_t i = 0; i < count; ++i) {
    const auto x = static_cast<double>(i);
    list.push_back({.time = 30 * x, .value = 0.5 + 0.5 * std::sin(x), .number = i + 1});
  }
  return list;
}

// "0=0.5 30=1 | 90=0", a part behind each bar.
std::string text_of(const PlotLine& line) {
  std::ostringstream text;
  for (const auto& part : line.parts) {
    text << (text.tellp() > 0 ? " |" : "");
    for (const Point& point : part)
      text << (text.tellp() > 0 ? " " : "") << point.time << "=" << point.value;
  }
  return text.str();
}

boost::property_tree::ptree parsed(const Html& html) {
  std::istringstream text(html.text);
  boost::property_tree::ptree tree;
  boost::property_tree::read_xml(text, tree);
  return tree.get_child("svg");
}

std::vector<std::string> attributes(const Html& html, const std::string& element,
                                    const std::string& name) {
  std::vector<std::string> list;
  for (const auto& [kind, child] : parsed(html)) {
    if (kind == element) list.push_back(child.get<std::string>("<xmlattr>." + name));
  }
  return list;
}

TEST(Plot, HasAPointForEachReading) {
  const auto plot = plot_lines({readings({0.5, 1.0, 0.25})}, Merge::kMean);
  ASSERT_TRUE(plot);
  EXPECT_FALSE(plot->is_summary);
  ASSERT_THAT(plot->lines, SizeIs(1));
  EXPECT_EQ(text_of(plot->lines[0]), "0=0.5 30=1 60=0.25");
  EXPECT_EQ(plot->begin, 0);
  EXPECT_EQ(plot->end, 60);
  EXPECT_EQ(plot->least, 0.25);
  EXPECT_EQ(plot->most, 1);
  EXPECT_THAT(attributes(plot_svg("CPU", *plot, 1, std::nullopt), "path", "d"),
              ElementsAre("M0 50L300 0L600 75"));
}

TEST(Plot, HasNothingWithoutAValue) {
  EXPECT_FALSE(plot_lines({}, Merge::kMean));
  EXPECT_FALSE(plot_lines({{}, {}}, Merge::kMean));
  EXPECT_FALSE(plot_lines({readings({std::nullopt, std::nullopt})}, Merge::kMean));
}

TEST(Plot, OneReadingIsADot) {
  const auto plot = plot_lines({readings({0.5})}, Merge::kMost);
  ASSERT_TRUE(plot);
  const Html svg = plot_svg("CPU", *plot, 1, std::nullopt);
  EXPECT_THAT(attributes(svg, "path", "d"), ElementsAre("M300 50h0"));
  EXPECT_THAT(attributes(svg, "path", "stroke-linecap"), ElementsAre("round"));
}

TEST(Plot, LeavesAGapWhereReadingsAreMissing) {
  const auto line_of = [](const Readings& node) {
    return text_of(plot_lines({node}, Merge::kMean)->lines[0]);
  };
  EXPECT_EQ(line_of(readings({1, 1, std::nullopt, 1, 1})), "0=1 30=1 | 90=1 120=1");
  Readings late = readings({1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  for (std::size_t i = 5; i < late.size(); ++i) late[i].time += 300;
  EXPECT_THAT(line_of(late), HasSubstr("120=1 | 450=1"));
  Readings lost = readings({1, 1, 1, 1});
  for (std::size_t i = 0; i < lost.size(); ++i) lost[i].number = i < 2 ? i + 1 : i + 2;
  EXPECT_EQ(line_of(lost), "0=1 30=1 | 60=1 90=1");
}

TEST(Plot, ReadsAYoungJobMoreOftenWithoutAGap) {
  Readings young;
  for (const double time : {1, 2, 5, 10, 20, 30, 60, 90, 120})
    young.push_back({.time = time, .value = 1});
  EXPECT_THAT(plot_lines({young}, Merge::kMean)->lines[0].parts, SizeIs(1));
}

TEST(Plot, MergesManyReadingsIntoFewPoints) {
  Readings peak = wave(100'000);
  peak[70'001].value = 7;
  const auto most = plot_lines({peak}, Merge::kMost);
  const auto mean = plot_lines({peak}, Merge::kMean);
  ASSERT_THAT(most->lines[0].parts, SizeIs(1));
  EXPECT_THAT(most->lines[0].parts[0], SizeIs(kMostPoints));
  EXPECT_EQ(most->most, 7);
  EXPECT_NEAR(mean->most, 0.5, 0.05);
  EXPECT_NEAR(mean->least, 0.5, 0.05);
  EXPECT_THAT(plot_svg("CPU", *mean, 1, std::nullopt).text, SizeIs(Le(5'000U)));
}

TEST(Plot, HasNoMorePointsHoweverManyGapsThereAre) {
  Readings broken = wave(100'000);
  for (std::size_t i = 0; i < broken.size(); i += 2) broken[i].value.reset();
  const auto plot = plot_lines({broken}, Merge::kMean);
  std::size_t points = 0;
  for (const auto& part : plot->lines[0].parts) points += part.size();
  EXPECT_THAT(points, AllOf(Ge(200U), Le(kMostPoints)));
}

TEST(Plot, OfManyNodesItHasLeastMeanAndMost) {
  std::vector<Readings> nodes;
  for (int i = 0; i < 8; ++i) nodes.push_back(readings({0.1 * i, 0.1 * i}));
  EXPECT_THAT(plot_lines(nodes, Merge::kMean)->lines, SizeIs(8));
  nodes.push_back(readings({0.8, 0.8}));
  const auto plot = plot_lines(nodes, Merge::kMean);
  EXPECT_TRUE(plot->is_summary);
  ASSERT_THAT(plot->lines, SizeIs(3));
  ASSERT_THAT(plot->lines[1].parts, SizeIs(1));
  EXPECT_EQ(plot->lines[0].parts[0][0].value, 0);
  EXPECT_NEAR(plot->lines[1].parts[0][0].value, 0.4, 1e-9);
  EXPECT_NEAR(plot->lines[2].parts[0][0].value, 0.8, 1e-9);
}

TEST(Plot, ANodeThatIsReadAtOtherTimesMakesTheSummaryNoSaw) {
  std::vector<Readings> nodes;
  for (int i = 0; i < 20; ++i) {
    Readings& node = nodes.emplace_back(wave(200));
    for (Reading& reading : node) {
      reading.time += 1.4 * i;
      reading.value = 0.05 * i;
    }
  }
  const auto plot = plot_lines(nodes, Merge::kMean);
  ASSERT_THAT(plot->lines[0].parts, SizeIs(1));
  // The last column may have a part of the nodes only.
  const auto& least = plot->lines[0].parts[0];
  for (std::size_t i = 0; i + 1 < least.size(); ++i) EXPECT_EQ(least[i].value, 0);
}

TEST(Plot, TheLimitIsALineAcross) {
  const auto plot = plot_lines({readings({1, 2})}, Merge::kMost);
  const Html svg = plot_svg("<Memory> & more", *plot, 4, 3);
  EXPECT_EQ(parsed(svg).get<std::string>("title"), "<Memory> & more");
  EXPECT_EQ(parsed(svg).get<std::string>("<xmlattr>.role"), "img");
  EXPECT_THAT(attributes(svg, "path", "d"), ElementsAre("M0 25H600", "M0 75L600 50"));
  EXPECT_THAT(attributes(svg, "path", "class"), ElementsAre("limit", "line0"));
  EXPECT_THAT(svg.text, Not(HasSubstr("style")));
}

TEST(Plot, StaysWithinItsPicture) {
  const auto plot = plot_lines({readings({0, 1e15})}, Merge::kMean);
  EXPECT_THAT(attributes(plot_svg("", *plot, 1, 9), "path", "d"),
              ElementsAre("M0 0H600", "M0 100L600 0"));
  EXPECT_THAT(attributes(plot_svg("", *plot, 0, std::nullopt), "path", "d"),
              ElementsAre("M0 100L600 100"));
}

TEST(Histogram, HasABarForEachCount) {
  const Html svg = histogram_svg("Time", {4, 0, 1, 2'000});
  EXPECT_THAT(attributes(svg, "rect", "x"), ElementsAre("0.5", "20.5", "30.5"));
  EXPECT_THAT(attributes(svg, "rect", "height"), ElementsAre("2", "2", "100"));
  EXPECT_THAT(attributes(svg, "rect", "y"), ElementsAre("98", "98", "0"));
  EXPECT_EQ(parsed(svg).get<std::string>("title"), "Time");
}

}  // namespace
}  // namespace scriptorium::page
