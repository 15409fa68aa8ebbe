#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/page/shown.h"

// Readings of several nodes as lines over time, and lines and histograms as SVG. Pure.
namespace scriptorium::page {

// What one node had at one time.
struct Reading {
  double time = 0;              // in seconds
  std::optional<double> value;  // absent: not measured
  std::uint64_t number = 0;     // from 1, one more with each; 0: not known
};
// Of one node, the earliest first.
using Readings = std::vector<Reading>;

inline constexpr std::size_t kMostPoints = 240;  // of a line
inline constexpr std::size_t kMostNodeLines = 8;

struct Point {
  double time = 0, value = 0;
};
// Between its parts, readings are missing.
struct PlotLine {
  std::vector<std::vector<Point>> parts;
};

// How the readings within one point's time become one value.
enum class Merge : std::uint8_t { kMean, kMost };

struct PlotLines {
  std::vector<PlotLine> lines;  // one for each node; else of all nodes: least, mean and most
  bool is_summary = false;      // the latter, since there are more than kMostNodeLines nodes
  double begin = 0, end = 0;    // of all readings
  double least = 0, most = 0;   // of all points
};
// A reading is missing where its number is left out, where it has no value, or where the time to
// the next is more than three times what is usual. Nothing if there is no value at all.
std::optional<PlotLines> plot_lines(const std::vector<Readings>& nodes, Merge merge);

// From 0 to `top` and from the first reading to the last. `limit`: a line across. The picture has
// no text but its title, and takes the size and the colours that the style sheet gives.
Html plot_svg(const std::string& title, const PlotLines& lines, double top,
              const std::optional<double>& limit);

// A bar for each count, the highest as high as the picture.
Html histogram_svg(const std::string& title, const std::vector<std::size_t>& counts);

}  // namespace scriptorium::page
