#include "reigen/schedule/picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "harness/folders.h"
#include "reigen/base/error.h"
#include "reigen/schedule/generate.h"

namespace reigen::schedule {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Picture, HasABoxForEachActionThatComputes) {
  const std::string svg = to_svg(replay(add_messages(interleaved({2, 4, 2}))), {.title = "a < b", .unit = "ms"});
  EXPECT_EQ(count_of(svg, "<title>"), 32);
  EXPECT_THAT(svg, HasSubstr("a &lt; b: total 27 ms, bubble 11.1 %"));
  EXPECT_THAT(svg, HasSubstr("<title>F3.2, "));
  EXPECT_THAT(svg, HasSubstr("darker: a later stage of the rank"));
  EXPECT_THAT(svg, HasSubstr(">backward<"));
  EXPECT_THAT(svg, Not(HasSubstr("backward of")));
  EXPECT_EQ(count_of(svg, "<svg"), count_of(svg, "</svg>"));
}

TEST(Picture, WrongOptionsAreRefused) {
  const Replay result = replay(add_messages(gpipe({2, 1})));
  EXPECT_THAT([&] { to_svg(result, {.width = 100}); }, ThrowsMessage<InvalidArgument>(HasSubstr("too narrow")));
  EXPECT_THAT([&] { to_svg(result, {.time_range = 5}); }, ThrowsMessage<InvalidArgument>(HasSubstr("range of time")));
  EXPECT_THAT(to_svg(result, {.time_range = 12}), HasSubstr("total 6, bubble 50.0 %"));
  Replay empty = replay(add_messages(gpipe({1, 1})), {.stages = {{.forward = 0, .backward = 0}}});
  EXPECT_THAT(to_svg(empty), HasSubstr("total 0, bubble 0.0 %"));
}

struct Shown {
  std::string title;
  Name name;
  int virtual_stages;
};

// The schedules of docs/pipeline.md below each other, for one model on four ranks with eight micro-batches.
std::string picture_of_the_page() {
  const std::vector<Shown> shown = {{"GPipe", Name::kGpipe, 1},
                                    {"1F1B", Name::kOneFOneB, 1},
                                    {"interleaved 1F1B, 2 stages a rank", Name::kInterleaved, 2},
                                    {"looped breadth-first, 2 stages a rank", Name::kLoopedBreadthFirst, 2},
                                    {"ZB-H1", Name::kZeroBubbleH1, 1},
                                    {"ZB-V, 2 stages a rank", Name::kZeroBubbleV, 2}};
  std::string pictures;
  int height = 0;
  for (const auto& [title, name, v] : shown) {
    const StageTimes times{
        .forward = 1.0 / v, .backward = 2.0 / v, .backward_input = 1.0 / v, .backward_weight = 1.0 / v};
    const Schedule schedule = add_messages(generate(name, {.ranks = 4, .micro_batches = 8, .virtual_stages = v}));
    std::string svg = to_svg(replay(schedule, {.stages = {times}}), {.title = title, .time_range = 33});
    const int its_height = std::stoi(svg.substr(svg.find("height=\"") + 8));
    pictures += svg.insert(4, " y=\"" + std::to_string(height) + "\"");
    height += its_height;
  }
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1000\" height=\"" + std::to_string(height) + "\">\n" +
         pictures + "</svg>\n";
}

TEST(Picture, OfThePageIsWhatTheCodeDraws) {
  const std::string drawn = picture_of_the_page();
  std::ifstream file(std::string(kSourceFolder) + "/docs/pipeline_schedules.svg", std::ios::binary);
  const std::string kept{std::istreambuf_iterator<char>(file), {}};
  if (kept == drawn) return;
  const auto copy = std::filesystem::temp_directory_path() / "pipeline_schedules.svg";
  std::ofstream(copy, std::ios::binary) << drawn;
  FAIL() << "docs/pipeline_schedules.svg is not what the code draws; copy " << copy << " there";
}

}  // namespace
}  // namespace reigen::schedule
