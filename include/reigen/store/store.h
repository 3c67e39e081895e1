// The rendezvous store for keys and values, through which ranks find each other before they can communicate.
//
// A store is small and slow (one round trip per call); it never carries training data. Keys and values are bytes; a
// value is at most 1 MiB. All kinds of store pass the same contract tests (tests/store/contract.h):
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

  // Stores the value, and replaces an older value of the key.
  virtual void set(const std::string& key, const std::string& value) = 0;

  // Waits until the key exists and returns its value. Throws Timeout, naming the key, when the deadline passes first.
  virtual std::string get(const std::string& key, const Deadline& deadline) = 0;

  // Returns the value if the key exists now, otherwise nullopt.
  virtual std::optional<std::string> try_get(const std::string& key) = 0;

  // Returns for each key its value if the key exists now, otherwise nullopt. The TCP store reads several hundred keys
  // in one round trip; the other stores call try_get() for each key.
  virtual std::vector<std::optional<std::string>> try_get_all(const std::vector<std::string>& keys);

  // Adds `delta` to the number that the key holds, atomically, and returns the sum. A missing key counts as 0. The
  // value is stored as decimal text. Throws InvalidArgument if the key holds no number.
  virtual std::int64_t add(const std::string& key, std::int64_t delta) = 0;

  // Sets the key to `desired` only if the key holds `expected` now; nullopt means that the key must be missing. Returns
  // the value that the key holds afterwards, or an empty text if the key is missing. The result is `desired` if the key
  // was set, or if the key held `desired` before.
  virtual std::string compare_and_set(const std::string& key, const std::optional<std::string>& expected,
                                      const std::string& desired) = 0;

  // Removes the key. Returns true if the key existed.
  virtual bool erase(const std::string& key) = 0;
};

std::shared_ptr<Store> make_memory_store();

// Creates the file if it is missing, and never removes it. Several processes may use the file at the same time,
// provided that the file system supports file locks.
std::shared_ptr<Store> make_file_store(const std::string& path);

// Returns a store that keeps the value of each key in `store`, under prefix + "/" + key.
std::shared_ptr<Store> make_prefix_store(std::shared_ptr<Store> store, std::string prefix);

}  // namespace reigen::store
