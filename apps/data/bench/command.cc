// The command bench.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <thread>

#include "base/text.h"
#include "command_line.h"
#include "data/bench/measure.h"
#include "data/command.h"
#include "reigen/base/error.h"
#include "reigen/container/verify.h"
#include "reigen/image/decode.h"

namespace reigen::apps::data {

namespace {

constexpr std::int64_t kLookedAt = 100;  // samples whose sizes and labels are shown
constexpr int kLongestSide = 500;        // what `pack --longest` is recommended with
constexpr int kMostWorkersOfRun = 64;    // the most that --data.workers takes

struct Pictures {
  std::string format;  // "JPEG", "PNG", "JPEG and PNG"
  image::Size mean;
};

std::optional<Pictures> look_at_pictures(const container::Reader& reader) {
  const auto field = picture_field(reader);
  if (!field) return std::nullopt;
  const std::int64_t count = std::min(kLookedAt, reader.size());
  std::int64_t width = 0;
  std::int64_t height = 0;
  std::int64_t jpegs = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t index = sample_at(i, reader.size());
    const container::Record record = reader.read(index);
    const auto bytes = record.at(*field).bytes;
    const image::Size size = image::size_of(bytes, reader.where(index));
    width += size.width;
    height += size.height;
    if (bytes[0] == std::byte{0xff}) ++jpegs;
  }
  const char* const format = jpegs == count ? "JPEG" : jpegs == 0 ? "PNG" : "JPEG and PNG";
  return Pictures{format, {static_cast<int>(width / count), static_cast<int>(height / count)}};
}

void print_header(const container::Reader& reader, const std::optional<Pictures>& pictures,
                  const Preparation& preparation) {
  const container::Inspected found = container::inspect(reader, kLookedAt);
  std::vector<std::string> fields;
  for (const container::Field& field : reader.fields()) {
    if (field.kind == container::FieldKind::kPicture && pictures) {
      fields.push_back(fmt::format("{} ({}, {} x {} on average)", field.name, pictures->format, pictures->mean.width,
                                   pictures->mean.height));
    } else if (field.kind == container::FieldKind::kLabel && found.least_label) {
      // The labels found are those of some samples only. If the classes have names, all classes are known.
      const auto classes = static_cast<std::int64_t>(reader.classes().size());
      const std::int64_t least = classes > 0 ? 0 : *found.least_label;
      fields.push_back(fmt::format("{} {}..{}", field.name, least, classes > 0 ? classes - 1 : *found.most_label));
    } else {
      fields.push_back(container::describe(field));
    }
  }
  fmt::print("{}, {} samples: {}", container::name_of(found.kind), found.samples, fmt::join(fields, ", "));
  if (pictures) {
    fmt::print("; crop {}, flip, float planes{}", preparation.size, preparation.fast_decode ? ", decoded fast" : "");
    fmt::print("\nworkers   read/s   decode/s   all/s   beside full decode   beside separate processes\n");
  } else {
    fmt::print("\nworkers   read/s   beside separate processes\n");
  }
}

void print_row(const Measured& row, bool has_pictures) {
  fmt::print("{:>7}{:>9.0f}", row.workers, row.read);
  if (has_pictures) fmt::print("{:>11.0f}{:>8.0f}   {:<18.2f}", row.decode, row.all, row.beside_decode);
  if (row.beside_processes > 0) fmt::print("   {:.2f}", row.beside_processes);
  fmt::print("\n");
  std::fflush(stdout);
}

// What makes the slower of the two parts faster.
std::string advice(const container::Reader& reader, const std::optional<Pictures>& pictures,
                   const Preparation& preparation, bool is_reading) {
  const int cores = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMostWorkersOfRun);
  std::vector<std::string> ways;
  if (cores > 1) ways.push_back(fmt::format("--data.workers {}", cores));
  if (is_reading) {
    const bool is_folder = reader.kind() == container::ContainerKind::kFolder;
    ways.emplace_back(is_folder ? "a container (reigen data pack)" : "--data.shuffle blocks");
  } else {
    const auto [shorter, longer] = std::minmax(pictures->mean.width, pictures->mean.height);
    if (!preparation.fast_decode && shorter > 2 * preparation.size)
      ways.emplace_back(
          "fast decoding (--data.decode fast of `reigen train resnet50`, OpenOptions::fast_decode in a program)");
    if (longer > kLongestSide + kLongestSide / 10) ways.push_back(fmt::format("pack --longest {}", kLongestSide));
    const std::string smaller = fmt::format("pack --shorter {}", preparation.size * 8 / 7);
    if (ways.size() < 2 && shorter > preparation.size * 8 / 7) ways.push_back(smaller);
  }
  return ways.empty() ? "no option helps" : fmt::format("{}", fmt::join(ways, ", or "));
}

void print_bottleneck(const container::Reader& reader, const std::optional<Pictures>& pictures,
                      const Preparation& preparation, const Measured& row) {
  const bool is_reading = !pictures || row.all > row.read / 2;  // reading is more than half of the time
  fmt::print("bottleneck: {}. A step that takes more than {:.0f} {}/s a worker waits: {}\n",
             is_reading ? "reading" : "decoding", std::min(row.all, row.read) / row.workers,
             pictures ? "pictures" : "samples", advice(reader, pictures, preparation, is_reading));
}

void print_memory(const container::Reader& reader, const Measured& row) {
  const auto mega = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  fmt::print(
      "memory: {:.1f} MB after {:.1f} epochs with {}, {:.1f} MB after the first round; at most {:.1f} MB "
      "with mapped files\n",
      mega(row.memory_last), static_cast<double>(row.samples) / static_cast<double>(reader.size()),
      base::counted(row.workers, "worker"), mega(row.memory_first), mega(most_memory()));
}

// The arguments for a process with one worker.
Arguments process_command(const std::string& path, const Preparation& preparation, const SourceOptions& source) {
  Arguments words = {"bench",
                     path,
                     "--on-demand",
                     "--workers",
                     "1",
                     "--size",
                     fmt::format("{}", preparation.size),
                     "--decode",
                     preparation.fast_decode ? "fast" : "exact",
                     "--label-offset",
                     fmt::format("{}", source.label_offset)};
  if (!source.labels.empty()) words.insert(words.end(), {"--labels", source.labels});
  if (!source.fields.empty()) words.emplace_back("--fields");
  words.insert(words.end(), source.fields.begin(), source.fields.end());
  return words;
}

}  // namespace

int bench(const Arguments& arguments) {
  std::string path;
  std::string decode = "exact";
  std::vector<int> workers = {1, 2};
  MeasureOptions options;
  SourceOptions source;
  CLI::App app(
      "Measures how fast the samples of a container can be prepared for training, and says what is slow. Columns, in\n"
      "samples per second of wall-clock time, medians of 7 rounds that take turns:\n"
      "  read/s     bytes of a sample into memory\n"
      "  decode/s   libjpeg-turbo decodes the whole picture\n"
      "  all/s      read, random crop, flip, and normalised planes of fp32, as in training\n"
      "  beside full decode          all/s over decode/s\n"
      "  beside separate processes   all/s of the workers, which are threads, over that of as many processes",
      "reigen data bench");
  app.add_option("PATH", path, "a container of any kind")->required();
  app.add_option("--workers", workers, "numbers of workers, each a line of the result (default 1,2)")
      ->delimiter(',')
      ->check(CLI::Range(1, 256));
  app.add_option("--size", options.preparation.size, "side of the random crop (default 224)")
      ->check(CLI::Range(1, 4096));
  app.add_option("--decode", decode, "exact, or fast: JPEGs that shrink are decoded at 1/2, 1/4 or 1/8 of their size")
      ->check(CLI::IsMember({"exact", "fast"}));
  CLI::Option* const seconds =
      app.add_option("--seconds", options.seconds, "for each column (default 2)")->check(CLI::Range(0.01, 600.0));
  bool serves = false;
  app.add_flag(
         "--on-demand", serves,
         "for scripts: for each line BEGIN COUNT of stdin, prepares so many samples and prints samples per second")
      ->excludes(seconds);
  source.add_to(app);
  if (!parse(app, arguments)) return 0;
  options.preparation.fast_decode = decode == "fast";
  container::OpenOptions opening = source.open_options();
  opening.without_bytes = true;  // as data::open() reads it
  const auto reader = container::open(path, opening);
  if (serves) {
    if (workers.size() != 1) {
      throw InvalidArgument(Report{.what = "--on-demand measures one number of workers",
                                   .got = fmt::format("{} numbers", workers.size()),
                                   .expected = "one",
                                   .fix = "--workers 1"},
                            ExitCode::kUsage);
    }
    on_demand(*reader, options.preparation, workers[0]);
    return 0;
  }
  options.process_command = process_command(path, options.preparation, source);
  const auto pictures = look_at_pictures(*reader);
  print_header(*reader, pictures, options.preparation);
  std::vector<Measured> rows;
  for (const int count : workers) {
    options.workers = count;
    rows.push_back(measure(*reader, options));
    print_row(rows.back(), pictures.has_value());
  }
  print_memory(*reader, rows.back());
  print_bottleneck(*reader, pictures, options.preparation, rows.front());
  return 0;
}

}  // namespace reigen::apps::data
