// Prints what Reigen makes of pictures, for scripts/compare/pictures. Each line of the input is a command:
//   picture FILE [crop LEFT TOP WIDTH HEIGHT | resize WIDTH HEIGHT | shorter LENGTH | center LENGTH | mirror |
//                 brightness A | contrast A | saturation A | hue A] ...
//     prints "WIDTH HEIGHT", a line's end, and the pixels as bytes red, green, blue
//   boxes WIDTH HEIGHT COUNT      prints a line "left top width height" for each box of random_resized_crop
#include <fmt/format.h>

#include <array>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>

#include "reigen/base/error.h"
#include "reigen/image/draft.h"
#include "reigen/image/operations.h"

namespace {

namespace image = reigen::image;

int number(std::istream& words) {
  int value = 0;
  if (!(words >> value)) throw reigen::InvalidArgument("a number is missing");
  return value;
}

double amount(std::istream& words) {
  double value = 0;
  if (!(words >> value)) throw reigen::InvalidArgument("an amount is missing");
  return value;
}

void apply(const std::string& word, std::istream& words, image::Draft& draft) {
  constexpr std::array kNames = {"brightness", "contrast", "saturation", "hue"};
  reigen::Random unused({});
  if (word == "crop") {
    const int left = number(words);
    const int top = number(words);
    const int width = number(words);
    draft.crop({left, top, width, number(words)});
  } else if (word == "resize") {
    const int width = number(words);
    draft.resize({width, number(words)});
  } else if (word == "shorter") {
    image::resize_shorter(number(words))(draft, unused);
  } else if (word == "center") {
    image::center_crop(number(words))(draft, unused);
  } else if (word == "mirror") {
    draft.mirror();
  } else {
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      if (word != kNames[i]) continue;
      image::Colours colours{.count = 1};
      colours.changes[0] = {static_cast<image::Adjustment>(i), amount(words)};
      return draft.change(colours);
    }
    throw reigen::InvalidArgument("unknown operation " + word);
  }
}

void print_picture(std::istream& words, image::Workspace& workspace) {
  std::string path;
  words >> path;
  std::ifstream in(path, std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(in)), {});
  image::Draft draft(std::as_bytes(std::span(content)), nullptr, path);
  for (std::string word; words >> word;) apply(word, words, draft);
  const image::Picture picture = draft.picture(workspace);
  std::cout << picture.width << " " << picture.height << "\n";
  std::cout.write(reinterpret_cast<const char*>(picture.pixels.data()),
                  static_cast<std::streamsize>(picture.pixels.size()));
}

void print_boxes(std::istream& words) {
  const image::Size size{number(words), number(words)};
  const auto crop = image::random_resized_crop(224);
  const int count = number(words);
  for (int i = 0; i < count; ++i) {
    reigen::Random random({.seed = 1, .epoch = 0, .sample = i, .place = 0});
    const image::Box box = crop.box(size, random);
    std::cout << fmt::format("{} {} {} {}\n", box.left, box.top, box.width, box.height);
  }
}

void run() {
  image::Workspace workspace;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (command == "picture") {
      print_picture(words, workspace);
    } else if (command == "boxes") {
      print_boxes(words);
    } else {
      throw reigen::InvalidArgument("unknown command " + command);
    }
    std::cout.flush();
  }
}

}  // namespace

int main() try {
  run();
  return 0;
} catch (const reigen::Error& error) {
  std::cerr << error.what() << "\n";
  return static_cast<int>(error.exit_code());
}
