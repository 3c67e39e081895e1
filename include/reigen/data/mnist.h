// MNIST from its original files: 60,000 training and 10,000 test images of handwritten digits.
// input [B, 1, 28, 28] = (pixel / 255 - 0.1307) / 0.3081, target [B] int64 in 0..9.
#pragma once

#include <c10/core/ScalarType.h>

#include <filesystem>

#include "reigen/data/dataset.h"

namespace reigen::data {

// Reads {train,t10k}-{images-idx3,labels-idx1}-ubyte from the folder, each plain or with ".gz". Any files of this form
// do (Fashion-MNIST). Names are taken in the spellings that are about ("train-images.idx3-ubyte", as gunzip -N unpacks
// them; "test-" for "t10k-"), and files in folders below (torchvision's MNIST/raw, Kaggle's folders of the files'
// names), the nearest first. `type`: kFloat or kDouble, of the input. Throws IoError (66: folder or file missing,
// naming what was looked for and what is there; 77: not readable), DataError (damaged, not 28x28, counts of images and
// labels differ, a label above 9, two folders that hold such files), InvalidArgument (another type).
DatasetPtr mnist(const std::filesystem::path& folder, Split split = Split::kTrain, c10::ScalarType type = c10::kFloat);

// Where mnist() finds them. Throws as it does for what is missing.
struct MnistFiles {
  std::filesystem::path images;
  std::filesystem::path labels;
};
MnistFiles mnist_files(const std::filesystem::path& folder, Split split = Split::kTrain);

}  // namespace reigen::data
