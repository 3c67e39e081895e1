// The launcher's own stdout and stderr. One Console writes the lines of all ranks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "reigen/base/deadline.h"

namespace reigen::launch {

enum class Stream { kOutput = 0, kError = 1 };

// Lines are queued, and written when the descriptor accepts them. So a paused terminal or a slow reader never keeps the
// launcher from handling its signals and ranks. Lines keep their order across the two streams. Thread rule:
// one thread at a time.
class Console {
 public:
  Console(int output, int error);

  bool is_terminal() const { return terminals_[0]; }
  int columns() const;  // width of the terminal; 80 if the terminal does not report it

  // Prints a line. If the line goes to the file or terminal of stderr, returns its number among all lines that go
  // there, from 1. Returns 0 if the line goes elsewhere.
  std::uint64_t line(Stream stream, std::string_view prefix, std::string_view text);
  // Prints a part of a line that is too long to be kept in memory, without a line break. The caller prints the next
  // part with part(), and the last part with line().
  void part(Stream stream, std::string_view text);
  std::uint64_t lines_with_errors() const { return lines_with_errors_; }
  // Redraws the progress line, cut at the terminal's edge; does nothing when stdout is not a terminal.
  void progress(std::string_view prefix, std::string_view text);
  void clear_progress();

  bool is_closed(Stream stream) const { return closed_[static_cast<std::size_t>(stream)]; }  // its reader is gone
  // The errno of a failed write whose output is lost (a full disk, for example); 0 if nothing is lost. Output to a
  // terminal that hung up does not count as lost.
  int write_error() const { return write_error_; }
  bool is_full() const { return queued_ >= kMaxQueued; }  // the caller then stops reading from the ranks
  bool is_empty() const { return queue_.empty(); }

  int waits_for() const;  // the descriptor that must become writable; -1 if there is nothing to write
  void write_some();      // to be called when the descriptor of waits_for() is writable

 private:
  static constexpr std::size_t kMaxQueued = std::size_t{1} << 20;
  struct Chunk {
    Stream stream;
    std::string bytes;
  };

  void push(Stream stream, std::string_view bytes);
  bool shares_terminal(Stream stream) const;

  std::array<int, 2> descriptors_;
  std::array<bool, 2> terminals_;
  std::array<bool, 2> closed_ = {false, false};
  std::array<bool, 2> lost_ = {false, false};
  int write_error_ = 0;
  bool progress_shown_ = false;
  bool one_place_ = false;  // stdout and stderr lead to the same file or terminal
  std::uint64_t lines_with_errors_ = 0;
  std::deque<Chunk> queue_;
  std::size_t queued_ = 0;
  std::size_t written_ = 0;  // bytes of the first chunk that are written
};

}  // namespace reigen::launch
