// The rendezvous key/value store: how ranks that cannot talk yet find each other.
//
// A store is small and slow (a round trip a call); data never travels through it. Keys and values are bytes; a value is
// at most 1 MiB. All kinds pass one contract suite (tests/store/contract.h):
//   make_memory_store()      ranks as threads of one process
//   make_file_store(path)    ranks that share a file system
//   connect_tcp_store(...)   any network (tcp_store.h)
//   make_prefix_store(...)   a part of another store, so that groups do not meet each other's keys
// Thread rule: every function may be called from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reigen/base/deadline.h"

namespace reigen::store {

class Store {
 public:
  virtual ~Store() = default;

  // Stores the value; replaces an older one.
  virtual void set(const std::string& key, const std::string& value) = 0;

  // Waits until the key exists and gives its value. Throws Timeout, naming the key, when the deadline passes.
  virtual std::string get(const std::string& key, const Deadline& deadline) = 0;

  // The value if the key exists now.
  virtual std::optional<std::string> try_get(const std::string& key) = 0;

  // Of each key its value, if it exists now. In one trip over a network for some hundred keys; else a try_get() each.
  virtual std::vector<std::optional<std::string>> try_get_all(const std::vector<std::string>& keys);

  // Adds to a counter in one indivisible step and gives the new value; a missing key counts as 0. The value is stored
  // as decimal text. Throws InvalidArgument if the key holds something else.
  virtual std::int64_t add(const std::string& key, std::int64_t delta) = 0;

  // Sets the value only if it is `expected` now (nullopt: only if the key is missing). Gives the value that the key
  // holds afterwards: `desired` exactly when it was set (or was there already); empty if it is missing.
  virtual std::string compare_and_set(const std::string& key, const std::optional<std::string>& expected,
                                      const std::string& desired) = 0;

  // True if the key existed.
  virtual bool erase(const std::string& key) = 0;
};

std::shared_ptr<Store> make_memory_store();

// The file is created if missing and is not removed. Safe between processes (file locks) on file systems that have
// them.
std::shared_ptr<Store> make_file_store(const std::string& path);

// Keys become prefix + "/" + key.
std::shared_ptr<Store> make_prefix_store(std::shared_ptr<Store> store, std::string prefix);

}  // namespace reigen::store
