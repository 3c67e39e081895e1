#include "base/variables.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/environment.h"
#include "base/text.h"

namespace reigen::base {

namespace {

constexpr std::string_view kPrefix = "REIGEN_";

// Prefixes of variables that other code reads. Some set options of recipes; src/config checks these variables itself.
// The others are for the build and its tests.
constexpr std::array kOthers = {"REIGEN_RUN_",   "REIGEN_TRAIN_",    "REIGEN_OPTIM_", "REIGEN_DATA_",
                                "REIGEN_MODEL_", "REIGEN_PARALLEL_", "REIGEN_MESH_",  "REIGEN_CHECKPOINT_",
                                "REIGEN_LOG_",   "REIGEN_VALIDATE_", "REIGEN_STOP_",  "REIGEN_TEST_",
                                "REIGEN_FILES_", "REIGEN_TORCH",     "REIGEN_NCCL",   "REIGEN_MPI"};

// Variables with the prefix REIGEN_COMM_ that only recipes read. The other variables with this prefix are in
// environment::table().
constexpr std::array kOfRecipes = {"REIGEN_COMM_MACHINES"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Whether the end of a name is like "PORT_80_TCP" or "PORT_80_TCP_ADDR".
bool is_port_of_service(std::string_view tail) {
  constexpr std::string_view kStart = "PORT_";
  if (!tail.starts_with(kStart)) return false;
  tail.remove_prefix(kStart.size());
  const auto digits = static_cast<std::size_t>(std::find_if_not(tail.begin(), tail.end(), is_digit) - tail.begin());
  if (digits == 0) return false;
  tail.remove_prefix(digits);
  for (const std::string_view protocol : {"_TCP", "_UDP", "_SCTP"}) {
    if (!tail.starts_with(protocol)) continue;
    const std::string_view rest = tail.substr(protocol.size());
    return rest.empty() || rest == "_PROTO" || rest == "_PORT" || rest == "_ADDR";
  }
  return false;
}

bool is_url_of_service(std::string_view value) {
  return value.starts_with("tcp://") || value.starts_with("udp://") || value.starts_with("sctp://");
}

}  // namespace

std::string variable_of(const Field& field) {
  std::string name = std::string(kPrefix) + (field.own_section ? "model_" : "") + field.section + "_" + field.key;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return name;
}

bool is_kubernetes_service(std::string_view name, std::string_view value) {
  if (name.ends_with("_SERVICE_HOST") || name.ends_with("_SERVICE_PORT")) return true;
  if (name.find("_SERVICE_PORT_") != std::string_view::npos) return true;
  if (name.ends_with("_PORT") && is_url_of_service(value)) return true;
  for (std::size_t at = name.find("_PORT_"); at != std::string_view::npos; at = name.find("_PORT_", at + 1)) {
    if (is_port_of_service(name.substr(at + 1))) return true;
  }
  return false;
}

std::vector<UnknownVariable> unknown_variables() {
  std::vector<std::string> known;  // without the common prefix, which would make all names similar
  for (const auto& variable : environment::table()) known.push_back(std::string(variable.name).substr(kPrefix.size()));
  for (const std::string_view name : kOfRecipes) known.emplace_back(name.substr(kPrefix.size()));
  std::vector<UnknownVariable> unknown;
  for (const auto& [variable, value] : all_environment()) {
    const std::string& name = variable;  // with older versions of clang no lambda can capture `variable`
    if (!name.starts_with(kPrefix) || value.empty()) continue;  // an empty value counts as not set
    const std::string own = name.substr(kPrefix.size());
    if (std::find(known.begin(), known.end(), own) != known.end()) continue;
    if (is_kubernetes_service(name, value)) continue;
    const auto is_prefix = [&](const char* other) { return name.starts_with(other); };
    if (std::any_of(kOthers.begin(), kOthers.end(), is_prefix)) continue;
    const std::string meant = nearest(own, known);
    unknown.push_back({.name = name, .meant = meant.empty() ? "" : std::string(kPrefix) + meant});
  }
  return unknown;
}

}  // namespace reigen::base
