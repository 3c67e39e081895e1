#include "reigen/schedule/generate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>

#include "base/text.h"
#include "reigen/base/error.h"
#include "schedule/known/generators.h"

namespace reigen::schedule {
namespace {

InvalidArgument wrong_size(Name name, const std::string& what, const std::string& got, const std::string& expected,
                           const std::string& fix = {}) {
  return InvalidArgument(Report{
      .what = fmt::format("[schedule] {}: {}", to_text(name), what), .got = got, .expected = expected, .fix = fix});
}

}  // namespace

void check_size(Name name, const Size& size) {
  constexpr std::int64_t kMostForwards = std::int64_t{1} << 24;
  const auto check = [&](const char* what, int number) {
    if (number >= 1 && number <= kMostOfEach) return;
    throw wrong_size(name, fmt::format("the number of {} is wrong", what), fmt::format("{}", number),
                     fmt::format("1 to {}", kMostOfEach));
  };
  check("ranks", size.ranks);
  check("micro-batches", size.micro_batches);
  check("virtual stages", size.virtual_stages);
  const VirtualStages possible = virtual_stages_of(name);
  if (size.virtual_stages < possible.least || size.virtual_stages > possible.most) {
    const std::string number = fmt::format("{}", possible.least);
    throw wrong_size(name, fmt::format("has {} stage{} on each rank", number, possible.least == 1 ? "" : "s"),
                     fmt::format("{} virtual stages", size.virtual_stages), number,
                     fmt::format("set virtual_stages to {}, or use {}", number,
                                 size.virtual_stages == 1 ? "1f1b or zb_h1" : "interleaved_1f1b or looped_bfs"));
  }
  const std::int64_t stages = std::int64_t{size.ranks} * size.virtual_stages;
  // zb_v is made for a pipeline that is full.
  const int made_for =
      name == Name::kZeroBubbleV ? std::max(size.micro_batches, 2 * size.ranks - 1) : size.micro_batches;
  if (stages > kMostOfEach || stages * made_for > kMostForwards) {
    throw wrong_size(name, "has too many actions",
                     fmt::format("{} stages, {} micro-batches", stages, size.micro_batches),
                     fmt::format("at most {} stages and {} forwards", kMostOfEach, kMostForwards));
  }
}

Schedule empty_schedule(Name name, const Size& size) {
  check_size(name, size);
  return {.ranks = size.ranks,
          .micro_batches = size.micro_batches,
          .placement = looped(size.ranks * size.virtual_stages, size.ranks),
          .actions = std::vector<std::vector<Action>>(static_cast<std::size_t>(size.ranks))};
}

const char* to_text(Name name) {
  switch (name) {
    case Name::kNaive: return "naive";
    case Name::kGpipe: return "gpipe";
    case Name::kOneFOneB: return "1f1b";
    case Name::kInterleaved: return "interleaved_1f1b";
    case Name::kLoopedBreadthFirst: return "looped_bfs";
    case Name::kZeroBubbleH1: return "zb_h1";
    case Name::kZeroBubbleV: return "zb_v";
  }
  return "unknown";
}

const std::vector<Name>& names() {
  static const std::vector<Name> all = {
      Name::kNaive,        Name::kGpipe,      Name::kOneFOneB, Name::kInterleaved, Name::kLoopedBreadthFirst,
      Name::kZeroBubbleH1, Name::kZeroBubbleV};
  return all;
}

Name name_of(const std::string& text) {
  std::vector<std::string> known;
  for (const Name name : names()) {
    if (text == to_text(name)) return name;
    known.emplace_back(to_text(name));
  }
  const std::string meant = base::nearest(text, known);
  throw InvalidArgument(Report{.what = "[schedule] there is no such schedule",
                               .got = text,
                               .expected = fmt::format("{}", fmt::join(known, ", ")),
                               .fix = meant.empty() ? "" : "write " + meant});
}

VirtualStages virtual_stages_of(Name name) {
  switch (name) {
    case Name::kNaive:
    case Name::kInterleaved:
    case Name::kLoopedBreadthFirst: return {.least = 1, .most = kMostOfEach};
    case Name::kZeroBubbleV: return {.least = 2, .most = 2};
    case Name::kGpipe:
    case Name::kOneFOneB:
    case Name::kZeroBubbleH1: break;
  }
  return {.least = 1, .most = 1};
}

Schedule generate(Name name, const Size& size) {
  switch (name) {
    case Name::kNaive: return naive(size);
    case Name::kGpipe: return gpipe(size);
    case Name::kOneFOneB: return one_f_one_b(size);
    case Name::kInterleaved: return interleaved(size);
    case Name::kLoopedBreadthFirst: return looped_breadth_first(size);
    case Name::kZeroBubbleH1: return zero_bubble_h1(size);
    case Name::kZeroBubbleV: return zero_bubble_v(size);
  }
  throw InvalidArgument("[schedule] there is no such schedule");
}

}  // namespace reigen::schedule
