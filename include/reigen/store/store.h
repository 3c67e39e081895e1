// The rendezvous key/value store, through which ranks that cannot communicate yet find each other.
//
// A store is small and slow (one round trip per call); training data never travels through it. Keys and values are
// bytes; a value is at most 1 MiB. All kinds of store pass the same contract tests (tests/store/contract.h):
//   make_memory_store()      ranks as threads of one process
//   make_file_store(path)    ranks that share a file system
//   connect_tcp_store(...)   any network (tcp_store.h)
//   make_prefix_store(...)   a part of another store, so that two groups never use the same keys
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

  // Stores the value and replaces an older one.
  virtual void set(const std::string& key, const std::string& value) = 0;

  // Waits until the key exists and gives its value. Throws Timeout, naming the key, when the deadline passes first.
  virtual std::string get(const std::string& key, const Deadline& deadline) = 0;

  // The value if the key exists now, else nullopt.
  virtual std::optional<std::string> try_get(const std::string& key) = 0;

  // The value of each key that exists now, else nullopt. The TCP store gets some hundred keys in one round trip; the
  // other stores call try_get() for each key.
  virtual std::vector<std::optional<std::string>> try_get_all(const std::vector<std::string>& keys);

  // Adds to a counter atomically and gives the new value; a missing key counts as 0. The value is stored as decimal
  // text. Throws InvalidArgument if the key holds something else.
  virtual std::int64_t add(const std::string& key, std::int64_t delta) = 0;

  // Sets the key to `desired` only if it holds `expected` now (nullopt: only if the key is missing). Gives the value
  // that the key holds afterwards, empty if the key is missing: it is `desired` exactly if the key was set or held it
  // already.
  virtual std::string compare_and_set(const std::string& key, const std::optional<std::string>& expected,
                                      const std::string& desired) = 0;

  // Removes the key. True if it existed.
  virtual bool erase(const std::string& key) = 0;
};

std::shared_ptr<Store> make_memory_store();

// The file is created if it is missing and is never removed. Several processes may use it (it is guarded by file locks)
// if the file system supports locks.
std::shared_ptr<Store> make_file_store(const std::string& path);

// Keys become prefix + "/" + key.
std::shared_ptr<Store> make_prefix_store(std::shared_ptr<Store> store, std::string prefix);

}  // namespace reigen::store
