// Options that describe themselves: values are read, printed and refused; alternatives have options of their own.
#include "reigen/base/fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reigen/base/error.h"
#include "reigen/base/one_of.h"

namespace reigen {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

enum class Colour { kRed, kBlue };

struct Everything {
  bool on = false;
  int few = 1;
  std::int64_t many = 2;
  std::optional<std::int64_t> perhaps = {};
  std::optional<std::int64_t> workers = {};
  std::uint64_t seed = 0;
  double share = 0.5;
  std::optional<double> rate = {};
  std::string word = "a";
  std::string any = {};
  std::vector<Duration> steps = {};
  std::chrono::milliseconds wait = std::chrono::milliseconds(1500);
  Colour colour = Colour::kRed;
};
void describe(Fields& fields, Everything& o) {
  fields.add("on", o.on, "a switch");
  fields.add("few", o.few, at_least(1).up_to(9), "");
  fields.add("many", o.many, at_least(0), "");
  fields.add("perhaps", o.perhaps, at_least(1), "");
  fields.add("workers", o.workers, at_least(0).up_to(64), "").empty_word = "auto";
  fields.add("seed", o.seed, at_least(0), "");
  fields.add("share", o.share, above(0).up_to(1), "");
  fields.add("rate", o.rate, at_least(0).below(1), "");
  fields.add("word", o.word, {"a", "b"}, "");
  fields.add("any", o.any, "");
  fields.add("steps", o.steps, "");
  fields.add("wait", o.wait, above(0), "");
  fields.add("colour", o.colour, {"red", "blue"}, "");
}

const Field& row(const Fields& fields, const std::string& key) {
  for (const Field& field : fields.rows) {
    if (field.key == key) return field;
  }
  throw InternalError("no row " + key);
}

TEST(FieldsOf, EveryKindIsReadAndPrinted) {
  Everything o;
  Fields fields("section");
  describe(fields, o);
  const std::vector<std::pair<const char*, const char*>> values = {
      {"on", "true"},    {"few", "9"},  {"many", "7"},  {"perhaps", "3"},        {"seed", "12"},   {"share", "0.25"},
      {"rate", "1e-05"}, {"word", "b"}, {"any", "x y"}, {"steps", "1, 20, 300"}, {"wait", "0.25"}, {"colour", "blue"}};
  for (const auto& [key, value] : values) {
    ASSERT_TRUE(row(fields, key).set(value)) << key;
    EXPECT_EQ(row(fields, key).text(), value);
    EXPECT_EQ(row(fields, key).name(), std::string("section.") + key);
  }
  EXPECT_TRUE(o.on);
  EXPECT_EQ(o.few + o.many + *o.perhaps + static_cast<std::int64_t>(o.seed), 31);
  EXPECT_EQ(*o.rate, 1e-5);
  EXPECT_THAT(o.steps, ElementsAre(Duration{1}, Duration{20}, Duration{300}));
  EXPECT_EQ(o.wait, std::chrono::milliseconds(250));
  EXPECT_EQ(o.colour, Colour::kBlue);
}

TEST(FieldsOf, WhatIsOutOfRangeChangesNothing) {
  Everything o;
  Fields fields;
  describe(fields, o);
  const std::vector<std::pair<const char*, const char*>> values = {{"on", "yes"},
                                                                   {"few", "0"},
                                                                   {"few", "10"},
                                                                   {"few", "1.5"},
                                                                   {"many", "-1"},
                                                                   {"many", "9999999999999999999"},
                                                                   {"many", "9100000000000000"},
                                                                   {"perhaps", ""},
                                                                   {"workers", "Auto"},
                                                                   {"workers", "65"},
                                                                   {"seed", "-1"},
                                                                   {"share", "0"},
                                                                   {"share", "nan"},
                                                                   {"rate", "1"},
                                                                   {"rate", "inf"},
                                                                   {"word", "c"},
                                                                   {"any", nullptr},
                                                                   {"steps", "3,2"},
                                                                   {"steps", "1,,2"},
                                                                   {"steps", "1,"},
                                                                   {"steps", "1.5"},
                                                                   {"steps", "30 s"},
                                                                   {"steps", "2 epochs, 3"},
                                                                   {"steps", "2 epochs, 1 epoch"},
                                                                   {"wait", "0"},
                                                                   {"wait", "0.0001"},
                                                                   {"colour", "green"},
                                                                   {"colour", "1"}};
  for (const auto& [key, value] : values) {
    const std::string text = value != nullptr ? value : std::string("a\0b", 3);
    EXPECT_FALSE(row(fields, key).set(text)) << key << " " << text;
  }
  Everything usual;
  Fields unchanged;
  describe(unchanged, usual);
  for (std::size_t i = 0; i < fields.rows.size(); ++i) EXPECT_EQ(fields.rows[i].text(), unchanged.rows[i].text());
}

TEST(FieldsOf, WhatARowTakesIsSaid) {
  Everything o;
  Fields fields;
  describe(fields, o);
  EXPECT_EQ(row(fields, "on").expected(), "true or false");
  EXPECT_EQ(row(fields, "few").expected(), "a whole number of at least 1 and at most 9");
  EXPECT_EQ(row(fields, "many").expected(), "a whole number of at least 0");
  EXPECT_EQ(row(fields, "share").expected(), "a number above 0 and at most 1");
  EXPECT_EQ(row(fields, "rate").expected(), "a number of at least 0 and below 1");
  EXPECT_EQ(row(fields, "colour").expected(), "red, blue");
  EXPECT_EQ(row(fields, "perhaps").text(), "not set");
  EXPECT_EQ(row(fields, "workers").expected(), "auto, or a whole number of at least 0 and at most 64");
}

TEST(FieldsOf, AnOptionalNumberMayHaveAWordForNone) {
  Everything o;
  Fields fields;
  describe(fields, o);
  const Field& workers = row(fields, "workers");
  EXPECT_EQ(workers.text(), "auto");
  EXPECT_FALSE(workers.is_unset());
  ASSERT_TRUE(workers.set("0"));
  EXPECT_EQ(o.workers, 0);
  EXPECT_EQ(workers.text(), "0");
  ASSERT_TRUE(workers.set("auto"));
  EXPECT_EQ(o.workers, std::nullopt);
}

struct Walk {
  static constexpr const char* kName = "walk";
};
struct Ride {
  static constexpr const char* kName = "ride";
  double speed = 20;
  std::int64_t gears = 7;
};
struct Drive {
  static constexpr const char* kName = "drive";
  double speed = 100;
};
void describe(Fields&, Walk&) {}
void describe(Fields& fields, Ride& o) {
  fields.add("speed", o.speed, above(0), "km/h").none = "0.0";
  fields.add("gears", o.gears, at_least(1), "how many");
}
void describe(Fields& fields, Drive& o) { fields.add("speed", o.speed, above(0), "km/h").none = "0.0"; }
using Way = OneOf<Walk, Ride, Drive>;

std::vector<Field> rows_of(Way& way) {
  Fields fields("trip");
  way.add_name(fields, "way", "how");
  way.add_options(fields);
  return std::move(fields.rows);
}

TEST(AlternativesOf, LieSideBySideAndShareRows) {
  Way way;
  const std::vector<Field> rows = rows_of(way);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_THAT(rows[0].choices, ElementsAre("walk", "ride", "drive"));
  EXPECT_THAT(rows[1].owners, ElementsAre("ride", "drive"));
  EXPECT_EQ(rows[1].text(), "not set");
  EXPECT_TRUE(rows[1].set("30"));
  EXPECT_TRUE(rows[0].set("drive"));
  EXPECT_EQ(rows[1].text(), "30.0");
  EXPECT_EQ(way.of<Drive>().speed, 30);
  EXPECT_EQ(way.of<Ride>().gears, 7);
}

TEST(AlternativesOf, WhatIsNotToldIsEachOnesOwn) {
  Way way;
  way.name = "drive";
  double speed = 0;
  const auto look = [&](const auto& options) {
    if constexpr (requires { options.speed; }) speed = options.speed;
  };
  way.visit(look);
  EXPECT_EQ(speed, 100);
  EXPECT_TRUE(way.given.empty());
  way.note_given();
  EXPECT_THAT(way.given, ElementsAre("speed"));
  const Way ride = Ride{.speed = 25};
  EXPECT_EQ(ride.name, "ride");
  ride.visit(look);
  EXPECT_EQ(speed, 25);
}

TEST(AlternativesOf, WhatTheOneThatHoldsLacksIsRefused) {
  Way way;
  EXPECT_TRUE(way.set("gears", "3"));
  EXPECT_FALSE(way.set("wings", "2"));
  EXPECT_FALSE(way.set("gears", "0"));
  way.name = "drive";
  try {
    require_owned(rows_of(way));
    ADD_FAILURE();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("trip.gears = 3: trip.way drive has no gears"));
    EXPECT_THAT(error.what(), HasSubstr("choose trip.way ride, or leave trip.gears out"));
  }
  way.name = "ride";
  require_owned(rows_of(way));
}

// An option of a struct that is no alternative: only some values of another option allow it.
TEST(AlternativesOf, AnOptionMayBelongToSomeValuesOfAnother) {
  std::string fuel = "none";
  std::int64_t tank = 0;
  const auto refusal = [&] {
    Fields fields("trip");
    fields.add("fuel", fuel, {"none", "petrol"}, "what it burns");
    fields.add("tank", tank, at_least(0), "litres").only_for({"petrol"}, fuel, "trip.fuel", "0").required = true;
    try {
      require_owned(fields.rows);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal(), "");
  tank = 40;
  EXPECT_THAT(refusal(),
              ::testing::AllOf(HasSubstr("trip.tank = 40: trip.fuel none has no tank"), HasSubstr("trip.fuel petrol")));
  fuel = "petrol";
  EXPECT_EQ(refusal(), "");
  tank = 0;
  EXPECT_THAT(refusal(),
              ::testing::AllOf(HasSubstr("trip.fuel = petrol needs trip.tank"), HasSubstr("set trip.tank: litres")));
}

TEST(AlternativesOf, ANameThatIsNoneIsRefused) {
  Way way;
  way.name = "swim";
  EXPECT_THROW(way.visit([](const auto&) {}), InvalidArgument);
}

TEST(AlternativesOf, OnlyWhatDiffersFromTheDefaultsIsTold) {
  const Way ride = Ride{.speed = 25};
  EXPECT_THAT(ride.given, ElementsAre("speed"));
  EXPECT_TRUE(Way(Ride{}).given.empty());
}

TEST(AlternativesOf, DefaultsHoldUntilAnotherNameIsChosen) {
  const Way program = Ride{.speed = 25, .gears = 3};
  Way read = Way::fresh(program);
  EXPECT_TRUE(read.set("gears", "9"));
  read.take_defaults(program);
  EXPECT_EQ(read.of<Ride>().speed, 25);
  EXPECT_EQ(read.of<Ride>().gears, 9);
  Way other = Way::fresh(program);
  other.name = "drive";
  other.take_defaults(program);
  EXPECT_EQ(other.of<Drive>().speed, 100);
  EXPECT_TRUE(other.given.empty());
}

TEST(FieldsTest, TimesAreReadPrintedAndCountedInSteps) {
  for (const auto& [text, printed] :
       {std::pair("500", "500"), std::pair("500 steps", "500"), std::pair("1 epoch", "1 epoch"),
        std::pair("2epochs", "2 epochs"), std::pair("0.25 epochs", "0.25 epochs"), std::pair("1.5 h", "5400 s")}) {
    const auto read = read_duration(text);
    ASSERT_TRUE(read) << text;
    EXPECT_EQ(to_text(*read), printed);
    EXPECT_EQ(read_duration(printed), read);
  }
  for (const char* text : {"", "0", "-1", "1.5", "5 weeks", "epochs", "nan", "inf epochs"}) {
    EXPECT_FALSE(read_duration(text)) << text;
  }
  EXPECT_EQ(steps_of({.count = 7}, 5005), 7);
  EXPECT_EQ(steps_of({.count = 0.25, .unit = Duration::Unit::kEpochs}, 5005), 1251);
  EXPECT_THROW(steps_of({.count = 3, .unit = Duration::Unit::kSeconds}, 10), InternalError);
}

}  // namespace
}  // namespace reigen
