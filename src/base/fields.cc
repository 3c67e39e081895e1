#include "reigen/base/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/text.h"
#include "reigen/base/error.h"
#include "reigen/base/one_of.h"

namespace reigen {

namespace {

using std::chrono::milliseconds;

constexpr double kLargestWhole = 9e15;  // a double represents every whole number up to this one exactly

std::string text_of(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";  // TOML distinguishes 1 from 1.0
  return text;
}

template <class Number>
std::optional<Number> number_in(const Range& range, const std::string& text) {
  const auto number = base::parse<Number>(text);
  if (!number || (std::is_integral_v<Number> && static_cast<double>(*number) > kLargestWhole)) return std::nullopt;
  return range.holds(static_cast<double>(*number)) ? number : std::nullopt;
}

// Sets the member (of an options struct) that a Value points to. Returns false, and sets nothing, if the text is not an
// allowed value of this member.
struct FromText {
  const Field& field;
  const std::string& text;

  bool operator()(bool* value) const {
    if (text != "true" && text != "false") return false;
    *value = text == "true";
    return true;
  }
  template <class Number>
  requires std::is_arithmetic_v<Number>
  bool operator()(Number* value) const {
    const auto number = number_in<Number>(field.range, text);
    if (number) *value = *number;
    return number.has_value();
  }
  template <class Number>
  bool operator()(std::optional<Number>* value) const {
    if (field.is_empty_word(text)) {
      value->reset();
      return true;
    }
    const auto number = number_in<Number>(field.range, text);
    if (number) *value = number;
    return number.has_value();
  }
  bool operator()(milliseconds* value) const {
    const auto seconds = number_in<double>(field.range, text);
    const auto time = milliseconds(seconds ? std::llround(*seconds * 1000) : 0);
    if (!seconds || !field.range.holds(static_cast<double>(time.count()) / 1000)) return false;  // rounded out of range
    *value = time;
    return true;
  }
  bool operator()(std::string* value) const {
    if (!field.choices.empty() && position() == field.choices.size()) return false;
    if (text.find('\0') != std::string::npos) return false;
    *value = text;
    return true;
  }
  bool operator()(std::vector<Duration>* value) const {
    std::vector<Duration> times;
    for (const std::string& item : base::split(text, ',')) {
      const auto time = read_duration(item);
      if (!time || time->unit == Duration::Unit::kSeconds) return false;
      const bool follows = times.empty() || (time->unit == times.back().unit && time->count > times.back().count);
      if (!follows) return false;
      times.push_back(*time);
    }
    *value = times;
    return true;
  }
  bool operator()(const Chosen& value) const {
    if (position() == field.choices.size()) return false;
    value.set(value.member, position());
    return true;
  }
  std::size_t position() const {
    return static_cast<std::size_t>(std::find(field.choices.begin(), field.choices.end(), text) -
                                    field.choices.begin());
  }
};

struct ToText {
  const Field& field;

  std::string operator()(const bool* value) const { return *value ? "true" : "false"; }
  std::string operator()(const double* value) const { return text_of(*value); }
  std::string operator()(const milliseconds* value) const {
    return text_of(static_cast<double>(value->count()) / 1000);
  }
  template <class Whole>
  requires std::is_integral_v<Whole> std::string operator()(const Whole* value) const { return std::to_string(*value); }
  template <class Number>
  std::string operator()(const std::optional<Number>* value) const {
    return value->has_value() ? (*this)(&**value) : field.empty_word;
  }
  std::string operator()(const std::string* value) const { return *value; }
  std::string operator()(const std::vector<Duration>* value) const {
    std::vector<std::string> words;
    for (const Duration& time : *value) words.push_back(to_text(time));
    return fmt::format("{}", fmt::join(words, ", "));
  }
  std::string operator()(const Chosen& value) const { return field.choices.at(value.get(value.member)); }
};

template <class Member>
constexpr bool kIsWhole = std::is_integral_v<Member> && !std::is_same_v<Member, bool>;
template <>
constexpr bool kIsWhole<std::optional<std::int64_t>> = true;

// Whether the member is an optional number that has no value.
template <class Number>
bool is_empty(const std::optional<Number>& value) {
  return !value.has_value();
}
template <class Other>
bool is_empty(const Other&) {
  return false;
}

}  // namespace

bool Range::holds(double value) const {
  if (!std::isfinite(value)) return false;
  return (above_low ? value > low : value >= low) && (below_high ? value < high : value <= high);
}

bool Field::is_text() const {
  return std::holds_alternative<std::string*>(value) || std::holds_alternative<Chosen>(value) ||
         std::holds_alternative<std::vector<Duration>*>(value);
}

bool Field::is_whole() const {
  return std::visit([](auto member) { return kIsWhole<std::remove_pointer_t<decltype(member)>>; }, value);
}

bool Field::is_unset() const {
  if (!empty_word.empty()) return false;
  if (given != nullptr && !is_text() && !is_switch()) return !given->contains(key);
  return std::visit(
      [](auto member) {
        if constexpr (std::is_pointer_v<decltype(member)>)
          return is_empty(*member);
        else
          return false;
      },
      value);
}

std::string Field::text() const {
  if (is_unset()) return "not set";
  // Several alternatives, for example optimizers, may have the same option. Takes the member of the chosen alternative.
  // If the chosen alternative does not have the option, takes the member of the first alternative that has it.
  const std::size_t position =
      alternative == nullptr
          ? 0
          : static_cast<std::size_t>(std::find(owners.begin(), owners.end(), *alternative) - owners.begin());
  const Value& one = position == 0 || position > alike.size() ? value : alike[position - 1];
  return std::visit(ToText{*this}, one);
}

std::string Field::expected() const {
  if (!choices.empty()) return fmt::format("{}", fmt::join(choices, ", "));
  if (is_switch()) return "true or false";
  if (std::holds_alternative<std::vector<Duration>*>(value))
    return "steps or epochs in rising order, as \"1000, 2000\" or \"30 epochs, 60 epochs\"";
  if (is_text()) return "text";
  std::string said = empty_word.empty() ? "" : empty_word + ", or ";
  said += is_whole() ? "a whole number" : "a number";
  if (range.low > -Range::kNone) said += fmt::format(" {} {}", range.above_low ? "above" : "of at least", range.low);
  if (range.high < (is_whole() ? kLargestWhole : Range::kNone))
    said += fmt::format(" and {} {}", range.below_high ? "below" : "at most", range.high);
  return said;
}

bool Field::set(const std::string& text) const {
  const FromText from{*this, text};
  if (!std::visit(from, value)) return false;
  for (const Value& other : alike) std::visit(from, other);
  if (given != nullptr) given->insert(key);
  return true;
}

const Field* find(const std::vector<Field>& rows, std::string_view name) {
  // Rules look up some hundred names at each start, so no name() is made for each row.
  const std::size_t dot = std::min(name.find('.'), name.size());
  const std::string_view key = name.substr(std::min(dot + 1, name.size()));
  const auto is_it = [&](const Field& row) { return row.key == key && row.section == name.substr(0, dot); };
  const auto found = std::find_if(rows.begin(), rows.end(), is_it);
  return found == rows.end() ? nullptr : &*found;
}

void throw_no_alternative(const std::string& name, const std::vector<std::string>& names) {
  throw InvalidArgument(Report{.what = fmt::format("there is no alternative {}", name),
                               .got = name,
                               .expected = fmt::format("{}", fmt::join(names, ", ")),
                               .fix = "choose one of these"});
}

bool Field::is_none() const {
  if (given != nullptr ? !given->contains(key) : is_unset()) return true;
  const std::string set_to = text();
  return set_to == none || (none.empty() && (set_to.empty() || (is_switch() && set_to == "false")));
}

void require_owned(const std::vector<Field>& rows) {
  const auto allowed = [](const Field& row) {
    return std::find(row.owners.begin(), row.owners.end(), *row.alternative) != row.owners.end();
  };
  for (const Field& row : rows) {
    if (row.owners.empty() || row.is_none() || allowed(row)) continue;
    throw InvalidArgument(Report{.what = fmt::format("{} = {}: {} {} has no {}", row.name(), row.text(), row.decided_by,
                                                     *row.alternative, row.key),
                                 .fix = fmt::format("choose {} {}, or leave {} out", row.decided_by,
                                                    fmt::join(row.owners, " or "), row.name())});
  }
  for (const Field& row : rows) {
    if (!row.required || !row.is_none() || !allowed(row)) continue;
    throw InvalidArgument(Report{.what = fmt::format("{} = {} needs {}", row.decided_by, *row.alternative, row.name()),
                                 .fix = fmt::format("set {}: {}", row.name(), row.meaning)});
  }
}

}  // namespace reigen
