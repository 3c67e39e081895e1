// One of several named alternatives, each with options of its own: an optimizer, a schedule, a strategy.
//
//   using AnyOptimizer = OneOf<AdamWOptions, SGDOptions>;   // each has a kName and a describe(); the first is the
//   default AnyOptimizer rule = SGDOptions{.momentum = 0.9}; rule.visit([&](const auto& options) { use(options); });
//
// As rows of a table (fields.h) the alternatives lie side by side: `name` says which holds, and an option that several
// have is one row. What the alternative that holds does not have is refused by require_owned(). Thread rule: a value.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "reigen/base/fields.h"

namespace reigen {

template <class... Options>
class OneOf {
 public:
  std::string name = std::tuple_element_t<0, std::tuple<Options...>>::kName;  // of the alternative that holds
  std::set<std::string> given = {};  // keys that were told; others are as the alternative has them

  OneOf() = default;
  template <class Alternative>
  requires(std::is_same_v<Alternative, Options> || ...) OneOf(Alternative options)
      : name(Alternative::kName) {  // NOLINT(google-explicit-constructor): it is one of them
    std::get<Alternative>(all_) = std::move(options);
    note_given();
  }

  static std::vector<std::string> names() { return {Options::kName...}; }

  // The options of an alternative, whether or not it holds.
  template <class Alternative>
  const Alternative& of() const {
    return std::get<Alternative>(all_);
  }

  // use(options) with the alternative that holds; nothing where there is none of that name (the table takes no such).
  template <class Use>
  void visit(const Use& use) const {
    (void)((name == Options::kName && (use(std::get<Options>(all_)), true)) || ...);
  }

  // Takes an option of this name from text, for every alternative that has it; false for a name or a value that none
  // takes. The default of an option that is not told stays each alternative's own.
  bool set(const std::string& key, const std::string& text) {
    Fields all;
    add_options(all);
    const auto row = std::find_if(all.rows.begin(), all.rows.end(), [&](const Field& one) { return one.key == key; });
    return row != all.rows.end() && row->set(text);
  }

  // What the alternative has of itself counts as told from here on.
  void note_given() {
    Fields own;
    (void)((name == Options::kName && (describe(own, std::get<Options>(all_)), true)) || ...);
    for (const Field& field : own.rows) given.insert(field.key);
  }

  // Adds a row `key` for the name; add_options() those of all alternatives. Between the two there may be others.
  void add_name(Fields& fields, const char* key, const std::string& meaning) {
    fields.add(key, name, names(), meaning);
    decided_by_ = fields.rows.back().name();
  }
  void add_options(Fields& fields) {
    const std::size_t first = fields.rows.size();
    (add_rows<Options>(fields, first), ...);
  }

 private:
  template <class Alternative>
  void add_rows(Fields& fields, std::size_t first) {
    Fields own(fields.section);
    describe(own, std::get<Alternative>(all_));
    for (Field& row : own.rows) {
      const auto begin = fields.rows.begin() + static_cast<std::ptrdiff_t>(first);
      const auto same =
          std::find_if(begin, fields.rows.end(), [&](const Field& other) { return other.key == row.key; });
      if (same != fields.rows.end()) {
        same->alike.push_back(row.value);
        same->owners.emplace_back(Alternative::kName);
        continue;
      }
      row.owners = {Alternative::kName};
      row.given = &given;
      row.alternative = &name;
      row.decided_by = decided_by_;
      fields.rows.push_back(std::move(row));
    }
  }

  std::tuple<Options...> all_;
  std::string decided_by_;  // the name of the row that says which holds
};

// Throws InvalidArgument (78) for a row that was told and that the alternative that holds does not have; the text names
// those that have it. A switch that is off, an empty text and Field::none are had by all.
void require_owned(const std::vector<Field>& rows);

}  // namespace reigen
