// Mapped memory of flight records.
#pragma once

#include <cstdint>

#include "flight/record.h"

namespace reigen::flight {

// True if the descriptor is memory of a record's name and size.
bool is_record(int descriptor);

class MappedMemory {
 public:
  enum class Access { kRead, kWrite };
  // Throws IoError when it cannot be mapped.
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
