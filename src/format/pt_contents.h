// The tensors and values that a pickle holds, under the names that PtFile gives them; every tensor lies in its storage.
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

// `folder`: what the archive's records are named after, "archive/". Throws DataError as PtFile says.
PtContents contents_of(const Pickle& pickle, const ZipArchive& archive, const std::string& folder,
                       const PtOptions& options);

// Does every element of a tensor lie in its storage, and do shape and type give its bytes? Whatever the numbers are.
bool lies_in_storage(const PtTensor& tensor);

}  // namespace reigen::format
