// A choice of one among several named alternatives, each with options of its own. For example, the alternatives are the
// optimizers, the schedules or the strategies of a training.
//
//   using AnyOptimizer = OneOf<AdamWOptions, SGDOptions>;  // each has kName and describe(); the first is the default
//   AnyOptimizer rule = SGDOptions{.momentum = 0.9};
//   rule.visit([&](const auto& options) { use(options); });
//
// add_options() adds the options of all alternatives to a table (fields.h). If several alternatives have the same
// option, the table has one row for it. The member `name` is the name of the chosen alternative. require_owned()
// refuses options that the chosen alternative does not have.
// Thread rule: these types are values; every thread may have its own copy.
#pragma once

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "reigen/base/fields.h"

namespace reigen {

[[noreturn]] void throw_no_alternative(const std::string& name, const std::vector<std::string>& names);

template <class... Options>
class OneOf {
 public:
  std::string name = std::tuple_element_t<0, std::tuple<Options...>>::kName;  // of the chosen alternative
  std::set<std::string> given = {};  // keys of the options that were set; other options have the alternative's default

  OneOf() = default;
  // An option whose value differs from the alternative's own default counts as set: its key is in `given`.
  template <class Alternative>
  requires(std::is_same_v<Alternative, Options> || ...) OneOf(Alternative options)
      : name(Alternative::kName) {  // NOLINT(google-explicit-constructor): an alternative is a choice
    std::get<Alternative>(all_) = std::move(options);
    Alternative usual;
    Fields own;
    Fields defaults;
    describe(own, std::get<Alternative>(all_));
    describe(defaults, usual);
    for (std::size_t i = 0; i < own.rows.size(); ++i) {
      if (own.rows[i].text() != defaults.rows[i].text()) given.insert(own.rows[i].key);
    }
  }

  static std::vector<std::string> names() { return {Options::kName...}; }

  // The options of an alternative, whether or not it is the chosen one.
  template <class Alternative>
  const Alternative& of() const {
    return std::get<Alternative>(all_);
  }

  // Calls use(options) with the options of the chosen alternative. Throws InvalidArgument with exit code 78 if no
  // alternative has that name.
  template <class Use>
  void visit(const Use& use) const {
    const bool found = ((name == Options::kName && (use(std::get<Options>(all_)), true)) || ...);
    if (!found) throw_no_alternative(name, names());
  }

  // Sets the option `key` from text, in every alternative that has the option. Returns false if no alternative has the
  // option, or if the value is not allowed. An option that is not set has the default of its own alternative.
  bool set(const std::string& key, const std::string& text) {
    Fields all;
    add_options(all);
    const auto row = std::find_if(all.rows.begin(), all.rows.end(), [&](const Field& one) { return one.key == key; });
    return row != all.rows.end() && row->set(text);
  }

  // After this call all options of the chosen alternative count as set.
  void note_given() {
    Fields own;
    (void)((name == Options::kName && (describe(own, std::get<Options>(all_)), true)) || ...);
    for (const Field& field : own.rows) given.insert(field.key);
  }

  // Returns a OneOf that has the same chosen alternative as `defaults` and in which no option is set. The command line
  // is read into this OneOf.
  static OneOf fresh(const OneOf& defaults) {
    OneOf one;
    one.name = defaults.name;
    return one;
  }
  // Call this after the command line was read. If the chosen alternative is still that of `defaults`, all options that
  // the command line did not set get their values from `defaults`. Otherwise these options keep the chosen
  // alternative's own defaults.
  void take_defaults(const OneOf& defaults) {
    if (name != defaults.name) return;
    Fields rows;
    add_options(rows);
    std::vector<std::pair<std::string, std::string>> told;
    for (const Field& row : rows.rows) {
      if (given.contains(row.key)) told.emplace_back(row.key, row.text());
    }
    *this = defaults;
    for (const auto& [key, text] : told) set(key, text);
  }

  // add_name() adds the row `key` for the name of the alternative; add_options() adds the options of all alternatives.
  // Other rows may be added between the two calls.
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
  std::string decided_by_;  // the name of the row that chooses the alternative
};

// An option may depend on the value of another option, its decider (Field::decided_by). Throws InvalidArgument with
// exit code 78 for an option that was set although the value of its decider does not allow it, and for an option that
// is not set although the value of its decider requires it. The text names the values of the decider that have the
// option. A switch that is off, an empty text and the value Field::none count as not set.
void require_owned(const std::vector<Field>& rows);

}  // namespace reigen
