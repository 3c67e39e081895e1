// Finds the pictures of a folder that has a folder for each class. docs/files.md says which names are passed over.
//   folder/train/<class>/...  and folder/test/<class>/...  (or val/ for test/); train/ defines the classes
//   folder/<class>/...        every tenth picture, counted through all classes in order, is for testing
// Thread rule: pure functions of the file system.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "reigen/container/split.h"
#include "reigen/container/taken.h"

namespace reigen::container {

struct LabelledFile {
  std::filesystem::path path;
  std::int64_t label = 0;
};

struct ClassFolders {
  std::vector<std::string> classes;  // class i is the folder of this name
  std::vector<LabelledFile> files;   // in the order of classes, then of paths
  Taken taken;                       // files of this split, or of both splits if every tenth picture is for testing
};

// Reads only the names. Without a split, all pictures are taken, and a folder with train/ is an InvalidArgument. Throws
// IoError with exit code 66 for a missing folder and for a link without a target, and with 77 for a folder that is not
// readable. Throws DataError for fewer than two classes, a class without pictures, a class in test/ that is not in
// train/, no picture left for testing, and for a folder with both train/ and training/.
ClassFolders class_folders(const std::filesystem::path& folder, std::optional<Split> split);

// Whether a folder with files of a container is one of classes all the same, with the archive left beside them from
// which they came. It is if at least two of its folders hold pictures and the container is one archive (`is_alone`).
// Throws InvalidArgument if folders hold pictures otherwise: beside one folder, a set of shards or an LMDB it is not
// plain what is meant. `file` is the container's first, for the message. Throws IoError for a folder that is not
// readable and for a link without a target. Cost: folders are read up to their first picture, until two have one.
bool has_class_folders(const std::filesystem::path& folder, const std::filesystem::path& file, bool is_alone);

// Whether the name ends with .jpg, .jpeg or .png, in upper or lower case.
bool is_picture_name(const std::filesystem::path& path);

}  // namespace reigen::container
