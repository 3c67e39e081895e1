// The output of one rank: passes it to the console and to the rank's log file, and keeps its last lines for
// the failure report of ending.h.
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

// The text that the console shows before each line of `rank`, such as "[3] ". Empty if lines have no prefix.
std::string prefix_of_rank(const JobOptions& options, int rank);

// Makes the directory and its parents. Throws IoError.
void make_log_dir(const std::string& directory);

// Thread rule: one thread at a time.
class RankOutput {
 public:
  static constexpr std::size_t kLastLines = 30;

  // If `log_path` is empty there is no log file. Throws IoError when the file cannot be created. `alone`: the job
  // has only this rank, so the parts of a long line without a prefix are printed without line breaks.
  RankOutput(Console& console, std::string prefix, const std::string& log_path, bool alone);

  void feed(Stream stream, std::string_view bytes);
  void finish(Stream stream);
  void save_log();  // writes to the log file the text of the feed() and finish() calls since the last save_log()
  bool has_log() const { return static_cast<bool>(log_); }
  std::string last_lines() const;  // each ends with '\n'
  // True if the text of last_lines() is also the last text that the console showed on stderr, so that the failure
  // report need not repeat this text.
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
    std::uint64_t number;  // the line's number on stderr, which Console::line() returned; 0 if it is not on stderr
  };
  std::deque<Shown> last_;
};

}  // namespace reigen::launch
