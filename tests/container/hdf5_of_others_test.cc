// HDF5 files that others wrote, made here by the library: what they leave out, and types that Reigen does not write.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "container/hdf5/library.h"
#include "container/samples.h"
#include "format/temporary_folder.h"
#include "reigen/base/error.h"
#include "reigen/container/container.h"

namespace reigen::container {
namespace {

using ::testing::ElementsAre;
using tests::TemporaryFolder;
namespace fs = std::filesystem;

class Hdf5OfOthers : public testing::Test {
 protected:
  Hdf5OfOthers() { file_ = Hdf5Id(H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose); }

  static Hdf5Id creation() { return {H5Pcreate(H5P_DATASET_CREATE), H5Pclose}; }
  Hdf5Id dataset(const char* name, hid_t type, const std::vector<hsize_t>& sizes, const Hdf5Id& how) const {
    const Hdf5Id space(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr), H5Sclose);
    Hdf5Id made(H5Dcreate2(file_.get(), name, type, space.get(), H5P_DEFAULT, how.get(), H5P_DEFAULT), H5Dclose);
    EXPECT_TRUE(made);
    return made;
  }
  static void write(const Hdf5Id& dataset, hid_t type, const void* data) {
    ASSERT_GE(H5Dwrite(dataset.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data), 0);
  }
  std::unique_ptr<Reader> opened() {
    file_ = Hdf5Id();
    return open(path_);
  }

  TemporaryFolder folder_;
  fs::path path_ = folder_.path() / "a.h5";
  Hdf5Id file_;
};

template <class Number>
std::vector<Number> numbers_of(const Value& value) {
  std::vector<Number> numbers(value.bytes.size() / sizeof(Number));
  if (!numbers.empty()) std::memcpy(numbers.data(), value.bytes.data(), value.bytes.size());
  return numbers;
}

// h5py gives the fill value for chunks that nobody wrote, as of a dataset that was made larger than its data.
TEST_F(Hdf5OfOthers, ChunksThatWereNeverWrittenHaveTheFillValue) {
  const hsize_t chunk[] = {2, 3};
  const Hdf5Id chunked = creation();
  H5Pset_chunk(chunked.get(), 2, chunk);
  const Hdf5Id filled = creation();
  H5Pset_chunk(filled.get(), 2, chunk);
  const std::int16_t fill = -7;
  H5Pset_fill_value(filled.get(), H5T_NATIVE_INT16, &fill);
  const Hdf5Id lists = creation();
  H5Pset_chunk(lists.get(), 1, chunk);
  const Hdf5Id list(H5Tvlen_create(H5T_STD_U8LE), H5Tclose);
  {
    const Hdf5Id zeros = dataset("zeros", H5T_STD_I16LE, {6, 3}, chunked);
    const Hdf5Id sevens = dataset("sevens", H5T_STD_I16LE, {6, 3}, filled);
    const Hdf5Id empty = dataset("empty", list.get(), {6}, lists);
    // Only the chunk of rows 2 and 3 is written.
    const hsize_t start[] = {2, 0};
    const hsize_t count[] = {2, 3};
    const std::int16_t values[] = {1, 2, 3, 4, 5, 6};
    const Hdf5Id memory(H5Screate_simple(2, count, nullptr), H5Sclose);
    for (const Hdf5Id* one : {&zeros, &sevens}) {
      const Hdf5Id space(H5Dget_space(one->get()), H5Sclose);
      H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start, nullptr, count, nullptr);
      ASSERT_GE(H5Dwrite(one->get(), H5T_NATIVE_INT16, memory.get(), space.get(), H5P_DEFAULT, values), 0);
    }
  }
  const auto reader = opened();
  ASSERT_EQ(reader->fields().size(), 3U);  // in the order of names
  EXPECT_EQ(reader->fields()[0].name, "empty");
  for (const int row : {0, 1, 4, 5}) {
    const Record record = reader->read(row);
    EXPECT_TRUE(record.at(0).bytes.empty());
    EXPECT_THAT(numbers_of<std::int16_t>(record.at(1)), ElementsAre(-7, -7, -7)) << row;
    EXPECT_THAT(numbers_of<std::int16_t>(record.at(2)), ElementsAre(0, 0, 0)) << row;
  }
  const Record record = reader->read(3);
  EXPECT_THAT(numbers_of<std::int16_t>(record.at(1)), ElementsAre(4, 5, 6));
  EXPECT_THAT(numbers_of<std::int16_t>(record.at(2)), ElementsAre(4, 5, 6));
}

TEST_F(Hdf5OfOthers, AnEnumIsBoolOnlyIfItIsThatOfH5py) {
  const auto enumeration = [](hid_t base, const std::vector<std::pair<std::string, std::int8_t>>& members) {
    Hdf5Id type(H5Tenum_create(base), H5Tclose);
    for (const auto& [name, value] : members) H5Tenum_insert(type.get(), name.c_str(), &value);
    return type;
  };
  const Hdf5Id boolean = enumeration(H5T_STD_I8LE, {{"FALSE", 0}, {"TRUE", 1}});
  const Hdf5Id turned = enumeration(H5T_STD_I8LE, {{"TRUE", 0}, {"FALSE", 1}});
  const Hdf5Id colours = enumeration(H5T_STD_U8LE, {{"RED", 0}, {"GREEN", 1}, {"BLUE", 5}});
  const std::int8_t values[] = {1, 0, 5};
  const Hdf5Id plain = creation();
  write(dataset("a", boolean.get(), {3}, plain), boolean.get(), values);
  write(dataset("b", turned.get(), {3}, plain), turned.get(), values);
  write(dataset("c", colours.get(), {3}, plain), colours.get(), values);
  write(dataset("label", colours.get(), {3}, plain), colours.get(), values);
  const auto reader = opened();
  ASSERT_EQ(reader->fields().size(), 4U);
  EXPECT_EQ(describe(reader->fields()[0]), "target (label)");
  EXPECT_EQ(describe(reader->fields()[1]), "a (tensor BOOL [])");
  EXPECT_EQ(describe(reader->fields()[2]), "b (tensor I8 [])");
  EXPECT_EQ(describe(reader->fields()[3]), "c (tensor U8 [])");
  EXPECT_EQ(reader->read(2).at(0).label(), 5);
  EXPECT_THAT(numbers_of<std::uint8_t>(reader->read(2).at(3)), ElementsAre(5));
}

// Compact data lie in the header of the dataset, where only the library finds the references to the values.
TEST_F(Hdf5OfOthers, CompactListsAndTextsAreRead) {
  const Hdf5Id compact = creation();
  H5Pset_layout(compact.get(), H5D_COMPACT);
  const Hdf5Id list(H5Tvlen_create(H5T_STD_I32LE), H5Tclose);
  const Hdf5Id text(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(text.get(), H5T_VARIABLE);
  std::int32_t numbers[] = {7, 8, 9, 10};
  const hvl_t lists[] = {{1, numbers}, {0, nullptr}, {3, numbers + 1}};
  const char* texts[] = {"one", "", "three"};
  const std::int16_t plain[] = {4, 5, 6};
  write(dataset("lists", list.get(), {3}, compact), list.get(), lists);
  write(dataset("plain", H5T_STD_I16BE, {3}, compact), H5T_NATIVE_INT16, plain);
  write(dataset("texts", text.get(), {3}, compact), text.get(), texts);
  const auto reader = opened();
  ASSERT_EQ(reader->fields().size(), 3U);
  EXPECT_EQ(describe(reader->fields()[0]), "lists (tensor I32 [-1])");
  EXPECT_EQ(describe(reader->fields()[2]), "texts (bytes)");
  const std::vector<std::vector<std::int32_t>> expected = {{7}, {}, {8, 9, 10}};
  for (int row = 0; row < 3; ++row) {
    const Record record = reader->read(row);
    const auto at = static_cast<std::size_t>(row);
    EXPECT_EQ(numbers_of<std::int32_t>(record.at(0)), expected[at]);
    EXPECT_THAT(numbers_of<std::int16_t>(record.at(1)), ElementsAre(plain[row]));
    EXPECT_EQ(texts_of(record)[2], texts[row]);
  }
}

// Reigen's own file, whose dataset was replaced by one of another shape with the same bytes.
TEST_F(Hdf5OfOthers, AShapeThatTheMetaDataDoNotKnowIsDamage) {
  const fs::path own = folder_.path() / "own.h5";
  write_samples(own, {.kind = ContainerKind::kHdf5}, 4);
  file_ = Hdf5Id(H5Fopen(own.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
  H5Ldelete(file_.get(), "boxes", H5P_DEFAULT);
  const std::vector<float> numbers(4 * 6, 1.0F);
  write(dataset("boxes", H5T_IEEE_F32LE, {4, 3, 2}, creation()), H5T_NATIVE_FLOAT, numbers.data());
  file_ = Hdf5Id();
  EXPECT_THAT([&] { open(own); }, ::testing::ThrowsMessage<DataError>(::testing::AllOf(
                                      ::testing::HasSubstr("F32 [3, 2]"), ::testing::HasSubstr("F32 [2, 3]"))));
}

}  // namespace
}  // namespace reigen::container
