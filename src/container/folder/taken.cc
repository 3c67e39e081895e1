#include "reigen/container/taken.h"

#include <algorithm>

#include <fmt/format.h>

namespace reigen::container {

namespace {

constexpr std::size_t kExamples = 3;

PassedOver& entry_of(std::vector<PassedOver>& all, std::string_view reason) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const PassedOver& other) { return other.reason == reason; });
  if (found != all.end()) return *found;
  return all.emplace_back(PassedOver{.reason = std::string(reason)});
}

void show(std::vector<std::string>& examples, const std::string& example) {
  const bool known = std::find(examples.begin(), examples.end(), example) != examples.end();
  if (!known && examples.size() < kExamples) examples.push_back(example);
}

}  // namespace

void Taken::pass_over(std::string_view reason, const std::string& example) {
  PassedOver& place = entry_of(passed_over, reason);
  ++place.count;
  show(place.examples, example);
}

void Taken::add(const Taken& other) {
  files += other.files;
  for (const PassedOver& more : other.passed_over) {
    PassedOver& place = entry_of(passed_over, more.reason);
    place.count += more.count;
    for (const std::string& example : more.examples) show(place.examples, example);
  }
}

std::string Taken::text() const {
  std::string text = fmt::format("{} {}", files, files == 1 ? "file" : "files");
  const char* before = "; passed over ";
  for (const PassedOver& other : passed_over) {
    text += fmt::format("{}{} {}", before, other.count, other.reason);
    for (std::size_t i = 0; i < other.examples.size(); ++i) text += (i == 0 ? ": " : ", ") + other.examples[i];
    if (other.examples.size() == kExamples && other.count > static_cast<std::int64_t>(kExamples)) text += ", ...";
    before = "; ";
  }
  return text;
}

}  // namespace reigen::container
