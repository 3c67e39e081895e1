#include "format/tokenizer/split_pattern.h"

#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cstdint>
#include <new>

#include "format/tokenizer/pattern_syntax.h"
#include "reigen/base/error.h"

namespace reigen::format {

// Named, because fields of public classes have this type.
namespace pcre2 {

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};

template <class T>
using Owned = std::unique_ptr<T, Free>;

}  // namespace pcre2

namespace {

template <class T>
pcre2::Owned<T> owned(T* pointer) {
  if (pointer == nullptr) throw std::bad_alloc();
  return pcre2::Owned<T>(pointer);
}

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct SplitPattern::Impl {
  std::string where;
  pcre2::Owned<pcre2_code> code;
};

SplitPattern::SplitPattern(std::string_view expression, std::string where)
    : impl_(std::make_unique<Impl>(Impl{.where = std::move(where), .code = {}})) {
  const std::string translated = pcre2_expression(expression, impl_->where);
  const auto context = owned(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);  // a distribution may have built PCRE2 with another one
  int error = 0;
  PCRE2_SIZE place = 0;
  impl_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), PCRE2_UTF, &error,
                                  &place, context.get()));
  if (!impl_->code) {
    throw DataError(
        Report{.what = fmt::format("{}: a wrong regular expression", impl_->where),
               .got = fmt::format("{} (as {}), at byte {}: {}", expression, translated, place, message_of(error)),
               .expected = "an expression that PCRE2 can compile",
               .fix = "correct the expression"});
  }
  pcre2_jit_compile(impl_->code.get(), PCRE2_JIT_COMPLETE);  // if it fails, the interpreter matches the same
}

SplitPattern::~SplitPattern() = default;
SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;
SplitPattern& SplitPattern::operator=(SplitPattern&&) noexcept = default;

struct SplitPattern::Matches::Impl {
  const SplitPattern::Impl* pattern;
  pcre2::Owned<pcre2_match_data> data;
  pcre2::Owned<pcre2_match_context> context;
};

SplitPattern::Matches::Matches(const SplitPattern& pattern)
    : impl_(std::make_unique<Impl>(
          Impl{.pattern = pattern.impl_.get(),
               .data = owned(pcre2_match_data_create_from_pattern(pattern.impl_->code.get(), nullptr)),
               .context = owned(pcre2_match_context_create(nullptr))})) {
  // A word may be a long run of blanks, over which the expression steps back once.
  pcre2_set_match_limit(impl_->context.get(), UINT32_MAX);
}

SplitPattern::Matches::~Matches() = default;
SplitPattern::Matches::Matches(Matches&&) noexcept = default;
SplitPattern::Matches& SplitPattern::Matches::operator=(Matches&&) noexcept = default;

std::optional<std::pair<std::size_t, std::size_t>> SplitPattern::Matches::next(std::string_view text,
                                                                               std::size_t from) {
  const auto match = [&](std::uint32_t more) {
    return pcre2_match(impl_->pattern->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                       PCRE2_NO_UTF_CHECK | more, impl_->data.get(), impl_->context.get());
  };
  int result = match(0);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = match(PCRE2_NO_JIT);
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (result < 0) {
    throw DataError(
        Report{.what = fmt::format("{}: the regular expression finds no end in a text", impl_->pattern->where),
               .got = fmt::format("{}, from byte {} of {} bytes", message_of(result), from, text.size()),
               .expected = "words of ordinary length",
               .fix = "use another tokenizer, or a text with shorter words"});
  }
  const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(impl_->data.get());
  return std::pair<std::size_t, std::size_t>(ends[0], ends[1]);
}

std::string expression_of_text(std::string_view text) {
  std::string expression;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte >= 0x80 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (byte < 0x20 || byte == 0x7f)
      expression += fmt::format("\\x{{{:02X}}}", byte);
    else
      expression += (plain ? "" : "\\") + std::string(1, c);
  }
  return expression;
}

}  // namespace reigen::format
