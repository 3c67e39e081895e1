#!/usr/bin/env python3
"""Tests tidy.py: a clean tree passes, and only the right rule finds each planted violation, at its line."""
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import tidy  # noqa: E402

HEADER = "// What it is.\n#pragma once\n"
TABLE = """# Floors
| floor | folder | holds | may use |
|---|---|---|---|
| 0 | `base/` | errors | std |
| 1 | `net/` | sockets | `base/` |
| 2 | `comm/` | groups | `net/` |
| 3 | `tensor/` | seam | `comm/`, LibTorch |
| 4 | `optim/` | optimizers | `tensor/` |
"""
CLEAN = {
    "docs/architecture.md": TABLE,
    "docs/errors.md": "# Errors\n[floors](architecture.md#floors) 0 65 `src/base/thing.cc`\n",
    "docs/environment.md": "REIGEN_LOG\n",
    "include/reigen/base/error.h": HEADER + "enum class ExitCode { kOk = 0, kBadData = 65, };\n",
    "include/reigen/base/thing.h": HEADER + "int thing();\n",
    "include/reigen/tensor/flat.h": HEADER + "#include <ATen/core/Tensor.h>\n",
    "src/base/CMakeLists.txt": "reigen_floor(NAME base\n  SOURCES environment.cc thing.cc\n  HEADERS error.h thing.h)\n",
    "src/base/environment.cc": '#include "reigen/base/error.h"\nconst char* kTable[] = {"REIGEN_LOG"};\n',
    "src/base/thing.cc": '#include "reigen/base/thing.h"\nint thing() { return 1; }\n',
    "src/comm/CMakeLists.txt": "reigen_floor(NAME comm\n  SOURCES group.cc\n  USES net)\n",
    "src/comm/group.cc": '#include "base/private.h"\n#include "reigen/base/thing.h"\n',
    "src/base/private.h": HEADER,
    "src/tensor/CMakeLists.txt": "reigen_floor(NAME tensor\n  SOURCES flat.cc\n  HEADERS flat.h\n  USES comm\n  TORCH)\n",
    "src/tensor/flat.cc": '#include <torch/torch.h>\n#include "reigen/tensor/flat.h"\n',
    "tests/base/CMakeLists.txt": "foreach(name thing other)\n  reigen_test(NAME ${name}_test SOURCES ${name}_test.cc)\nendforeach()\n",
    "tests/base/thing_test.cc": '#include "reigen/base/thing.h"\n',
}
LONG = "int thing() {\n" + "  f();\n" * 69 + "}\n"


def with_lines(text, planted):
    """Appends a line. Returns the text and the line's number."""
    return text + planted + "\n", text.count("\n") + 1


class TidyTest(unittest.TestCase):
    def findings(self, files):
        with tempfile.TemporaryDirectory() as root:
            for path, text in files.items():
                file = Path(root) / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            return tidy.check(root)

    def expect(self, rule, path, text, line, replacement=""):
        findings = self.findings({**CLEAN, path: text})
        self.assertEqual([(f.rule, f.path, f.line) for f in findings], [(rule, path, line)], [str(f) for f in findings])
        self.assertIn(replacement, findings[0].instead)
        self.assertTrue(str(findings[0]).startswith(f"{path}:{line}: [{rule}] "))

    def planted(self, rule, path, line_of_text, replacement=""):
        text, line = with_lines(CLEAN[path], line_of_text)
        self.expect(rule, path, text, line, replacement)

    def accepted(self, path, line_of_text):
        text, _ = with_lines(CLEAN[path], line_of_text)
        self.assertEqual([str(f) for f in self.findings({**CLEAN, path: text})], [])

    def test_a_clean_tree_has_no_findings(self):
        self.assertEqual([str(f) for f in self.findings(CLEAN)], [])

    def test_a_lower_floor_may_not_include_a_higher_one(self):
        self.planted("floor", "src/base/thing.cc", '#include "comm/group.h"', "only base")
        self.planted("floor", "include/reigen/base/thing.h", '#include "reigen/tensor/flat.h"')
        self.planted("floor", "src/comm/group.cc", "#include <reigen/tensor/flat.h>")

    def test_a_folder_of_a_floor_may_not_include_one_above_it(self):
        files = {**CLEAN,
                 "docs/architecture.md": TABLE + "\n| folder | holds |\n|---|---|\n| `comm/low/` | a |\n| `comm/high/` | b |\n",
                 "src/comm/CMakeLists.txt": "reigen_floor(NAME comm\n  SOURCES group.cc low/a.cc high/b.cc\n  USES net)\n",
                 "src/comm/low/a.h": HEADER, "src/comm/low/a.cc": '#include "comm/low/a.h"\n',
                 "src/comm/high/b.h": HEADER, "src/comm/high/b.cc": '#include "comm/high/b.h"\n#include "comm/low/a.h"\n'}
        self.assertEqual([str(f) for f in self.findings(files)], [])
        upward = {**files, "src/comm/low/a.cc": '#include "comm/low/a.h"\n#include "comm/high/b.h"\n'}
        self.assertEqual([(f.rule, f.path, f.line) for f in self.findings(upward)], [("folder", "src/comm/low/a.cc", 2)])
        unknown = {**files, "src/comm/CMakeLists.txt": files["src/comm/CMakeLists.txt"].replace("high/b.cc", "high/b.cc new/c.cc"),
                   "src/comm/new/c.cc": "int c();\n"}
        self.assertEqual([(f.rule, f.path, f.line) for f in self.findings(unknown)], [("folder", "src/comm/new/c.cc", 1)])

    def test_what_a_lower_floor_uses_may_be_used_too(self):
        self.accepted("src/tensor/flat.cc", '#include "net/socket.h"')

    def test_an_unknown_folder_is_refused(self):
        files = {**CLEAN, "src/magic/CMakeLists.txt": "spell.cc", "src/magic/spell.cc": "int spell();\n"}
        self.assertEqual([f.rule for f in self.findings(files)], ["floor"])

    def test_the_umbrella_header_is_not_for_us(self):
        self.planted("floor", "src/comm/group.cc", '#include "reigen/reigen.h"')

    def test_cmake_may_not_link_what_may_not_be_included(self):
        self.expect("floor", "src/comm/CMakeLists.txt", "reigen_floor(NAME comm\n  SOURCES group.cc\n  USES net tensor)\n", 3)

    def test_libtorch_stays_above_its_seam(self):
        self.planted("torch", "src/comm/group.cc", "#include <ATen/core/Tensor.h>", "tensor/")
        self.planted("torch", "include/reigen/base/thing.h", "#include <c10/util/Exception.h>")

    def test_a_floor_above_the_seam_sees_libtorch(self):
        files = {**CLEAN, "src/optim/CMakeLists.txt": "adam.cc", "src/optim/adam.cc": "#include <ATen/core/Tensor.h>\n"}
        self.assertEqual(self.findings(files), [])

    def test_no_header_includes_all_of_libtorch(self):
        self.planted("torch", "include/reigen/tensor/flat.h", "#include <torch/torch.h>", "ATen/core/Tensor.h")

    def test_engines_that_may_be_missing_stay_in_their_folder(self):
        for header in ("mpi.h", "nccl.h", "cuda_runtime_api.h"):
            self.planted("engine", "src/comm/group.cc", f"#include <{header}>")

    def test_headers_and_sources_stay_short(self):
        self.expect("size", "include/reigen/base/thing.h", HEADER + "int thing();\n" * 299, 301)
        self.expect("size", "src/base/thing.cc", '#include "reigen/base/thing.h"\n' + "int x;\n" * 600, 601)

    def test_a_folder_of_too_many_files(self):
        files = {f"src/base/part{n}.cc": "int a();\n" for n in range(23)}
        files["src/base/CMakeLists.txt"] = CLEAN["src/base/CMakeLists.txt"].replace("thing.cc", "thing.cc " + " ".join(f"part{n}.cc" for n in range(23)))
        findings = self.findings({**CLEAN, **files})
        self.assertEqual([(f.rule, f.path) for f in findings], [("crowd", "src/base")], [str(f) for f in findings])

    def test_comments_keep_their_shape(self):
        for words in ("state is// loaded", "(of those, not hashes),and deletes", "newest first.They come"):
            self.planted("torn", "src/base/thing.cc", f"// What it does: {words}.")
        self.accepted("src/base/thing.cc", "// A torch.nn.Module, https://example.org, f(a, b), g(c).")

    def test_class(self):
        part = "namespace a {{\nvoid B::f{}() {{}}\n}}\n"
        parts = {f"src/base/{name}.cc": part.format(name) for name in ("one", "two", "three")}
        listed = CLEAN["src/base/CMakeLists.txt"].replace("thing.cc", "thing.cc one.cc two.cc three.cc")
        findings = self.findings({**CLEAN, **parts, "src/base/CMakeLists.txt": listed})
        self.assertEqual([(f.rule, f.path, f.line) for f in findings], [("class", "src/base/two.cc", 2)])
        self.assertIn("members of a::B in 3 sources", findings[0].what)
        # A class of that name in another namespace is another class.
        parts["src/base/two.cc"] = parts["src/base/two.cc"].replace("namespace a", "namespace b")
        self.assertEqual(self.findings({**CLEAN, **parts, "src/base/CMakeLists.txt": listed}), [])
        header = HEADER + "namespace a {\nclass B {\n" + "  int x;\n" * 200 + "};\n}\n"
        members = "".join(f"void B::f{i}() {{\n" + "  g();\n" * 60 + "}\n" for i in range(9))
        files = {**CLEAN, "include/reigen/base/thing.h": header, "src/base/thing.cc": "namespace a {\n" + members + "}\n"}
        findings = self.findings(files)
        self.assertEqual([(f.rule, f.path, f.line) for f in findings], [("class", "src/base/thing.cc", 2)])
        self.assertIn("a::B has 760 lines", findings[0].what)

    def test_functions_stay_short(self):
        self.expect("size", "src/base/thing.cc", "\n" + LONG, 2)
        self.expect("size", "src/base/thing.cc", "namespace a {\nclass B {\n" + LONG + "};\n}\n", 3)
        self.expect("size", "src/base/thing.cc", "B::B(int x)\n    : a_{x}, b_{x} {\n" + "  f();\n" * 68 + "}\n", 1)
        self.accepted("src/base/thing.cc", LONG.replace("  f();\n", "", 1))

    def test_headers_begin_as_headers_do(self):
        self.expect("header", "include/reigen/base/thing.h", "// What.\n#ifndef THING\n#pragma once\n#endif\n", 1)
        self.expect("header", "include/reigen/base/thing.h", "#pragma once\nint thing();\n", 1)

    def test_public_headers_define_no_macros(self):
        self.planted("header", "include/reigen/base/thing.h", "#define REIGEN_THING 1")

    def test_no_condition_inside_a_function(self):
        self.expect("conditional", "src/base/thing.cc", "int thing() {\n#ifdef X\n  return 2;\n#endif\n  return 1;\n}\n", 2)
        self.accepted("src/base/thing.cc", "#ifdef X\nint y;\n#endif")

    def test_every_banned_call_names_its_replacement(self):
        examples = {
            "sprintf": "int a = sprintf(b, c);", "strcpy or strcat": "void f() { strcpy(a, b); }",
            "std::endl": "void f() { std::cout << std::endl; }", "system": "int a = system(b);", "popen": "auto a = popen(b, c);",
            "bare fork": "int a = fork();", "atoi or atof": "int a = std::atoi(b);", "rand": "int a = std::rand();",
            "assert": "void f() { assert(a); }", "getenv": "auto a = std::getenv(b);", "sleep": "void f() { ::usleep(3); }",
            "localtime or gmtime": "auto a = std::localtime(&b);", "using namespace": "using namespace std;",
            "a division of tensors of its own": "enum class Values { kOwn };",
            "a reading of options that the layout has": "bool a = stays();",
            "a backend compared by its name": 'bool a = world.backend() == "tcp";',
            "std::auto_ptr or new array": "int* a = new int[3];",
        }
        self.assertEqual(set(examples), {entry[0] for entry in tidy.BANNED})
        for what, replacement, _, _ in tidy.BANNED:
            with self.subTest(what):
                path = "src/tensor/flat.cc" if what == "a backend compared by its name" else "src/comm/group.cc"
                self.planted("banned", path, examples[what], replacement)

    def test_comments_strings_and_other_words_are_not_calls(self):
        self.accepted("src/base/thing.cc", '// never fork()\nconst char* a = "system(x)";\nint b = brand(); int c = pool.fork();\n'
                                           'int h = self.sleep(3); using namespace std::literals;\n'
                                           'static_assert(true); constexpr auto d = R"(assert(e))"; int g = 1\'000;')

    def test_fork_is_the_launchers(self):
        files = {**CLEAN, "docs/architecture.md": TABLE + "| 2 | `launch/` | x | `net/` |\n",
                 "src/launch/CMakeLists.txt": "job.cc", "src/launch/job.cc": "int a = fork();\n"}
        self.assertEqual(self.findings(files), [])

    def test_no_place_of_one_machine(self):
        self.planted("path", "src/comm/group.cc", 'const char* a = "/ho' + 'me/me/data";', "temp_directory_path")
        self.planted("path", "src/comm/group.cc", 'const char* a = "/tmp/x";')
        self.accepted("src/comm/group.cc", '// "/tmp/x" in words\nconst char* a = "/proc/self/status";')

    def test_nothing_is_left_for_later(self):
        self.planted("marker", "src/comm/group.cc", "// TO" + "DO: more")
        self.planted("marker", "docs/errors.md", "FIX" + "ME")

    def test_lines(self):
        self.planted("line", "src/comm/group.cc", "// " + "x" * 118)
        self.planted("line", "src/comm/group.cc", "int a; ")
        self.expect("line", "src/base/thing.cc", "int a;", 1)

    def test_no_drawers_and_snake_case(self):
        self.expect("name", "docs/utils/page.md", "# Page\n", 1)
        files = {**CLEAN, "src/base/CMakeLists.txt": CLEAN["src/base/CMakeLists.txt"] + "# BigThing.cc\n", "src/base/BigThing.cc": "int a;\n"}
        self.assertEqual([f.rule for f in self.findings(files)], ["name"])

    def test_every_file_is_built_installed_or_included(self):
        self.expect("listed", "src/base/stray.cc", "int a;\n", 1, "stray.cc")
        self.expect("listed", "include/reigen/base/stray.h", HEADER, 1)
        self.expect("listed", "src/base/unused.h", HEADER, 1)
        self.expect("listed", "tests/base/stray_test.cc", "int a;\n", 1)
        self.expect("listed", "src/base/g.cc", "int a;\n", 1)  # thing.cc ends in g.cc but is another file

    def test_c_sources_obey_too(self):
        self.expect("listed", "tests/base/stray_test.c", "int a;\n", 1)
        cmake = CLEAN["tests/base/CMakeLists.txt"]
        listed = {**CLEAN, "tests/base/CMakeLists.txt": cmake + "# plain_test.c\n"}
        for rule, sin in (("line", "int a; \n"), ("marker", "// TO" + "DO: more\n"), ("size", LONG), ("banned", "int a = rand();\n")):
            with self.subTest(rule):
                found = self.findings({**listed, "tests/base/plain_test.c": sin})
                self.assertEqual([(f.rule, f.path) for f in found], [(rule, "tests/base/plain_test.c")])

    def test_links_lead_somewhere(self):
        self.planted("link", "docs/errors.md", "[x](nowhere.md)")
        self.planted("link", "docs/errors.md", "[x](architecture.md#no-such)")
        self.planted("link", "docs/errors.md", "see `src/base/gone.cc`")
        self.accepted("docs/errors.md", "[x](https://example.org/a) [y](../src/base/thing.cc)")

    def test_a_quoted_file_is_that_file(self):
        whole = CLEAN["src/base/thing.cc"]
        self.accepted("docs/errors.md", f"```cpp file=src/base/thing.cc\n{whole}```")
        self.planted("quoted", "docs/errors.md", f"```cpp file=src/base/thing.cc\n{whole[1:]}```")
        self.planted("quoted", "docs/errors.md", "```cpp file=src/base/gone.cc\nint x;\n```")

    def test_variables_and_exit_codes_are_documented(self):
        self.planted("documented", "src/base/environment.cc", 'X x = {"REIGEN_NEW", "new"};')
        self.planted("documented", "include/reigen/base/error.h", "enum class Y { kNew = 99, };")


if __name__ == "__main__":
    unittest.main()
