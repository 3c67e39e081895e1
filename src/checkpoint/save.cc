#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "checkpoint/directory.h"
#include "checkpoint/write.h"
#include "comm/agree.h"
#include "reigen/checkpoint/checkpoint.h"
#include "reigen/format/atomic_file.h"
#include "reigen/format/safetensors.h"

namespace reigen::checkpoint {

namespace fs = std::filesystem;

namespace {

// Turns errors of writing a checkpoint into IoErrors, so that a run can go on without the checkpoint. InvalidArgument,
// a mistake of the caller, is not changed.
template <class Body>
std::string as_io_error(const Body& body) {
  try {
    return body();
  } catch (const InvalidArgument&) {
    throw;
  } catch (const IoError&) {
    throw;
  } catch (const DataError& error) {
    throw IoError(error.what());
  } catch (const std::bad_alloc&) {
    throw IoError("no memory for a checkpoint", ExitCode::kOsResource);
  } catch (const Error& error) {
    throw IoError(error.what(), error.exit_code());
  } catch (const std::exception& error) {
    throw IoError(error.what());
  }
}

void check_pieces(const Contents& contents) {
  for (const auto& [group, pieces] : contents) {
    for (const Piece& piece : pieces) {
      layout::check_part(piece.name, piece.shape, piece.part);
      const auto bytes = static_cast<std::uint64_t>(piece.part.count) * format::size_of(piece.type);
      REIGEN_CHECK(piece.bytes.size() == bytes, "a part of {} {} has {} bytes, not {}", group, piece.name,
                   piece.bytes.size(), bytes);
    }
  }
}

// The shape that a part has in the file: the box's shape if the part is a whole box, else one dimension of `count`
// elements.
Shape shape_in_file(const Part& part) {
  const bool is_box = part.first == 0 && part.count == layout::numel(part.shape);
  return is_box ? part.shape : Shape{part.count};
}

// Writes one file, with this rank's parts of one group of tensors. The first part of a tensor has the tensor's name;
// the i-th part (i > 1) gets "//i" after the name.
void write_group(const fs::path& path, const std::string& group, const std::vector<Piece>& pieces, Manifest& manifest) {
  std::map<std::string, const Piece*> by_name;
  std::vector<format::TensorEntry> entries;
  for (const Piece& piece : pieces) {
    std::string name = piece.name;
    for (int i = 2; by_name.contains(name); ++i) name = fmt::format("{}//{}", piece.name, i);
    by_name[name] = &piece;
    entries.push_back({.name = name, .type = piece.type, .shape = shape_in_file(piece.part)});
  }
  format::SafetensorsWriter writer(path, std::move(entries), {{"format", "pt"}});
  for (const format::TensorEntry& entry : writer.tensors()) writer.write(by_name.at(entry.name)->bytes);
  const auto written = writer.commit();
  const std::size_t file = manifest.files.size();
  manifest.files.push_back({.name = path.filename().string(),
                            .bytes = written.file.bytes,
                            .header_bytes = written.header_bytes,
                            .header_hash = written.header_hash});
  std::map<std::string_view, std::size_t> places;
  Group& tensors = manifest.groups[group];
  for (std::size_t i = 0; i < writer.tensors().size(); ++i) {
    const format::TensorEntry& entry = writer.tensors()[i];
    const Piece& piece = *by_name.at(entry.name);
    const auto [place, is_new] = places.emplace(piece.name, tensors.size());
    if (is_new) tensors.push_back({.name = piece.name, .type = piece.type, .shape = piece.shape});
    tensors[place->second].pieces.push_back(
        {.part = piece.part, .file = file, .at = entry.offset, .hash = written.hashes[i]});
  }
}

// Adds to `manifest` the files and pieces that rank `rank` has written.
void merge(Manifest& manifest, const std::string& text, int rank) {
  const Manifest more = from_text(text, fmt::format("what rank {} wrote", rank));
  const std::size_t first = manifest.files.size();
  manifest.files.insert(manifest.files.end(), more.files.begin(), more.files.end());
  for (const auto& [group, tensors] : more.groups) {
    std::map<std::string_view, StoredTensor*> known;
    Group& all = manifest.groups[group];
    all.reserve(all.size() + tensors.size());
    for (StoredTensor& tensor : all) known[tensor.name] = &tensor;
    for (const StoredTensor& tensor : tensors) {
      const auto [place, is_new] = known.emplace(tensor.name, nullptr);
      if (is_new) place->second = &all.emplace_back(StoredTensor{tensor.name, tensor.type, tensor.shape});
      StoredTensor& whole = *place->second;
      REIGEN_CHECK(whole.type == tensor.type && whole.shape == tensor.shape,
                   "ranks give {} {} with different shapes or types (rank {})", group, tensor.name, rank);
      for (StoredPiece piece : tensor.pieces) {
        piece.file += first;
        whole.pieces.push_back(std::move(piece));
      }
    }
  }
}

// Rank 0 calls this. If rank 0 does not find another rank's files, the other rank has written to a different directory
// of the same name.
void check_files_are_here(const fs::path& hidden, const Manifest& manifest) {
  for (const StoredFile& file : manifest.files) {
    std::error_code error;
    if (fs::file_size(hidden / file.name, error) == file.bytes && !error) continue;
    throw IoError(Report{.what = fmt::format("rank 0 does not find {} in {}", file.name, hidden.string()),
                         .got = error ? base::errno_text(error.value()) : "another size",
                         .expected = fmt::format("{} bytes, as its writer left it", file.bytes),
                         .fix = "give all ranks one directory, on a file system that they share"});
  }
}

}  // namespace

std::uint64_t room_for(const Contents& contents) {
  constexpr std::uint64_t kOfFile = 32 << 10;  // for blocks that are not full, and for names in folders
  constexpr std::uint64_t kOfPiece = 512;      // for its entries in the header and the manifest, without its name
  std::uint64_t bytes = 0;
  for (const auto& [group, pieces] : contents) {
    if (!pieces.empty()) bytes += kOfFile;
    for (const Piece& piece : pieces) {
      bytes += piece.bytes.size() + piece.bytes.size() / 256 + kOfPiece + 2 * piece.name.size();
    }
  }
  return bytes;
}

std::string write_own(const fs::path& hidden, const Contents& contents, const std::map<std::string, int>& givers,
                      int rank, int ranks) {
  Manifest manifest;
  for (const auto& [group, pieces] : contents) {
    if (pieces.empty()) continue;
    const std::string name = givers.at(group) > 1
                                 ? fmt::format("{}_rank_{:05}_of_{:05}.safetensors", group, rank, ranks)
                                 : group + ".safetensors";
    write_group(hidden / name, group, pieces, manifest);
  }
  return to_text(manifest);
}

fs::path finish(const fs::path& directory, const Manifest& manifest, const std::vector<std::string>& texts,
                std::int64_t keep) {
  const fs::path hidden = hidden_path_of(directory, manifest.step);
  Manifest all = manifest;
  all.version = REIGEN_VERSION;
  all.files.clear();
  all.groups.clear();
  for (std::size_t rank = 0; rank < texts.size(); ++rank) merge(all, texts[rank], static_cast<int>(rank));
  try {
    check_coverage(all, "the checkpoint");
  } catch (const DataError& error) {
    throw InvalidArgument(error.what());
  }
  check_files_are_here(hidden, all);
  format::write_file_atomically(hidden / kManifestName, std::string_view(to_text(all)));
  sync_directory(hidden);
  fs::path target = directory / name_of(manifest.step);
  publish(hidden, target);
  try {
    retain(directory, keep, target);
  } catch (const std::exception& error) {
    base::log_warning("an old checkpoint stays: {}", error.what());  // not an error: the new checkpoint is whole
  }
  return target;
}

namespace {

// Returns a text for all ranks with two facts: the disk space that this rank's parts need, and the names of the groups
// of tensors that these parts belong to ("model").
std::string announce(const Contents& contents) {
  check_pieces(contents);
  std::string text = std::to_string(room_for(contents));
  for (const auto& [group, pieces] : contents) {
    const bool plain =
        !group.empty() && group[0] != '.' && group.find_first_of(std::string("/\n\0", 3)) == std::string::npos;
    REIGEN_CHECK(plain, "\"{}\" is no name of a group of tensors: it becomes part of a file's name", group);
    if (!pieces.empty()) text += "\n" + group;
  }
  return text;
}

}  // namespace

fs::path save(const fs::path& directory, const Manifest& manifest, const Contents& contents, std::int64_t keep,
              Communicator world) {
  const fs::path hidden = hidden_path_of(directory, manifest.step);
  std::uint64_t bytes = 0;
  std::map<std::string, int> givers;
  const std::string what = "a checkpoint";
  for (const std::string& text :
       comm::attempt_all(world, what, [&] { return as_io_error([&] { return announce(contents); }); })) {
    std::size_t at = text.find('\n');
    bytes += std::stoull(text.substr(0, at));
    while (at != std::string::npos) {
      const std::size_t end = text.find('\n', at + 1);
      givers[text.substr(at + 1, end == std::string::npos ? end : end - at - 1)] += 1;
      at = end;
    }
  }
  Unfinished unfinished;
  comm::attempt_first(world, what, [&] {
    return as_io_error([&] {
      make_directories(directory);
      remove_unfinished(directory);
      require_room(directory, bytes);
      make_directories(hidden);
      unfinished.path = hidden;
      return std::string();
    });
  });
  const auto texts = comm::attempt_all(world, what, [&] {
    return as_io_error([&] { return write_own(hidden, contents, givers, world.rank(), world.size()); });
  });
  return comm::attempt_first(world, what, [&] {
    return as_io_error([&] {
      std::string path = finish(directory, manifest, texts, keep).string();
      drop_set_aside(directory, manifest.step);
      return path;
    });
  });
}

}  // namespace reigen::checkpoint
