#include "launch/ranks/rank_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/check.h"
#include "base/log.h"

namespace reigen::launch {

namespace {

constexpr std::size_t kMaxRemembered = 2000;  // the failure report repeats at most so many bytes of a line

ExitCode code_of_output(int error) {
  const ExitCode code = base::exit_code_of_errno(error);
  return code == ExitCode::kInputMissing ? ExitCode::kIo : code;  // the path is an output, not an input
}

}  // namespace

void make_log_dir(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (!error && !std::filesystem::is_directory(directory, error) && !error) {
    error = std::make_error_code(std::errc::not_a_directory);
  }
  if (!error) return;
  throw IoError({.what = fmt::format("cannot make the log folder `{}`: {}", directory, error.message()),
                 .fix = "name a folder that can be written"},
                code_of_output(error.value()));
}

std::string prefix_of_rank(const JobOptions& options, int rank) {
  const bool shown = options.prefix == "always" || (options.prefix == "auto" && options.ranks > 1);
  return shown ? fmt::format("[{}] ", rank) : std::string();
}

RankOutput::RankOutput(Console& console, std::string prefix, const std::string& log_path, bool alone)
    : console_(console), prefix_(std::move(prefix)), log_path_(log_path), alone_(alone) {
  if (log_path.empty()) return;
  log_ = UniqueFd(::open(log_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
  if (log_) return;
  throw IoError({.what = fmt::format("cannot write the log file `{}`: {}", log_path, base::errno_text(errno)),
                 .fix = "name a folder that can be written"},
                code_of_output(errno));
}

void RankOutput::feed(Stream stream, std::string_view bytes) {
  splitters_[static_cast<std::size_t>(stream)].feed(
      bytes, [&](Piece piece, std::string_view text) { take(stream, piece, text); });
}

void RankOutput::finish(Stream stream) {
  splitters_[static_cast<std::size_t>(stream)].finish(
      [&](Piece piece, std::string_view text) { take(stream, piece, text); });
}

void RankOutput::take(Stream stream, Piece piece, std::string_view text) {
  if (piece == Piece::kProgress) {
    console_.progress(prefix_, text);  // from both streams, because Python's progress bars use stderr
    return;
  }
  const bool goes_on = piece == Piece::kPart && alone_ && prefix_.empty();
  if (goes_on) console_.part(stream, text);
  const std::uint64_t number = goes_on ? 0 : console_.line(stream, prefix_, text);
  if (log_) {
    log_buffer_ += text;
    if (piece == Piece::kLine) log_buffer_ += '\n';
  }
  last_.push_back({std::string(text.substr(0, kMaxRemembered)), number});
  if (last_.size() > kLastLines) last_.pop_front();
}

void RankOutput::save_log() {
  std::string_view rest = log_buffer_;
  while (log_ && !rest.empty()) {
    const ssize_t done = ::write(log_.get(), rest.data(), rest.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) {
      base::log_warning("cannot write {} any more: {}; the job goes on without this file", log_path_,
                        base::errno_text(errno));
      log_.reset();
      break;
    }
    rest.remove_prefix(static_cast<std::size_t>(done));
  }
  log_buffer_.clear();
}

std::string RankOutput::last_lines() const {
  std::string text;
  for (const Shown& line : last_) text += line.text + "\n";
  return text;
}

bool RankOutput::last_lines_stand_last() const {
  const std::uint64_t lines = console_.lines_with_errors();
  if (console_.is_closed(Stream::kError) || last_.size() > lines) return false;
  std::uint64_t expected = lines - last_.size();
  return std::all_of(last_.begin(), last_.end(), [&](const Shown& line) { return line.number == ++expected; });
}

}  // namespace reigen::launch
