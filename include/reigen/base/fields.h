// What an options struct says of its own members, once: name, range and meaning of each. Flags, files, variables,
// --help, errors and the comparison between ranks are made of these rows.
//
//   struct TopKOptions { double share = 0.01; };
//   inline void describe(Fields& fields, TopKOptions& options) {
//     fields.add("share", options.share, above(0).up_to(1), "of a parameter's elements that travel");
//   }
//
// Thread rule: values; a row points into the struct it was made from.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace reigen {

// What a number may be. Whole numbers are told apart from others by the member's type.
struct Range {
  static constexpr double kNone = 1e300;  // a limit that is none

  double low = -kNone;
  double high = kNone;
  bool above_low = false;   // `low` itself is not allowed
  bool below_high = false;  // `high` itself is not allowed

  constexpr Range up_to(double limit) const { return {low, limit, above_low, false}; }
  constexpr Range below(double limit) const { return {low, limit, above_low, true}; }
  bool holds(double value) const;  // false for what is not finite
};
constexpr Range at_least(double low) { return {.low = low}; }
constexpr Range above(double low) { return {.low = low, .above_low = true}; }

// A member of an enumeration's type, by the position of its value among the names.
struct Chosen {
  void* member = nullptr;
  std::size_t (*get)(const void* member) = nullptr;
  void (*set)(void* member, std::size_t position) = nullptr;
};

// One row of the table.
struct Field {
  using Value = std::variant<bool*, int*, std::int64_t*, std::optional<std::int64_t>*, std::uint64_t*, double*,
                             std::optional<double>*, std::string*, std::vector<std::int64_t>*,
                             std::chrono::milliseconds*, Chosen>;  // a vector: steps in rising order; a time: seconds

  std::string section;
  std::string key;
  Value value;
  std::string meaning;
  Range range = {};
  std::vector<std::string> choices = {};  // of text and of an enumeration; empty: any text
  bool may_differ = false;                // between ranks
  bool own_section = false;               // of a program's own

  // Of an option that only some alternatives have (one_of.h).
  std::vector<Value> alike = {};             // the other alternatives' members of this name: set along with `value`
  std::vector<std::string> owners = {};      // the alternatives that have it; empty: it depends on none
  std::set<std::string>* given = nullptr;    // the keys that were told; others are as the alternative has them
  const std::string* alternative = nullptr;  // which holds
  std::string decided_by = {};               // the option that says which holds: "optim.name"
  std::string none = {};                     // the value that those without the option have as well: "0"

  std::string name() const { return section + "." + key; }
  // The row is that of an option which only these alternatives have; `holds` says which holds, by the option `decider`.
  void only_for(std::vector<std::string> names, const std::string& holds, std::string decider) {
    owners = std::move(names);
    alternative = &holds;
    decided_by = std::move(decider);
  }

  bool is_switch() const { return std::holds_alternative<bool*>(value); }
  bool is_text() const;          // TOML writes it in quotes
  bool is_whole() const;         // a whole number
  bool is_unset() const;         // a number that nobody has told and that has no value of its own
  std::string text() const;      // the value as text; "not set" for one that is unset
  std::string expected() const;  // "a whole number of at least 1", "fp32, fp64": what it takes

  // Takes the value that the text says; false, and nothing is changed, where it is none or out of range.
  bool set(const std::string& text) const;
};

// The rows of one struct or several, in the order in which they are added.
class Fields {
 public:
  explicit Fields(std::string first_section = {}) : section(std::move(first_section)) {}

  // A switch, a text, a number. Returns the row, for what is seldom said of one; valid until the next is added.
  template <class Member>
  Field& add(const char* key, Member& member, std::string meaning) {
    return push(key, &member, {}, std::move(meaning));
  }
  template <class Member>
  Field& add(const char* key, Member& member, Range range, std::string meaning) {
    return push(key, &member, range, std::move(meaning));
  }
  // A text that is one of these.
  Field& add(const char* key, std::string& member, std::vector<std::string> choices, std::string meaning) {
    Field& row = push(key, &member, {}, std::move(meaning));
    row.choices = std::move(choices);
    return row;
  }
  // An enumeration whose values are 0, 1, ... in the order of these names.
  template <class Enumeration>
  requires std::is_enum_v<Enumeration> Field& add(const char* key, Enumeration& member, std::vector<std::string> names,
                                                  std::string meaning) {
    const Chosen chosen{
        &member, [](const void* at) { return static_cast<std::size_t>(*static_cast<const Enumeration*>(at)); },
        [](void* at, std::size_t position) { *static_cast<Enumeration*>(at) = static_cast<Enumeration>(position); }};
    Field& row = push(key, chosen, {}, std::move(meaning));
    row.choices = std::move(names);
    return row;
  }

  std::string section;  // of the rows that are added from now on
  std::vector<Field> rows;

 private:
  Field& push(const char* key, Field::Value value, Range range, std::string meaning) {
    rows.push_back({.section = section, .key = key, .value = value, .meaning = std::move(meaning), .range = range});
    return rows.back();
  }
};

}  // namespace reigen
