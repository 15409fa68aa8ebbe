#include "core/page/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace scriptorium::page {
namespace {

// Of a picture; it is stretched to the width that it gets.
constexpr double kWidth = 600;
constexpr double kHeight = 100;
constexpr double kBarWidth = 10;

// All readings of a node that one point is of.
struct Bucket {
  double times = 0, values = 0, most = 0;
  std::size_t count = 0;

  void add(const Reading& reading) {
    times += reading.time;
    most = count == 0 ? *reading.value : std::max(most, *reading.value);
    values += *reading.value;
    ++count;
  }
  Point point(Merge merge) const {
    const auto of = static_cast<double>(count);
    return {.time = times / of, .value = merge == Merge::kMean ? values / of : most};
  }
};

// The time between two readings that three quarters of them do not exceed: a young job is read more
// often.
double usual_interval(const std::vector<Readings>& nodes) {
  std::vector<double> intervals;
  for (const Readings& node : nodes) {
    for (std::size_t i = 1; i < node.size(); ++i)
      intervals.push_back(node[i].time - node[i - 1].time);
  }
  if (intervals.empty()) return 0;
  const auto place = intervals.begin() + static_cast<std::ptrdiff_t>(intervals.size() * 3 / 4);
  std::nth_element(intervals.begin(), place, intervals.end());
  return *place;
}

// Where and how finely time is divided.
struct Grid {
  double begin = 0, width = 0;
  std::size_t count = 1;
  double longest = 0;  // between two readings that follow one another

  std::size_t place_of(double time) const noexcept {
    const double place = width > 0 ? (time - begin) / width : 0;
    return std::min(static_cast<std::size_t>(std::max(place, 0.0)), count - 1);
  }
};

bool follows(const Reading& before, const Reading& after, const Grid& grid) noexcept {
  const bool left_out = before.number > 0 && after.number > before.number + 1;
  return !left_out && after.time - before.time <= grid.longest;
}

// A point for each bucket that has a value. A gap within the time of one point is not seen.
PlotLine line_of(const Readings& node, const Grid& grid, Merge merge) {
  PlotLine line;
  Bucket bucket;
  std::size_t place = 0;
  bool is_new_part = true;
  const auto finish = [&] {
    if (bucket.count == 0) return;
    if (is_new_part) line.parts.emplace_back();
    line.parts.back().push_back(bucket.point(merge));
    bucket = {};
    is_new_part = false;
  };
  bool is_gap = false;  // since the last value
  const Reading* before = nullptr;
  for (const Reading& reading : node) {
    const std::size_t here = grid.place_of(reading.time);
    if (here != place) finish();
    place = here;
    is_gap = is_gap || !reading.value || (before != nullptr && !follows(*before, reading, grid));
    before = &reading;
    if (!reading.value) continue;
    is_new_part = is_new_part || (is_gap && bucket.count == 0);
    is_gap = false;
    bucket.add(reading);
  }
  finish();
  return line;
}

// Least, mean and most of all nodes.
std::vector<PlotLine> summary_of(const std::vector<Readings>& nodes, const Grid& grid,
                                 Merge merge) {
  struct Column {
    double least = 0, sum = 0, most = 0;
    std::size_t count = 0;
  };
  std::vector<Column> columns(grid.count);
  for (const Readings& node : nodes) {
    for (const auto& part : line_of(node, grid, merge).parts) {
      for (const Point& point : part) {
        Column& column = columns[grid.place_of(point.time)];
        column.least = column.count == 0 ? point.value : std::min(column.least, point.value);
        column.most = column.count == 0 ? point.value : std::max(column.most, point.value);
        column.sum += point.value;
        ++column.count;
      }
    }
  }
  std::vector<PlotLine> lines(3);
  bool is_new_part = true;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const Column& column = columns[i];
    is_new_part = is_new_part || column.count == 0;
    if (column.count == 0) continue;
    const double time = grid.begin + (static_cast<double>(i) + 0.5) * grid.width;
    const std::array values{column.least, column.sum / static_cast<double>(column.count),
                            column.most};
    for (std::size_t k = 0; k < lines.size(); ++k) {
      if (is_new_part) lines[k].parts.emplace_back();
      lines[k].parts.back().push_back({.time = time, .value = values.at(k)});
    }
    is_new_part = false;
  }
  return lines;
}

// Not negative, to a tenth, with a point in any locale.
std::string number(double value) {
  const auto tenths = std::lround(value * 10);
  const std::string whole = std::to_string(tenths / 10);
  return tenths % 10 == 0 ? whole : whole + "." + std::to_string(tenths % 10);
}

std::string svg_head(const char* kind, double width, const std::string& title) {
  std::string escaped;
  for (const char c : title) {
    escaped += c == '&'   ? std::string("&amp;")
               : c == '<' ? std::string("&lt;")
               : c == '>' ? std::string("&gt;")
                          : std::string(1, c);
  }
  return std::string("<svg class=\"") + kind + "\" viewBox=\"0 0 " + number(width) + " " +
         number(kHeight) + "\" preserveAspectRatio=\"none\" role=\"img\"><title>" + escaped +
         "</title>";
}

// A dot where a part has one point: a line of no length with round ends.
std::string path_of(const PlotLine& line, const PlotLines& all, double top) {
  const double span = all.end - all.begin;
  std::string path;
  for (const auto& part : line.parts) {
    char step = 'M';
    for (const Point& point : part) {
      const double x = span > 0 ? (point.time - all.begin) / span * kWidth : kWidth / 2;
      const double y = kHeight - std::clamp(top > 0 ? point.value / top : 0, 0.0, 1.0) * kHeight;
      path += step + number(std::clamp(x, 0.0, kWidth)) + " " + number(y);
      step = 'L';
    }
    if (part.size() == 1) path += "h0";
  }
  return path;
}

}  // namespace

std::optional<PlotLines> plot_lines(const std::vector<Readings>& nodes, Merge merge) {
  constexpr double kReach = 3;
  constexpr double kColumn = 2;  // usual intervals in a column of a summary
  PlotLines plot;
  bool any = false;
  std::size_t count = 0;
  for (const Readings& node : nodes) {
    if (node.empty()) continue;
    plot.begin = count == 0 ? node.front().time : std::min(plot.begin, node.front().time);
    plot.end = count == 0 ? node.back().time : std::max(plot.end, node.back().time);
    ++count;
    any = any || std::any_of(node.begin(), node.end(),
                             [](const Reading& reading) { return reading.value.has_value(); });
  }
  if (!any) return std::nullopt;
  plot.is_summary = count > kMostNodeLines;
  const double span = plot.end - plot.begin;
  const double usual = usual_interval(nodes);
  Grid grid{.begin = plot.begin, .count = kMostPoints, .longest = kReach * usual};
  if (plot.is_summary && usual > 0) {
    const double columns = std::clamp(span / (kColumn * usual), 1.0, double{kMostPoints});
    grid.count = static_cast<std::size_t>(columns);
  }
  grid.width = span / static_cast<double>(grid.count);
  if (plot.is_summary) {
    plot.lines = summary_of(nodes, grid, merge);
  } else {
    for (const Readings& node : nodes) plot.lines.push_back(line_of(node, grid, merge));
  }
  bool is_first = true;
  for (const PlotLine& line : plot.lines) {
    for (const auto& part : line.parts) {
      for (const Point& point : part) {
        plot.least = is_first ? point.value : std::min(plot.least, point.value);
        plot.most = is_first ? point.value : std::max(plot.most, point.value);
        is_first = false;
      }
    }
  }
  return plot;
}

Html plot_svg(const std::string& title, const PlotLines& lines, double top,
              const std::optional<double>& limit) {
  std::string svg = svg_head("lines", kWidth, title);
  const std::string common =
      "\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"2\" stroke-linecap=\"round\" "
      "stroke-linejoin=\"round\" vector-effect=\"non-scaling-stroke\"/>";
  if (limit && top > 0) {
    const double y = kHeight - std::clamp(*limit / top, 0.0, 1.0) * kHeight;
    svg += "<path class=\"limit\" d=\"M0 " + number(y) + "H" + number(kWidth) +
           "\" stroke-dasharray=\"6 4" + common;
  }
  for (std::size_t i = 0; i < lines.lines.size(); ++i) {
    const std::string path = path_of(lines.lines[i], lines, top);
    if (!path.empty()) svg += "<path class=\"line" + std::to_string(i) + "\" d=\"" + path + common;
  }
  return {svg + "</svg>"};
}

Html histogram_svg(const std::string& title, const std::vector<std::size_t>& counts) {
  const auto width = kBarWidth * static_cast<double>(counts.size());
  std::string svg = svg_head("histogram", width, title);
  const std::size_t most = counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    // What is there is seen, however low it is.
    const double height =
        std::max(2.0, kHeight * static_cast<double>(counts[i]) / static_cast<double>(most));
    svg += "<rect x=\"" + number(static_cast<double>(i) * kBarWidth + 0.5) + "\" y=\"" +
           number(kHeight - height) + "\" width=\"" + number(kBarWidth - 1) + "\" height=\"" +
           number(height) + "\" fill=\"currentColor\"/>";
  }
  return {svg + "</svg>"};
}

}  // namespace scriptorium::page
