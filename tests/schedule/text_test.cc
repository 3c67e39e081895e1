#include "reigen/schedule/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include <random>
#include <string>

#include "reigen/base/error.h"
#include "reigen/schedule/generate.h"
#include "reigen/schedule/validate.h"

namespace reigen::schedule {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr const char* kSmall =
    "ranks 2\n"
    "stages 2\n"
    "micro_batches 2\n"
    "placement looped\n"
    "rank 0: F0.0 SEND_F0.0>1 F0.1 SEND_F0.1>1 RECV_B0.0<1 B0.0 RECV_B0.1<1 B0.1\n"
    "rank 1: RECV_F1.0<0 F1.0 RECV_F1.1<0 B1.0 SEND_B1.0>0 F1.1 B1.1 SEND_B1.1>0\n";

TEST(Text, ASmallSchedule) {
  EXPECT_EQ(to_text(add_messages(one_f_one_b({2, 2}))), kSmall);
  EXPECT_EQ(parse_schedule(kSmall), add_messages(one_f_one_b({2, 2})));
}

TEST(Text, EverySchedulesTextIsReadBack) {
  for (const Name name : names()) {
    for (const int ranks : {1, 2, 5}) {
      for (const int m : {1, 3, 12}) {
        const Size size{
            .ranks = ranks, .micro_batches = m, .virtual_stages = std::min(3, virtual_stages_of(name).most)};
        Schedule schedule = generate(name, size);
        if (schedule.stages() > 2) schedule.skips = {{0, 2}};
        if (schedule.stages() > 2) schedule.tied = {{0, 2}, {1, 2}};
        schedule = add_messages(schedule);
        EXPECT_EQ(parse_schedule(to_text(schedule)), schedule) << to_text(schedule);
      }
    }
  }
}

TEST(Text, Placements) {
  const std::string rest =
      "\nranks 2\nstages 4\nmicro_batches 1\nrank 0: UNSHARD0 RESHARD0\nrank 1: REDUCE_GRAD1 I3.0 W3.0";
  for (const char* placement : {"placement looped", "placement v_shaped", "placement 1 1 0 0"}) {
    const Schedule schedule = parse_schedule(placement + rest);
    EXPECT_EQ(parse_schedule(to_text(schedule)), schedule);
    EXPECT_THAT(to_text(schedule), HasSubstr(placement));
  }
  EXPECT_EQ(parse_schedule("placement 1 1 0 0" + rest).placement, (std::vector<int>{1, 1, 0, 0}));
}

TEST(Text, CommentsBlankLinesAndTheOrderOfLinesDoNotMatter) {
  const std::string text =
      "\r\n# a schedule\n\nrank 1:\tRECV_F1.0<0  F1.0 B1.0 SEND_B1.0>0   # the last stage\n"
      "rank 0: F0.0 SEND_F0.0>1 RECV_B0.0<1 B0.0\r\n"
      "micro_batches 1\nplacement looped # stage s on rank s\nstages 2\nranks 2";
  EXPECT_EQ(parse_schedule(text), add_messages(naive({2, 1})));
}

// kSmall with `from` replaced by `to`.
std::string changed(const std::string& from, const std::string& to) {
  std::string text = kSmall;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

void expect_refused(const std::string& text, const ::testing::Matcher<std::string>& message) {
  EXPECT_THAT([&] { parse_schedule(text); }, ThrowsMessage<InvalidArgument>(message)) << text;
}

TEST(Text, ErrorsNameLineAndWord) {
  expect_refused(changed(" F1.1", " X1.1"), AllOf(HasSubstr("line 6, word 8: unknown action"), HasSubstr("got: X1.1")));
  expect_refused(changed("RECV_F1.1<0", "RECF_F1.1<0"), AllOf(HasSubstr("line 6, word 5"), HasSubstr("write RECV_F")));
  expect_refused(changed(" B0.0", " B0"), AllOf(HasSubstr("line 5, word 8: not an action"), HasSubstr("as B0.3")));
  expect_refused(changed("F0.1", "F0.1x"), HasSubstr("line 5, word 5: not an action"));
  expect_refused(changed("F0.1", "F.1"), HasSubstr("line 5, word 5: not an action"));
  expect_refused(changed("F0.1", "F0.99999999999"), HasSubstr("line 5, word 5: not an action"));
  expect_refused(changed("F0.1", "F-1.1"), HasSubstr("line 5, word 5: unknown action"));
  expect_refused(changed("SEND_F0.0>1", "SEND_F0.0<1"),
                 AllOf(HasSubstr("word 4: not an action"), HasSubstr("SEND_F0.3>1")));
  expect_refused(changed("F0.1", "UNSHARD0.1"), HasSubstr("line 5, word 5: not an action"));
  expect_refused(changed("ranks 2", "ranks two"), HasSubstr("line 1, word 2: not a number"));
  expect_refused(changed("ranks 2", "ranks 0"), HasSubstr("line 1, word 2: the number is wrong"));
  expect_refused(changed("ranks 2", "ranks 2 2"), HasSubstr("line 1, word 3: not one number"));
  expect_refused(changed("ranks 2", "ranks 1"), HasSubstr("line 6, word 2: the rank does not exist"));
  expect_refused(changed("ranks 2", "ranks 3"), HasSubstr("no line `rank 2:`"));
  expect_refused(changed("stages 2", "stage 2"),
                 AllOf(HasSubstr("line 2, word 1: unknown word"), HasSubstr("write stages")));
  expect_refused(changed("stages 2", "ranks 2"), HasSubstr("line 2, word 1: comes twice"));
  expect_refused(changed("stages 2\n", ""), HasSubstr("no line `stages`"));
  expect_refused(changed("looped", "loop"), HasSubstr("line 4, word 2: not a number"));
  expect_refused(changed("looped", "0 1 0"), HasSubstr("line 4, word 4: the number of stages differs"));
  expect_refused(changed("rank 1:", "rank 0:"),
                 AllOf(HasSubstr("line 6, word 2: the rank has two lines"), HasSubstr("line 5")));
  expect_refused(changed("rank 1:", "rank 1"), HasSubstr("line 6, word 2: no colon"));
  expect_refused(changed("rank 1:", "skip 1:"), HasSubstr("line 6, word 2: not a number"));
  expect_refused("skip 1", HasSubstr("line 1, word 2: not two stages"));
  expect_refused("", HasSubstr("no line `ranks`"));
}

TEST(Text, NoTextCrashesTheReader) {
  std::mt19937 random(5);
  const std::string letters = " \n#:.<>0129FBIWSENDRCV_rankskip-placement\t";
  for (int round = 0; round < 20000; ++round) {
    std::string text = kSmall;
    for (unsigned i = 0; i < 1 + random() % 4; ++i) {
      const std::size_t at = random() % text.size();
      if (random() % 3 == 0)
        text.erase(at, 1 + random() % 6);
      else
        text.insert(at, 1, letters[random() % letters.size()]);
    }
    try {
      const Schedule schedule = parse_schedule(text);
      EXPECT_EQ(parse_schedule(to_text(schedule)), schedule) << text;
      validate(schedule);
    } catch (const InvalidArgument&) {
    }
  }
}

}  // namespace
}  // namespace reigen::schedule
