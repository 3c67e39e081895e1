// Records of event files: their checksums, what they say, and where damage ends them.
#include "reigen/format/event_file.h"

#include <gtest/gtest.h>

#include <cmath>

namespace reigen::format {
namespace {

std::vector<Event> events_in(std::string_view content, std::size_t* length = nullptr) {
  std::vector<Event> all;
  const std::size_t read = read_events(content, [&](const Event& event) {
    all.push_back(event);
    return true;
  });
  if (length != nullptr) *length = read;
  return all;
}

// The first record of a file that TensorFlow wrote: its length and both checksums.
TEST(EventFile, TheFirstRecordHasTheBytesOfTensorFlow) {
  const std::string record = first_event(0);
  EXPECT_EQ(record, std::string("\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22", 12) +
                        std::string("\x09\0\0\0\0\0\0\0\0\x1a\x0d", 11) + "brain.Event:2" + record.substr(36));
  EXPECT_EQ(events_in(record).at(0).version, "brain.Event:2");
}

TEST(EventFile, EveryKindIsRead) {
  const EventTime when{.wall_time = 1.5, .step = -3};
  const std::map<std::string, HParam> values{{"lr", 0.1}, {"name", std::string("sgd")}, {"fused", true}};
  const std::string content =
      first_event(1) + scalars_event(when, {{"loss", 0.5}, {"nan", NAN}}) +
      histogram_event({2, 1}, "weights", {.min = 0, .max = 1, .count = 2, .limits = {0.5, 1}, .counts = {1, 1}}) +
      image_event({2, 1}, "picture", 2, 3, 1, "PNG") + text_event({2, 1}, "note", "**text**") +
      hparams_experiment_event({2, 0}, values, {"loss"}) + hparams_begin_event({2, 0}, values) +
      hparams_end_event({2, 1LL << 40}, true);
  std::size_t length = 0;
  const std::vector<Event> events = events_in(content, &length);
  EXPECT_EQ(length, content.size());
  ASSERT_EQ(events.size(), 8U);
  EXPECT_EQ(events[1].when.step, -3);
  EXPECT_EQ(events[1].when.wall_time, 1.5);
  ASSERT_EQ(events[1].scalars.size(), 2U);
  EXPECT_EQ(events[1].scalars[0], (std::pair<std::string, double>("loss", 0.5)));
  EXPECT_TRUE(std::isnan(events[1].scalars[1].second));
  EXPECT_EQ(events[2].tags, std::vector<std::string>{"weights"});
  EXPECT_EQ(events[3].tags, std::vector<std::string>{"picture"});
  EXPECT_EQ(events[4].tags, std::vector<std::string>{"note"});
  EXPECT_EQ(events[6].tags, std::vector<std::string>{"_hparams_/session_start_info"});
  EXPECT_EQ(events[7].when.step, 1LL << 40);
  EXPECT_TRUE(events[7].ends_session);
  EXPECT_FALSE(events[6].ends_session);
}

// Whatever bit is changed, only the records before it are read.
TEST(EventFile, DamageEndsTheFile) {
  const std::string first = first_event(1) + scalars_event({1, 1}, {{"loss", 1}});
  const std::string content = first + scalars_event({1, 2}, {{"loss", 2}});
  for (std::size_t bit = 8 * first.size(); bit < 8 * content.size(); ++bit) {
    std::string damaged = content;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    std::size_t length = 0;
    EXPECT_EQ(events_in(damaged, &length).size(), 2U) << bit;
    EXPECT_EQ(length, first.size());
  }
  for (std::size_t size = 0; size < content.size(); ++size) {
    EXPECT_LE(events_in(content.substr(0, size)).size(), size < first.size() ? 1U : 2U);
  }
}

TEST(EventFile, NamesAreKnown) {
  EXPECT_TRUE(event_file_name(1764412345.6, "mine").starts_with("events.out.tfevents.1764412345."));
  EXPECT_TRUE(is_event_file_name(event_file_name(1, "mine"), "mine"));
  EXPECT_FALSE(is_event_file_name(event_file_name(1, "mine"), "run"));
  EXPECT_FALSE(is_event_file_name("events.out.tfevents.1764412345.host.1.0", "mine"));
  EXPECT_NE(event_file_name(1, "mine"), event_file_name(1, "mine"));
}

}  // namespace
}  // namespace reigen::format
