// A picture that is not decoded yet. Operations only note what is asked. write() does everything at once, so that only
// the needed region is decoded, only the needed pixels are resized, and the result lands in the caller's memory.
//
//   Draft draft(jpeg, keep, "train.lmdb, sample 17");
//   draft.crop({.left = 20, .top = 10, .width = 300, .height = 280});
//   draft.resize({224, 224});
//   draft.mirror();
//   draft.write({.mean = kImageNetMean, .deviation = kImageNetDeviation}, row_of_batch, workspace);
//
// The result is that of the operations one after the other, each on 8-bit pixels as in torchvision with Pillow, except
// that a mirror image is made last. Its pixels may then differ by 1 of 255 from those of mirroring before resizing.
// Cost: about 1.2 ms for a random crop of a photo of 500 x 400 pixels to 224 x 224, of which decoding takes 1.0 ms.
// Thread rule: values; a Draft and a Workspace belong to one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reigen/image/picture.h"

namespace reigen::image {

// ---- the result

enum class PixelType { kF32, kBf16, kU8 };
enum class Layout {
  kPlanes,       // all red values, then all green, then all blue (CHW)
  kChannelsLast  // red, green and blue of a pixel beside each other (HWC)
};

// Mean and deviation of ImageNet's training pictures, as in torchvision.
inline constexpr std::array<double, 3> kImageNetMean = {0.485, 0.456, 0.406};
inline constexpr std::array<double, 3> kImageNetDeviation = {0.229, 0.224, 0.225};
inline constexpr std::array<double, 3> kCifar10Mean = {0.4914, 0.4822, 0.4465};
inline constexpr std::array<double, 3> kCifar10Deviation = {0.2470, 0.2435, 0.2616};

// Floats are (pixel / 255 - mean) / deviation for each colour. Each of the three operations rounds to fp32, as
// torchvision's ToTensor and Normalize do. bf16 is the nearest to this, ties to even. kU8 gives the pixels themselves.
struct Output {
  PixelType type = PixelType::kF32;
  Layout layout = Layout::kPlanes;
  std::array<double, 3> mean = {0, 0, 0};
  std::array<double, 3> deviation = {1, 1, 1};
  bool operator==(const Output&) const = default;
};
std::size_t bytes_of(const Output& output, Size size);

// Memory that write() uses for what lies between the file and the result. Keep one for each thread. It grows to what
// the largest picture needs, and then write() allocates nothing but what libjpeg or libpng allocates. Parts of more
// than 32 MiB, which only huge pictures need, are freed at the end of write().
class Workspace {
 public:
  struct Parts;
  Workspace();
  ~Workspace();
  Workspace(Workspace&&) noexcept;
  Workspace& operator=(Workspace&&) noexcept;
  Parts& parts() { return *parts_; }
  std::size_t bytes() const;  // of pixels that it holds now

 private:
  std::unique_ptr<Parts> parts_;
};

// ---- changes of colours

enum class Adjustment { kBrightness, kContrast, kSaturation, kHue };

// As torchvision's adjust_brightness(), adjust_contrast(), adjust_saturation() and adjust_hue() for pictures of Pillow.
// Brightness, contrast and saturation: 0 gives black, grey of the mean, and grey; 1 changes nothing. Hue: turns the
// circle of colours by this part of it, -0.5 to 0.5.
struct Colours {
  struct Change {
    Adjustment what = Adjustment::kBrightness;
    double amount = 1;
  };
  std::array<Change, 4> changes = {};  // in this order
  int count = 0;
};

// ---- the picture

struct DraftOptions {
  bool fast = false;  // a JPEG that shrinks is decoded at 1/2, 1/4 or 1/8 of its size (DecodeOptions::scale_to)
};

class Draft {
 public:
  // The bytes of a JPEG or PNG file. `keep` owns them, or is null if they outlive the Draft. Reads the header. Throws
  // the DataErrors of decode.h, with `name`.
  Draft(std::span<const std::byte> bytes, std::shared_ptr<const void> keep, std::string name,
        const DraftOptions& options = {});
  // Throws DataError if the picture is empty, or if its pixels do not fill it; InvalidArgument for a null pointer.
  Draft(std::shared_ptr<const Picture> picture, std::string name);

  const std::string& name() const { return name_; }
  Size size() const;  // with all that was asked so far

  // Operations. Boxes are in pixels of the picture with all that was asked before. All throw InvalidArgument, with the
  // name, for sizes that are not in 1..65,535, and if erase() came before.
  void crop(const Box& box);  // pixels beside the picture are black
  void resize(Size size);     // with the filter of resize.h
  void mirror();              // left and right change sides
  void change(const Colours& colours);
  // The box becomes the mean: 0 in floats, and the rounded mean in kU8. Only further boxes may follow.
  void erase(const Box& box);

  // Writes bytes_of(output, size()) bytes. Throws DataError if the picture turns out to be damaged, and InvalidArgument
  // for a deviation that is not positive. May be called again, with the same result.
  void write(const Output& output, void* to, Workspace& workspace) const;
  // The pixels as 8-bit red, green and blue. An erased box gets this mean.
  Picture picture(Workspace& workspace, const std::array<double, 3>& mean = {0, 0, 0}) const;

 private:
  friend struct Rendering;
  // What is done to the pixels in one go: cut out, resize, cut out again, mirror, change colours.
  struct Stage {
    Box region;    // of the source
    Size resized;  // size that the region gets
    Box window;    // of the resized region; what lies beside it is black
    bool mirrored = false;
    std::optional<Colours> colours = {};
  };
  Stage& stage_for_geometry(const char* operation);
  void require_size(Size size, const char* operation) const;

  std::string name_;
  std::span<const std::byte> bytes_ = {};
  std::shared_ptr<const void> keep_ = {};
  std::shared_ptr<const Picture> pixels_ = {};  // instead of bytes
  DraftOptions options_ = {};
  std::vector<Stage> stages_ = {};  // each takes the result of the one before
  std::vector<Box> erased_ = {};
};

}  // namespace reigen::image
