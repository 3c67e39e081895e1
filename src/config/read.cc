// Reads a configuration from flags, variables and TOML; all three use the same table of fields.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <toml++/toml.h>
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>

#include "base/check.h"
#include "base/environment.h"
#include "base/text.h"
#include "base/variables.h"
#include "config/checks.h"
#include "config/text.h"
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
    if (!field.set(text)) refuse(field, text.find('\0') == std::string::npos ? text : quote_toml(text), origin);
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

std::string read_whole(const std::string& path) {
  std::error_code error;
  const bool is_file = std::filesystem::is_regular_file(path, error);
  std::string text(kFileMax + 1, '\0');
  if (is_file) {
    std::ifstream in(path, std::ios::binary);
    if (!in || in.read(text.data(), kFileMax + 1).bad()) error.assign(errno, std::generic_category());
    text.resize(static_cast<std::size_t>(in.gcount()));
  }
  if (error) {
    throw IoError(Report{.what = fmt::format("cannot read the configuration file {}", path),
                         .got = base::errno_text(error.value()),
                         .fix = "give --config a TOML file that exists and that you may read"},
                  base::exit_code_of_errno(error.value()));
  }
  if (is_file && text.size() <= kFileMax) return text;
  throw DataError(Report{.what = fmt::format("{} is no configuration file", path),
                         .got = is_file ? "a larger file" : "not a regular file",
                         .expected = fmt::format("a TOML file of at most {}", format_bytes(kFileMax))});
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
    root = toml::parse(read_whole(path), path);
  } catch (const toml::parse_error& error) {
    throw InvalidArgument(Report{.what = fmt::format("{}: {}", place(path, error.source()), error.description()),
                                 .fix = "write sections and keys as --print-config does"});
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
      if (!fits(*field, node)) refuse(*field, node.is_string() ? quote_toml(text_of(node)) : text_of(node), origin);
      told.set(*field, text_of(node), origin);
    }
  }
}

// ---- environment

void read_environment(const Environment& environment, Told& told) {
  const std::vector<Field>& table = told.table;
  const auto variables = names_of(table, variable_of);
  // An unknown variable with one of these prefixes is refused. With REIGEN_MODEL_ it is refused even if the recipe's
  // model has no options.
  std::vector<std::string> prefixes = {"REIGEN_MODEL_"};
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (!table[i].own_section)
      prefixes.push_back(variables[i].substr(0, std::string("REIGEN_").size() + table[i].section.size() + 1));
  }
  for (const auto& [name, value] : environment) {
    const auto found = std::find(variables.begin(), variables.end(), name);
    if (found != variables.end()) {
      if (value.empty()) continue;  // an empty variable counts as not set
      told.set(table[static_cast<std::size_t>(found - variables.begin())], value, "environment variable " + name);
    } else if (std::any_of(prefixes.begin(), prefixes.end(),
                           [&given = name](const std::string& p) { return given.starts_with(p); }) &&
               !base::is_kubernetes_service(name, value)) {
      refuse_unknown(fmt::format("unknown environment variable {}", name), name, variables);
    }
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
    const bool stands_alone = flag.name == "--help" || flag.name == "-h" || flag.name == "--print-config";
    if (!word->starts_with('-')) refuse_usage(fmt::format("unknown argument {}", *word));
    if (!takes_value && !stands_alone) refuse_flag(flag.name, table);
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

int ranks_of(const std::string& text) {
  const auto number = base::parse<int>(text);
  if (number && *number >= 1) return *number;
  throw InvalidArgument(Report{.what = fmt::format("-n {}: must be a whole number of at least 1", text),
                               .got = text,
                               .expected = "the number of ranks"});
}

}  // namespace

const Field* find(const std::vector<Field>& rows, const std::string& name) {
  // Rules look up some hundred names at each start, so no name() is made for each row.
  const std::string_view all(name);
  const std::size_t dot = std::min(all.find('.'), all.size());
  const std::string_view key = all.substr(std::min(dot + 1, all.size()));
  const auto is_it = [&](const Field& row) { return row.key == key && row.section == all.substr(0, dot); };
  const auto found = std::find_if(rows.begin(), rows.end(), is_it);
  return found == rows.end() ? nullptr : &*found;
}

std::string variable_of(const Field& field) {
  // A section that the program's recipe adds is unknown to other programs. Its variables begin with REIGEN_MODEL_, like
  // those of the model, because every program knows this prefix.
  std::string name = (field.own_section ? "REIGEN_model_" : "REIGEN_") + field.section + "_" + field.key;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return name;
}

Environment process_environment() { return base::all_environment(); }

namespace {

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
    if (flag.name == "-h" || flag.name == "--help") result.help = true;
    if (flag.name == "--print-config") result.print_config = true;
  }
}

// Sets the values of a preset. `user` has what the user has set: these options, and those that such a value makes
// meaningless, are left out.
void set_preset(const Preset& preset, std::optional<std::int64_t> global_batch, const std::vector<Field>& table,
                const Told& user) {
  const std::vector<PresetValue> values = values_of(preset, global_batch);
  const auto has = [&](const std::string& option) { return user.names.contains(option); };
  // The value that an option will have.
  const auto chosen = [&](const std::string& option) {
    const auto own = std::find_if(values.begin(), values.end(), [&](const auto& one) { return one.option == option; });
    return has(option) || own == values.end() ? find(user.table, option)->text() : own->value;
  };
  for (const PresetValue& one : values) {
    const Field* field = find(table, one.option);
    REIGEN_ASSERT(field != nullptr, "the preset {} has a value of {}, which is no option", preset.name, one.option);
    const bool is_replaced = std::any_of(one.unless.begin(), one.unless.end(), [&](const std::string& other) {
      const auto own = std::find_if(values.begin(), values.end(), [&](const auto& its) { return its.option == other; });
      return has(other) && (own == values.end() || own->value != chosen(other));
    });
    const auto& owners = field->owners;
    const bool is_owned =
        owners.empty() || std::find(owners.begin(), owners.end(), chosen(field->decided_by)) != owners.end();
    if (has(one.option) || is_replaced || !is_owned) continue;
    REIGEN_ASSERT(field->set(one.value), "the preset {} sets {} to {}", preset.name, one.option, one.value);
  }
}

}  // namespace

CommandLine read_command_line(const Config& defaults, const std::vector<std::string>& arguments,
                              const Environment& environment) {
  require_own_options(defaults.model);
  CommandLine result{.config = defaults};
  // --help is looked for first, because users need it most when another argument is wrong.
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
    result.help = true;
    return result;
  }
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
