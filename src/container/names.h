// Which names of a file become which fields.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "reigen/container/container.h"

namespace reigen::container {

// Something in a file that a field can be taken from. `field.name` is the name that it has by default.
struct Candidate {
  std::string stored;  // the name in the file
  Field field = {};
  bool may_be_label = false;  // the first sample's value is one whole number
};

struct Chosen {
  Field field;
  std::size_t candidate = 0;  // its index
};

// The name that a usual name of others stands for: "input" for jpg, jpeg, png, image/encoded, image, images, ...;
// "target" for cls, label, labels, image/class/label, ...; otherwise the name itself.
std::string usual_name(std::string_view stored);

// Whether the name says that a picture is stored under it: an ending jpg, jpeg or png, or image/encoded. Then it is
// one, also if the first sample's is damaged.
bool names_picture(std::string_view stored);

// Chooses the fields that OpenOptions::fields asks for; without such a request, all candidates, or those that
// OpenOptions::without_bytes leaves. `input` and `target` come first. A field that is named `target` is a label if its
// candidate may be one. Throws InvalidArgument for a name that is not there, and if two candidates have one name.
std::vector<Chosen> choose(const std::vector<Candidate>& candidates, const OpenOptions& options,
                           const std::string& container);

// The names under which Reigen's own writers store a field: "jpg", "cls" in LMDB and tar; "image/encoded",
// "image/class/label" in TFRecord; the field's name in HDF5.
std::string stored_name(const Field& field, ContainerKind kind);

// Throws InvalidArgument for fields that no container can store: none, two of one name, a name that is empty, longer
// than 200 bytes, not UTF-8, hidden or has a slash, and a shape that is negative.
void require_writable(const std::vector<Field>& fields);

}  // namespace reigen::container
