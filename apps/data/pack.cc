// The command pack.
#include "reigen/container/pack.h"

#include <fmt/format.h>

#include <thread>

#include "command_line.h"
#include "data/command.h"
#include "data/progress.h"
#include "data/recode.h"
#include "reigen/base/error.h"

namespace reigen::apps::data {

int pack(const Arguments& arguments) {
  std::string from;
  std::string to;
  std::string compress;
  SourceOptions source;
  RecodeOptions recode;
  container::PackOptions options;
  std::uint64_t seed = 0;
  CLI::App app(
      "Writes the samples of a container into another. The target is whole or absent, and its bytes do not depend on\n"
      "the number of workers.",
      "reigen data pack");
  app.add_option("SOURCE", from, "a container of any kind, also compressed tars")->required();
  app.add_option("TARGET", to, "its ending says the kind: .lmdb, .h5, .tfrecord, .tar")->required();
  app.add_option("--compress", compress, "zstd: compresses tensors and bytes, in LMDB and HDF5")
      ->check(CLI::IsMember({"zstd"}));
  app.add_option("--shards", options.shards, "files of TFRecord and tar (default 1)");
  CLI::Option* const shuffle = app.add_option("--shuffle", seed, "writes the samples in an order that this seed gives");
  options.workers = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  app.add_option("--workers", options.workers, "threads that read and change pictures (default: one for each core)");
  app.add_flag("--force", options.force, "replaces the target");
  recode.add_to(app);
  source.add_to(app);
  if (!parse(app, arguments)) return 0;
  options.kind = container::kind_of_target(to);
  if (!compress.empty()) options.compression = container::Compression::kZstd;
  if (shuffle->count() > 0) options.shuffle = seed;
  container::OpenOptions opening = source.open_options();
  opening.allow_sequential = true;
  const auto reader = container::open(from, opening);
  recode.apply(*reader, options);
  Progress progress;
  options.progress = [&](std::int64_t done, std::int64_t all) { progress.show(done, all); };
  const container::Packed packed = container::pack(*reader, to, options);
  fmt::print("{}: {}, {} samples of {} ({})\n", to, container::name_of(options.kind), packed.samples, from,
             size_text(packed.bytes));
  return 0;
}

}  // namespace reigen::apps::data
