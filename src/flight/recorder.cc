#include "flight/recorder.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "flight/clock.h"
#include "flight/memory.h"

namespace reigen::flight {

namespace {

constexpr std::uint64_t stable(std::uint64_t ticket) { return 2 * ticket + 2; }

// Writes a field of an entry. Because of the release order, a reader that sees the new value also sees the odd version
// that was stored earlier, and rejects the entry.
void put(Word& word, std::uint64_t value) { word.store(value, std::memory_order_release); }

void put(Text& text, std::string_view value) {
  const std::size_t length = std::min(value.size(), sizeof(std::uint64_t) * kTextWords - 1);
  for (std::size_t at = 0, word = 0; word < kTextWords; ++word, at += sizeof(std::uint64_t)) {
    std::uint64_t bytes = 0;
    if (at < length) std::memcpy(&bytes, value.data() + at, std::min(sizeof bytes, length - at));
    put(text[word], bytes);
    if (at + sizeof bytes > length) return;  // the last byte of this word is 0, which ends the text
  }
}

void write_names(Names& names, const std::vector<std::string>& values) {
  names = {};
  for (std::size_t i = 0; i < std::min(values.size(), names.size()); ++i) {
    std::memcpy(names[i].data(), values[i].data(), std::min(values[i].size(), kNameBytes - 1));
  }
}

void describe_owner(Record& record, const Identity& identity) {
  record.header.rank = identity.rank;
  record.header.size = identity.size;
  // The job's identity is a secret, but other processes can read the record. So the record has only a hash of the
  // identity, which distinguishes jobs.
  record.header.job = identity.job.empty() ? job_of_process(::getpid()) : base::fnv1a(identity.job);
  record.header.magic = kMagic;
}

// Whether this process may write the record: no process has written it yet, or its writer is gone or is this process.
bool is_free(const Record& record) {
  if (record.header.magic != kMagic) return false;
  if (record.header.attached.load(std::memory_order_acquire) == 0) return true;
  return record.header.pid == ::getpid() || ::kill(record.header.pid, 0) != 0;
}

}  // namespace

std::uint64_t pack(const What& w) {
  const auto root = static_cast<std::uint64_t>(static_cast<std::uint32_t>(w.root + 1)) & 0x3fffffff;
  return static_cast<std::uint64_t>(w.kind) | static_cast<std::uint64_t>(w.type) << 8 |
         static_cast<std::uint64_t>(w.reduction) << 16 | static_cast<std::uint64_t>(w.group) << 24 | root << 32 |
         static_cast<std::uint64_t>(w.has_tag) << 62 | static_cast<std::uint64_t>(w.between_two) << 63;
}

What unpack(std::uint64_t word) {
  return {.kind = static_cast<std::uint8_t>(word),
          .type = static_cast<std::uint8_t>(word >> 8),
          .reduction = static_cast<std::uint8_t>(word >> 16),
          .group = static_cast<std::uint8_t>(word >> 24),
          .root = static_cast<std::int32_t>(word >> 32 & 0x3fffffff) - 1,
          .has_tag = (word >> 62 & 1) != 0,
          .between_two = word >> 63 != 0};
}

std::uint64_t job_of_process(pid_t pid) { return base::fnv1a(fmt::format("process {}", pid)); }

UniqueFd make_memory(const Identity& identity) {
  UniqueFd memory(REIGEN_SYSCALL(::memfd_create(kMemoryName, MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  REIGEN_SYSCALL(::ftruncate(memory.get(), static_cast<off_t>(kRecordBytes)));
  // The seals forbid to change the size, so that a reader's mapping never loses pages.
  REIGEN_SYSCALL(::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW));
  const MappedMemory mapped(memory.get(), MappedMemory::Access::kWrite);
  describe_owner(*static_cast<Record*>(mapped.data()), identity);
  return memory;
}

Recorder::Recorder(UniqueFd memory, void* mapped) : memory_(std::move(memory)), record_(static_cast<Record*>(mapped)) {}

Recorder::~Recorder() { ::munmap(record_, kRecordBytes); }

std::shared_ptr<Recorder> Recorder::open(const Identity& identity, const Vocabulary& vocabulary, int inherited) {
  UniqueFd memory;
  void* mapped = MAP_FAILED;
  if (inherited >= 0 && is_record(inherited)) {
    ::fcntl(inherited, F_SETFD, FD_CLOEXEC);  // programs that this process starts must not inherit its record
    mapped = ::mmap(nullptr, kRecordBytes, PROT_READ | PROT_WRITE, MAP_SHARED, inherited, 0);
    if (mapped != MAP_FAILED && !is_free(*static_cast<Record*>(mapped))) {
      ::munmap(mapped, kRecordBytes);
      mapped = MAP_FAILED;
    }
  }
  if (mapped == MAP_FAILED) {
    try {
      memory = make_memory(identity);
      mapped = ::mmap(nullptr, kRecordBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
    } catch (const Error& error) {
      base::log_warning("no memory for the flight recorder that others could read: {}", error.what());
    }
  }
  if (mapped == MAP_FAILED) return open_unseen(identity, vocabulary);
  std::shared_ptr<Recorder> recorder(new Recorder(std::move(memory), mapped));
  recorder->attach(vocabulary);
  return recorder;
}

std::shared_ptr<Recorder> Recorder::open_unseen(const Identity& identity, const Vocabulary& vocabulary) {
  void* const mapped = ::mmap(nullptr, kRecordBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw IoError("no memory for the flight recorder", ExitCode::kOsResource);
  describe_owner(*static_cast<Record*>(mapped), identity);
  std::shared_ptr<Recorder> recorder(new Recorder(UniqueFd(), mapped));
  recorder->attach(vocabulary);
  return recorder;
}

void Recorder::attach(const Vocabulary& vocabulary) {
  Header& header = record_->header;
  counter_ = has_counter();
  if (header.attached.load(std::memory_order_acquire) != 0) {
    if (header.pid == ::getpid()) return;  // a second recorder of this process writes into the same record
    header.attached.store(0);
    header.next.store(0);
    header.groups_made.store(0);
    for (GroupEntry& group : record_->groups) group.version.store(0);
    for (Entry& entry : record_->entries) entry.version.store(0);
  }
  header.pid = ::getpid();
  header.host = {};
  ::gethostname(header.host.data(), header.host.size() - 1);
  header.counter = counter_ ? 1 : 0;
  header.base_ticks = ticks();
  header.base_time = system_nanoseconds(CLOCK_REALTIME);
  write_names(header.kinds, vocabulary.kinds);
  write_names(header.types, vocabulary.types);
  write_names(header.reductions, vocabulary.reductions);
  header.attached.store(1, std::memory_order_release);
}

std::uint64_t Recorder::ticks() const {
  return counter_ ? read_counter() : static_cast<std::uint64_t>(system_nanoseconds(CLOCK_MONOTONIC));
}

std::uint64_t Recorder::join(std::string_view group, int rank, int size) {
  const std::uint64_t number = record_->header.groups_made.fetch_add(1);
  GroupEntry& place = record_->groups[number % kGroups];
  place.version.store(2 * number + 1, std::memory_order_relaxed);
  put(place.since, record_->header.next.load());
  put(place.rank_of_size, static_cast<std::uint64_t>(rank) << 32 | static_cast<std::uint32_t>(size));
  put(place.name, group);
  place.version.store(stable(number), std::memory_order_release);
  return number;
}

std::uint64_t Recorder::called(std::uint64_t group, const Operation& operation) {
  Header& header = record_->header;
  Entry* entry = nullptr;
  std::uint64_t ticket = header.next.load(std::memory_order_relaxed);
  for (;; ++ticket) {
    entry = &record_->entries[ticket % kEntries];
    std::uint64_t version = entry->version.load(std::memory_order_relaxed);
    // Skips the entry if another thread has just taken it. Also skips it if a slow thread still writes the call that
    // took it kEntries calls ago.
    if (version > 2 * ticket || version % 2 != 0) continue;
    if (entry->version.compare_exchange_strong(version, 2 * ticket + 1, std::memory_order_relaxed)) break;
  }
  header.next.store(ticket + 1, std::memory_order_relaxed);
  // The clock is read after the entry was taken, so times of the call that had the entry before are older than
  // `called`.
  put(entry->called, ticks());
  put(entry->started, 0);
  put(entry->ended, 0);
  put(entry->sequence, operation.sequence);
  put(entry->count, operation.count);
  put(entry->bytes, operation.bytes);
  What what = operation.what;
  const bool forgotten = record_->groups[group % kGroups].version.load(std::memory_order_relaxed) != stable(group);
  what.group = forgotten ? kNoCode : static_cast<std::uint8_t>(group % kGroups);
  what.has_tag = !operation.tag.empty();
  put(entry->what, pack(what));
  if (what.has_tag) put(entry->tag, operation.tag);
  entry->version.store(stable(ticket), std::memory_order_release);
  return ticket;
}

void Recorder::started(std::uint64_t ticket, bool at_call) {
  Entry& entry = record_->entries[ticket % kEntries];
  if (entry.version.load(std::memory_order_relaxed) != stable(ticket)) return;  // a later call has the entry now
  put(entry.started, at_call ? entry.called.load(std::memory_order_relaxed) : ticks());
}

void Recorder::ended(std::uint64_t ticket, Outcome outcome) {
  Entry& entry = record_->entries[ticket % kEntries];
  if (entry.version.load(std::memory_order_relaxed) != stable(ticket)) return;
  put(entry.ended, (ticks() & ~std::uint64_t{7}) | static_cast<std::uint64_t>(outcome));
}

}  // namespace reigen::flight
