// Pictures per second on one thread: random resized crop to 224, flip and normalisation to fp32 planes, in turn with
// libjpeg-turbo's decoding of the same files to RGB. scripts/bench/pictures starts it.
//   pictures FOLDER [--rounds 9] [--fast] [--resized 2000x1500] [--quality 90] [--most N]
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>
// The headers of libjpeg need <cstdio> before them.
#include <jpeglib.h>

#include "reigen/base/error.h"
#include "reigen/image/decode.h"
#include "reigen/image/encode.h"
#include "reigen/image/operations.h"
#include "reigen/image/resize.h"

namespace {

namespace image = reigen::image;
using reigen::InvalidArgument;
using Files = std::vector<std::vector<std::byte>>;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Files read_folder(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string ending = entry.path().extension().string();
    if (entry.is_regular_file() && (ending == ".jpg" || ending == ".JPEG" || ending == ".jpeg")) {
      paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  Files files;
  for (const auto& path : paths) {
    std::ifstream in(path, std::ios::binary);
    const std::string content((std::istreambuf_iterator<char>(in)), {});
    const auto* begin = reinterpret_cast<const std::byte*>(content.data());
    files.emplace_back(begin, begin + content.size());
  }
  return files;
}

// libjpeg-turbo as other programs use it: default settings, row by row. CMYK stays as it is.
std::size_t decode_fully(const std::vector<std::byte>& file, std::vector<unsigned char>& pixels) {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(file.data()), static_cast<unsigned long>(file.size()));
  jpeg_read_header(&info, TRUE);
  if (info.num_components != 4) info.out_color_space = JCS_RGB;
  jpeg_start_decompress(&info);
  const std::size_t row = std::size_t{info.output_width} * static_cast<std::size_t>(info.output_components);
  if (pixels.size() < row * info.output_height) pixels.resize(row * info.output_height);
  while (info.output_scanline < info.output_height) {
    JSAMPROW into = pixels.data() + row * info.output_scanline;
    jpeg_read_scanlines(&info, &into, 1);
  }
  jpeg_finish_decompress(&info);
  jpeg_destroy_decompress(&info);
  return row;
}

struct Arguments {
  std::filesystem::path folder;
  int rounds = 9;
  bool fast = false;
  image::Size resized = {};
  int quality = 90;
  int most = 1 << 30;  // files that are used
};

int number_of(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1) {
    throw InvalidArgument("a positive number is wanted, got '" + std::string(text) + "'");
  }
  return value;
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    if (word == "--rounds") {
      arguments.rounds = number_of(value());
    } else if (word == "--quality") {
      arguments.quality = number_of(value());
    } else if (word == "--most") {
      arguments.most = number_of(value());
    } else if (word == "--fast") {
      arguments.fast = true;
    } else if (word == "--resized") {
      const std::string size = value();
      const std::size_t cross = size.find('x');
      if (cross == std::string::npos) throw InvalidArgument("--resized takes a size such as 2000x1500, got " + size);
      arguments.resized = {number_of(size.substr(0, cross)), number_of(size.substr(cross + 1))};
    } else {
      arguments.folder = word;
    }
  }
  if (arguments.folder.empty() || arguments.rounds < 1)
    throw InvalidArgument("usage: pictures FOLDER [--rounds 9] ...");
  return arguments;
}

void run(const Arguments& arguments) {
  Files files = read_folder(arguments.folder);
  if (files.empty()) throw InvalidArgument("no JPEG files in " + arguments.folder.string());
  files.resize(std::min(files.size(), static_cast<std::size_t>(arguments.most)));
  if (arguments.resized.width > 0) {
    for (auto& file : files) {
      file = image::encode_jpeg(image::resize(image::decode(file, "source"), arguments.resized), arguments.quality);
    }
  }
  const auto cut = image::random_resized_crop(224);
  const auto flip = image::random_flip();
  const image::Output output{.mean = image::kImageNetMean, .deviation = image::kImageNetDeviation};
  std::vector<float> planes(std::size_t{3} * 224 * 224);
  std::vector<unsigned char> pixels;
  image::Workspace workspace;
  double sum = 0;
  std::vector<double> ours;
  std::vector<double> full;
  std::vector<double> ratios;
  for (int round = -1; round < arguments.rounds; ++round) {
    const double begin = cpu_seconds();
    for (std::size_t i = 0; i < files.size(); ++i) {
      image::Draft draft(files[i], nullptr, "picture", {.fast = arguments.fast});
      reigen::Random random({.seed = 1, .epoch = round, .sample = static_cast<std::int64_t>(i), .place = 0});
      cut(draft, random);
      flip(draft, random);
      draft.write(output, planes.data(), workspace);
      sum += static_cast<double>(planes[i]);
    }
    const double middle = cpu_seconds();
    for (const auto& file : files) sum += static_cast<double>(decode_fully(file, pixels));
    const double end = cpu_seconds();
    if (round < 0) continue;  // the first round fills the caches
    const auto count = static_cast<double>(files.size());
    ours.push_back(count / (middle - begin));
    full.push_back(count / (end - middle));
    ratios.push_back(ours.back() / full.back());
    fmt::print("round {}: {:.0f} pictures/s, full decode {:.0f} pictures/s, ratio {:.3f}\n", round, ours.back(),
               full.back(), ratios.back());
  }
  const auto median = [](std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2];
  };
  fmt::print(
      "{{\"files\": {}, \"pictures_per_s\": {:.1f}, \"full_decode_per_s\": {:.1f}, \"ratio\": {:.3f}, "
      "\"check\": {}}}\n",
      files.size(), median(ours), median(full), median(ratios), sum);
}

}  // namespace

int main(int argc, char** argv) try {
  run(parse(argc, argv));
  return 0;
} catch (const reigen::Error& error) {
  std::cerr << error.what() << "\n";
  return static_cast<int>(error.exit_code());
}
