// The output of one rank: passes it to the console and to the rank's log file, and keeps its last lines for the report.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "launch/console.h"
#include "launch/lines.h"
#include "reigen/base/unique_fd.h"
#include "reigen/launch/job.h"

namespace reigen::launch {

// "[3] ", which comes before each line of that rank; empty if lines have no prefix.
std::string prefix_of_rank(const JobOptions& options, int rank);

// Makes the directory and its parents. Throws IoError.
void make_log_dir(const std::string& directory);

// Thread rule: one thread at a time.
class RankOutput {
 public:
  static constexpr std::size_t kLastLines = 30;

  // If `log_path` is empty there is no log file. Throws IoError when the file cannot be created. `alone`: there is no
  // other rank whose lines could come between the parts of a long line.
  RankOutput(Console& console, std::string prefix, const std::string& log_path, bool alone);

  void feed(Stream stream, std::string_view bytes);
  void finish(Stream stream);
  void save_log();  // writes to the log file what feed and finish added; call it once a round
  bool has_log() const { return static_cast<bool>(log_); }
  std::string last_lines() const;  // each ends with '\n'
  // True if the last lines are also the last that the console showed on stderr, so that the report need not repeat
  // them.
  bool last_lines_stand_last() const;

 private:
  void take(Stream stream, Piece piece, std::string_view text);

  Console& console_;
  std::string prefix_;
  std::string log_path_;
  bool alone_;
  UniqueFd log_;
  std::string log_buffer_;
  LineSplitter splitters_[2];
  struct Shown {
    std::string text;
    std::uint64_t number;  // as Console::line gave it
  };
  std::deque<Shown> last_;
};

}  // namespace reigen::launch
