// A folder for the files of one test.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "base/file_system.h"
#include "base/status.h"

namespace xlad {

// Makes an empty folder. The destructor removes the folder and its contents.
class TestFolder {
 public:
  TestFolder() { XLAD_CHECK(mkdtemp(path_.data()) != nullptr) << path_; }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_ = JoinPath(testing::TempDir(), "xlad_test_XXXXXX");
};

}  // namespace xlad
