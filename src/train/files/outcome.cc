#include "train/files/outcome.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "train/run/agree.h"

namespace reigen::train {

namespace {

std::string in_one_line(std::string text) {
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos;) {
    const std::size_t next = text.find_first_not_of("\n ", at);
    text.replace(at, next == std::string::npos ? next : next - at, "; ");
  }
  return text;
}

}  // namespace

bool Outcome::attempt(const std::string& what, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    if (!error.is_common()) throw;
    console_.say(fmt::format("warning: {} is not written: {}", what, error.what()));
    note_lost(what, error.exit_code(), error.what());
    return false;
  }
  std::erase_if(lost_, [&](const Lost& one) { return one.what == what; });  // removes the error of a first attempt
  written_.push_back(what);
  return true;
}

void Outcome::note_lost(std::string what, ExitCode code, std::string why) {
  lost_.push_back({std::move(what), code, std::move(why)});
}

Error Outcome::error(std::string what, std::vector<std::string> ways) const {
  std::vector<std::string> reasons;
  for (const Lost& one : lost_) reasons.push_back(fmt::format("no {}: {}", one.what, in_one_line(one.why)));
  // kIo is also the exit code of a full disk.
  const bool is_of_disk =
      std::any_of(lost_.begin(), lost_.end(), [](const Lost& one) { return one.code == ExitCode::kIo; });
  if (is_of_disk) ways.insert(ways.begin(), "free space, or mend the disk");
  if (!written_.empty()) ways.push_back(fmt::format("saved: {}", fmt::join(written_, ", ")));
  return common(Error(lost_.front().code, Report{.what = std::move(what),
                                                 .got = fmt::format("{}", fmt::join(reasons, "\n       ")),
                                                 .fix = fmt::format("{}", fmt::join(ways, "; "))}));
}

}  // namespace reigen::train
