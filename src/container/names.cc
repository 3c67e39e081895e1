#include "container/names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "base/text.h"
#include "container/folder/walk.h"
#include "format/utf8.h"
#include "reigen/base/error.h"

namespace reigen::container {
namespace {

constexpr std::size_t kMostOfName = 200;  // bytes; a key of LMDB has 511 with everything

constexpr std::string_view kInputs[] = {"jpg",       "jpeg",      "png", "image/encoded", "input",   "image", "images",
                                        "input.npy", "input.jpg", "npy", "inputs",        "picture", "data",  "x"};
constexpr std::string_view kTargets[] = {"cls",   "target", "image/class/label", "label", "labels", "targets",
                                         "class", "y"};

int rank_of(const std::string& name) { return name == "input" ? 0 : name == "target" ? 1 : 2; }

std::vector<std::string> stored_of(const std::vector<Candidate>& candidates) {
  std::vector<std::string> names;
  for (const Candidate& candidate : candidates) names.push_back(candidate.stored);
  return names;
}

std::size_t find_candidate(const std::vector<Candidate>& candidates, const std::string& field,
                           const std::string& stored, const std::string& container) {
  const auto slashed = "/" + stored;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const std::string& name = candidates[i].stored;
    if (name == stored || name == slashed || "/" + name == stored) return i;
  }
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].field.name == stored) return i;
  }
  const std::vector<std::string> there = stored_of(candidates);
  const std::string meant = base::nearest(stored, there);
  throw InvalidArgument(
      Report{.what = fmt::format("no field '{}' in '{}'", stored, container),
             .got = fmt::format("{}={}", field, stored),
             .expected = fmt::format("one of {}", fmt::join(there, ", ")),
             .fix = meant.empty() ? "give a name that is there" : fmt::format("did you mean {}={}?", field, meant)});
}

Field named(const Candidate& candidate, std::string name) {
  Field field = candidate.field;
  field.name = std::move(name);
  const bool is_target = field.name == "target" && candidate.may_be_label;
  if (is_target) field = {.name = field.name, .kind = FieldKind::kLabel};
  return field;
}

bool is_among(std::string_view name, std::span<const std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::string usual_name(std::string_view stored) {
  std::string name = lower(stored);
  if (name.starts_with('/')) name.erase(0, 1);
  if (is_among(name, kInputs)) return "input";
  if (is_among(name, kTargets)) return "target";
  return std::string(stored);
}

bool names_picture(std::string_view stored) {
  const std::string name = lower(stored);
  const std::string_view ending = std::string_view(name).substr(name.rfind('.') + 1);  // npos + 1 is 0
  return name == "image/encoded" || ending == "jpg" || ending == "jpeg" || ending == "png";
}

std::vector<Chosen> choose(const std::vector<Candidate>& candidates, const OpenOptions& options,
                           const std::string& container) {
  std::vector<Chosen> chosen;
  for (const auto& [name, stored] : options.fields) {
    const std::size_t found = find_candidate(candidates, name, stored, container);
    chosen.push_back({named(candidates[found], name), found});
  }
  if (options.fields.empty()) {
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      chosen.push_back({named(candidates[i], candidates[i].field.name), i});
    }
    const auto is_aside = [](const Chosen& one) {
      return one.field.kind == FieldKind::kBytes && one.field.name != "input" && one.field.name != "target";
    };
    if (options.without_bytes && !std::all_of(chosen.begin(), chosen.end(), is_aside)) std::erase_if(chosen, is_aside);
  }
  std::map<std::string, std::size_t> seen;
  for (const Chosen& one : chosen) {
    const auto [other, is_new] = seen.emplace(one.field.name, one.candidate);
    if (is_new) continue;
    throw InvalidArgument(
        Report{.what = fmt::format("two fields could be '{}' in '{}'", one.field.name, container),
               .got = fmt::format("{} and {}", candidates[other->second].stored, candidates[one.candidate].stored),
               .expected = "one of them",
               .fix = fmt::format("--fields {}={} chooses", one.field.name, candidates[other->second].stored)});
  }
  std::stable_sort(chosen.begin(), chosen.end(),
                   [](const Chosen& a, const Chosen& b) { return rank_of(a.field.name) < rank_of(b.field.name); });
  return chosen;
}

std::string stored_name(const Field& field, ContainerKind kind) {
  const bool picture = field.kind == FieldKind::kPicture;
  const bool label = field.kind == FieldKind::kLabel;
  if (kind == ContainerKind::kHdf5) return field.name;
  if (kind == ContainerKind::kTfRecord) {
    if (picture && field.name == "input") return "image/encoded";
    if (label && field.name == "target") return "image/class/label";
    return field.name;
  }
  if (picture) return field.name == "input" ? "jpg" : field.name + ".jpg";
  if (label) return field.name == "target" ? "cls" : field.name + ".cls";
  return field.kind == FieldKind::kTensor && kind == ContainerKind::kTar ? field.name + ".npy" : field.name;
}

void require_writable(const std::vector<Field>& fields) {
  const auto refuse = [](const std::string& what, const std::string& got) {
    throw InvalidArgument(Report{.what = what,
                                 .got = got,
                                 .expected = "fields with names of 1 to 200 bytes in UTF-8, each once, without '/'",
                                 .fix = "--fields gives fields other names"});
  };
  if (fields.empty()) refuse("a container needs a field", "none");
  std::set<std::string> names;
  for (const Field& field : fields) {
    const std::string& name = field.name;
    if (name.empty() || name.size() > kMostOfName || !format::is_utf8(name) || name.starts_with('.') ||
        name.starts_with("__") || name.find('/') != std::string::npos || name.find('\0') != std::string::npos) {
      refuse("a field's name cannot be stored", fmt::format("\"{}\"", name));
    }
    if (!names.insert(name).second) refuse("two fields of one name", name);
    std::vector<std::int64_t> shape = field.shape;
    if (!shape.empty() && shape[0] == -1) shape[0] = 1;
    if (field.kind == FieldKind::kTensor && !format::bytes_of(field.type, shape)) {
      refuse("a field's shape cannot be stored", describe(field));
    }
  }
}

}  // namespace reigen::container
