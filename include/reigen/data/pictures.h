// Small colour pictures in classes: from folders of JPEG and PNG files, or drawn by a program.
// input [B, 3, 32, 32] = (pixel / 255 - mean) / deviation, with CIFAR-10's mean (0.4914, 0.4822, 0.4465) and deviation
// (0.2470, 0.2435, 0.2616); target [B] int64, the class.
//
// Augmented, a sample of a loader's pass is padded with 4 black pixels on all sides, cut back to 32x32 at a random
// place and mirrored half of the time: a function of (seed, epoch, index), whatever rank or thread asks.
// Dataset::gather() gives it as it is.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "reigen/data/dataset.h"
#include "reigen/data/taken.h"

namespace reigen::data {

inline constexpr std::size_t kPictureSide = 32;
inline constexpr std::size_t kPictureBytes = 3 * kPictureSide * kPictureSide;

// ---- files

struct ImageFolderOptions {
  Split split = Split::kTrain;
  bool augment = false;
  c10::ScalarType type = c10::kFloat;  // or kDouble, of the input
};

struct ImageFolder {
  DatasetPtr data;
  std::vector<std::string> classes;  // class i is the folder of this name
  Taken taken;                       // of this split; of both where every tenth picture is for testing
};

// One folder a class, in order of their names, with files *.jpg, *.jpeg and *.png (any case) in it or in folders below
// it. Which names are passed over, and that links are followed, is the rule of docs/files.md; `taken` has what was. Two
// forms:
//   folder/train/<class>/...  and folder/test/<class>/...  (or val/ for test/); the classes are those of train/
//   folder/<class>/...        every tenth picture, counted over all in order, is for testing
// Only names are read here; a picture is decoded when it is asked for, to the values that Pillow gives (docs/files.md),
// its middle square brought to 32x32. Throws IoError (66: no such folder, or a link that leads nowhere; 77: not
// readable), DataError (no class or only one, a class without pictures, a class in test/ that train/ has not, nothing
// left for testing, train/ and training/). gather() throws DataError naming a file that is damaged or of another kind,
// and IoError.
ImageFolder image_folder(const std::filesystem::path& folder, const ImageFolderOptions& options = {});

// ---- drawn

inline constexpr int kDrawnClasses = 10;

// Draws one picture, row by row, red green blue, and returns its class, 0..9: a disc, square, triangle, cross or ring
// (class / 2), plain (even) or striped (odd), of any colour, size, place and turn, on a background that changes, behind
// specks, with noise. Every byte is a function of (seed, split, index), on every machine. Some 60 us.
int draw_picture(std::uint64_t seed, Split split, std::int64_t index, std::span<std::uint8_t, kPictureBytes> pixels);

struct DrawnPicturesOptions {
  Split split = Split::kTrain;
  bool augment = false;
  std::int64_t size = 0;  // 0: 10,000 for training, 2,000 for test
  std::uint64_t seed = 0;
  c10::ScalarType type = c10::kFloat;
};

// Throws InvalidArgument (negative size, another type).
DatasetPtr drawn_pictures(const DrawnPicturesOptions& options = {});

}  // namespace reigen::data
