// The commands inspect, verify and index.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <span>
#include <system_error>
#include <thread>

#include "base/text.h"
#include "command_line.h"
#include "container/sample.h"
#include "container/tar/npy.h"
#include "data/command.h"
#include "data/progress.h"
#include "reigen/base/error.h"
#include "reigen/container/verify.h"
#include "reigen/format/atomic_file.h"
#include "reigen/format/hash.h"
#include "reigen/image/decode.h"

namespace reigen::apps::data {

namespace {

namespace fs = std::filesystem;
namespace ct = reigen::container;

constexpr std::size_t kClassesShown = 5;

void print_container(const std::string& path, const ct::Inspected& found) {
  fmt::print("{}: {}, {} samples, {}\n", path, ct::name_of(found.kind), found.samples, size_text(found.stored_bytes));
  for (std::size_t i = 0; i < found.fields.size(); ++i) {
    const ct::FieldSizes& sizes = found.sizes[i];
    const bool varies = sizes.least != sizes.most;
    fmt::print("  {:<40} {}\n", ct::describe(found.fields[i]),
               varies ? fmt::format("{} to {}, {} on average", size_text(sizes.least), size_text(sizes.most),
                                    size_text(sizes.all / static_cast<std::uint64_t>(found.looked_at)))
                      : size_text(sizes.most));
  }
  if (found.least_label) fmt::print("  labels {} to {}\n", *found.least_label, *found.most_label);
  if (!found.classes.empty()) {
    const auto shown = std::min(found.classes.size(), kClassesShown);
    const std::vector<std::string> first(found.classes.begin(),
                                         found.classes.begin() + static_cast<std::ptrdiff_t>(shown));
    fmt::print("  {} classes: {}{}\n", found.classes.size(), fmt::join(first, ", "),
               shown < found.classes.size() ? ", ..." : "");
  }
  fmt::print("  names in the container: {}\n", fmt::join(found.stored_names, ", "));
  fmt::print("  {}\n", found.has_hashes ? "a hash of every sample" : "no hashes of samples");
  if (found.looked_at < found.samples) fmt::print("  (sizes and labels of {} samples)\n", found.looked_at);
}

// The name of the file that a value becomes.
std::string file_of(const ct::Field& field, std::span<const std::byte> bytes) {
  if (field.kind == ct::FieldKind::kLabel) return field.name + ".cls";
  if (field.kind == ct::FieldKind::kTensor) return field.name + ".npy";
  if (field.kind != ct::FieldKind::kPicture) return field.name + ".bin";
  const bool is_png = ct::text_of(bytes).substr(0, 4) == "\x89PNG";
  return field.name + (is_png ? ".png" : ".jpg");
}

void write_value(const fs::path& folder, const ct::Field& field, const ct::Value& value, const std::string& place) {
  std::string content;
  if (field.kind == ct::FieldKind::kTensor) content = ct::npy_head(field.type, ct::shape_of(field, value, place));
  content +=
      field.kind == ct::FieldKind::kLabel ? fmt::format("{}\n", value.label()) : std::string(ct::text_of(value.bytes));
  const fs::path path = folder / file_of(field, value.bytes);
  format::write_file_atomically(path, std::string_view(content));
  fmt::print("  {}\n", path.string());
}

void print_sample(const ct::Reader& reader, std::int64_t index, const std::string& out) {
  const ct::Record record = reader.read(index);
  fmt::print("sample {} ({}), hash {}\n", index, reader.where(index), format::hash_text(ct::hash_of(record)));
  std::error_code error;
  if (!out.empty()) fs::create_directories(out, error);
  if (error) {
    throw IoError(Report{.what = fmt::format("cannot make the folder '{}'", out),
                         .got = error.message(),
                         .expected = "a folder that may be written to",
                         .fix = "choose another --out"});
  }
  for (std::size_t i = 0; i < reader.fields().size(); ++i) {
    const ct::Field& field = reader.fields()[i];
    const ct::Value& value = record.at(i);
    const bool is_label = field.kind == ct::FieldKind::kLabel;
    fmt::print("  {:<40} {}\n", ct::describe(field),
               is_label ? fmt::format("{}", value.label()) : size_text(value.bytes.size()));
    if (!out.empty()) write_value(out, field, value, ct::place_of(reader, index));
  }
}

void print_verified(const std::string& path, const ct::Verified& found, double seconds, bool hashes_only) {
  const std::string time = fmt::format("{:.1f} s{}", seconds, hashes_only ? ", no picture was decoded" : "");
  if (found.faults.empty()) {
    fmt::print("{}: whole, {}, {}, in {}{}\n", path, base::counted(found.samples, "sample"), size_text(found.bytes),
               time, found.has_hashes ? "" : " (it has no hashes of samples; what can be checked was)");
    return;
  }
  fmt::print("{}: damaged, {}, {} whole, in {}\n", path,
             base::counted(static_cast<std::int64_t>(found.faults.size()), "fault"),
             found.samples == 1 ? "1 sample is" : fmt::format("{} samples are", found.samples), time);
}

}  // namespace

int inspect(const Arguments& arguments) {
  std::string path;
  std::string out;
  std::int64_t sample = 0;
  SourceOptions source;
  CLI::App app("What a container holds. Looks at up to 1000 samples; verify reads all.", "reigen data inspect");
  app.add_option("PATH", path, "a container of any kind")->required();
  CLI::Option* const one = app.add_option("--sample", sample, "shows the sample of this number, from 0 on");
  app.add_option("--out", out, "writes the values of the sample as files into this folder")->needs(one);
  source.add_to(app);
  if (!parse(app, arguments)) return 0;
  ct::OpenOptions options = source.open_options();
  options.allow_sequential = true;
  const auto reader = ct::open(path, options);
  if (one->count() > 0) {
    print_sample(*reader, sample, out);
  } else {
    print_container(path, ct::inspect(*reader));
  }
  return 0;
}

int verify(const Arguments& arguments) {
  std::vector<std::string> paths;
  SourceOptions source;
  ct::VerifyOptions how;
  bool hashes_only = false;
  CLI::App app(
      "Reads every sample of containers, decodes every picture, and names what is damaged. Then the exit code is 65.",
      "reigen data verify");
  app.add_option("PATH", paths, "containers of any kind")->required();
  how.workers = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  app.add_option("--workers", how.workers, "threads that read and decode (default: one for each core)");
  app.add_flag(
      "--hashes", hashes_only,
      "compares checksums and hashes alone, and decodes no picture: enough for a container that was written by\n"
      "pack from pictures that were verified");
  source.add_to(app);
  if (!parse(app, arguments)) return 0;
  if (!hashes_only) {
    how.check_picture = [](std::span<const std::byte> picture, const std::string& where) {
      image::decode(picture, where);
    };
  }
  const ct::OpenOptions opening = source.open_options();
  auto code = ExitCode::kOk;
  for (const std::string& path : paths) {
    Progress progress;
    how.progress = [&](std::int64_t done, std::int64_t all) { progress.show(done, all); };
    const auto begin = std::chrono::steady_clock::now();
    const ct::Verified found = ct::verify(path, opening, how);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    for (const ct::Fault& fault : found.faults) fmt::print("{}\n", fault.text);
    print_verified(path, found, seconds.count(), hashes_only);
    if (!found.faults.empty()) code = ExitCode::kBadData;
  }
  return static_cast<int>(code);
}

int index(const Arguments& arguments) {
  std::string path;
  CLI::App app("Writes the index of every shard, as DALI reads it. Reading then begins without a scan.",
               "reigen data index");
  app.add_option("PATH", path, "a TFRecord file or a tar, a pattern of them, or their folder")->required();
  if (!parse(app, arguments)) return 0;
  for (const fs::path& written : ct::write_index(path)) fmt::print("{}\n", written.string());
  return 0;
}

}  // namespace reigen::apps::data
