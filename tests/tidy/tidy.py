#!/usr/bin/env python3
"""Checks the rules of docs/architecture.md and CONTRIBUTING.md that a program can check.

    python3 tests/tidy/tidy.py [--root FOLDER]

Prints one line per finding, `file:line: [rule] what; instead: what to write`, and exits with 1 if there is any.
A rule is a function that takes the Tree and yields findings. tests/tidy/tidy_test.py plants a violation of each rule.
"""
import argparse
import bisect
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

HEADER_LINES, SOURCE_LINES, FUNCTION_LINES, COLUMNS = 300, 600, 70, 120
CLASS_FILES, CLASS_LINES = 2, 700
FOLDER_FILES = 25  # of src/
CODE_FOLDERS = ("include", "src", "cuda", "apps", "examples", "bench", "tests")
TEXT_FOLDERS = CODE_FOLDERS + ("docs", "scripts", "cmake", ".ci")
SOURCE_ENDINGS = (".h", ".cc", ".c", ".cu")
DRAWERS = {"util", "utils", "misc", "common", "helper", "helpers", "stuff"}

# (name, replacement, pattern, folders where it is allowed). Patterns are applied to code without comments and strings.
BANNED = [
    ("sprintf", "fmt::format", r"\bv?sprintf\s*\(", ()),
    ("strcpy or strcat", "std::string, or std::memcpy with a length", r"\bstr(cpy|cat)\s*\(", ()),
    ("std::endl", "'\\n' (and std::flush where it matters)", r"\bstd\s*::\s*endl\b", ()),
    ("system", "posix_spawn through reigen::launch", r"(?<![\w.>])system\s*\(", ()),
    ("popen", "posix_spawn through reigen::launch", r"(?<![\w.>])popen\s*\(", ("tests",)),
    ("bare fork", "posix_spawn: threads and CUDA do not survive fork", r"(?<![\w.>])v?fork\s*\(", ("src/launch", "tests/launch")),
    ("atoi or atof", "std::from_chars, which reports what it cannot read", r"\bato(i|f|l|ll)\s*\(", ("tests",)),
    ("rand", "a generator with a seed of its own", r"(?<![\w.>])(std\s*::\s*)?s?rand\s*\(", ()),
    ("assert", "REIGEN_ASSERT, which stays in release builds", r"(?<![\w.>])assert\s*\(", ()),
    ("getenv", "base/environment.h, so that docs/environment.md knows it", r"\b(secure_)?getenv\s*\(",
     ("src/base", "src/launch", "tests")),
    # The launcher sometimes has nothing to wait for except time.
    ("sleep", "a wait with a Deadline", r"(?<!\w)::sleep\s*\(|\busleep\s*\(", ("src/launch", "tests")),
    ("localtime or gmtime", "localtime_r or gmtime_r, fmt::localtime", r"(?<!fmt::)\b(localtime|gmtime)\s*\(", ()),
    ("using namespace", "names with their namespace", r"\busing\s+namespace\b(?!\s+[\w:]*literals\b)", ("tests", "examples")),
    # Only one type says which rank has which data.
    ("a division of tensors of its own", "a layout::Placement (reigen/layout/placement.h)",
     r"\benum\s+class\s+(Values|Averages)\b|\bstruct\s+(Division|Share|ModelSize|GivenToCheckpoint)\b", ()),
    ("a reading of options that the layout has", "layout::choose(), and the layout's axes() and placement()",
     r"\b(mesh_of|shard_of|is_one_machine)\s*\(|\bstays\s*\(\s*\)", ()),
    ("a backend compared by its name", "what the group can do: shares_memory(), memory_is_of_host()",
     r"\bbackend\(\)\s*[!=]=", ("src/comm", "tests")),
    ("std::auto_ptr or new array", "std::unique_ptr or std::vector", r"\bauto_ptr\b|=\s*new\s+\w+\s*\[", ()),
]
# (pattern of a header, the only folder of src/comm/ that may include it)
ENGINE_HEADERS = [(r"mpi\.h$", "mpi"), (r"nccl", "nccl"), (r"cuda(_\w+)?\.h$|cuda_runtime", "nccl")]
MACHINE_PATHS = ("/home/", "/work/", "/root/", "/Users/")


@dataclass(frozen=True)
class Finding:
    path: str
    line: int
    rule: str
    what: str
    instead: str

    def __str__(self):
        return f"{self.path}:{self.line}: [{self.rule}] {self.what}; instead: {self.instead}"


def blank_out(text, keep_strings=False):
    """The text with comments (and strings) replaced by spaces. Lines and columns do not change."""
    token = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^()\s\\]*)\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)

    def blank(match):
        if keep_strings and match.group(0)[0] in "\"'R":
            return match.group(0)
        return re.sub(r"[^\n]", " ", match.group(0))

    return token.sub(blank, text)


@dataclass
class Source:
    """A C++ or C file in the forms that the rules check."""
    path: str
    text: str
    lines: list = field(init=False)
    code: str = field(init=False)          # no comments, no strings
    code_lines: list = field(init=False)
    strings: str = field(init=False)       # no comments
    functions: list = field(init=False)    # (first line, last line)

    def __post_init__(self):
        self.lines = self.text.split("\n")
        self.code = blank_out(self.text)
        self.code_lines = self.code.split("\n")
        self.strings = blank_out(self.text, keep_strings=True)
        self.functions = find_functions(self.code)

    @property
    def folder(self):
        return self.path.split("/", 1)[0]

    @property
    def floor(self):
        """The floor of the file. None for apps, tests and the umbrella header."""
        parts = self.path.split("/")
        if parts[0] == "src" and len(parts) > 2:
            return parts[1]
        if parts[:2] == ["include", "reigen"] and len(parts) > 3:
            return parts[2]
        return None

    def is_header(self):
        return self.path.endswith(".h")


def find_functions(code):
    """First and last line of every outermost function body, found by matching braces."""
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group(0)), code, flags=re.MULTILINE)
    starts = [0] + [m.end() for m in re.finditer("\n", code)]
    line_of = lambda offset: bisect.bisect_right(starts, offset)
    found, stack, head_at, reopened = [], [], 0, None
    for match in re.finditer(r"[{};]", code):
        at, char = match.start(), match.group(0)
        head = code[head_at:at].strip()
        if char == "{":
            outer = stack[-1][0] if stack else "scope"
            kind, begin = "block", at
            if outer == "scope":
                first = head_at + len(code[head_at:at]) - len(code[head_at:at].lstrip())
                if reopened is not None and (head == "" or head.startswith(",")):
                    kind, begin = "function", reopened  # after `member_{value}` in a list of initialisers
                elif re.search(r"\b(namespace|class|struct|union|enum|extern)\b[^()=]*$", head):
                    kind = "scope"
                elif "(" in head and not re.search(r"=\s*$", head):
                    kind, begin = "function", first
            stack.append((kind, begin))
            reopened = None
        elif char == "}" and stack:
            kind, begin = stack.pop()
            reopened = None
            if kind == "function":
                found = [f for f in found if f[0] != line_of(begin)] + [(line_of(begin), line_of(at))]
                reopened = begin
        else:
            reopened = None
        head_at = at + 1
    return found


class Tree:
    """The files under one root, read once."""

    def __init__(self, root):
        self.root = Path(root)
        self.paths = sorted(self._walk())
        self.sources = [Source(p, self.read(p)) for p in self.paths if p.startswith(CODE_FOLDERS) and p.endswith(SOURCE_ENDINGS)]
        self.floors, self.torch_floors = self._floors()

    def _walk(self):
        for path in self.root.glob("*"):
            if path.is_file():
                yield path.name
        for folder in TEXT_FOLDERS:
            for at, folders, files in os.walk(self.root / folder):
                folders[:] = [f for f in folders if f != "__pycache__" and not f.startswith("build")]
                for name in files:
                    yield str((Path(at) / name).relative_to(self.root))

    def read(self, path):
        file = self.root / path
        return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""

    def _floors(self):
        """floor -> every floor it may include, from the table in docs/architecture.md; and the floors that see LibTorch."""
        direct, torch = {}, set()
        for row in re.finditer(r"^\|\s*\d+\s*\|\s*`(\w+)/`\s*\|[^|]*\|([^|]*)\|\s*$", self.read("docs/architecture.md"), re.MULTILINE):
            direct[row.group(1)] = set(re.findall(r"`(\w+)/`", row.group(2)))
            if "LibTorch" in row.group(2):
                torch.add(row.group(1))
        whole = {}

        def close(floor):
            if floor not in whole:
                whole[floor] = {floor}
                for used in direct.get(floor, ()):
                    whole[floor] |= close(used)
            return whole[floor]

        floors = {floor: close(floor) for floor in direct}
        return floors, {floor for floor, uses in floors.items() if uses & torch}


def includes(source):
    for number, line in enumerate(source.lines, 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if match:
            yield number, match.group(1), match.group(2)


def rule_floor(tree):
    for source in tree.sources:
        floor = source.floor
        if floor is None:
            continue
        if floor not in tree.floors:
            yield Finding(source.path, 1, "floor", f"folder {floor}/ is not in the table", "a row for it in docs/architecture.md")
            continue
        for number, quote, name in includes(source):
            parts = name.split("/")
            used = parts[1] if parts[0] == "reigen" and len(parts) > 2 else parts[0]
            ours = quote == '"' or parts[0] == "reigen"
            if ours and name == "reigen/reigen.h":
                yield Finding(source.path, number, "floor", "the umbrella header is for users", "the headers you need")
            elif ours and len(parts) > 1 and used not in tree.floors[floor]:
                yield Finding(source.path, number, "floor", f"{floor}/ may not include {used}/",
                              f"only {', '.join(sorted(tree.floors[floor]))}: move the code up or the need down")


def rule_folder(tree):
    """Within a floor whose folders have rows in docs/architecture.md ("| `train/run/` | ... |"), lowest first, a folder includes only those above it in the table."""
    order = {}
    for floor, folder in re.findall(r"^\|\s*`(\w+)/(\w+)/`\s*\|", tree.read("docs/architecture.md"), re.MULTILINE):
        order.setdefault(floor, []).append(folder)
    for source in tree.sources:
        parts = source.path.split("/")
        if parts[0] != "src" or len(parts) < 4 or parts[1] not in order:
            continue
        folders = order[parts[1]]
        if parts[2] not in folders:
            yield Finding(source.path, 1, "folder", f"{parts[1]}/{parts[2]}/ is not in the table", "a row for it in docs/architecture.md")
            continue
        for number, quote, name in includes(source):
            used = name.split("/")
            if quote == '"' and len(used) > 2 and used[0] == parts[1] and used[1] in folders[folders.index(parts[2]) + 1:]:
                yield Finding(source.path, number, "folder", f"{parts[1]}/{parts[2]}/ may not include {used[1]}/, which lies above it",
                              "move the code up or the need down")


def rule_cmake_floor(tree):
    for path in tree.paths:
        match = re.fullmatch(r"src/(\w+)/CMakeLists.txt", path)
        if not match or match.group(1) not in tree.floors:
            continue
        text = tree.read(path)
        uses = re.search(r"\bUSES\s+((?:[a-z_]+\s*)+)", text)
        for used in uses.group(1).split() if uses else ():
            if used not in tree.floors[match.group(1)]:
                yield Finding(path, text[:uses.start()].count("\n") + 1, "floor", f"{match.group(1)}/ may not link {used}",
                              "the row of docs/architecture.md")


def rule_torch(tree):
    for source in tree.sources:
        for number, _, name in includes(source):
            if not name.startswith(("torch/", "ATen/", "c10/")):
                continue
            if source.is_header() and source.folder != "tests" and name in ("torch/torch.h", "torch/all.h", "torch/extension.h", "torch/script.h"):
                yield Finding(source.path, number, "torch", f"<{name}> in a header costs every user 10 s", "<ATen/core/Tensor.h> or a forward declaration")
            if source.floor and source.floor not in tree.torch_floors:
                yield Finding(source.path, number, "torch", f"{source.floor}/ does not see LibTorch", "bytes and DataType, or a place in tensor/ and above")


# CUDA's own headers may be included beside NCCL's, in files that nvcc compiles, and in fakes and their tests.
OF_CUDA = ("cuda/", "tests/fakes/cuda/", "tests/fakes/gpu/", "tests/device/cuda_", "tests/comm/cuda_ipc_")


def rule_engine(tree):
    """A build may lack MPI, NCCL and CUDA. Only the folders that CMake leaves out in that case (cuda/ is one), their tests and the fakes
    of these tests include the headers of such a library."""
    for source in tree.sources:
        for number, quote, name in includes(source):
            for header, engine in ENGINE_HEADERS:
                if quote != "<" or not re.match(header, name):
                    continue
                if not source.path.startswith((f"src/comm/{engine}/", f"tests/comm/{engine}_", f"tests/fakes/{engine}/", f"bench/{engine}_", *OF_CUDA)):
                    yield Finding(source.path, number, "engine", f"<{name}> is for src/comm/{engine}/ only", "comm/backend.h, or a place in that folder")


def rule_size(tree):
    for source in tree.sources:
        limit = HEADER_LINES if source.is_header() else SOURCE_LINES
        count = len(source.text.splitlines())
        if count > limit:
            yield Finding(source.path, limit + 1, "size", f"{count} lines, {limit} are the limit", "two files with a name each")
        for first, last in source.functions:
            if last - first + 1 > FUNCTION_LINES:
                yield Finding(source.path, first, "size", f"a function of {last - first + 1} lines, {FUNCTION_LINES} are the limit", "smaller functions")


def rule_crowd(tree):
    """A folder with too many files must be divided into folders."""
    files = {}
    for path in tree.paths:
        if path.startswith("src/"):
            files.setdefault(path.rsplit("/", 1)[0], []).append(path)
    for folder, paths in sorted(files.items()):
        if len(paths) > FOLDER_FILES:
            yield Finding(folder, 1, "crowd", f"{len(paths)} files, {FOLDER_FILES} are the limit", "folders in it, each with an idea")


def class_lines(source):
    """(class with its namespace, first line, last line) of every class body and of every member defined outside of one."""
    space = "::".join(re.findall(r"^(?:inline\s+)?namespace\s+([\w:]+)\s*\{", source.code, re.MULTILINE)[:1])
    starts = [0] + [m.end() for m in re.finditer("\n", source.code)]
    line_of = lambda offset: bisect.bisect_right(starts, offset)
    for match in re.finditer(r"^(?:template\s*<[^;{]*>\s*)?(?:class|struct)\s+([\w:]+)(?:\s+final)?\s*(?::[^:;{][^;{]*)?\{", source.code, re.MULTILINE):
        depth, at = 1, match.end()
        while depth and at < len(source.code):
            depth += {"{": 1, "}": -1}.get(source.code[at], 0)
            at += 1
        yield f"{space}::{match.group(1)}", line_of(match.start()), line_of(at - 1)
    for first, last in source.functions:
        head = " ".join(source.code_lines[first - 1:last]).split("(", 1)[0]
        member = re.search(r"((?:\w+::)+)(?:~?\w+|operator\W+)\s*$", head)
        if member and not source.code_lines[first - 1].startswith(" "):
            yield f"{space}::{member.group(1)[:-2]}", first, last


def rule_class(tree):
    """A class that is too large contains two ideas. Its division into many files would only hide that."""
    files, lines = {}, {}
    for source in tree.sources:
        if source.folder not in ("src", "apps", "include"):
            continue
        for name, first, last in class_lines(source):
            lines[name] = lines.get(name, 0) + last - first + 1
            if not source.is_header():
                files.setdefault(name, {}).setdefault(source.path, first)
    for name, places in sorted(files.items()):
        path, line = sorted(places.items())[-1]
        if len(places) > CLASS_FILES:
            yield Finding(path, line, "class", f"members of {name} in {len(places)} sources, {CLASS_FILES} are the limit", "two classes, an idea each")
        if lines[name] > CLASS_LINES:
            yield Finding(path, line, "class", f"{name} has {lines[name]} lines, {CLASS_LINES} are the limit", "two classes, an idea each")


def rule_header(tree):
    for source in tree.sources:
        if not source.is_header():
            continue
        first = next((line.strip() for line in source.code_lines if line.strip()), "")
        if first != "#pragma once":
            yield Finding(source.path, 1, "header", "does not begin with #pragma once after its comment", "#pragma once")
        if not source.text.startswith("//"):
            yield Finding(source.path, 1, "header", "no file comment", "what it is and the thread rule, in the first lines")
        if source.folder == "include":
            for number, line in enumerate(source.code_lines, 1):
                if re.match(r"\s*#\s*define\b", line):
                    yield Finding(source.path, number, "header", "a macro in a public header", "constexpr, a function, or src/")


def rule_conditional(tree):
    for source in tree.sources:
        for number, line in enumerate(source.code_lines, 1):
            if re.match(r"\s*#\s*(if|ifdef|ifndef|elif|else)\b", line) and any(a < number < b for a, b in source.functions):
                yield Finding(source.path, number, "conditional", "preprocessor condition inside a function", "a second file chosen by CMake")


def rule_banned(tree):
    for source in tree.sources:
        for what, replacement, pattern, allowed in BANNED:
            if allowed and source.path.startswith(tuple(a + "/" for a in allowed)):
                continue
            for number, line in enumerate(source.code_lines, 1):
                if re.search(pattern, line):
                    yield Finding(source.path, number, "banned", what, replacement)


def rule_path(tree):
    for source in tree.sources:
        bad = MACHINE_PATHS + (("/tmp",) if source.folder in ("src", "include", "apps") else ())
        for number, line in enumerate(source.strings.split("\n"), 1):
            for text in re.findall(r'"((?:\\.|[^"\\])*)"', line):
                if text.startswith(bad):
                    yield Finding(source.path, number, "path", f'"{text}" is a place on one machine', "std::filesystem::temp_directory_path() or an option")


def rule_marker(tree):
    marker = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
    for path in tree.paths:
        if not path.endswith(SOURCE_ENDINGS + (".py", ".md", ".cmake", ".txt", ".toml", ".json")) and "/" not in path and "." in path:
            continue
        for number, line in enumerate(tree.read(path).split("\n"), 1):
            match = marker.search(line)
            if match:
                yield Finding(path, number, "marker", f"{match.group(1)} left behind", "do it now, or open an issue")


def rule_line(tree):
    for source in tree.sources:
        for number, line in enumerate(source.lines, 1):
            if len(line) > COLUMNS:
                yield Finding(source.path, number, "line", f"{len(line)} columns, {COLUMNS} are the limit", "clang-format-14, or a shorter comment")
            if "\t" in line or line != line.rstrip():
                yield Finding(source.path, number, "line", "a tab or trailing space", "clang-format-14")
        if source.text and not source.text.endswith("\n"):
            yield Finding(source.path, len(source.lines), "line", "no newline at the end", "one newline")


def rule_torn(tree):
    """A comment that a tool damaged when it wrapped the lines again."""
    torn = re.compile(r"\w// |\),[a-z]|[a-z]\.(?:The|They|It|A|An|In|Of|Where|Throws|Returns|What|If)\b")
    for source in tree.sources:
        for number, line in enumerate(source.lines, 1):
            start = re.match(r"\s*//(.*)", line)
            match = torn.search(start.group(1)) if start else None
            if match:
                yield Finding(source.path, number, "torn", f'"{match.group(0)}" in the middle of a comment', "a space, or the line as it was")


def rule_name(tree):
    for path in tree.paths:
        parts = Path(path).parts
        for part in parts:
            stem = part.split(".")[0]
            if stem.lower() in DRAWERS:
                yield Finding(path, 1, "name", f"{part} is a drawer", "the name of what is inside")
        if path.endswith(SOURCE_ENDINGS) and not re.fullmatch(r"[a-z0-9_]+\.(h|cc|c|cu)", parts[-1]):
            yield Finding(path, 1, "name", f"{parts[-1]} is not snake_case", "snake_case.h, snake_case.cc, snake_case.c or snake_case.cu")


def expanded(text):
    """A CMake file with the bodies of its foreach loops written out for each value."""
    loop = re.compile(r"foreach\((\w+)\s+([^()]*)\)((?:(?!foreach\().)*?)endforeach\(\)", re.DOTALL)
    while loop.search(text):
        text = loop.sub(lambda m: "\n".join(m.group(3).replace("${" + m.group(1) + "}", v) for v in m.group(2).split()), text, count=1)
    return text


def rule_listed(tree):
    """Every source is built, every public header is installed, and every other header is included."""
    used = {name.removeprefix("reigen/") for source in tree.sources for _, quote, name in includes(source)}
    for source in tree.sources:
        parts = source.path.split("/")
        if source.path.startswith("tests/downstream/") or source.path == "include/reigen/reigen.h":
            continue
        if source.folder == "include":
            cmake, name = f"src/{source.floor}/CMakeLists.txt", "/".join(parts[3:])
        elif source.is_header():
            name = "/".join(parts[1:])
            if not any(u == name or name.endswith("/" + u) for u in used):
                yield Finding(source.path, 1, "listed", "nobody includes it", "remove it")
            continue
        else:
            depth = next((d for d in range(len(parts) - 1, 0, -1) if f"{'/'.join(parts[:d])}/CMakeLists.txt" in tree.paths), 1)
            cmake, name = f"{'/'.join(parts[:depth])}/CMakeLists.txt", "/".join(parts[depth:])
        if not re.search(rf"(?<![\w./]){re.escape(name)}(?![\w./])", expanded(tree.read(cmake))):
            yield Finding(source.path, 1, "listed", f"not in {cmake}", f"add {name} there, or remove it")


def slug(title):
    title = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", title.strip().lower())
    return re.sub(r"[^\w\- ]", "", title).replace(" ", "-")


def rule_link(tree):
    anchors = {p: {slug(t) for t in re.findall(r"^#+\s+(.*)$", tree.read(p), re.MULTILINE)} for p in tree.paths if p.endswith(".md")}
    for path in anchors:
        text = re.sub(r"```.*?```", lambda m: re.sub(r"[^\n]", " ", m.group(0)), tree.read(path), flags=re.DOTALL)
        for number, line in enumerate(text.split("\n"), 1):
            for target in re.findall(r"\]\(([^)\s]+)\)", line):
                if re.match(r"[a-z]+:", target):
                    continue
                file, _, anchor = target.partition("#")
                where = os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path
                if not (tree.root / where).exists():
                    yield Finding(path, number, "link", f"{target} leads nowhere", "a path that exists")
                elif anchor and where in anchors and anchor not in anchors[where]:
                    yield Finding(path, number, "link", f"{where} has no heading #{anchor}", "one of its headings")
            for target in re.findall(r"`((?:src|include|tests|docs|scripts|examples|cmake|bench|apps)/[\w./-]+\.(?:h|cc|c|md|py|cmake))`", line):
                if not (tree.root / target).exists():
                    yield Finding(path, number, "link", f"{target} does not exist", "a path that exists")


def rule_documented(tree):
    """Environment variables and exit codes are in the documents where users look for them."""
    for path, pattern, page in (("src/base/environment.cc", r'\{"(REIGEN_\w+)"', "docs/environment.md"),
                                ("include/reigen/base/error.h", r"\bk\w+ = (\d+),", "docs/errors.md")):
        text, words = tree.read(path), set(re.findall(r"\w+", tree.read(page)))
        for match in re.finditer(pattern, text):
            if match.group(1) not in words:
                yield Finding(path, text[:match.start()].count("\n") + 1, "documented", f"{match.group(1)} is not in {page}", "a row there")


def rule_quoted(tree):
    """A block ```cpp file=examples/x.cc in a document must be the whole text of that file."""
    for path in tree.paths:
        if not path.startswith("docs/") or not path.endswith(".md"):
            continue
        text = tree.read(path)
        for match in re.finditer(r"^```\w+ file=(\S+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            line = text[:match.start()].count("\n") + 1
            name, quoted = match.groups()
            if not (tree.root / name).is_file():
                yield Finding(path, line, "quoted", f"{name} does not exist", "a path that exists")
            elif tree.read(name) != quoted:
                yield Finding(path, line, "quoted", f"not what {name} is", "the file's text, whole")


RULES = [rule_floor, rule_folder, rule_cmake_floor, rule_torch, rule_engine, rule_size, rule_crowd, rule_class, rule_header, rule_conditional, rule_banned, rule_path, rule_marker,
         rule_line, rule_torn, rule_name, rule_listed, rule_link, rule_documented, rule_quoted]


def check(root):
    tree = Tree(root)
    return [finding for rule in RULES for finding in rule(tree)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", default=Path(__file__).resolve().parents[2], type=Path)
    findings = check(parser.parse_args().root)
    for finding in sorted(findings, key=lambda f: (f.path, f.line)):
        print(finding)
    print(f"tidy: {len(findings)} finding{'' if len(findings) == 1 else 's'}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
