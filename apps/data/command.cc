// reigen data: packs datasets into containers, and looks at them.
#include "data/command.h"

#include <fmt/format.h>

#include <map>
#include <set>

#include "reigen/base/error.h"

namespace reigen::apps::data {

namespace {

constexpr const char* kHelp =
    "reigen data: datasets in containers; without LibTorch\n"
    "\n"
    "  pack SOURCE TARGET [options]            writes the samples of any container into another: TARGET.lmdb, .h5,\n"
    "                                          .tfrecord or .tar\n"
    "  inspect PATH [--sample N [--out DIR]]   what a container holds; a sample, and its values as files\n"
    "  verify PATH...                          reads every sample, decodes every picture; names what is damaged (65)\n"
    "  index PATH                              writes DALI's index beside TFRecord files and tars\n"
    "  bench PATH [--workers 1,2]              how fast samples are prepared for training, and what is slow\n"
    "\n"
    "PATH: a folder with a folder of pictures for each class, a flat folder with --labels FILE, LMDB, HDF5, files or\n"
    "folders of TFRecord and tar, or a pattern of shards such as train-{000000..000063}.tar.\n"
    "`reigen data --version` lists the libraries that are built in. docs/containers.md describes the formats.\n"
    "`reigen data pack --help` lists the options of a part.\n";

}  // namespace

int command(const Arguments& arguments) {
  const std::map<std::string, int (*)(const Arguments&)> parts = {
      {"pack", pack}, {"inspect", inspect}, {"verify", verify}, {"index", index}, {"bench", bench}};
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") {
    fmt::print(arguments.empty() ? stderr : stdout, "{}", kHelp);
    return static_cast<int>(arguments.empty() ? ExitCode::kUsage : ExitCode::kOk);
  }
  if (arguments[0] == "--version") {
    for (const container::Library& library : container::libraries()) {
      fmt::print("{} {}\n", library.name, library.version.empty() ? "not built in" : library.version);
    }
    return 0;
  }
  const auto part = parts.find(arguments[0]);
  if (part != parts.end()) return part->second(Arguments(arguments.begin() + 1, arguments.end()));
  std::vector<std::string> names;
  for (const auto& [name, unused] : parts) names.push_back(name);
  const std::string meant = nearest(arguments[0], names);
  throw InvalidArgument(
      {.what = "unknown part of `reigen data`",
       .got = arguments[0],
       .expected = "pack, inspect, verify, index or bench",
       .fix = meant.empty() ? "`reigen data --help` lists them" : "did you mean `reigen data " + meant + "`?"},
      ExitCode::kUsage);
}

void SourceOptions::add_to(CLI::App& app) {
  app.add_option("--fields", fields,
                 "FIELD=NAME ...: which names of the source are which fields, as input=/x/img target=/x/label");
  app.add_option("--label-offset", label_offset, "is subtracted from every stored label (ImageNet's TFRecords: 1)");
  app.add_option("--labels", labels, "of a flat folder of pictures: a file with lines `name label`");
}

container::OpenOptions SourceOptions::open_options() const {
  container::OpenOptions options{.label_offset = label_offset, .labels_file = labels};
  for (const std::string& word : fields) {
    const auto equals = word.find('=');
    const bool is_new = equals != std::string::npos && equals > 0 && equals + 1 < word.size() &&
                        options.fields.emplace(word.substr(0, equals), word.substr(equals + 1)).second;
    if (is_new) continue;
    throw InvalidArgument({.what = "--fields gives no field",
                           .got = word,
                           .expected = "FIELD=NAME, each field once",
                           .fix = "--fields input=/x/img target=/x/label, behind the paths"},
                          ExitCode::kUsage);
  }
  return options;
}

std::string size_text(std::uint64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} bytes", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  if (bytes < 10'000'000'000) return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
  return fmt::format("{:.1f} GB", static_cast<double>(bytes) / 1e9);
}

}  // namespace reigen::apps::data
