# Writes OUTPUT, a C++ source with the text of FILES: cmake -DFILES=a.md;b.md -DOUTPUT=documents.cc -P reigen_documents.cmake
set(text "")
foreach(file IN LISTS FILES)
  file(READ "${file}" bytes HEX)
  string(APPEND text "${bytes}0a")  # an empty line after each document
endforeach()
# The text is an array, not a string literal: a compiler need not accept more than 65,536 characters in a literal.
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," text "${text}")
string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n" text "${text}")
file(WRITE "${OUTPUT}.part" "#include \"data/documents.h\"

namespace reigen::data {

namespace {

constexpr unsigned char kText[] = {
${text}};

}  // namespace

std::string_view documents() { return {reinterpret_cast<const char*>(kText), sizeof kText}; }

}  // namespace reigen::data
")
file(RENAME "${OUTPUT}.part" "${OUTPUT}")
