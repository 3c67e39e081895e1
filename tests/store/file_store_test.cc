#include <fcntl.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "reigen/base/unique_fd.h"
#include "store/contract.h"

namespace reigen::store {
namespace {

namespace fs = std::filesystem;

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "reigen-store-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw IoError("mkdtemp failed");
    path_ = name;
  }
  ~TemporaryFolder() { fs::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

class FileStorage final : public Storage {
 public:
  std::shared_ptr<Store> open() override { return make_file_store(folder_.file("store")); }

 private:
  TemporaryFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(File, StoreContract, plain_and_prefixed<FileStorage>(), case_name);

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

class FileStore : public testing::Test {
 protected:
  TemporaryFolder folder_;
  const std::string path_ = folder_.file("store");
};

TEST_F(FileStore, OutlivesItsProcess) {
  make_file_store(path_)->set("k", "v");
  EXPECT_EQ(make_file_store(path_)->try_get("k"), "v");
}

// A killed writer can leave a file of any length. Readers must see the state before the write, and the next writer must
// go on from there.
TEST_F(FileStore, TornTailIsIgnoredAndCutOff) {
  make_file_store(path_)->set("first", "one");
  const std::string before = content(path_);
  make_file_store(path_)->set("second", std::string(100, 'x'));
  const std::string after = content(path_);
  ASSERT_GT(after.size(), before.size() + 100);
  for (std::size_t size = 0; size < after.size(); ++size) {
    const bool first = size >= before.size();
    write(path_, after.substr(0, size));
    const auto store = make_file_store(path_);  // this also writes: it cuts off the torn tail
    EXPECT_EQ(store->try_get("first").has_value(), first) << size;
    EXPECT_EQ(store->try_get("second"), std::nullopt) << size;
    store->set("third", "three");
    EXPECT_EQ(make_file_store(path_)->try_get("third"), "three") << size;
  }
}

TEST_F(FileStore, ReaderWaitsBeyondATornTail) {
  const auto reader = make_file_store(path_);
  const auto writer = make_file_store(path_);
  writer->set("a", "1");
  EXPECT_EQ(reader->get("a", soon()), "1");
  std::ofstream(path_, std::ios::binary | std::ios::app) << "torn";
  auto value = std::async(std::launch::async, [&] { return reader->get("b", soon()); });
  std::this_thread::sleep_for(20ms);
  writer->set("b", "2");
  EXPECT_EQ(value.get(), "2");
}

TEST_F(FileStore, DamageIsRefusedWithItsPlace) {
  make_file_store(path_)->set("key", "value");
  const std::string good = content(path_);
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x20);
    write(path_, bad);
    EXPECT_THROW(make_file_store(path_), DataError) << at;
    EXPECT_EQ(content(path_), bad) << "a file that is not understood stays as it is";
  }
  EXPECT_THAT(message_of([&] { make_file_store(path_); }),
              testing::AllOf(testing::HasSubstr(path_), testing::HasSubstr("byte 16"), testing::HasSubstr("fix:")));
}

TEST_F(FileStore, AnotherKindOfFileIsNotTouched) {
  const std::string text = "somebody's thesis";
  write(path_, text);
  EXPECT_THROW(make_file_store(path_), DataError);
  EXPECT_EQ(content(path_), text);
}

TEST_F(FileStore, RemovedFileIsSaid) {
  const auto store = make_file_store(path_);
  fs::remove(path_);
  EXPECT_THAT(message_of([&] { store->set("k", "v"); }), testing::HasSubstr("removed"));
  EXPECT_THROW(store->get("k", soon()), IoError);
}

TEST_F(FileStore, BadPathsAreNamed) {
  const std::string missing = folder_.file("missing/store");
  try {
    make_file_store(missing);
    FAIL() << "no error";
  } catch (const IoError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kInputMissing);
    EXPECT_THAT(error.what(), testing::HasSubstr(missing));
  }
  EXPECT_THROW(make_file_store(folder_.file("")), IoError);
}

TEST_F(FileStore, GetKeepsItsDeadlineWhileSomebodyHoldsTheLock) {
  const auto store = make_file_store(path_);
  const UniqueFd fd(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(fd.get(), LOCK_EX), 0);
  EXPECT_THROW(store->get("k", Deadline::after(50ms)), Timeout);
  ASSERT_EQ(::flock(fd.get(), LOCK_UN), 0);
  store->set("k", "v");
  EXPECT_EQ(store->get("k", now()), "v");
}

// Starts this program again as another process, which runs only the test below.
pid_t start_worker(const std::string& path) {
  const std::string self = fs::read_symlink("/proc/self/exe").string();
  const std::string variable = "REIGEN_TEST_STORE_FILE=" + path;
  std::vector<std::string> words = {self, "--gtest_filter=FileStoreWorker.*"};
  std::vector<char*> arguments = {words[0].data(), words[1].data(), nullptr};
  std::vector<char*> environment = {const_cast<char*>(variable.c_str()), nullptr};
  pid_t pid = -1;
  if (::posix_spawn(&pid, self.c_str(), nullptr, nullptr, arguments.data(), environment.data()) != 0) return -1;
  return pid;
}

constexpr int kWorkerAdds = 100;

TEST(FileStoreWorker, AddsUntilItIsKilledOrDone) {
  const char* path = std::getenv("REIGEN_TEST_STORE_FILE");
  if (path == nullptr) GTEST_SKIP() << "only the other process of the tests below";
  const auto store = make_file_store(path);
  const bool endless = store->get("mode", soon()) == "endless";
  store->add("ready", 1);
  for (int i = 0; endless || i < kWorkerAdds; ++i) store->add("sum", 1);
}

TEST_F(FileStore, ProcessesCountTogether) {
  const auto store = make_file_store(path_);
  std::vector<pid_t> workers = {start_worker(path_), start_worker(path_), start_worker(path_)};
  store->set("mode", "counted");
  for (int i = 0; i < kWorkerAdds; ++i) store->add("sum", 1);
  for (const pid_t worker : workers) {
    int status = -1;
    ASSERT_EQ(::waitpid(worker, &status, 0), worker);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(store->get("sum", now()), std::to_string(4 * kWorkerAdds));
}

TEST_F(FileStore, KilledWritersDoNotHarmIt) {
  const auto store = make_file_store(path_);
  store->set("mode", "endless");
  std::int64_t last = 0;
  for (int round = 1; round <= 5; ++round) {
    const pid_t worker = start_worker(path_);
    ASSERT_GT(worker, 0);
    const auto limit = soon();
    while (store->add("ready", 0) < round && !limit.expired()) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(std::chrono::milliseconds(3 * round));
    ASSERT_EQ(::kill(worker, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(worker, &status, 0), worker);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the worker ended by itself: " << status;
    const std::int64_t sum = store->add("sum", 1);
    EXPECT_GT(sum, last);
    last = sum;
  }
}

}  // namespace
}  // namespace reigen::store
