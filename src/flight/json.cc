#include "flight/json.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <string_view>

#include "base/check.h"
#include "reigen/base/unique_fd.h"

namespace reigen::flight {

namespace {

const char* name_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kRunning: return "running";
    case Outcome::kDone: return "done";
    case Outcome::kMismatch: return "mismatch";
    case Outcome::kPeerLost: return "peer_lost";
    case Outcome::kTimeout: return "timeout";
    case Outcome::kAborted: return "aborted";
    case Outcome::kFailed: break;
  }
  return "failed";
}

// The number of bytes of the UTF-8 character at the beginning of the text; 0 if the text does not begin with a valid
// character.
std::size_t character_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t length = first < 0x80                    ? 1
                             : first >= 0xc2 && first < 0xe0 ? 2
                             : first >= 0xe0 && first < 0xf0 ? 3
                             : first >= 0xf0 && first < 0xf5 ? 4
                                                             : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
  }
  return length;
}

std::string in_quotes(std::string_view text) {
  std::string result = "\"";
  while (!text.empty()) {
    const std::size_t length = character_length(text);
    const char c = text[0];
    if (length == 0) {
      result += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      result += fmt::format("\\{}", c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      result += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      result += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return result + "\"";
}

std::string quoted_or_null(const std::string& text) { return text.empty() ? "null" : in_quotes(text); }

std::string time_or_null(std::int64_t time) { return time == 0 ? "null" : fmt::format("{}", time); }

std::string line_of(const ReadRank& rank) {
  std::string groups;
  for (const ReadGroup& group : rank.groups) {
    groups += fmt::format(R"({}{{"name":{},"rank":{},"size":{}}})", groups.empty() ? "" : ",", in_quotes(group.name),
                          group.rank, group.size);
  }
  return fmt::format(R"({{"what":"rank","rank":{},"size":{},"pid":{},"host":{},"groups":[{}],"operations":{}}})",
                     rank.rank, rank.size, rank.pid, quoted_or_null(rank.host), groups, rank.operations.size());
}

std::string line_of(int rank, const ReadOperation& o) {
  std::string line =
      fmt::format(R"({{"what":"operation","rank":{},"group":{},"group_rank":{},"group_size":{},"sequence":{})", rank,
                  quoted_or_null(o.group), o.group_rank, o.group_size, o.sequence);
  line +=
      fmt::format(R"(,"kind":{},"type":{},"reduction":{},"{}":{},"count":{},"bytes":{},"tag":{})", in_quotes(o.kind),
                  quoted_or_null(o.type), quoted_or_null(o.reduction), o.between_two ? "other" : "root",
                  o.root == kNoRoot ? "null" : fmt::format("{}", o.root), o.count, o.bytes, in_quotes(o.tag));
  line += fmt::format(R"(,"state":"{}","called_ns":{},"started_ns":{},"ended_ns":{}}})", name_of(o.outcome), o.called,
                      time_or_null(o.started), time_or_null(o.ended));
  return line;
}

void write_all(int descriptor, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t done = ::write(descriptor, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) {
      throw IoError(fmt::format("cannot write `{}`: {}", path, base::errno_text(errno)),
                    base::exit_code_of_errno(errno));
    }
    text.remove_prefix(static_cast<std::size_t>(done));
  }
}

}  // namespace

std::string to_json_lines(const std::vector<ReadRank>& ranks) {
  std::string text;
  for (const ReadRank& rank : ranks) {
    text += line_of(rank) + "\n";
    for (const ReadOperation& operation : rank.operations) text += line_of(rank.rank, operation) + "\n";
  }
  return text;
}

void write_json_lines(const std::string& path, const std::vector<ReadRank>& ranks) {
  const std::string text = to_json_lines(ranks);
  if (path == "-") return write_all(STDOUT_FILENO, text, "stdout");
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file) {
    throw IoError({.what = fmt::format("cannot write `{}`: {}", path, base::errno_text(errno)),
                   .fix = "name a file in a folder that can be written"},
                  errno == ENOENT ? ExitCode::kIo : base::exit_code_of_errno(errno));
  }
  write_all(file.get(), text, path);
}

}  // namespace reigen::flight
