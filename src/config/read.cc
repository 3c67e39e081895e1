// Reads a configuration from flags, variables and TOML; all three use the one table of fields.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <toml++/toml.h>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>

#include "base/check.h"
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

void set_from_text(const Field& field, const std::string& text, const std::string& origin) {
  if (field.set(text)) return;
  refuse(field, text.find('\0') == std::string::npos ? text : quote_toml(text), origin);
}

Field* find(std::vector<Field>& table, const std::string& name) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const Field& field) { return field.name() == name; });
  return found == table.end() ? nullptr : &*found;
}

std::vector<std::string> names_of(const std::vector<Field>& table) {
  std::vector<std::string> names;
  names.reserve(table.size());
  for (const Field& field : table) names.push_back(field.name());
  return names;
}

// The known name nearest to `name`; empty if none is near.
std::string nearest(const std::string& name, const std::vector<std::string>& known) {
  std::string best;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  if (name.size() > 128) return best;
  for (const std::string& candidate : known) {
    const auto dot = candidate.find('.');
    std::size_t distance = base::edit_distance(name, candidate);
    // `--epochs` means train.epochs, and `--data` means data.path: a name without its section is near, but less near
    // than a typing error.
    if (dot != std::string::npos)
      distance = std::min(distance, base::edit_distance(name, candidate.substr(dot + 1)) + 1);
    if (dot != std::string::npos && name == candidate.substr(0, dot)) distance = std::min<std::size_t>(distance, 2);
    // The name is the beginning of a known name, and contains at least two characters of the part after the dot.
    if (dot != std::string::npos && name.size() > dot + 2 && candidate.starts_with(name)) {
      distance = std::min<std::size_t>(distance, 1);
    }
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return least <= std::max<std::size_t>(2, name.size() / 3) ? best : "";
}

std::string suggestion(const std::string& name, const std::vector<std::string>& known, const char* prefix) {
  const std::string near = nearest(name, known);
  return near.empty() ? "--help lists the options" : fmt::format("did you mean {}{}?", prefix, near);
}

// ---- TOML

std::string place(const std::string& path, const toml::source_region& source) {
  return fmt::format("{}:{}:{}", path, source.begin.line, source.begin.column);
}

std::string read_whole(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) {
    const int error = errno;
    throw IoError(Report{.what = fmt::format("cannot read the configuration file {}", path),
                         .got = base::errno_text(error),
                         .fix = "give --config an existing TOML file"},
                  base::exit_code_of_errno(error));
  }
  if (!S_ISREG(status.st_mode) || static_cast<std::size_t>(status.st_size) > kFileMax) {
    throw DataError(Report{.what = fmt::format("{} is no configuration file", path),
                           .got = S_ISREG(status.st_mode) ? format_bytes(static_cast<std::uint64_t>(status.st_size))
                                                          : "not a regular file",
                           .expected = fmt::format("a TOML file of at most {}", format_bytes(kFileMax))});
  }
  std::ifstream in(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (!in) {
    throw IoError(
        Report{.what = fmt::format("cannot read the configuration file {}", path), .fix = "check its permissions"},
        errno == EACCES ? ExitCode::kPermission : ExitCode::kIo);
  }
  return text;
}

std::string text_of(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  std::ostringstream out;
  node.visit([&](const auto& typed) { out << typed; });
  return out.str();
}

void set_from_node(const Field& field, const toml::node& node, const std::string& origin) {
  const bool wants_text = field.is_text();
  const bool wants_bool = field.is_switch();
  const bool wants_real = !wants_text && !wants_bool && !field.is_whole();
  // A file may say run.resume = true as well as "true", because both are the same text in a flag.
  const bool fits = node.is_string()    ? wants_text
                    : node.is_boolean() ? wants_bool || field.name() == "run.resume"
                    : node.is_integer() ? !wants_text && !wants_bool
                                        : node.is_floating_point() && wants_real;
  if (!fits) refuse(field, node.is_string() ? quote_toml(text_of(node)) : text_of(node), origin);
  if (const auto* real = node.as_floating_point()) {
    set_from_text(field, fmt::format("{}", real->get()), origin);
  } else {
    set_from_text(field, text_of(node), origin);
  }
}

void read_section(const std::string& path, const std::string& section, const toml::table& entries,
                  std::vector<Field>& table) {
  for (const auto& [key, node] : entries) {
    const std::string name = section + "." + std::string(key.str());
    const Field* field = find(table, name);
    const std::string origin = place(path, key.source());
    if (field == nullptr) {
      throw InvalidArgument(Report{.what = fmt::format("{}: unknown key {}", origin, name),
                                   .fix = suggestion(name, names_of(table), "")});
    }
    set_from_node(*field, node, place(path, node.source()));
  }
}

void read_file(const std::string& path, std::vector<Field>& table) {
  const std::string text = read_whole(path);
  toml::table root;
  try {
    root = toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    throw InvalidArgument(Report{.what = fmt::format("{}: {}", place(path, error.source()), error.description()),
                                 .fix = "write sections and keys as --print-config does"});
  }
  std::vector<std::string> sections;
  for (const Field& field : table) sections.push_back(field.section);
  for (const auto& [key, node] : root) {
    const std::string section(key.str());
    const std::string origin = place(path, key.source());
    if (std::find(sections.begin(), sections.end(), section) == sections.end()) {
      auto known = names_of(table);
      known.insert(known.end(), sections.begin(), sections.end());
      throw InvalidArgument(
          Report{.what = fmt::format("{}: unknown {} {}", origin, node.is_table() ? "section" : "key", section),
                 .fix = suggestion(section, known, "")});
    }
    if (!node.is_table()) {
      throw InvalidArgument(Report{.what = fmt::format("{}: {} is a section", origin, section),
                                   .got = fmt::format("{} = {}", section, text_of(node)),
                                   .expected = fmt::format("[{}] and its keys below", section)});
    }
    read_section(path, section, *node.as_table(), table);
  }
}

// ---- environment

void read_environment(const Environment& environment, std::vector<Field>& table) {
  std::vector<std::string> variables;
  std::vector<std::string> prefixes = {"REIGEN_MODEL_"};  // refused also if the recipe's model has no options
  for (const Field& field : table) {
    variables.push_back(variable_of(field));
    if (!field.own_section)
      prefixes.push_back(variables.back().substr(0, std::string("REIGEN_").size() + field.section.size() + 1));
  }
  for (const auto& [name, value] : environment) {
    const auto found = std::find(variables.begin(), variables.end(), name);
    if (found != variables.end()) {
      if (value.empty()) continue;  // an empty variable counts as not set
      set_from_text(table[static_cast<std::size_t>(found - variables.begin())], value, "environment variable " + name);
    } else if (std::any_of(prefixes.begin(), prefixes.end(),
                           [&given = name](const std::string& p) { return given.starts_with(p); }) &&
               !base::is_kubernetes_service(name, value)) {
      throw InvalidArgument(
          Report{.what = fmt::format("unknown environment variable {}", name), .fix = suggestion(name, variables, "")});
    }
  }
}

// ---- flags

class FlagReader {
 public:
  FlagReader(const std::vector<std::string>& arguments, std::vector<Field>& table)
      : arguments_(arguments), table_(table) {}

  // First pass: finds the file of --config, which is read before the environment and the other flags.
  std::optional<std::string> config_file() {
    std::optional<std::string> path;
    for (at_ = 0; at_ < arguments_.size(); ++at_) {
      split();
      if (name_ == "--config")
        path = value("--config");
      else if (takes_value())
        value(name_);
    }
    return path;
  }

  void read(CommandLine& result) {
    for (at_ = 0; at_ < arguments_.size(); ++at_) {
      split();
      if (name_ == "--help" || name_ == "-h")
        result.help = true;
      else if (name_ == "--print-config")
        result.print_config = true;
      else if (name_ == "--config")
        value(name_);
      else if (name_ == "-n")
        result.ranks = ranks();
      else if (Field* field = field_of())
        set_from_text(*field, field_value(*field), "flag " + name_);
      else
        refuse_unknown();
    }
  }

 private:
  void split() {
    name_ = arguments_[at_];
    inline_value_.reset();
    const auto equals = name_.find('=');
    if (name_.rfind("--", 0) == 0 && equals != std::string::npos) {
      inline_value_ = name_.substr(equals + 1);
      name_.resize(equals);
    }
  }

  Field* field_of() { return name_.rfind("--", 0) == 0 ? find(table_, name_.substr(2)) : nullptr; }

  bool takes_value() {
    const Field* field = field_of();
    return name_ == "-n" || (field != nullptr && !field->is_switch());
  }

  std::string value(const std::string& flag) {
    if (inline_value_) return *inline_value_;
    if (at_ + 1 >= arguments_.size()) {
      throw InvalidArgument(Report{.what = fmt::format("{} needs a value", flag), .fix = "--help lists the options"},
                            ExitCode::kUsage);
    }
    return arguments_[++at_];
  }

  // `--run.save_initial` without a value means true.
  std::string field_value(const Field& field) {
    if (field.is_switch() && !inline_value_ &&
        (at_ + 1 >= arguments_.size() || arguments_[at_ + 1].rfind('-', 0) == 0)) {
      return "true";
    }
    return value(name_);
  }

  int ranks() {
    const std::string text = value("-n");
    const auto number = base::parse<int>(text);
    if (!number || *number < 1) {
      throw InvalidArgument(Report{.what = fmt::format("-n {}: must be a whole number of at least 1", text),
                                   .got = text,
                                   .expected = "the number of ranks"});
    }
    return *number;
  }

  [[noreturn]] void refuse_unknown() {
    const bool flag = name_.rfind('-', 0) == 0;
    const std::string bare = name_.substr(std::min(name_.size(), name_.find_first_not_of('-')));
    auto known = names_of(table_);
    for (const char* other : {"help", "config", "print-config"}) known.emplace_back(other);
    throw InvalidArgument(Report{.what = fmt::format("unknown {} {}", flag ? "option" : "argument", name_),
                                 .fix = flag ? suggestion(bare, known, "--")
                                             : "options are written --section.key value; --help lists them"},
                          ExitCode::kUsage);
  }

  const std::vector<std::string>& arguments_;
  std::vector<Field>& table_;
  std::size_t at_ = 0;
  std::string name_;
  std::optional<std::string> inline_value_;
};

}  // namespace

std::string variable_of(const Field& field) {
  // Only the program knows its own sections, so their variables share the prefix REIGEN_MODEL_ with the variables of
  // its model.
  std::string name = (field.own_section ? "REIGEN_model_" : "REIGEN_") + field.section + "_" + field.key;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return name;
}

Environment process_environment() {
  Environment environment;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string text(*variable);
    const auto equals = text.find('=');
    if (equals != std::string::npos) environment.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

CommandLine read_command_line(const Config& defaults, const std::vector<std::string>& arguments,
                              const Environment& environment) {
  require_own_options(defaults.model);
  CommandLine result{.config = defaults};
  std::vector<Field> table = fields(result.config);
  FlagReader flags(arguments, table);
  // --help is looked for first, because users need it most when another argument is wrong.
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
    result.help = true;
    return result;
  }
  OptimConfig& optim = result.config.optim;
  constexpr std::int64_t kNotSet = -1;
  optim.rule = optim::AnyOptimizer::fresh(defaults.optim.rule);
  optim.schedule = optim::AnySchedule::fresh(defaults.optim.schedule);
  result.config.parallel.strategy = parallel::AnyStrategy::fresh(defaults.parallel.strategy);
  optim.lr.reset();
  optim.weight_decay.reset();
  optim.warmup_steps = kNotSet;
  if (const auto file = flags.config_file()) read_file(*file, table);
  read_environment(environment, table);
  flags.read(result);
  optim.rule.take_defaults(defaults.optim.rule);
  optim.schedule.take_defaults(defaults.optim.schedule);
  result.config.parallel.strategy.take_defaults(defaults.parallel.strategy);
  if (optim.rule.name == defaults.optim.rule.name) {
    if (!optim.lr) optim.lr = defaults.optim.lr;
    if (!optim.weight_decay) optim.weight_decay = defaults.optim.weight_decay;
  }
  // The one_cycle schedule warms up by itself, so it gets no default warm-up.
  const bool warms_up = optim.schedule.name == "one_cycle" && defaults.optim.schedule.name != "one_cycle";
  if (optim.warmup_steps == kNotSet) optim.warmup_steps = warms_up ? 0 : defaults.optim.warmup_steps;
  require_consistent(result.config);
  return result;
}

}  // namespace reigen::config
