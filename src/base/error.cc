#include "reigen/base/error.h"

namespace reigen {

std::string to_string(const Report& report) {
  std::string text = report.what;
  if (!report.got.empty()) text += "\n  got: " + report.got;
  if (!report.expected.empty()) text += (report.got.empty() ? "\n  expected: " : "   expected: ") + report.expected;
  if (!report.fix.empty()) text += "\n  fix: " + report.fix;
  return text;
}

}  // namespace reigen
