// The tensors and values in a pickle, under the names that PtFile gives them. Every tensor is checked to lie in its
// storage.
// Thread rule: no shared state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "format/pickle_reader.h"
#include "format/zip_archive.h"
#include "reigen/format/pt_file.h"

namespace reigen::format {

struct PtContents {
  std::vector<PtTensor> tensors;
  std::vector<PtUnreadable> unreadable;
  std::vector<PtValue> values;
  std::vector<PtObject> objects;
};

// `folder`: the prefix of the archive's record names, such as "archive/". Throws the DataErrors that PtFile documents.
PtContents contents_of(const Pickle& pickle, const ZipArchive& archive, const std::string& folder,
                       const PtOptions& options);

// True if every element of the tensor lies in its storage, and the tensor's bytes agree with its shape and type. The
// numbers in `tensor` may be arbitrarily wrong.
bool lies_in_storage(const PtTensor& tensor);

}  // namespace reigen::format
