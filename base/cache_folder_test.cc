#include "base/cache_folder.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <optional>

namespace xlad {
namespace {

constexpr const char* kNames[] = {"HOME", "XDG_CACHE_HOME", "XLAD_CACHE"};

// Unsets the variables before each test, and restores them afterwards.
class CacheFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames) {
      if (const char* value = std::getenv(name)) before_[name] = value;
      unsetenv(name);
    }
  }
  void TearDown() override {
    for (const char* name : kNames) {
      unsetenv(name);
      if (before_[name].has_value()) setenv(name, before_[name]->c_str(), 1);
    }
  }

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

TEST_F(CacheFolderTest, TheUsersFolderIsAnAbsolutePathOrEmpty) {
  EXPECT_EQ(UserCacheFolder(), "");
  setenv("HOME", "/home/alice", 1);
  EXPECT_EQ(UserCacheFolder(), "/home/alice/.cache/xlad");
  setenv("XDG_CACHE_HOME", "/caches", 1);
  EXPECT_EQ(UserCacheFolder(), "/caches/xlad");
  setenv("XDG_CACHE_HOME", "caches", 1);
  EXPECT_EQ(UserCacheFolder(), "/home/alice/.cache/xlad");
  setenv("HOME", "", 1);
  EXPECT_EQ(UserCacheFolder(), "");
}

TEST_F(CacheFolderTest, TheFlagComesFirstAndOffDisablesTheCache) {
  EXPECT_EQ(CacheFolder("", "usual"), "usual");
  setenv("XLAD_CACHE", "variable", 1);
  EXPECT_EQ(CacheFolder("", "usual"), "variable");
  EXPECT_EQ(CacheFolder("flag", "usual"), "flag");
  EXPECT_EQ(CacheFolder("off", "usual"), "");
  setenv("XLAD_CACHE", "off", 1);
  EXPECT_EQ(CacheFolder("", "usual"), "");
}

}  // namespace
}  // namespace xlad
