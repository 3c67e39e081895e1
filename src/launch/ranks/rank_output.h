// What one rank prints: to the console, to its log file, and its last lines for the report.
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

// "[3] ", which stands before each line of that rank; empty where lines have none.
std::string prefix_of_rank(const JobOptions& options, int rank);

// Makes DIR and everything above it. Throws IoError naming the part that failed.
void make_log_dir(const std::string& directory);

// Thread rule: one thread at a time.
class RankOutput {
 public:
  static constexpr std::size_t kLastLines = 30;

  // `log_path` empty: no log file. Throws IoError when it cannot be created. `alone`: no other rank's lines can come
  // between the parts of a long one.
  RankOutput(Console& console, std::string prefix, const std::string& log_path, bool alone);

  void feed(Stream stream, std::string_view bytes);
  void finish(Stream stream);
  void save_log();  // what feed and finish gave; call it once a round
  bool has_log() const { return static_cast<bool>(log_); }
  std::string last_lines() const;  // each ends with '\n'
  // They are the last that the console showed, so that whoever reads a report on stderr has just seen them.
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
    std::uint64_t number;  // of Console::line
  };
  std::deque<Shown> last_;
};

}  // namespace reigen::launch
