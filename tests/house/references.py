"""Checks that every file and every symbol that comments and documents name exists.

    python3 tests/house/references.py [PATH...]    prints FILE:LINE: what was named; exit code 1 if anything is missing

PATH is as in prose.py.

Checked in comments and Markdown: names of files (`sharding/pipeline.h`, `pipeline.h`, even without backticks),
identifiers in backticks (`Propagate`, `xlad::hlo::Module`, `chunk_bytes`), and, in Markdown, flags in backticks
(`--mesh`). A reference with a space, a bracket or an upper-case placeholder (`cli/NAME.cc`) is an example and not
checked.
"""

import functools
import re
import sys

import prose

ROOT = prose.ROOT
EXTENSIONS = "h|cc|c|def|proto|py|sh|md|txt|cmake"
FILE = re.compile(rf"(?<![\w/<*-])((?:[\w.+-]+/)*[\w+-]+\.(?:{EXTENSIONS}))(?![\w/])")
BRACES = re.compile(r"\{[^{}]*\}")
IDENTIFIER = re.compile(r"^(?:::)?[A-Za-z_]\w*(?:(?:::|\.|->)~?[A-Za-z_]\w*)*(?:\(\))?$")
WORD = re.compile(r"[A-Za-z_]\w*")
# Files and symbols of other projects and of users, and the patterns for names in docs/style.md.
FOREIGN = {"model.py", "train.py", "dnnl-config.cmake", "ar", "safetensors.torch", "InvalidArgument", "UpperCamel",
           "trailing_", "kUpper"}
# Files that the worked examples of CONTRIBUTING.md create.
EXAMPLES = {"remove_double_reverses.cc", "chain.cc"}


@functools.cache
def tree():
    """Returns (the paths of the tree, the base names of these paths)."""
    paths = {path.relative_to(ROOT).as_posix() for path in prose.tree_files()}
    return paths, {path.rsplit("/", 1)[-1] for path in paths}


@functools.cache
def symbols():
    """Returns the identifiers that occur in the tree outside comments."""
    found = set()
    for path in prose.source_files():
        if path.suffix == ".md":
            continue
        source = path.read_text(errors="replace")
        if path.suffix in (".cc", ".h", ".def", ".c", ".proto"):
            source = re.sub(r"//[^\n]*", "", source)
        elif path.suffix in (".py", ".sh", ".cmake", ".txt"):
            source = re.sub(r"(?m)^\s*#[^\n]*", "", source)
        found.update(WORD.findall(source))
    for pattern in ("Makefile", "CMakePresets.json", "examples/**/manifest.json"):
        for path in ROOT.glob(pattern):
            found.update(WORD.findall(path.read_text()))
    return found


@functools.cache
def flags():
    """Returns the flags (--NAME) that occur in source files."""
    found = set()
    for path in [*prose.source_files(), ROOT / "Makefile"]:
        if path.suffix != ".md":
            found.update(re.findall(r"--[a-z][a-z-]*", path.read_text(errors="replace")))
    return found


def file_exists(name, beside):
    paths, base_names = tree()
    if name in FOREIGN or name.rsplit("/", 1)[-1] in FOREIGN | EXAMPLES:
        return True
    if "/" not in name:
        return name in base_names
    return (ROOT / name).exists() or (ROOT / beside / name).exists() or any(path.endswith("/" + name) for path in paths)


def missing_in(text, beside, is_page):
    """Returns the references in `text` to files or symbols that do not exist. `beside` is the folder of the file that
    contains the text."""
    missing = []
    unquoted = re.sub(r'"[^"]*"', '""', text)
    for name in FILE.findall(re.sub(r"https?://\S+", "", BRACES.sub("", unquoted))):
        if not any(part.isupper() for part in re.split(r"[/.]", name)) and not file_exists(name, beside):
            missing.append(name)
    for quoted in re.findall(r"`([^`]+)`", text):
        if FILE.fullmatch(quoted) or quoted.isupper():
            continue
        if IDENTIFIER.match(quoted):
            missing += [quoted for word in WORD.findall(quoted)[-1:] if word not in symbols() and quoted not in FOREIGN]
        elif is_page and re.match(r"^--[a-z][a-z-]*$", quoted) and quoted not in flags():
            missing.append(quoted)
    return missing


def check(path):
    beside = path.parent.relative_to(ROOT).as_posix()
    problems = []
    for line, kind, parts in prose.texts_of(path):
        if kind != "message":
            text = " ".join(part for _, part in parts)
            missing = missing_in(text, "" if beside == "." else beside, path.suffix == ".md")
            problems += [f"{path.relative_to(ROOT)}:{line}: {name} does not exist" for name in missing]
    return problems


def main(arguments):
    problems = [problem for path in prose.chosen_files(arguments) for problem in check(path)]
    print("\n".join(problems) if problems else "nothing found")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
