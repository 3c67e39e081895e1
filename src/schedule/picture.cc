#include "reigen/schedule/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "base/check.h"

namespace reigen::schedule {
namespace {

constexpr int kMargin = 10;
constexpr int kLabel = 64;  // width of the names of the rows
constexpr int kTitle = 26;
constexpr int kRow = 24;
constexpr int kAxis = 22;
constexpr int kLegend = 24;

struct Color {
  int red = 0;
  int green = 0;
  int blue = 0;
};

struct Look {
  Kind kind;
  const char* name;
  Color color;
};

constexpr std::array<Look, 5> kLooks = {{{Kind::kForward, "forward", {66, 133, 214}},
                                         {Kind::kBackward, "backward", {67, 160, 71}},
                                         {Kind::kBackwardInput, "backward of inputs", {0, 150, 136}},
                                         {Kind::kBackwardWeight, "backward of weights", {239, 138, 31}},
                                         {Kind::kReduceGrad, "gather, free, reduce", {142, 100, 180}}}};

const Look& look_of(Kind kind) {
  const auto found = std::find_if(kLooks.begin(), kLooks.end(), [&](const Look& look) { return look.kind == kind; });
  return found == kLooks.end() ? kLooks.back() : *found;
}

// The color, from light (0) to full (1).
std::string shaded(const Color& color, double strength) {
  const auto mixed = [&](int part) { return static_cast<int>(std::lround(255 - (255 - part) * strength)); };
  return fmt::format("#{:02x}{:02x}{:02x}", mixed(color.red), mixed(color.green), mixed(color.blue));
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      default: result += c;
    }
  }
  return result;
}

std::string label(double x, double y, const std::string& text, const char* anchor = "start", int size = 12,
                  const char* color = "#222") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" text-anchor=\"{}\" fill=\"{}\">{}</text>\n", x,
                     y, size, anchor, color, escaped(text));
}

// The step of the axis' marks: 1, 2 or 5 times a power of ten, for at most ten marks.
double step_of(double range) {
  const double least = range / 10;
  double step = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {2.0, 2.5, 2.0}) {
    if (step >= least) break;
    step *= factor;
  }
  return step;
}

class Drawing {
 public:
  Drawing(const Replay& replay, const PictureOptions& options)
      : replay_(replay), options_(options), range_(options.time_range > 0 ? options.time_range : replay.total) {
    const double room = options.width - 2 * kMargin - kLabel;
    scale_ = range_ > 0 ? room / range_ : 0;
  }

  std::string drawn() const {
    const int height = 2 * kMargin + kTitle + static_cast<int>(replay_.ranks.size()) * kRow + kAxis + kLegend;
    std::string svg = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
        "font-family=\"sans-serif\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
        options_.width, height);
    svg += label(kMargin, kMargin + 14, title(), "start", 14);
    for (std::size_t rank = 0; rank < replay_.ranks.size(); ++rank) svg += row(rank);
    return svg + axis() + legend() + "</svg>\n";
  }

 private:
  double x_of(double time) const { return kMargin + kLabel + time * scale_; }
  static double y_of(std::size_t rank) { return kMargin + kTitle + static_cast<double>(rank) * kRow; }
  std::string with_unit(const std::string& number) const {
    return options_.unit.empty() ? number : number + ' ' + options_.unit;
  }

  std::string title() const {
    return fmt::format("{}{}total {}, bubble {:.1f} %", options_.title, options_.title.empty() ? "" : ": ",
                       with_unit(fmt::format("{:.4g}", replay_.total)), 100 * replay_.bubble);
  }

  std::string row(std::size_t rank) const {
    std::set<int> stages;
    for (const Span& span : replay_.ranks[rank]) stages.insert(span.action.stage);
    std::string boxes;
    std::string numbers;
    for (const Span& span : replay_.ranks[rank]) {
      if (is_message(span.action.kind) || span.end <= span.start) continue;
      const auto chunk = static_cast<double>(std::distance(stages.begin(), stages.find(span.action.stage)));
      const auto chunks = static_cast<double>(stages.size());
      const double strength = chunks > 1 ? 0.45 + 0.55 * chunk / (chunks - 1) : 0.8;
      boxes += box(rank, span, strength);
      numbers += number(rank, span, strength > 0.6 ? "#fff" : "#222");
    }
    return label(kMargin, y_of(rank) + 16, fmt::format("{} {}", options_.row, rank)) +
           fmt::format(
               "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" fill=\"none\" stroke=\"#ddd\"/>\n",
               x_of(0), y_of(rank) + 1, replay_.total * scale_, kRow - 2) +
           "<g stroke=\"white\" stroke-width=\"0.7\">\n" + boxes +
           "</g>\n<g font-size=\"11\" text-anchor=\"middle\">\n" + numbers + "</g>\n";
  }

  std::string box(std::size_t rank, const Span& span, double strength) const {
    return fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"><title>{}, {:.4g} to "
        "{}</title></rect>\n",
        x_of(span.start), y_of(rank) + 1, (span.end - span.start) * scale_, kRow - 2,
        shaded(look_of(span.action.kind).color, strength), to_text(span.action), span.start,
        escaped(with_unit(fmt::format("{:.4g}", span.end))));
  }

  // The micro-batch of a box; nothing if the box is too narrow for it.
  std::string number(std::size_t rank, const Span& span, const char* color) const {
    const double width = (span.end - span.start) * scale_;
    const std::string text = fmt::format("{}", span.action.micro_batch);
    if (span.action.micro_batch == kNone || width < 3 + 6.5 * static_cast<double>(text.size())) return "";
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"{}\">{}</text>\n", x_of(span.start) + width / 2,
                       y_of(rank) + 16, color, text);
  }

  std::string axis() const {
    const double y = y_of(replay_.ranks.size()) + 4;
    std::string svg = fmt::format("<path d=\"M{:.1f} {:.1f}H{:.1f}\" stroke=\"#888\"/>\n", x_of(0), y, x_of(range_));
    if (!options_.unit.empty()) svg += label(kMargin, y + 15, options_.unit, "start", 10, "#555");
    if (range_ <= 0) return svg;
    const double step = step_of(range_);
    for (int i = 0; i * step <= range_ * (1 + 1e-9); ++i) {
      svg += fmt::format("<path d=\"M{:.1f} {:.1f}v4\" stroke=\"#888\"/>\n", x_of(i * step), y);
      svg += label(x_of(i * step), y + 15, fmt::format("{:.4g}", i * step), "middle", 10, "#555");
    }
    return svg;
  }

  // The colors that the picture has.
  std::string legend() const {
    std::set<const char*> used;
    bool has_chunks = false;
    for (const auto& spans : replay_.ranks) {
      std::set<int> stages;
      for (const Span& span : spans) {
        stages.insert(span.action.stage);
        if (!is_message(span.action.kind) && span.end > span.start) used.insert(look_of(span.action.kind).name);
      }
      has_chunks = has_chunks || stages.size() > 1;
    }
    const double y = y_of(replay_.ranks.size()) + kAxis + 8;
    double x = kMargin + kLabel;
    std::string svg;
    for (const Look& look : kLooks) {
      if (!used.contains(look.name)) continue;
      svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n", x, y,
                         shaded(look.color, 0.8));
      svg += label(x + 17, y + 10, look.name, "start", 11);
      x += 34 + 6.2 * static_cast<double>(std::string(look.name).size());
    }
    return svg +
           label(x, y + 10, has_chunks ? "white: idle; darker: a later stage of the rank" : "white: idle", "start", 11);
  }

  const Replay& replay_;
  const PictureOptions& options_;
  double range_;
  double scale_ = 0;
};

}  // namespace

std::string to_svg(const Replay& replay, const PictureOptions& options) {
  REIGEN_CHECK(options.width >= 300, "[schedule] the picture is too narrow\n  got: {} pixels   expected: 300 or more",
               options.width);
  const bool fits =
      std::isfinite(options.time_range) && (options.time_range == 0 || options.time_range >= replay.total);
  REIGEN_CHECK(fits,
               "[schedule] the picture's range of time is wrong\n  got: {}   expected: 0, or at least the total, {}",
               options.time_range, replay.total);
  return Drawing(replay, options).drawn();
}

}  // namespace reigen::schedule
