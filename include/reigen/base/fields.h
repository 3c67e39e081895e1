// A table that describes the members of an options struct in one place: the name, range and meaning of each member.
// Flags, files, environment variables, --help, errors and the comparison between ranks all use the rows of this table.
//
//   struct TopKOptions { double share = 0.01; };
//   inline void describe(Fields& fields, TopKOptions& options) {
//     fields.add("share", options.share, above(0).up_to(1), "of a parameter's elements that are sent");
//   }
//
// Thread rule: one thread at a time may use the rows of one struct. A row points into the struct that it describes; the
// struct must outlive the row.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "reigen/base/duration.h"

namespace reigen {

// The values that a numeric member may have. Whether the value must be a whole number follows from the member's type.
struct Range {
  static constexpr double kNone = 1e300;  // stands for "no limit"

  double low = -kNone;
  double high = kNone;
  bool above_low = false;   // `low` itself is not allowed
  bool below_high = false;  // `high` itself is not allowed

  constexpr Range up_to(double limit) const { return {low, limit, above_low, false}; }
  constexpr Range below(double limit) const { return {low, limit, above_low, true}; }
  bool holds(double value) const;  // false for infinities and NaN
};
constexpr Range at_least(double low) { return {.low = low}; }
constexpr Range above(double low) { return {.low = low, .above_low = true}; }

// A member whose type is an enumeration. get() and set() convert between the member's value and the position of the
// value's name in Field::choices.
struct Chosen {
  void* member = nullptr;
  std::size_t (*get)(const void* member) = nullptr;
  void (*set)(void* member, std::size_t position) = nullptr;
};

// One row of the table. It describes one member of an options struct.
struct Field {
  // A pointer to the member. A vector holds times of a training in ascending order, all of them in steps or all in
  // epochs. The text of milliseconds is a
  // number of seconds.
  using Value =
      std::variant<bool*, int*, std::int64_t*, std::optional<std::int64_t>*, std::uint64_t*, double*,
                   std::optional<double>*, std::string*, std::vector<Duration>*, std::chrono::milliseconds*, Chosen>;

  std::string section;  // for example "optim"
  std::string key;      // for example "lr"
  Value value;
  std::string meaning;  // the text for --help
  Range range = {};
  std::vector<std::string> choices = {};  // allowed values of a text or an enumeration; if empty, any text is allowed
  std::string empty_word = {};            // the text of an optional number that has no value: "auto"
  bool may_differ = false;                // whether the value may differ between ranks
  bool own_section = false;               // whether the section is defined by the user's program, not by Reigen

  // For an option that only some values of another option allow, such as the alternatives of a choice (one_of.h):
  std::vector<Value> alike = {};             // the same option in other alternatives; set() sets all of them
  std::vector<std::string> owners = {};      // the alternatives that have the option; empty for other options
  std::set<std::string>* given = nullptr;    // keys that were set; other keys have the alternative's default
  const std::string* alternative = nullptr;  // the name of the chosen alternative
  std::string decided_by = {};               // the option that chooses the alternative: "optim.name"
  std::string none = {};                     // the value that is the same as leaving the option out: "0"
  bool required = false;                     // whether the owners need a value of the option other than `none`

  // The key of another option of the section. This option means nothing while the other one has its default value. The
  // code that reads the rows checks it; require_owned() does not.
  std::string needs = {};

  std::string name() const { return section + "." + key; }
  // Marks the option as one that only the values `names` of the option `decider` allow. `holds` contains the value of
  // the decider. The option is allowed to have its value `unused` under every value of the decider.
  Field& only_for(std::vector<std::string> names, const std::string& holds, std::string decider,
                  std::string unused = {}) {
    owners = std::move(names);
    alternative = &holds;
    decided_by = std::move(decider);
    none = std::move(unused);
    return *this;
  }
  bool is_none() const;  // whether leaving the option out means the same as its value

  bool is_switch() const { return std::holds_alternative<bool*>(value); }
  bool is_text() const;   // whether TOML writes the value in quotes
  bool is_whole() const;  // whether the value is a whole number
  // True for an optional number without a value, unless it has an empty_word, and for one whose key is not in `given`.
  bool is_unset() const;
  // Whether the text stands for an optional number without a value.
  bool is_empty_word(const std::string& text) const { return !empty_word.empty() && text == empty_word; }
  std::string text() const;      // the value as text; "not set" if is_unset()
  std::string expected() const;  // the values that are allowed: "a whole number of at least 1", "fp32, fp64"

  // Sets the value from text. Returns false and changes nothing if the text is not a valid value or is out of range.
  bool set(const std::string& text) const;
};

// The rows of one or several structs, in the order in which they are added.
class Fields {
 public:
  explicit Fields(std::string first_section = {}) : section(std::move(first_section)) {}

  // Adds a switch (bool), a text or a number. Returns the row, so that the caller can set its other members. The
  // reference is valid until the next row is added.
  template <class Member>
  Field& add(const char* key, Member& member, std::string meaning) {
    return push(key, &member, {}, std::move(meaning));
  }
  template <class Member>
  Field& add(const char* key, Member& member, Range range, std::string meaning) {
    return push(key, &member, range, std::move(meaning));
  }
  // Adds a text that must be one of `choices`.
  Field& add(const char* key, std::string& member, std::vector<std::string> choices, std::string meaning) {
    Field& row = push(key, &member, {}, std::move(meaning));
    row.choices = std::move(choices);
    return row;
  }
  // Adds an enumeration whose values are 0, 1, ... in the order of `names`.
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

  std::string section;  // the section of the rows that are added from now on
  std::vector<Field> rows;

 private:
  Field& push(const char* key, Field::Value value, Range range, std::string meaning) {
    rows.push_back({.section = section, .key = key, .value = value, .meaning = std::move(meaning), .range = range});
    return rows.back();
  }
};

// Returns the row of the option with this name ("train.epochs"), or nullptr.
const Field* find(const std::vector<Field>& rows, std::string_view name);

}  // namespace reigen
