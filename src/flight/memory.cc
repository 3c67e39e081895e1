#include "flight/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/check.h"

namespace reigen::flight {

bool is_record(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || status.st_size != static_cast<off_t>(kRecordBytes)) return false;
  const int seals = ::fcntl(descriptor, F_GET_SEALS);  // only memory files have seals
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

MappedMemory::MappedMemory(int descriptor, Access access)
    : data_(::mmap(nullptr, kRecordBytes, access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE, MAP_SHARED,
                   descriptor, 0)) {
  if (data_ != MAP_FAILED) return;
  throw IoError(fmt::format("cannot map a flight record: {}", base::errno_text(errno)), ExitCode::kOsResource);
}

MappedMemory::~MappedMemory() { ::munmap(data_, kRecordBytes); }

}  // namespace reigen::flight
