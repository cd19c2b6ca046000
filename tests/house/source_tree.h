// The source tree for the house tests: files, their text, and their folders in the table of docs/architecture.md.
//
// Tests must run with the repository's root as the working directory.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace xlad::house {

struct SourceFile {
  std::string path;  // The path from the root, with '/' as the separator.
  std::string text;
};

inline std::string ReadText(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

inline bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}
inline bool StartsWith(const std::string& text, const std::string& start) { return text.rfind(start, 0) == 0; }

inline std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Returns every file of the project with one of these endings, sorted by path, without build output and hidden folders.
inline std::vector<SourceFile> FilesEndingWith(const std::vector<std::string>& endings) {
  namespace fs = std::filesystem;
  std::vector<SourceFile> files;
  for (fs::recursive_directory_iterator it("."), end; it != end; ++it) {
    const std::string path = it->path().generic_string().substr(2);
    const std::string name = it->path().filename().string();
    if (it->is_directory() && (path == "build" || name == "__pycache__" || name[0] == '.')) {
      it.disable_recursion_pending();
      continue;
    }
    if (!it->is_regular_file()) continue;
    const bool wanted = std::any_of(endings.begin(), endings.end(), [&](const auto& e) { return EndsWith(path, e); });
    if (wanted) files.push_back({path, ReadText(it->path())});
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return files;
}

inline const std::vector<SourceFile>& CppFiles() {
  static const auto* const files = new std::vector<SourceFile>(FilesEndingWith({".cc", ".h", ".def", ".c"}));
  return *files;
}

// Returns the folder of a path in the table: "collectives/plan" for collectives/plan/algorithms/ring.cc, otherwise the
// first part of the path.
inline std::string FolderOf(const std::string& path) {
  for (const char* const two : {"collectives/plan", "collectives/exec"}) {
    if (StartsWith(path, std::string(two) + "/")) return two;
  }
  return path.substr(0, path.find('/'));
}

struct Includes {
  std::vector<std::string> quoted, bracketed;
};
// Returns the includes of a file, without quotes or angle brackets.
inline Includes IncludesOf(const SourceFile& file) {
  Includes includes;
  for (const std::string& line : Lines(file.text)) {
    const size_t hash = line.find_first_not_of(" \t");
    if (hash == std::string::npos || line[hash] != '#' || line.find("include", hash) == std::string::npos) continue;
    const size_t open = line.find_first_of("\"<", hash);
    if (open == std::string::npos) continue;
    const size_t close = line.find(line[open] == '<' ? '>' : '"', open + 1);
    if (close == std::string::npos) continue;
    (line[open] == '<' ? includes.bracketed : includes.quoted).push_back(line.substr(open + 1, close - open - 1));
  }
  return includes;
}

}  // namespace xlad::house
