// The shared memory of flight records, mapped into this process.
#pragma once

#include <cstdint>

#include "flight/record.h"

namespace reigen::flight {

// Whether the descriptor is a memory file whose size is that of a record and cannot shrink.
bool is_record(int descriptor);

class MappedMemory {
 public:
  enum class Access { kRead, kWrite };
  // Throws IoError when the memory cannot be mapped.
  MappedMemory(int descriptor, Access access);
  ~MappedMemory();
  MappedMemory(const MappedMemory&) = delete;  // owns a mapping
  MappedMemory& operator=(const MappedMemory&) = delete;

  void* data() const { return data_; }
  const Record& record() const { return *static_cast<const Record*>(data_); }

 private:
  void* data_;
};

}  // namespace reigen::flight
