// If a file is no file of weights, both readers say what kind of file it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "format/memory_file.h"
#include "format/pt_writer.h"
#include "format/temporary_folder.h"
#include "reigen/base/error.h"
#include "reigen/format/pt_file.h"
#include "reigen/format/safetensors.h"

namespace reigen::format::file_kind_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using tests::ZipWriter;

template <class Reader>
std::string refusal_of(const std::filesystem::path& path) {
  try {
    const Reader reader(path);
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(path.string()), HasSubstr("fix: ")));
    return error.what();
  }
  return "read without complaint";
}

struct Kind {
  std::string content;
  const char* name;
  const char* fix;
};

std::string padded(std::string content) {
  content.resize(1024, '\1');
  return content;
}

TEST(FileKind, EveryKindHasItsName) {
  const tests::TemporaryFolder folder;
  std::string tar(1024, '\0');
  tar.replace(0, 9, "model.bin");
  tar.replace(257, 5, "ustar");
  std::string table(64, 'x');
  table += "\x57\xfb\x80\x8b\x24\x75\x47\xdb";
  const std::vector<Kind> kinds = {
      {"", "an empty file", "fetch it again"},
      {std::string(64, '\0'), "zero bytes", "fetch the file again"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 437955512\n",
       "a pointer of Git LFS, which stands for a file of 437955512 bytes", "git lfs pull"},
      {"\n<!DOCTYPE html>\n<html><body>Sign in", "a web page", "/resolve/"},
      {"<html lang=\"en\">", "a web page", "/resolve/"},
      {"<?xml version=\"1.0\"?><Error><Code>AccessDenied", "an XML text", "fetch the file itself"},
      {R"({"error":"Access to model x is restricted"})", "a JSON text: {\"error\"", "token"},
      {R"({"metadata":{},"weight_map":{"a":"b"}})", "the index of a model", ".index.json"},
      {"Entry not found", "a text: Entry not found", "fetch the file itself"},
      {padded("\x93NUMPY\1"), "a NumPy array", "safetensors.numpy"},
      {padded("\x89HDF\r\n\x1a\n"), "HDF5", "in Python"},
      {padded("GGUF\3"), "GGUF", "llama.cpp"},
      {padded(std::string("\x1c\0\0\0TFL3", 8)), "TensorFlow Lite", "in Python"},
      {padded(std::string("\x08\x08\x12\x07pytorch\x1a\0052.1.0", 17)), "an ONNX model", "onnx.load"},
      {padded(std::string("\x08\x01\x12\x20")), "a SavedModel of TensorFlow", "in Python"},
      {padded("\x1f\x8b\x08"), "a gzip file", "gunzip"},
      {padded("\x28\xb5\x2f\xfd"), "a zstd file", "unzstd"},
      {padded(std::string("\xfd") + "7zXZ" + '\0'), "an xz file", "unxz"},
      {padded("\x89PNG\r\n\x1a\n"), "a PNG picture", "a file of weights"},
      {tar, "a tar file with 'model.bin'", "tar -xf"},
      {table, "the index of a TensorFlow checkpoint", "in Python"},
      {std::string("\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\2M\xe9\3.", 20),
       "as PyTorch before 1.6 wrote it", "torch.load"},
      {std::string("\x80\4\x95") + std::string(8, '\0') + "N.", "pickle.dump", "torch.save"},
  };
  for (const Kind& kind : kinds) {
    SCOPED_TRACE(kind.name);
    const auto path = folder.write("model", kind.content);
    EXPECT_THAT(refusal_of<PtFile>(path), AllOf(HasSubstr(kind.name), HasSubstr(kind.fix)));
    EXPECT_THAT(refusal_of<SafetensorsFile>(path), AllOf(HasSubstr(kind.name), HasSubstr(kind.fix)));
  }
  const auto data = folder.write("model.ckpt.data-00000-of-00001", padded("\1\2\3"));
  EXPECT_THAT(refusal_of<PtFile>(data), HasSubstr("the data of a TensorFlow checkpoint"));
}

TEST(FileKind, OneReadersFileIsNamedByTheOther) {
  const tests::TemporaryFolder folder;
  const auto safe = folder.path() / "model.bin";
  write_safetensors(safe, {});
  EXPECT_THAT(refusal_of<PtFile>(safe), HasSubstr("a safetensors file"));
  const auto pt = folder.write("model.safetensors", tests::checkpoint(tests::pickled::whole("N")));
  EXPECT_THAT(refusal_of<SafetensorsFile>(pt), HasSubstr("a zip file"));
}

TEST(FileKind, OtherArchivesAreNamed) {
  const tests::TemporaryFolder folder;
  const auto refusal = [&](const std::vector<std::string>& names) {
    ZipWriter zip;
    for (const std::string& name : names) zip.add(name, "x");
    return refusal_of<PtFile>(folder.write("x.zip", zip.finish()));
  };
  EXPECT_THAT(refusal({"a.npy", "b.npy"}), AllOf(HasSubstr("NumPy (.npz)"), HasSubstr("numpy.load")));
  EXPECT_THAT(refusal({"config.json", "model.weights.h5"}), HasSubstr("Keras"));
  EXPECT_THAT(refusal({"p/archive_format", "p/models/model.json"}), HasSubstr("torch.export"));
  EXPECT_THAT(refusal({"p/.data/extern_modules", "p/model.pkl"}), HasSubstr("torch.package"));
  EXPECT_THAT(refusal({"folder/model.pt"}), AllOf(HasSubstr("'folder/model.pt' in it"), HasSubstr("unzip it first")));
  EXPECT_THAT(refusal({"something"}), HasSubstr("what torch.save writes"));
}

}  // namespace
}  // namespace reigen::format::file_kind_test
