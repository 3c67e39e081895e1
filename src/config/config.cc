#include "reigen/config/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/hash.h"
#include "base/text.h"
#include "comm/agree.h"
#include "config/checks.h"
#include "reigen/base/error.h"
#include "reigen/config/command_line.h"

namespace reigen::config {

namespace {

// Splits the name of a recipe's option into section and key. "dim" becomes model.dim. "loss.rate" becomes the key
// `rate` of the section `loss`, which only this recipe has.
std::pair<std::string, std::string> own_name(const ModelOption& option) {
  const auto dot = option.key.find('.');
  if (dot == std::string::npos) return {"model", option.key};
  return {option.key.substr(0, dot), option.key.substr(dot + 1)};
}

bool is_word(const std::string& text) {
  return !text.empty() && text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
}

template <class Value>
const Value& own_value(const ModelConfig& own, const std::string& key) {
  const auto found =
      std::find_if(own.options.begin(), own.options.end(), [&](const auto& option) { return option.key == key; });
  REIGEN_ASSERT(found != own.options.end(), "this recipe has no option {}", key);
  const Value* value = std::get_if<Value>(&found->value);
  REIGEN_ASSERT(value != nullptr, "the recipe's option {} is of another kind", key);
  return *value;
}

// Returns the meaning of an option as text. If the option applies only with some values of another option, the text
// begins with these values: with "for sgd, lars: " if they are names of optimizers, otherwise with "with shard
// parameters: ". If the option needs another one, the text begins with "with monitor: ".
std::string meaning_of(const Field& field) {
  std::string meaning = field.needs.empty() ? field.meaning : fmt::format("with {}: {}", field.needs, field.meaning);
  if (field.owners.empty()) return meaning;
  const std::string decider = field.decided_by.substr(field.decided_by.find('.') + 1);
  return fmt::format("{}{}: {}", decider == "name" ? "for " : fmt::format("with {} ", decider),
                     fmt::join(field.owners, ", "), meaning);
}

// Adds a table of the preset's values and their sources.
void add_preset(std::string& text, const Preset& preset) {
  text += '\n';
  text += base::in_two_columns("--run.preset " + preset.name, preset.meaning);
  for (const PresetValue& one : preset.values) {
    std::vector<std::string> limits;
    if (one.from_batch > 0) limits.push_back(fmt::format("from {}", one.from_batch));
    if (one.below_batch != std::numeric_limits<std::int64_t>::max())
      limits.push_back(fmt::format("below {}", one.below_batch));
    const std::string batches = limits.empty() ? "" : fmt::format("batches {}: ", fmt::join(limits, " and "));
    text += base::in_two_columns(fmt::format("{} {}", one.option, one.value), batches + one.source);
  }
}

std::string toml_value(const Field& field) {
  const std::string text = field.text();
  return field.is_text() || field.is_empty_word(text) ? base::quote_toml(text) : text;
}

}  // namespace

std::int64_t ModelConfig::operator[](const std::string& key) const { return own_value<std::int64_t>(*this, key); }
double ModelConfig::real(const std::string& key) const { return own_value<double>(*this, key); }
const std::string& ModelConfig::text(const std::string& key) const { return own_value<std::string>(*this, key); }
bool ModelConfig::flag(const std::string& key) const { return own_value<bool>(*this, key); }

void require_own_options(const ModelConfig& own) {
  Config without;
  without.data.takes_tokenizer = true;  // so that all options of the section are there
  std::vector<std::string> sections;
  std::vector<std::string> seen;
  for (const Field& field : fields(without)) {
    if (field.section != "data")
      sections.push_back(field.section);
    else
      seen.push_back(field.name());
  }
  for (const ModelOption& option : own.options) {
    const auto [section, key] = own_name(option);
    const auto refuse = [&](const char* why, const char* fix) {
      throw InvalidArgument(Report{.what = fmt::format("the recipe's option '{}' {}", option.key, why), .fix = fix});
    };
    if (!is_word(section) || !is_word(key))
      refuse("has no name for a flag", "lower case letters, digits and _; one dot at most: \"dim\", \"loss.rate\"");
    if (std::find(sections.begin(), sections.end(), section) != sections.end())
      refuse("is in a section of Reigen's", "leave the section out, or take another");
    if (std::find(seen.begin(), seen.end(), section + "." + key) != seen.end())
      refuse("stands twice, or is one of Reigen's", "leave one out, or take another name");
    seen.push_back(section + "." + key);
  }
}

void describe(Fields& fields, ModelConfig& model) {
  constexpr double kMostOfWhole = 1'000'000;
  const std::size_t first = fields.rows.size();
  for (ModelOption& option : model.options) {
    const auto [section, key] = own_name(option);
    fields.section = section;
    const bool whole = std::holds_alternative<std::int64_t>(option.value);
    const Range range{.low = option.low.value_or(whole ? 1 : -Range::kNone),
                      .high = option.high.value_or(whole ? kMostOfWhole : Range::kNone)};
    std::visit([&, name = key.c_str()](auto& value) { fields.add(name, value, range, option.meaning); }, option.value);
    fields.rows.back().choices = option.choices;
    fields.rows.back().own_section = section != "model" && section != "data";
  }
  // Each section may appear only once in a TOML file, so the options of one section must be adjacent. Those of `data`
  // come behind Reigen's own, which are the rows before these.
  std::stable_sort(fields.rows.begin() + static_cast<std::ptrdiff_t>(first), fields.rows.end(),
                   [](const Field& a, const Field& b) {
                     const auto place = [](const Field& field) {
                       const int order = field.section == "data" ? 0 : field.section == "model" ? 1 : 2;
                       return std::pair(order, field.section);
                     };
                     return place(a) < place(b);
                   });
}

std::vector<Field> fields(Config& config) {
  Fields all;
  describe(all, config.run);
  describe(all, config.train);
  describe(all, config.optim);
  describe(all, config.data);
  describe(all, config.model);
  describe(all, config.parallel);
  describe(all, config.mesh);
  describe(all, config.comm);
  describe(all, config.checkpoint);
  describe(all, config.validate);
  describe(all, config.stop);
  describe(all, config.log);
  return std::move(all.rows);
}

std::string to_toml(const Config& config) {
  Config copy = config;
  std::string text;
  std::string section;
  for (const Field& field : fields(copy)) {
    if (field.section != section) {
      text += fmt::format("{}[{}]\n", section.empty() ? "" : "\n", field.section);
      section = field.section;
    }
    const std::string said = field.is_unset() ? fmt::format("# {} is not set:", field.key)
                                              : fmt::format("{} = {}  #", field.key, toml_value(field));
    text += fmt::format("{} {}\n", said, meaning_of(field));
  }
  return text;
}

std::string help_text(const Config& defaults) {
  Config copy = defaults;
  std::string text = "options (later wins: default < --config FILE < REIGEN_SECTION_KEY variables <\nflags):\n";
  text += base::in_two_columns("-n N", "ranks that share every step (default: 1)");
  for (const Field& field : fields(copy)) {
    std::string left = "--" + field.name();
    std::string meaning = meaning_of(field);
    if (const std::string choices = fmt::format("{}", fmt::join(field.choices, "|"));
        left.size() + choices.size() < 76) {
      left += choices.empty() ? "" : " " + choices;
    } else {
      meaning += fmt::format(": {}", fmt::join(field.choices, ", "));
    }
    std::string value = field.text();
    if (value.empty()) value = "empty";
    text += base::in_two_columns(left, fmt::format("{} (default: {})", meaning, value));
  }
  text += base::in_two_columns("--config FILE", "read options from a TOML file");
  text += base::in_two_columns("--print-config", "print what was understood as TOML and end");
  text += base::in_two_columns("--help", "print this and end");
  for (const Preset& preset : copy.run.presets) add_preset(text, preset);
  return text;
}

std::uint64_t hash_of(const Config& config) {
  Config common = config;
  for (const Field& field : fields(common)) {
    if (field.may_differ) *std::get<std::string*>(field.value) = {};
  }
  return base::fnv1a(to_toml(common));
}

// The options are compared before training. Ranks with different options would train a model that nobody asked for, or
// hang.
void require_same(const Config& config, const Communicator& world) {
  Config copy = config;
  std::vector<std::string> lines;
  for (const Field& field : fields(copy)) {
    if (!field.may_differ) lines.push_back(field.name() + " = " + base::quote_toml(field.text()));
  }
  const auto difference = comm::find_difference(lines, world, "configuration");
  if (!difference) return;
  const std::string key = difference->first.substr(0, difference->first.find(" = "));
  const auto value = [&](const std::string& line) {
    return line.starts_with(key + " = ") ? line.substr(key.size() + 3) : "other options (another version)";
  };
  throw InvalidArgument(Report{.what = fmt::format("ranks were started with different configurations: {}", key),
                               .got = fmt::format("{} on rank {}", value(difference->other), difference->rank),
                               .expected = fmt::format("{} as on rank 0", value(difference->first)),
                               .fix = "give every rank the same options, variables and configuration file"});
}

}  // namespace reigen::config
