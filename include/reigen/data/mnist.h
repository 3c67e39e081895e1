// MNIST from its original files: 60,000 training and 10,000 test images of handwritten digits.
// input [B, 1, 28, 28] = (pixel / 255 - 0.1307) / 0.3081, target [B] int64 in 0..9.
#pragma once

#include <c10/core/ScalarType.h>

#include <filesystem>

#include "reigen/data/dataset.h"

namespace reigen::data {

// Reads the files {train,t10k}-{images-idx3,labels-idx1}-ubyte from the folder, each plain or with ".gz". Other data
// sets with the same file names and formats work too (Fashion-MNIST). Other common spellings of the names are accepted:
// "train-images.idx3-ubyte", which gunzip -N writes, and "test-" for "t10k-". Files in subfolders are accepted too
// (torchvision's MNIST/raw, Kaggle's folders named like the files); the files nearest to the folder are used. `type` is
// the type of the input, kFloat or kDouble. Throws InvalidArgument for another type. Throws IoError with exit code 66
// when the folder or a file is missing (the text names the expected and the present files), and with exit code 77 when
// a file is not readable. Throws DataError for damaged files, images that are not 28x28, different numbers of images
// and labels, a label above 9, and two equally near folders that both hold such files.
DatasetPtr mnist(const std::filesystem::path& folder, Split split = Split::kTrain, c10::ScalarType type = c10::kFloat);

// The paths of the files that mnist() would read. If a file is missing, throws the error of mnist().
struct MnistFiles {
  std::filesystem::path images;
  std::filesystem::path labels;
};
MnistFiles mnist_files(const std::filesystem::path& folder, Split split = Split::kTrain);

}  // namespace reigen::data
