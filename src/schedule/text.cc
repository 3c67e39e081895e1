#include "reigen/schedule/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/text.h"
#include "reigen/base/error.h"

namespace reigen::schedule {
namespace {

constexpr std::array kKinds = {Kind::kForward,     Kind::kBackward,       Kind::kBackwardInput, Kind::kBackwardWeight,
                               Kind::kSendForward, Kind::kReceiveForward, Kind::kSendBackward,  Kind::kReceiveBackward,
                               Kind::kUnshard,     Kind::kReshard,        Kind::kReduceGrad};

std::string placement_text(const Schedule& schedule) {
  if (schedule.placement == looped(schedule.stages(), schedule.ranks)) return "looped";
  if (schedule.placement == v_shaped(schedule.stages(), schedule.ranks)) return "v_shaped";
  return fmt::format("{}", fmt::join(schedule.placement, " "));
}

// A word of the text and where it is.
struct Word {
  std::string_view text;
  int line = 0;
  int number = 0;
};

InvalidArgument wrong(const Word& word, const std::string& what, const std::string& expected,
                      const std::string& fix = {}) {
  return InvalidArgument(Report{.what = fmt::format("[schedule] line {}, word {}: {}", word.line, word.number, what),
                                .got = std::string(word.text.substr(0, 80)),
                                .expected = expected,
                                .fix = fix});
}

InvalidArgument incomplete(const std::string& what, const std::string& expected) {
  return InvalidArgument(Report{.what = "[schedule] the text is incomplete", .got = what, .expected = expected});
}

// The words of one line, without its comment.
std::vector<Word> words_of(std::string_view line, int number) {
  constexpr const char* kBlanks = " \t\r";
  line = line.substr(0, line.find('#'));
  std::vector<Word> words;
  for (std::size_t begin = line.find_first_not_of(kBlanks); begin != std::string_view::npos;) {
    const std::size_t end = std::min(line.find_first_of(kBlanks, begin), line.size());
    words.push_back(
        {.text = line.substr(begin, end - begin), .line = number, .number = static_cast<int>(words.size()) + 1});
    begin = line.find_first_not_of(kBlanks, end);
  }
  return words;
}

// A number of digits only, up to kMostOfEach.
std::optional<int> number_in(std::string_view text) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  const auto number = base::parse<int>(text);
  return number && *number <= kMostOfEach ? number : std::nullopt;
}

int number_of(const Word& word) {
  if (const auto number = number_in(word.text)) return *number;
  throw wrong(word, "not a number", fmt::format("0 to {}", kMostOfEach));
}

std::vector<int> numbers_of(const std::vector<Word>& words, std::size_t first) {
  std::vector<int> numbers;
  for (std::size_t i = first; i < words.size(); ++i) numbers.push_back(number_of(words[i]));
  return numbers;
}

std::string example_of(Kind kind) {
  Action action{.kind = kind, .stage = 0};
  if (is_compute(kind) || is_message(kind)) action.micro_batch = 3;
  if (is_message(kind)) action.peer = 1;
  return to_text(action);
}

Kind kind_of(const Word& word, std::string_view text) {
  std::vector<std::string> known;
  for (const Kind kind : kKinds) {
    if (text == to_text(kind)) return kind;
    known.emplace_back(to_text(kind));
  }
  const std::string meant = base::nearest(std::string(text), known);
  throw wrong(word, "unknown action", fmt::format("{} with a stage", fmt::join(known, ", ")),
              meant.empty() ? "write an action as F0.3" : fmt::format("write {}", meant));
}

Action action_of(const Word& word) {
  const std::size_t digits = std::min(word.text.find_first_of("0123456789.<>"), word.text.size());
  Action action{.kind = kind_of(word, word.text.substr(0, digits))};
  std::string_view rest = word.text.substr(digits);
  const auto malformed = [&] { return wrong(word, "not an action", "an action as " + example_of(action.kind)); };
  const auto take_number = [&]() -> int {
    const std::size_t end = std::min(rest.find_first_not_of("0123456789"), rest.size());
    const auto number = number_in(rest.substr(0, end));
    if (!number) throw malformed();
    rest.remove_prefix(end);
    return *number;
  };
  const auto take_mark = [&](char mark) {
    if (rest.empty() || rest.front() != mark) throw malformed();
    rest.remove_prefix(1);
  };
  action.stage = take_number();
  if (is_compute(action.kind) || is_message(action.kind)) {
    take_mark('.');
    action.micro_batch = take_number();
  }
  if (is_message(action.kind)) {
    take_mark(is_receive(action.kind) ? '<' : '>');
    action.peer = take_number();
  }
  if (!rest.empty()) throw malformed();
  return action;
}

// What the lines say, until all of them have been read.
struct Reader {
  std::optional<int> ranks = {};
  std::optional<int> stages = {};
  std::optional<int> micro_batches = {};
  std::vector<Word> placement = {};
  Schedule schedule = {.placement = {}, .actions = {}};
  std::vector<std::optional<Word>> listed = {};  // of each rank, the first word of its line

  void read_count(const std::vector<Word>& words, std::optional<int>& count) {
    if (count) throw wrong(words[0], "comes twice", "one line");
    if (words.size() != 2) throw wrong(words.back(), "not one number", fmt::format("{} 4", words[0].text));
    count = number_of(words[1]);
    if (*count < 1) throw wrong(words[1], "the number is wrong", fmt::format("1 to {}", kMostOfEach));
  }

  void read_placement(const std::vector<Word>& words) {
    if (!placement.empty()) throw wrong(words[0], "comes twice", "one line");
    if (words.size() < 2) throw wrong(words[0], "no placement", "looped, v_shaped, or the rank of each stage");
    placement = words;
  }

  void read_rank(const std::vector<Word>& words) {
    if (words.size() < 2) throw wrong(words[0], "no rank", "rank 0: F0.0 ...");
    Word name = words[1];
    if (!name.text.ends_with(':')) throw wrong(name, "no colon after the rank", "rank 0: F0.0 ...");
    name.text.remove_suffix(1);
    const auto rank = static_cast<std::size_t>(number_of(name));
    if (listed.size() <= rank) listed.resize(rank + 1);
    if (schedule.actions.size() <= rank) schedule.actions.resize(rank + 1);
    if (listed[rank]) {
      throw wrong(words[1], "the rank has two lines",
                  fmt::format("one line; line {} is the first", listed[rank]->line));
    }
    listed[rank] = words[1];
    for (std::size_t i = 2; i < words.size(); ++i) schedule.actions[rank].push_back(action_of(words[i]));
  }

  void read(const std::vector<Word>& words) {
    const std::string_view key = words[0].text;
    if (key == "ranks") {
      read_count(words, ranks);
    } else if (key == "stages") {
      read_count(words, stages);
    } else if (key == "micro_batches") {
      read_count(words, micro_batches);
    } else if (key == "placement") {
      read_placement(words);
    } else if (key == "skip") {
      const std::vector<int> numbers = numbers_of(words, 1);
      if (numbers.size() != 2) throw wrong(words.back(), "not two stages", "skip 0 2");
      schedule.skips.push_back({.from = numbers[0], .to = numbers[1]});
    } else if (key == "tied") {
      schedule.tied.push_back(numbers_of(words, 1));
    } else if (key == "rank") {
      read_rank(words);
    } else {
      const std::vector<std::string> known = {"ranks", "stages", "micro_batches", "placement", "skip", "tied", "rank"};
      const std::string meant = base::nearest(std::string(key), known);
      throw wrong(words[0], "unknown word", fmt::format("{}", fmt::join(known, ", ")),
                  meant.empty() ? "" : "write " + meant);
    }
  }

  void place_stages() {
    const std::string_view way = placement[1].text;
    if (placement.size() == 2 && way == "looped") {
      schedule.placement = looped(*stages, *ranks);
    } else if (placement.size() == 2 && way == "v_shaped") {
      schedule.placement = v_shaped(*stages, *ranks);
    } else {
      schedule.placement = numbers_of(placement, 1);
      if (schedule.stages() != *stages) {
        throw wrong(placement.back(), "the number of stages differs",
                    fmt::format("looped, v_shaped, or {} ranks, one for each stage", *stages));
      }
    }
  }

  Schedule finished() {
    if (!ranks) throw incomplete("no line `ranks`", "ranks 4");
    if (!stages) throw incomplete("no line `stages`", "stages 4");
    if (!micro_batches) throw incomplete("no line `micro_batches`", "micro_batches 8");
    if (placement.empty()) throw incomplete("no line `placement`", "placement looped");
    schedule.ranks = *ranks;
    schedule.micro_batches = *micro_batches;
    place_stages();
    if (listed.size() > static_cast<std::size_t>(*ranks)) {
      throw wrong(*listed.back(), "the rank does not exist", fmt::format("0 to {}", *ranks - 1));
    }
    for (int rank = 0; rank < *ranks; ++rank) {
      const bool has_line = static_cast<std::size_t>(rank) < listed.size() && listed[static_cast<std::size_t>(rank)];
      if (!has_line) throw incomplete(fmt::format("no line `rank {}:`", rank), "one line for each rank");
    }
    return std::move(schedule);
  }
};

}  // namespace

std::string to_text(const Schedule& schedule) {
  std::string text = fmt::format("ranks {}\nstages {}\nmicro_batches {}\nplacement {}\n", schedule.ranks,
                                 schedule.stages(), schedule.micro_batches, placement_text(schedule));
  for (const Skip& skip : schedule.skips) text += fmt::format("skip {} {}\n", skip.from, skip.to);
  for (const auto& group : schedule.tied) text += fmt::format("tied {}\n", fmt::join(group, " "));
  for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    text += fmt::format("rank {}:", rank);
    for (const Action& action : schedule.actions[rank]) text += ' ' + to_text(action);
    text += '\n';
  }
  return text;
}

Schedule parse_schedule(std::string_view text) {
  Reader reader;
  int number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::vector<Word> words = words_of(text.substr(0, end), ++number);
    if (!words.empty()) reader.read(words);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return reader.finished();
}

}  // namespace reigen::schedule
