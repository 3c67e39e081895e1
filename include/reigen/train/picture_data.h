// Pictures of any size in classes, from containers (docs/containers.md) or drawn, with the augmentation of ImageNet or
// CIFAR-10.
//
//   PictureData data({.path = "imagenet", .size = 224});   // imagenet/train.lmdb and imagenet/val.lmdb, for example
//
// Samples: input [3, size, size] = (pixel / 255 - mean) / deviation with the data set's mean and deviation, target: the
// class.
// PictureStyle::kImageNet: training takes a random resized crop and a random flip. Without `augment`, and for
// validation, the shorter side becomes size * 256 / 224 pixels, and the middle is taken.
// PictureStyle::kCifar10: the shorter side becomes `size` pixels, and the middle is taken. Training pads it with
// size / 8 black pixels on all sides, crops it at a random place, and flips it at random.
// Thread rule: belongs to one rank (data_module.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "reigen/data/pipeline.h"
#include "reigen/train/data_module.h"

namespace reigen::train {

enum class PictureStyle { kImageNet, kCifar10 };

struct PictureDataOptions {
  // A folder with train.* and val.* (or test.*), each a container or a folder of class folders. Or one container or one
  // folder of class folders, of which every tenth sample is for validation. Empty: photos that the program draws.
  std::filesystem::path path = {};
  std::int64_t size = 224;
  PictureStyle style = PictureStyle::kImageNet;
  bool augment = true;       // random crops and flips of training pictures
  bool fast_decode = false;  // data::OpenOptions::fast_decode
  data::Mixing mixing = {};  // of training pictures, also without `augment`
  std::int64_t classes = 0;  // 0: as many as the data name; a sample of another class is a DataError
};

class PictureData : public DataModule {
 public:
  explicit PictureData(const PictureDataOptions& options) : options_(options) {}

  data::DatasetPtr training() override;  // throws as data::open
  data::DatasetPtr validation() override;
  std::string kind_of_samples() const override;

  // Whether `path` has containers: one, or train.* in a folder. Otherwise it has class folders, if anything.
  static bool has_containers(const std::filesystem::path& path);

  // PictureDataOptions::classes, or the number of classes that the data name. Throws InvalidArgument if the data do not
  // name their classes.
  std::int64_t classes();

 private:
  struct Parts;
  const Parts& parts();

  PictureDataOptions options_;
  std::shared_ptr<const Parts> parts_;
};

}  // namespace reigen::train
