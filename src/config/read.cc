// Reads a configuration from flags, variables and TOML; all three use the same table of fields.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <toml++/toml.h>
#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "base/check.h"
#include "base/environment.h"
#include "base/text.h"
#include "base/variables.h"
#include "config/checks.h"
#include "format/input_file.h"
#include "reigen/base/bytes.h"
#include "reigen/base/error.h"
#include "reigen/config/command_line.h"

namespace reigen::config {

namespace {

constexpr std::size_t kFileMax = kMiB;

[[noreturn]] void refuse(const Field& field, const std::string& got, const std::string& origin) {
  throw InvalidArgument(Report{.what = fmt::format("{} = {}: must be {}", field.name(), got, field.expected()),
                               .got = fmt::format("{} ({})", got, origin),
                               .fix = fmt::format("correct {}", origin)});
}

// The options of a configuration, and the names of those that the user has set.
struct Told {
  explicit Told(Config& config) : table(fields(config)) {}

  void set(const Field& field, const std::string& text, const std::string& origin) {
    if (!field.set(text)) refuse(field, text.find('\0') == std::string::npos ? text : base::quote_toml(text), origin);
    names.insert(field.name());
  }

  std::vector<Field> table;
  std::set<std::string> names = {};
};

template <class Name>
std::vector<std::string> names_of(const std::vector<Field>& table, const Name& name) {
  std::vector<std::string> names;
  for (const Field& field : table) names.push_back(name(field));
  return names;
}

// Throws for a word that is no known name. The error suggests a similar name and writes `prefix` before this name.
[[noreturn]] void refuse_unknown(const std::string& what, const std::string& word,
                                 const std::vector<std::string>& known, const char* prefix = "",
                                 ExitCode code = ExitCode::kConfiguration) {
  const std::string near = base::nearest(word, known);
  const std::string fix = near.empty() ? "--help lists the options" : fmt::format("did you mean {}{}?", prefix, near);
  throw InvalidArgument(Report{.what = what, .fix = fix}, code);
}

[[noreturn]] void refuse_usage(const std::string& what) {
  const char* const fix = "options are written --section.key value; --help lists them";
  throw InvalidArgument(Report{.what = what, .fix = fix}, ExitCode::kUsage);
}

// ---- TOML

std::string place(const std::string& path, const toml::source_region& source) {
  return fmt::format("{}:{}:{}", path, source.begin.line, source.begin.column);
}

std::string text_of(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* real = node.as_floating_point()) return fmt::format("{}", real->get());
  std::ostringstream out;
  node.visit([&](const auto& typed) { out << typed; });
  return out.str();
}

// Whether a TOML value of this type is allowed for the option. For run.resume both true and "true" are allowed, because
// a flag has the same text for both.
bool fits(const Field& field, const toml::node& node) {
  if (node.is_string()) return field.is_text() || field.is_empty_word(text_of(node));
  if (node.is_boolean()) return field.is_switch() || field.name() == "run.resume";
  return (node.is_integer() || (node.is_floating_point() && !field.is_whole())) && !field.is_text() &&
         !field.is_switch();
}

void read_file(const std::string& path, Told& told) {
  const std::vector<Field>& table = told.table;
  toml::table root;
  try {
    root = toml::parse(format::read_text(path, "configuration file", kFileMax), path);
  } catch (const toml::parse_error& error) {
    throw InvalidArgument(Report{.what = fmt::format("{}: {}", place(path, error.source()), error.description()),
                                 .fix = "correct this place; --print-config shows how a file is written"});
  }
  const auto names = names_of(table, [](const Field& field) { return field.name(); });
  const auto sections = names_of(table, [](const Field& field) { return field.section; });
  for (const auto& [word, entries] : root) {
    const std::string section(word.str());
    const std::string at = place(path, word.source());
    if (std::find(sections.begin(), sections.end(), section) == sections.end()) {
      auto known = names;
      known.insert(known.end(), sections.begin(), sections.end());
      refuse_unknown(fmt::format("{}: unknown {} {}", at, entries.is_table() ? "section" : "key", section), section,
                     known);
    }
    if (!entries.is_table()) {
      throw InvalidArgument(Report{.what = fmt::format("{}: {} is a section", at, section),
                                   .got = fmt::format("{} = {}", section, text_of(entries)),
                                   .expected = fmt::format("[{}] and its keys below", section)});
    }
    for (const auto& [key, node] : *entries.as_table()) {
      const std::string name = section + "." + std::string(key.str());
      const std::string origin = place(path, node.source());
      const Field* field = find(table, name);
      if (field == nullptr)
        refuse_unknown(fmt::format("{}: unknown key {}", place(path, key.source()), name), name, names);
      if (!fits(*field, node))
        refuse(*field, node.is_string() ? base::quote_toml(text_of(node)) : text_of(node), origin);
      told.set(*field, text_of(node), origin);
    }
  }
}

// ---- environment

void read_environment(const Environment& environment, Told& told) {
  const auto variables = names_of(told.table, base::variable_of);
  // An unknown variable that begins like those of a section is refused. With REIGEN_MODEL_ it is refused even if the
  // recipe's model has no options.
  std::set<std::string> prefixes = {"REIGEN_MODEL_"};
  for (const Field& field : told.table) {
    const std::string variable = base::variable_of(field);
    prefixes.insert(variable.substr(0, variable.size() - field.key.size()));
  }
  for (const auto& [name, value] : environment) {
    const auto found = std::find(variables.begin(), variables.end(), name);
    const bool is_ours = std::any_of(prefixes.begin(), prefixes.end(),
                                     [&given = name](const std::string& p) { return given.starts_with(p); });
    if (found == variables.end() && is_ours && !base::is_kubernetes_service(name, value))
      refuse_unknown(fmt::format("unknown environment variable {}", name), name, variables);
    if (found == variables.end() || value.empty()) continue;  // an empty variable counts as not set
    told.set(told.table[static_cast<std::size_t>(found - variables.begin())], value, "environment variable " + name);
  }
}

// ---- flags

struct Flag {
  std::string name;
  const Field* field = nullptr;
  std::string value = {};
};

[[noreturn]] void refuse_flag(const std::string& flag, const std::vector<Field>& table) {
  auto known = names_of(table, [](const Field& field) { return field.name(); });
  known.insert(known.end(), {"help", "config", "print-config"});
  const std::string bare = flag.substr(std::min(flag.size(), flag.find_first_not_of('-')));
  refuse_unknown(fmt::format("unknown option {}", flag), bare, known, "--", ExitCode::kUsage);
}

// Throws for a word that is no flag, and for a flag without its value. `--run.save_initial` without a value means true.
std::vector<Flag> flags_of(const std::vector<std::string>& arguments, const std::vector<Field>& table) {
  std::vector<Flag> flags;
  for (auto word = arguments.begin(); word != arguments.end(); ++word) {
    const std::size_t equals = word->starts_with("--") ? word->find('=') : std::string::npos;
    Flag flag{.name = word->substr(0, equals)};
    if (word->starts_with("--")) flag.field = find(table, flag.name.substr(2));
    const bool takes_value = flag.field != nullptr || flag.name == "--config" || flag.name == "-n";
    if (!word->starts_with('-')) refuse_usage(fmt::format("unknown argument {}", *word));
    if (!takes_value && flag.name != "--print-config") refuse_flag(flag.name, table);
    const auto next = word + 1;
    if (equals != std::string::npos) {
      flag.value = word->substr(equals + 1);
    } else if (flag.field != nullptr && flag.field->is_switch() &&
               (next == arguments.end() || next->starts_with('-'))) {
      flag.value = "true";
    } else if (takes_value) {
      if (next == arguments.end()) refuse_usage(fmt::format("{} needs a value", flag.name));
      flag.value = *next;
      word = next;
    }
    flags.push_back(std::move(flag));
  }
  return flags;
}

bool is_help(const std::string& word) { return word == "--help" || word == "-h"; }

int ranks_of(const std::string& text) {
  const auto number = base::parse<int>(text);
  if (number && *number >= 1) return *number;
  throw InvalidArgument(
      Report{.what = fmt::format("-n {}: must be a whole number of at least 1", text), .fix = "-n 2"});
}

constexpr std::int64_t kNotSet = -1;

// What the defaults say of an optimizer, a schedule or a strategy holds only if that one is chosen in the end. So these
// begin empty; complete() fills them.
void begin(Config& config, const Config& defaults) {
  OptimConfig& optim = config.optim;
  optim.rule = optim::AnyOptimizer::fresh(defaults.optim.rule);
  optim.schedule = optim::AnySchedule::fresh(defaults.optim.schedule);
  config.parallel.strategy = parallel::AnyStrategy::fresh(defaults.parallel.strategy);
  optim.lr.reset();
  optim.weight_decay.reset();
  optim.warmup_steps = kNotSet;
  optim.warmup.clear();
}

// `told`: the names of the options that the user has set.
void complete(Config& config, const Config& defaults, const std::set<std::string>& told) {
  OptimConfig& optim = config.optim;
  optim.rule.take_defaults(defaults.optim.rule);
  optim.schedule.take_defaults(defaults.optim.schedule);
  config.parallel.strategy.take_defaults(defaults.parallel.strategy);
  if (optim.rule.name == defaults.optim.rule.name) {
    if (!optim.lr) optim.lr = defaults.optim.lr;
    if (!optim.weight_decay) optim.weight_decay = defaults.optim.weight_decay;
  }
  if (optim.warmup_steps != kNotSet) return;
  optim.warmup_steps = 0;
  // The one_cycle schedule warms up by itself, so it gets no default warm-up.
  const bool warms_up = optim.schedule.name == "one_cycle" && defaults.optim.schedule.name != "one_cycle";
  if (told.contains("optim.warmup") || !optim.warmup.empty() || warms_up) return;
  optim.warmup_steps = defaults.optim.warmup_steps;
  optim.warmup = defaults.optim.warmup;
}

// Reads what the user has set, last the source that wins.
void read_sources(const std::vector<std::string>& arguments, const Environment& environment, Told& told,
                  CommandLine& result) {
  const std::vector<Flag> flags = flags_of(arguments, told.table);
  const auto file =
      std::find_if(flags.rbegin(), flags.rend(), [](const Flag& flag) { return flag.name == "--config"; });
  if (file != flags.rend()) read_file(file->value, told);
  read_environment(environment, told);
  for (const Flag& flag : flags) {
    if (flag.field != nullptr) told.set(*flag.field, flag.value, "flag " + flag.name);
    if (flag.name == "-n") result.ranks = ranks_of(flag.value);
    if (flag.name == "--print-config") result.print_config = true;
  }
}

// Sets the values of a preset. `user` has what the user has set: these options, and those that such a value makes
// meaningless, are left out.
void set_preset(const Preset& preset, std::optional<std::int64_t> global_batch, const std::vector<Field>& table,
                const Told& user) {
  const std::vector<PresetValue> values = values_of(preset, global_batch);
  std::map<std::string, std::string> own;
  for (const PresetValue& one : values) own.emplace(one.option, one.value);
  const auto has = [&](const std::string& option) { return user.names.contains(option); };
  // The value that an option will have.
  const auto chosen = [&](const std::string& option) {
    return has(option) || !own.contains(option) ? find(user.table, option)->text() : own.at(option);
  };
  for (const PresetValue& one : values) {
    const Field* field = find(table, one.option);
    REIGEN_ASSERT(field != nullptr, "the preset {} has a value of {}, which is no option", preset.name, one.option);
    const bool is_replaced = std::any_of(one.unless.begin(), one.unless.end(), [&](const std::string& other) {
      return has(other) && (!own.contains(other) || own.at(other) != chosen(other));
    });
    const auto& owners = field->owners;
    const bool is_owned =
        owners.empty() || std::find(owners.begin(), owners.end(), chosen(field->decided_by)) != owners.end();
    if (has(one.option) || is_replaced || !is_owned) continue;
    REIGEN_ASSERT(field->set(one.value), "the preset {} sets {} to {}", preset.name, one.option, one.value);
  }
}

}  // namespace

Environment process_environment() { return base::all_environment(); }

CommandLine read_command_line(const Config& defaults, const std::vector<std::string>& arguments,
                              const Environment& environment) {
  require_own_options(defaults.model);
  CommandLine result{.config = defaults};
  // --help is looked for first, because users need it most when another argument is wrong.
  result.help = std::any_of(arguments.begin(), arguments.end(), is_help);
  if (result.help) return result;
  // Read twice: which preset counts, and which of its values, is known only when everything was read.
  Config first = defaults;
  begin(first, defaults);
  Told user(first);
  read_sources(arguments, environment, user, result);
  begin(result.config, defaults);
  Told told(result.config);
  for (const Preset& preset : defaults.run.presets) {
    if (preset.name == first.run.preset) set_preset(preset, first.train.global_batch, told.table, user);
  }
  read_sources(arguments, environment, told, result);
  complete(result.config, defaults, told.names);
  require_consistent(result.config);
  return result;
}

}  // namespace reigen::config
