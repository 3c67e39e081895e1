// reigen checkpoint: shows what checkpoints hold, checks that they are whole, and converts them.
#include "checkpoint/command.h"

#include <fmt/format.h>

#include <map>

#include "reigen/base/error.h"

namespace reigen::apps {

namespace {

constexpr const char* kHelp =
    "reigen checkpoint: looks at checkpoints and weights, and changes their form; without LibTorch\n"
    "\n"
    "  inspect PATH [--tensors]              what is there: a checkpoint, a run, a .safetensors, a folder of Hugging "
    "Face, a .pt\n"
    "  verify PATH...                        reads every byte; names what is damaged (65)\n"
    "  diff A B [--tolerance T]              tensors that differ (1 when some do)\n"
    "  consolidate PATH OUT.safetensors      one file of whole tensors, for any reader of safetensors; --average: of "
    "their average\n"
    "  reshard PATH DIRECTORY --ranks N      the same checkpoint as N ranks would have written it\n"
    "  import PATH OUT.safetensors [--rename FROM=TO]...   weights of others, under other names: of torch.save, C++'s\n"
    "                                        torch::save, TorchScript, Hugging Face, safetensors\n"
    "  --only BEGIN, --skip BEGIN            of diff and import: names to take alone, names to leave out\n"
    "\n"
    "PATH of a checkpoint: step_N, or the directory of a run or of checkpoints, for its newest whole one.\n";

}  // namespace

int checkpoint_command(const Arguments& arguments) {
  const std::map<std::string, int (*)(const Arguments&)> parts = {
      {"inspect", checkpoint::inspect},         {"verify", checkpoint::verify},   {"diff", checkpoint::diff},
      {"consolidate", checkpoint::consolidate}, {"reshard", checkpoint::reshard}, {"import", checkpoint::import}};
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") {
    fmt::print(arguments.empty() ? stderr : stdout, "{}", kHelp);
    return static_cast<int>(arguments.empty() ? ExitCode::kUsage : ExitCode::kOk);
  }
  const auto part = parts.find(arguments[0]);
  if (part != parts.end()) return part->second(Arguments(arguments.begin() + 1, arguments.end()));
  std::vector<std::string> names;
  for (const auto& [name, unused] : parts) names.push_back(name);
  const std::string meant = nearest(arguments[0], names);
  throw InvalidArgument({.what = "unknown part of `reigen checkpoint`",
                         .got = arguments[0],
                         .expected = "inspect, verify, diff, consolidate, reshard or import",
                         .fix = meant.empty() ? "`reigen checkpoint --help` lists them"
                                              : "did you mean `reigen checkpoint " + meant + "`?"},
                        ExitCode::kUsage);
}

}  // namespace reigen::apps
