#include "reigen/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "base/check.h"
#include "checkpoint/directory.h"
#include "format/input_file.h"
#include "reigen/base/error.h"
#include "reigen/format/hash.h"

namespace reigen::checkpoint {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kAtOnce = std::size_t{1} << 20;  // bytes of a file that are read at once

// A missing file, or a directory in its place, means that the checkpoint is damaged: a DataError. A file that cannot be
// read now may still be intact, so this case is an IoError.
[[noreturn]] void throw_missing(const fs::path& path, const std::error_code& error) {
  const std::string text = fmt::format("{}: {}", path.string(), base::errno_text(error.value()));
  if (error == std::errc::no_such_file_or_directory || error == std::errc::is_a_directory) throw DataError(text);
  throw IoError(text, error == std::errc::permission_denied ? ExitCode::kPermission : ExitCode::kIo);
}

void require_size(const fs::path& path, std::uint64_t expected) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) throw_missing(path, error);
  if (size == expected) return;
  throw DataError(Report{.what = fmt::format("{} is damaged", path.string()),
                         .got = fmt::format("{} bytes", size),
                         .expected = fmt::format("{} bytes", expected)});
}

std::string read_text(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) throw_missing(path, error);
  if (size > kManifestMax) throw DataError(fmt::format("{}: {} bytes are no manifest", path.string(), size));
  const format::InputFile file(path);
  std::string text(static_cast<std::size_t>(size), '\0');
  text.resize(file.read_at(0, std::as_writable_bytes(std::span(text.data(), text.size()))));
  return text;
}

// Detects a manifest that was copied from another checkpoint. The hashes do not show this, because the copy itself is
// undamaged.
void require_step(const Manifest& manifest, const fs::path& path) {
  const std::optional<std::int64_t> named = step_of(path);
  if (!named || *named == manifest.step) return;
  throw DataError(
      Report{.what = fmt::format("{} is damaged, or its directory was renamed", (path / kManifestName).string()),
             .got = fmt::format("step {}", manifest.step),
             .expected = fmt::format("step {}, as the directory says", *named)});
}

// Consecutive bytes of a file that one hash covers: the file's header, or one piece of a tensor.
struct Stretch {
  std::size_t file;
  std::uint64_t begin;
  std::uint64_t bytes;
  std::uint64_t hash;
  std::string holds;
};

std::vector<Stretch> stretches_of(const Manifest& manifest) {
  std::vector<Stretch> result;
  for (std::size_t i = 0; i < manifest.files.size(); ++i) {
    result.push_back({i, 0, manifest.files[i].header_bytes, manifest.files[i].header_hash, "its header"});
  }
  for (const auto& [group, tensors] : manifest.groups) {
    for (const StoredTensor& tensor : tensors) {
      for (const StoredPiece& piece : tensor.pieces) {
        result.push_back({piece.file, piece.at,
                          static_cast<std::uint64_t>(piece.part.count) * format::size_of(tensor.type), piece.hash,
                          fmt::format("{} {}", group, tensor.name)});
      }
    }
  }
  std::sort(result.begin(), result.end(),
            [](const Stretch& a, const Stretch& b) { return std::pair(a.file, a.begin) < std::pair(b.file, b.begin); });
  return result;
}

}  // namespace

struct Checkpoint::Impl {
  fs::path path;
  Manifest manifest;
  std::vector<format::InputFile> files = {};

  // Returns a text that says what is wrong with these bytes; an empty text if nothing is wrong.
  std::string damage_of(const Stretch& stretch) const {
    const format::InputFile& file = files[stretch.file];
    std::vector<std::byte> buffer(static_cast<std::size_t>(std::min<std::uint64_t>(stretch.bytes, kAtOnce)));
    format::Hash64 hash;
    for (std::uint64_t done = 0; done < stretch.bytes;) {
      const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(stretch.bytes - done, kAtOnce));
      const std::size_t got = file.read_at(stretch.begin + done, std::span(buffer.data(), wanted));
      hash.update(buffer.data(), got);
      if (got < wanted) break;
      done += got;
    }
    if (hash.value() == stretch.hash) return {};
    return to_string(Report{.what = fmt::format("{} is damaged: bytes {} to {}, {}", file.path(), stretch.begin,
                                                stretch.begin + stretch.bytes, stretch.holds),
                            .got = "hash " + format::hash_text(hash.value()),
                            .expected = format::hash_text(stretch.hash)});
  }
};

Checkpoint::Checkpoint(fs::path path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    if (error && error != std::errc::no_such_file_or_directory) throw_missing(path, error);
    throw IoError(Report{.what = fmt::format("there is no checkpoint {}", path.string()),
                         .fix = "give a directory that save() wrote"},
                  ExitCode::kInputMissing);
  }
  const fs::path manifest = path / kManifestName;
  impl_ = std::make_unique<Impl>(Impl{std::move(path), from_text(read_text(manifest), manifest.string())});
  require_step(impl_->manifest, impl_->path);
  for (const StoredFile& file : impl_->manifest.files) {
    require_size(impl_->path / file.name, file.bytes);
    impl_->files.emplace_back(impl_->path / file.name);
  }
  check_coverage(impl_->manifest, manifest.string());
}
Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;

const fs::path& Checkpoint::path() const { return impl_->path; }
const Manifest& Checkpoint::manifest() const { return impl_->manifest; }

void Checkpoint::verify(int share, int shares) const {
  const std::vector<Stretch> stretches = stretches_of(impl_->manifest);
  const std::uint64_t all = impl_->manifest.bytes();
  const std::uint64_t begin = all / static_cast<std::uint64_t>(shares) * static_cast<std::uint64_t>(share);
  const std::uint64_t end = share + 1 == shares ? UINT64_MAX : begin + all / static_cast<std::uint64_t>(shares);
  std::uint64_t at = 0;
  for (const Stretch& stretch : stretches) {
    const bool is_mine = at >= begin && at < end;
    at += stretch.bytes;
    const std::string damaged = is_mine ? impl_->damage_of(stretch) : std::string();
    if (!damaged.empty()) throw DataError(damaged);
  }
}

std::vector<std::string> Checkpoint::damage() const {
  std::vector<std::string> result;
  for (const Stretch& stretch : stretches_of(impl_->manifest)) {
    std::string damaged = impl_->damage_of(stretch);
    if (!damaged.empty()) result.push_back(std::move(damaged));
  }
  return result;
}

void Checkpoint::read(std::string_view group, const Target& target) const {
  layout::check_part(target.name, target.shape, target.part);
  const StoredTensor* stored = impl_->manifest.find(group, target.name);
  const auto refuse = [&](const std::string& got) {
    throw DataError(Report{.what = fmt::format("{}: {} {} does not fit", impl_->path.string(), group, target.name),
                           .got = got,
                           .expected = format::describe(target.type, target.shape),
                           .fix = "load a checkpoint of the same model and optimizer"});
  };
  if (stored == nullptr) return refuse("no tensor of that name");
  if (stored->type != target.type || stored->shape != target.shape) {
    return refuse(format::describe(stored->type, stored->shape));
  }
  const std::size_t size = format::size_of(target.type);
  REIGEN_CHECK(target.bytes.size() == static_cast<std::size_t>(target.part.count) * size,
               "a part of {} of {} elements is read into {} bytes", target.name, target.part.count,
               target.bytes.size());
  for (const StoredPiece& piece : stored->pieces) {
    const auto read = [&](std::int64_t to, std::int64_t from, std::int64_t count) {
      const auto bytes =
          target.bytes.subspan(static_cast<std::size_t>(to) * size, static_cast<std::size_t>(count) * size);
      const std::uint64_t at = piece.at + static_cast<std::uint64_t>(from) * size;
      const format::InputFile& file = impl_->files[piece.file];
      if (file.read_at(at, bytes) == bytes.size()) return;
      throw DataError(fmt::format("{} ends early, inside {}", file.path(), target.name));
    };
    layout::for_each_common(target.shape, target.part, piece.part, read);
  }
}

Search find_newest(const fs::path& directory) {
  Search search;
  for (const fs::path& path : list(directory)) {
    try {
      Checkpoint checkpoint(path);
      checkpoint.verify();
      search.newest = std::move(checkpoint);
      return search;
    } catch (const DataError& error) {
      search.damaged.emplace_back(error.what());
    } catch (const IoError& error) {
      // Here kInputMissing means that the name in the directory is a broken link. A broken link counts as damage, and
      // so does a checkpoint that cannot be read.
      if (error.exit_code() != ExitCode::kIo && error.exit_code() != ExitCode::kInputMissing) throw;
      search.damaged.emplace_back(error.what());
      search.unreadable.push_back(path);
    }
  }
  return search;
}

}  // namespace reigen::checkpoint
