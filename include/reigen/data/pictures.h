// Small colour pictures in classes: from folders of JPEG and PNG files, or drawn by a program.
// input [B, 3, 32, 32] = (pixel / 255 - mean) / deviation, with CIFAR-10's mean (0.4914, 0.4822, 0.4465) and deviation
// (0.2470, 0.2435, 0.2616); target [B] int64, the class.
//
// With the option augment, a sample of a loader's pass is padded with 4 black pixels on all sides, cropped to 32x32 at
// a random place, and mirrored with probability 1/2. The result is a function of (seed, epoch, index) and the same for
// every rank and thread. Dataset::gather() returns samples without augmentation.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "reigen/container/taken.h"
#include "reigen/data/dataset.h"

namespace reigen::data {

using container::Taken;

inline constexpr std::size_t kPictureSide = 32;
inline constexpr std::size_t kPictureBytes = 3 * kPictureSide * kPictureSide;

// ---- files

struct ImageFolderOptions {
  Split split = Split::kTrain;
  bool augment = false;                // change the samples at random, as described above
  c10::ScalarType type = c10::kFloat;  // type of the input: kFloat or kDouble
};

struct ImageFolder {
  DatasetPtr data;
  std::vector<std::string> classes;  // class i is the folder of this name
  Taken taken;                       // files of this split, or of both splits if every tenth picture is for testing
};

// Reads one folder for each class, in the order of the folders' names. A class has the files *.jpg, *.jpeg and *.png
// (any case) in its folder and subfolders. Links are followed. docs/files.md says which names are passed over. `taken`
// lists the files that were taken and those that were passed over. The folder has one of two forms:
//   folder/train/<class>/...  and folder/test/<class>/...  (or val/ for test/); train/ defines the classes
//   folder/<class>/...        every tenth picture, counted through all classes in order, is for testing
// image_folder() reads only the names. gather() decodes a picture to the values that Pillow gives (docs/files.md), and
// scales its middle square to 32x32. Throws IoError with exit code 66 for a missing folder and for a link without a
// target, and with exit code 77 for a folder that is not readable. Throws DataError for fewer than two classes, a class
// without pictures, a class in test/ that is not in train/, no picture left for testing, and for a folder with both
// train/ and training/. gather() throws IoError, and DataError naming a file that is damaged or is not a JPEG or PNG
// picture.
ImageFolder image_folder(const std::filesystem::path& folder, const ImageFolderOptions& options = {});

// ---- drawn

inline constexpr int kDrawnClasses = 10;

// Draws one picture, row by row, as red, green, blue, and returns its class, 0..9. Class / 2 (rounded down) is the
// shape: disc, square, triangle, cross or ring. Even classes are plain, odd classes are striped. Colour, size, place
// and rotation are random. The brightness changes across the picture, specks cover parts of it, and noise is added.
// Every byte is a function of (seed, split, index) and is the same on every machine. Takes about 60 us.
int draw_picture(std::uint64_t seed, Split split, std::int64_t index, std::span<std::uint8_t, kPictureBytes> pixels);

struct DrawnPicturesOptions {
  Split split = Split::kTrain;
  bool augment = false;
  std::int64_t size = 0;  // number of pictures; 0 means 10,000 for training and 2,000 for test
  std::uint64_t seed = 0;
  c10::ScalarType type = c10::kFloat;
};

// Throws InvalidArgument for a negative size, and for a type other than kFloat and kDouble.
DatasetPtr drawn_pictures(const DrawnPicturesOptions& options = {});

}  // namespace reigen::data
