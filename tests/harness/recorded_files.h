// Makes files as a crash may leave them, from the events that file_layer.cc recorded below one directory.
//
// A crash loses data that no fsync made durable: bytes of files without an fsync, and names (made, renamed, removed) in
// directories without an fsync. The disk chooses which of these are lost, so many states are possible after one event.
// A rename within a directory happens or does not happen, but never half.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace reigen::testing {

class RecordedFiles {
 public:
  struct Event {
    char kind = 0;  // C, M: a name is made; W, T: bytes; F: fsync; R, X: rename; U: a name is removed
    std::uint64_t one = 0;
    std::uint64_t other = 0;
    std::uint64_t number = 0;
    std::string first;
    std::string second;
  };

  // `root`: the inode of the directory, which was empty when the record began.
  RecordedFiles(const std::filesystem::path& log, std::uint64_t root) : root_(root) {
    std::ifstream in(log, std::ios::binary);
    std::uint64_t head[6];
    while (in.read(reinterpret_cast<char*>(head), sizeof(head))) {
      Event event{static_cast<char>(head[0]), head[1], head[2], head[3], std::string(head[4], '\0'),
                  std::string(head[5], '\0')};
      in.read(event.first.data(), static_cast<std::streamsize>(head[4]));
      in.read(event.second.data(), static_cast<std::streamsize>(head[5]));
      if (!in) throw std::runtime_error("a torn record");
      events_.push_back(std::move(event));
    }
  }

  const std::vector<Event>& events() const { return events_; }

  enum class Lost { kNothing, kEverything, kSome };

  // Replays the first `count` events and then a crash. `seed` chooses which of the unsafe data is lost.
  void crash(std::size_t count, Lost lost, std::uint64_t seed, const std::filesystem::path& target) const {
    Disk disk;
    disk.names[root_] = {};
    for (std::size_t i = 0; i < count; ++i) disk.apply(events_[i]);
    std::mt19937_64 random(seed);
    std::filesystem::create_directories(target);
    write(disk, root_, lost, random, target);
  }

 private:
  using Names = std::map<std::string, std::uint64_t>;

  static void rename(Names& names, const Event& e) {
    if (e.kind == 'X') {
      std::swap(names[e.first], names[e.second]);
      return;
    }
    const auto found = names.find(e.first);
    if (found == names.end()) return;  // the event that made the name is lost
    names[e.second] = found->second;
    names.erase(e.first);
  }
  static void change(Names& names, const Event& e) {
    switch (e.kind) {
      case 'C':
      case 'M': names[e.first] = e.other; break;
      case 'U': names.erase(e.first); break;
      default: rename(names, e);
    }
  }

  struct Disk {
    std::map<std::uint64_t, Names> names;  // durable names, by directory
    std::map<std::uint64_t, std::vector<Event>> pending;
    std::map<std::uint64_t, std::string> bytes;    // contents as the program sees them
    std::map<std::uint64_t, std::string> durable;  // contents as the disk has them

    void apply(const Event& e) {
      switch (e.kind) {
        case 'W': {
          std::string& file = bytes[e.one];
          if (file.size() < e.number + e.first.size()) file.resize(e.number + e.first.size());
          file.replace(e.number, e.first.size(), e.first);
          break;
        }
        case 'T': bytes[e.one].resize(e.number); break;
        case 'F':
          if (names.contains(e.one)) {
            for (const Event& one : pending[e.one]) change(names[e.one], one);
            pending[e.one].clear();
          } else {
            durable[e.one] = bytes[e.one];
          }
          break;
        case 'R':
        case 'X':
          if (e.one != e.other) throw std::runtime_error("a rename between directories");
          pending[e.one].push_back(e);
          break;
        default:
          if (e.kind == 'M') names[e.other] = {};
          if (e.kind == 'C') bytes[e.other] = durable[e.other] = "";  // inode numbers are reused
          pending[e.one].push_back(e);
      }
    }
  };

  static void write(const Disk& disk, std::uint64_t directory, Lost lost, std::mt19937_64& random,
                    const std::filesystem::path& target) {
    Names names = disk.names.at(directory);
    const auto pending = disk.pending.find(directory);
    if (pending != disk.pending.end() && lost != Lost::kEverything) {
      for (const Event& one : pending->second) {
        if (lost == Lost::kNothing || random() % 2 == 0) change(names, one);
      }
    }
    for (const auto& [name, inode] : names) {
      if (disk.names.contains(inode)) {
        std::filesystem::create_directories(target / name);
        write(disk, inode, lost, random, target / name);
        continue;
      }
      const auto seen = disk.bytes.find(inode);
      const auto kept = disk.durable.find(inode);
      std::string content = kept == disk.durable.end() ? "" : kept->second;
      if (seen != disk.bytes.end() && lost != Lost::kEverything) {
        const std::uint64_t choice = lost == Lost::kNothing ? 1 : random() % 3;
        if (choice == 1) content = seen->second;
        if (choice == 2 && content != seen->second) {  // the disk has the new size, but not all of the bytes
          const std::size_t there = seen->second.empty() ? 0 : random() % seen->second.size();
          content = seen->second.substr(0, there) + std::string(seen->second.size() - there, '\0');
        }
      }
      std::ofstream(target / name, std::ios::binary) << content;
    }
  }

  std::uint64_t root_;
  std::vector<Event> events_;
};

}  // namespace reigen::testing
