#include "comm/tuning/table.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

#include "base/environment.h"
#include "reigen/base/error.h"

namespace reigen::comm::tuning {

namespace {

constexpr const char* kFirstLine = "reigen tuning 1";

// Reads a table line by line. Errors name the path and the line.
class Reader {
 public:
  Reader(const std::string& text, std::string path) : lines_(text), path_(std::move(path)) {}

  Table read() {
    if (next() != kFirstLine) refuse(kFirstLine);
    Table table{.host = value_of("host")};
    table.family = read_family();
    table.ranks = read_ranks();
    for (next(); line_ != "end"; next()) {
      std::istringstream words(line_);
      std::string word;
      words >> word;
      if (word == "time") {
        table.timings.push_back(read_timing(words));
      } else if (word == "rules") {
        add_rules(table, words);
      } else {
        refuse("time, rules or end");
      }
    }
    if (std::getline(lines_, line_)) {
      number_ += 1;
      refuse("nothing behind end");
    }
    return table;
  }

 private:
  [[noreturn]] void refuse(const std::string& expected) const {
    throw DataError(Report{.what = fmt::format("{}:{}: not a tuning file of this version", path_, number_),
                           .got = "\"" + line_ + "\"",
                           .expected = expected,
                           .fix = "remove it, then reigen tune"});
  }

  const std::string& next() {
    number_ += 1;
    line_.clear();
    if (!std::getline(lines_, line_) || lines_.eof()) refuse("a line; the file ends too soon");
    return line_;
  }

  std::string value_of(const std::string& word) {
    next();
    if (!line_.starts_with(word + " ") || line_.size() == word.size() + 1) refuse(word + " and its value");
    return line_.substr(word.size() + 1);
  }

  Family read_family() {
    const std::string word = value_of("backend");
    for (const Family family : {Family::kTcp, Family::kSharedMemory}) {
      if (word == name_of(family)) return family;
    }
    refuse("backend tcp or shared_memory");
  }

  int read_ranks() {
    std::istringstream in(value_of("ranks"));
    int ranks = 0;
    if (!(in >> ranks) || ranks < 2 || !in.eof()) refuse("ranks and a number, 2 or more");
    return ranks;
  }

  Timing read_timing(std::istringstream& words) const {
    const char* const form = "time OPERATION ALGORITHM ALPHA us SPEED GB/s";
    std::string operation;
    std::string algorithm;
    std::string microseconds;
    std::string speed;
    double alpha = 0;
    double gigabytes = 0;
    if (!(words >> operation >> algorithm >> alpha >> microseconds >> gigabytes >> speed)) refuse(form);
    if (microseconds != "us" || speed != "GB/s" || !(alpha >= 0) || !(gigabytes >= 0) || words >> speed) refuse(form);
    for (const OperationKind kind : kRuledKinds) {
      if (operation == name_of(kind)) return {kind, algorithm, {alpha / 1e6, gigabytes > 0 ? 1e-9 / gigabytes : 0}};
    }
    refuse("an operation");
  }

  void add_rules(Table& table, std::istringstream& words) const {
    std::string rules;
    if (!(words >> rules) || rules == kTuned) refuse("rules and a choice of algorithms");
    try {
      check_algorithms(rules, {&table.family, 1});
    } catch (const InvalidArgument& error) {
      throw DataError(fmt::format("{}:{}: {}", path_, number_, error.what()));
    }
    table.rules += (table.rules.empty() ? "" : ",") + rules;
  }

  std::istringstream lines_;
  std::string path_;
  std::string line_ = {};
  int number_ = 0;
};

}  // namespace

std::string to_text(const Table& table) {
  std::string text =
      fmt::format("{}\nhost {}\nbackend {}\nranks {}\n", kFirstLine, table.host, name_of(table.family), table.ranks);
  for (const Timing& timing : table.timings) {
    const double speed = timing.line.beta > 0 ? 1e-9 / timing.line.beta : 0;
    text += fmt::format("time {} {} {:.3f} us {:.4g} GB/s\n", name_of(timing.kind), timing.algorithm,
                        timing.line.alpha * 1e6, speed);
  }
  const AlgorithmChoice choice(table.rules, table.family);
  for (const OperationKind kind : kRuledKinds) {
    std::string rules;
    for (const auto& rule : choice.rules(kind)) {
      rules += (rules.empty() ? "" : ",") + rule.text;
    }
    if (!rules.empty()) text += fmt::format("rules {}\n", rules);
  }
  return text + "end\n";
}

Table parse(const std::string& text, const std::string& path) { return Reader(text, path).read(); }

std::filesystem::path cache_path(Family family, int ranks) {
  std::filesystem::path folder;
  if (const auto cache = base::get_environment("XDG_CACHE_HOME")) {
    folder = *cache;
  } else if (const auto home = base::get_environment("HOME")) {
    folder = std::filesystem::path(*home) / ".cache";
  } else {
    throw InvalidArgument(Report{.what = "no folder for what reigen tune finds",
                                 .got = "neither XDG_CACHE_HOME nor HOME",
                                 .fix = "export XDG_CACHE_HOME=FOLDER"});
  }
  return folder / "reigen" / fmt::format("tuning-{}-{}.txt", name_of(family), ranks);
}

std::optional<Table> read_cache(Family family, int ranks) {
  const std::filesystem::path path = cache_path(family, ranks);
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  if (error || !file ||
      !std::filesystem::is_regular_file(path, error))  // a folder opens, but a read of it throws a std exception
    throw IoError(fmt::format("cannot read {}", path.string()), ExitCode::kIo);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  Table table = parse(text, path.string());
  if (table.family != family || table.ranks != ranks) {
    throw DataError(Report{.what = path.string() + " is of another backend or number of ranks",
                           .got = fmt::format("backend {}, {} ranks", name_of(table.family), table.ranks),
                           .expected = fmt::format("backend {}, {} ranks", name_of(family), ranks),
                           .fix = fmt::format("reigen tune -n {} --backend {}", ranks, name_of(family))});
  }
  return table;
}

}  // namespace reigen::comm::tuning
