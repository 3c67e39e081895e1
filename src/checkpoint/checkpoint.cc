#include "reigen/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "reigen/base/unique_fd.h"
#include "reigen/format/atomic_file.h"
#include "reigen/format/hash.h"

namespace reigen::checkpoint {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr const char* kModel = "model.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kManifest = "manifest.json";
constexpr const char* kPrefix = "step_";
constexpr const char* kHidden = ".unfinished_";
constexpr std::int64_t kFormatVersion = 1;
constexpr std::uintmax_t kManifestMax = 16 << 20;

void sync_directory(const fs::path& path) {
  const UniqueFd fd(REIGEN_SYSCALL(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  REIGEN_SYSCALL(::fsync(fd.get()));
}

void make_directories(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    throw IoError(fmt::format("cannot create {}: {}", path.string(), base::errno_text(error.value())),
                  base::exit_code_of_errno(error.value()));
  }
}

// Names of files need not be UTF-8, JSON must be.
std::string dump(const json& value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

json file_entry(const format::FileHash& hash) {
  return {{"bytes", hash.bytes}, {"xxh64", format::hash_text(hash.hash)}};
}

std::string seal(const json& content) {
  const std::string text = dump(content, -1);
  return dump({{"content", content}, {"xxh64", format::hash_text(format::hash64(text.data(), text.size()))}}, 2) + '\n';
}

json to_json(const Manifest& m) {
  return {{"format", "reigen checkpoint"},
          {"format_version", kFormatVersion},
          {"version", REIGEN_VERSION},
          {"step", m.step},
          {"epoch", m.epoch},
          {"position", m.position},
          {"global_batch", m.global_batch},
          {"seed", m.seed},
          {"world_size", m.world_size},
          {"optimizer_steps", m.optimizer_steps},
          {"options", m.options}};
}

Manifest from_json(const json& content) {
  Manifest m;
  content.at("step").get_to(m.step);
  content.at("epoch").get_to(m.epoch);
  content.at("position").get_to(m.position);
  content.at("global_batch").get_to(m.global_batch);
  content.at("seed").get_to(m.seed);
  content.at("world_size").get_to(m.world_size);
  content.at("optimizer_steps").get_to(m.optimizer_steps);
  content.at("options").get_to(m.options);
  content.at("version").get_to(m.version);
  return m;
}

// A file that is not there is damage; one that cannot be looked at may be as good as ever.
[[noreturn]] void throw_missing(const fs::path& path, const std::error_code& error) {
  const std::string text = fmt::format("{}: {}", path.string(), base::errno_text(error.value()));
  if (error == std::errc::no_such_file_or_directory) throw DataError(text);
  throw IoError(text, error == std::errc::permission_denied ? ExitCode::kPermission : ExitCode::kIo);
}

json read_manifest(const fs::path& directory) {
  const fs::path path = directory / kManifest;
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) throw_missing(path, error);
  if (size > kManifestMax) throw DataError(fmt::format("{}: {} bytes are no manifest", path.string(), size));
  std::ifstream in(path, std::ios::binary);
  if (!in) throw_missing(path, std::error_code(errno, std::generic_category()));
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const json sealed = json::parse(text, nullptr, false);
  const auto content = sealed.is_object() ? sealed.find("content") : sealed.end();
  if (!sealed.is_object() || content == sealed.end() || !content->is_object()) {
    throw DataError(fmt::format("{} is damaged: not the JSON of a manifest", path.string()));
  }
  const std::string plain = dump(*content, -1);
  if (sealed.value("xxh64", json()) != format::hash_text(format::hash64(plain.data(), plain.size()))) {
    throw DataError(fmt::format("{} is damaged: its hash differs", path.string()));
  }
  const auto version = content->value("format_version", std::int64_t{0});
  if (version > kFormatVersion) {
    throw Error(ExitCode::kJobMismatch, Report{.what = fmt::format("{} was written by a newer version", path.string()),
                                               .got = fmt::format("format version {}", version),
                                               .expected = fmt::format("at most {}", kFormatVersion),
                                               .fix = "update this program"});
  }
  return *content;
}

void verify_file(const fs::path& path, const json& entry) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) throw_missing(path, error);
  const auto expected = entry.at("bytes").get<std::uint64_t>();
  const auto differs = [&](const std::string& got, const std::string& wanted) {
    return DataError(Report{.what = fmt::format("{} is damaged", path.string()), .got = got, .expected = wanted});
  };
  if (size != expected) throw differs(fmt::format("{} bytes", size), fmt::format("{} bytes", expected));
  const std::string hash = format::hash_text(format::hash_file(path).hash);
  if (hash != entry.at("xxh64")) throw differs("hash " + hash, entry.at("xxh64").get<std::string>());
}

std::optional<std::int64_t> step_of(const fs::path& path) {
  const std::string name = path.filename().string();
  if (name.rfind(kPrefix, 0) != 0) return std::nullopt;
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto result = std::from_chars(name.data() + std::string(kPrefix).size(), end, step);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return step;
}

// Newest first.
std::vector<fs::path> list(const fs::path& directory) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    if (const auto step = step_of(entry->path())) found.emplace_back(*step, entry->path());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw IoError(fmt::format("cannot list {}: {}", directory.string(), base::errno_text(error.value())),
                  base::exit_code_of_errno(error.value()));
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<fs::path> paths;
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

bool looks_whole(const fs::path& path) {
  try {
    const json content = read_manifest(path);
    for (const char* name : {kModel, kOptimizer}) {
      if (fs::file_size(path / name) != content.at("files").at(name).at("bytes").get<std::uint64_t>()) return false;
    }
    return true;
  } catch (const Error&) {
    return false;
  } catch (const std::exception&) {
    return false;  // a file is missing, or the manifest lacks a key
  }
}

// Renamed first, so that nobody takes one that is half deleted for a damaged one.
void remove_checkpoint(const fs::path& path) {
  const fs::path hidden = path.parent_path() / (kHidden + path.filename().string());
  std::error_code ignored;
  fs::remove_all(hidden, ignored);
  fs::rename(path, hidden, ignored);
  fs::remove_all(hidden, ignored);
}

void retain(const fs::path& directory, std::int64_t keep) {
  std::int64_t whole = 0;
  for (const fs::path& path : list(directory)) {
    if (whole >= keep) {
      remove_checkpoint(path);
    } else if (looks_whole(path)) {
      ++whole;
    }
  }
}

void publish(const fs::path& hidden, const fs::path& target) {
  if (::rename(hidden.c_str(), target.c_str()) != 0) {
    const int error = errno;
    if (error != ENOTEMPTY && error != EEXIST) base::throw_system_error("rename()", error, __FILE__, __LINE__);
    // Both names change hands at once: there is a checkpoint of this step at every moment.
    if (::renameat2(AT_FDCWD, hidden.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) != 0) {
      remove_checkpoint(target);
      REIGEN_SYSCALL(::rename(hidden.c_str(), target.c_str()));
    }
    std::error_code ignored;
    fs::remove_all(hidden, ignored);
  }
  sync_directory(target.parent_path());
}

void remove_unfinished(const fs::path& directory) {
  std::error_code ignored;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    if (entry.path().filename().string().starts_with(std::string(kHidden) + kPrefix)) found.push_back(entry.path());
  }
  for (const fs::path& path : found) fs::remove_all(path, ignored);
}

// A disk that is full shall not stay full because of a checkpoint that did not fit.
struct Unfinished {
  fs::path path;

  ~Unfinished() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

}  // namespace

fs::path save(const fs::path& directory, const Manifest& manifest, const Contents& contents, std::int64_t keep) {
  make_directories(directory);
  const std::string name = fmt::format("{}{:08}", kPrefix, manifest.step);
  const fs::path hidden = directory / (kHidden + name);
  remove_unfinished(directory);  // left by writers that were killed
  const Unfinished unfinished{hidden};
  make_directories(hidden);
  json content = to_json(manifest);
  content["files"][kModel] = file_entry(write_tensors(hidden / kModel, contents.model));
  content["files"][kOptimizer] = file_entry(write_tensors(hidden / kOptimizer, contents.optimizer));
  format::write_file_atomically(hidden / kManifest, std::string_view(seal(content)));
  sync_directory(hidden);
  const fs::path target = directory / name;
  publish(hidden, target);
  retain(directory, keep);
  return target;
}

void drop_after(const fs::path& directory, std::int64_t step) {
  for (const fs::path& path : list(directory)) {
    if (step_of(path).value_or(step) > step) remove_checkpoint(path);
  }
}

Found open(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    throw IoError(Report{.what = fmt::format("there is no checkpoint {}", path.string()),
                         .fix = "give a directory that save() wrote"},
                  ExitCode::kInputMissing);
  }
  const json content = read_manifest(path);
  try {
    for (const char* name : {kModel, kOptimizer}) verify_file(path / name, content.at("files").at(name));
    return {path, from_json(content)};
  } catch (const json::exception& problem) {
    throw DataError(fmt::format("{} is damaged: {}", (path / kManifest).string(), problem.what()));
  }
}

Search find_newest(const fs::path& directory) {
  Search search;
  for (const fs::path& path : list(directory)) {
    try {
      search.newest = open(path);
      return search;
    } catch (const DataError& error) {
      search.damaged.emplace_back(error.what());
    }
  }
  return search;
}

std::vector<NamedTensor> read_optimizer(const Found& found) { return read_tensors(found.path / kOptimizer); }

void read_model_into(const Found& found, const std::vector<NamedTensor>& model) {
  read_tensors_into(found.path / kModel, model);
}

}  // namespace reigen::checkpoint
