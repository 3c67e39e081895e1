// The commands consolidate, reshard and import.
#include <fmt/format.h>

#include <filesystem>

#include "checkpoint/command.h"
#include "checkpoint/parse.h"
#include "reigen/checkpoint/convert.h"

namespace reigen::apps::checkpoint {

namespace ck = reigen::checkpoint;

namespace {

int write_weights(const ck::Weights& weights, const std::string& to, const ck::Renaming& rules = {}) {
  ck::write_whole(weights, to, rules);
  fmt::print("{}: {} tensors of {} ({})\n", to, weights.tensors().size(), weights.path().string(), weights.kind());
  for (const ck::Unread& object : weights.objects()) fmt::print("  left out: {}\n", unread_row(object));
  return 0;
}

ck::Renaming parse_rules(const std::vector<std::string>& words) {
  ck::Renaming rules;
  for (const std::string& word : words) {
    const auto at = word.find('=');
    if (at == std::string::npos) {
      throw InvalidArgument({.what = "--rename is no rule",
                             .got = "--rename " + word,
                             .expected = "FROM=TO: beginnings of names",
                             .fix = "--rename module.="},
                            ExitCode::kUsage);
    }
    rules.emplace_back(word.substr(0, at), word.substr(at + 1));
  }
  return rules;
}

}  // namespace

int consolidate(const Arguments& arguments) {
  std::string from;
  std::string to;
  std::string group = "model";
  bool average = false;
  CLI::App app("Writes whole tensors of a checkpoint into one safetensors file, whatever ranks wrote it.",
               "reigen checkpoint consolidate");
  app.add_option("PATH", from, "a checkpoint, or a directory of them or of a run: the newest whole one")->required();
  app.add_option("OUT", to, "the file")->required();
  CLI::Option* const which = app.add_option("--group", group, "model, optimizer (default model)");
  app.add_flag("--average", average, "the average of the weights (--optim.ema_decay) in their place")->excludes(which);
  if (!parse(app, arguments)) return 0;
  const ck::Checkpoint checkpoint = ck::find_checkpoint(from);
  return write_weights(average ? ck::Weights::averages_of(checkpoint.path()) : ck::Weights(checkpoint.path(), group),
                       to);
}

int reshard(const Arguments& arguments) {
  std::string from;
  std::string to;
  int ranks = 0;
  CLI::App app("Writes a checkpoint once more as N ranks would, each with an equal share. Reading needs no such thing.",
               "reigen checkpoint reshard");
  app.add_option("PATH", from, "a checkpoint, or a directory of them or of a run: the newest whole one")->required();
  app.add_option("DIRECTORY", to, "where step_N comes to lie")->required();
  app.add_option("--ranks", ranks, "1 to 100000")->required()->check(CLI::Range(1, 100000));
  if (!parse(app, arguments)) return 0;
  const auto target = std::filesystem::weakly_canonical(to);
  const bool is_run =
      std::filesystem::exists(target / "config.toml") ||
      (target.filename() == "checkpoints" && std::filesystem::exists(target.parent_path() / "config.toml"));
  if (is_run) {
    throw InvalidArgument(
        Report{.what = fmt::format("{} is the directory of a run", to),
               .got = "config.toml in it, or beside it",
               .expected = "a directory of checkpoints, or a new one",
               .fix = fmt::format("reigen checkpoint reshard {} {}-on-{}-ranks --ranks {}", from, to, ranks, ranks)},
        ExitCode::kOutputLocked);
  }
  const ck::Checkpoint checkpoint = ck::find_checkpoint(from);
  checkpoint.verify();
  fmt::print("{}\n", ck::reshard(checkpoint, to, ranks).string());
  return 0;
}

int import(const Arguments& arguments) {
  std::string from;
  std::string to;
  std::vector<std::string> rules;
  CLI::App app("Writes weights that others saved into a safetensors file. Nothing in them is run.",
               "reigen checkpoint import");
  ck::Selection selection;
  app.add_option("PATH", from,
                 "a file of torch.save or of C++'s torch::save, a folder of Hugging Face, a .safetensors, a checkpoint")
      ->required();
  app.add_option("OUT", to, "the file")->required();
  app.add_option("--rename", rules, "FROM=TO: another beginning of names; the first rule that fits counts");
  add_selection(app, selection);
  if (!parse(app, arguments)) return 0;
  ck::Weights weights(from);
  select_from({&weights}, selection);
  return write_weights(weights, to, parse_rules(rules));
}

}  // namespace reigen::apps::checkpoint
