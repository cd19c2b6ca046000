#include "service/blobs/executable_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>
#include <vector>

#include "base/file_system.h"
#include "base/log.h"
#include "base/testing/test_folder.h"

namespace xlad::service {
namespace {

class ExecutableCacheTest : public ::testing::Test {
 protected:
  ExecutableCacheTest() { SetLogLevel(LogLevel::kError); }
  ~ExecutableCacheTest() override { SetLogLevel(LogLevel::kInfo); }

  static BuildRequest Request(const std::string& program) {
    BuildRequest request;
    request.set_program(program);
    request.mutable_target()->set_cpu("cpu");
    request.mutable_spec()->add_mesh()->set_size(4);
    return request;
  }
  ExecutableCache::BuildFunction Build() {
    return [this](const BuildRequest& request) -> absl::StatusOr<BuildResponse> {
      ++builds_;
      BuildResponse response;
      response.set_executable("executable of " + request.program());
      response.set_partitioned_text(std::string(1000, 'p'));
      return response;
    };
  }
  // Returns whether the response came from the cache.
  bool Cached(ExecutableCache& cache, const BuildRequest& request, const std::string& owner = "") {
    const auto found = cache.Get(request, owner, Build());
    EXPECT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->response.executable(), "executable of " + request.program());
    return found->cached;
  }

  const TestFolder own_folder_;
  const std::string folder_ = JoinPath(own_folder_.path(), "cache");
  std::atomic<int> builds_ = 0;
};

TEST_F(ExecutableCacheTest, ASecondProcessBuildsNothing) {
  ExecutableCache first({.folder = folder_, .compiler = "1"});
  EXPECT_FALSE(Cached(first, Request("p")));
  EXPECT_TRUE(Cached(first, Request("p")));
  ExecutableCache second({.folder = folder_, .compiler = "1"});
  EXPECT_TRUE(Cached(second, Request("p")));
  EXPECT_EQ(builds_, 1);
}

TEST_F(ExecutableCacheTest, QuicklyCompiledCodeIsNotStored) {
  ExecutableCache cache({.folder = folder_});
  BuildRequest quick = Request("p");
  quick.set_quick(true);
  EXPECT_EQ(cache.KeyOf(quick), cache.KeyOf(Request("p")));
  const auto build = [&](const BuildRequest& request) -> absl::StatusOr<BuildResponse> {
    absl::StatusOr<BuildResponse> response = Build()(request);
    response->set_quick(request.quick());
    return response;
  };
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(cache.Get(quick, "", build)->cached);
  EXPECT_FALSE(cache.Get(Request("p"), "", build)->cached);
  const auto found = cache.Get(quick, "", build);
  EXPECT_TRUE(found->cached) << "the optimized code is better";
  EXPECT_FALSE(found->response.quick());
  EXPECT_EQ(builds_, 3);
}

// An urgent build does not wait for an equal one that is not urgent. Later calls of either kind find the stored entry.
TEST_F(ExecutableCacheTest, UrgentBuildsWaitForNoOthers) {
  ExecutableCache cache({.folder = folder_});
  std::promise<void> started, may_end;
  std::thread slow([&] {
    const auto build = [&](const BuildRequest& request) {
      started.set_value();
      may_end.get_future().wait();
      return Build()(request);
    };
    const auto built = cache.Get(Request("p"), "", build, /*is_urgent=*/false);
    EXPECT_TRUE(built.ok() && !built->cached);
  });
  started.get_future().wait();
  EXPECT_FALSE(Cached(cache, Request("p"))) << "it would wait endlessly";
  may_end.set_value();
  slow.join();
  const auto later = cache.Get(Request("p"), "", Build(), /*is_urgent=*/false);
  EXPECT_TRUE(later.ok() && later->cached);
  EXPECT_EQ(builds_, 2);
}

TEST_F(ExecutableCacheTest, UsersShareNoEntries) {
  ExecutableCache cache({.folder = folder_});
  for (const char* const owner : {"alice", "bob", ""}) {
    EXPECT_FALSE(Cached(cache, Request("p"), owner)) << owner;
    EXPECT_TRUE(Cached(cache, Request("p"), owner)) << owner;
  }
  EXPECT_EQ(builds_, 3);
}

TEST_F(ExecutableCacheTest, KeyCoversEveryInputOfTheBuild) {
  const ExecutableCache cache({.compiler = "1"}), other({.compiler = "2"});
  const BuildRequest request = Request("p");
  const std::string key = cache.KeyOf(request);
  BuildRequest same = request;
  same.mutable_spec()->set_name("another name");
  same.mutable_spec()->set_steps(17);
  same.mutable_spec()->set_state_blob("another state");
  same.mutable_spec()->set_keep_final_state(true);
  EXPECT_EQ(cache.KeyOf(same), key);
  EXPECT_NE(other.KeyOf(request), key);
  std::vector<BuildRequest> different(6, request);
  different[0].set_program("q");
  different[1].mutable_spec()->mutable_mesh(0)->set_size(2);
  different[2].mutable_target()->set_features("+avx512f");
  different[3].set_state_header("header");
  different[4].set_data_header("header");
  different[5].mutable_spec()->add_results()->set_feeds(1);
  for (const BuildRequest& one : different) EXPECT_NE(cache.KeyOf(one), key);
}

TEST_F(ExecutableCacheTest, DamagedEntriesAreBuiltAgain) {
  ExecutableCache cache({.folder = folder_});
  EXPECT_FALSE(Cached(cache, Request("p")));
  const std::string path = JoinPath(folder_, cache.KeyOf(Request("p")));
  const std::string whole = *RealFileSystem().Read(path);
  for (const size_t place : {size_t{0}, size_t{63}, size_t{64}, whole.size() / 2, whole.size() - 1}) {
    std::string damaged = whole;
    damaged[place] ^= 1;
    std::ofstream(path, std::ios::binary) << damaged;
    EXPECT_FALSE(Cached(cache, Request("p"))) << place;
    EXPECT_TRUE(Cached(cache, Request("p"))) << place;
  }
  for (const size_t size : {size_t{0}, size_t{10}, size_t{64}, whole.size() - 1}) {
    std::ofstream(path, std::ios::binary) << whole.substr(0, size);
    EXPECT_FALSE(Cached(cache, Request("p"))) << size;
  }
}

TEST_F(ExecutableCacheTest, RemovesLeastRecentlyUsed) {
  ExecutableCache cache({.folder = folder_, .max_bytes = 5000});
  const auto path = [&](const std::string& program) { return JoinPath(folder_, cache.KeyOf(Request(program))); };
  const auto age = [&](const std::string& program, int hours) {
    std::filesystem::last_write_time(path(program),
                                     std::filesystem::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  for (const char* program : {"a", "b", "c", "d"}) EXPECT_FALSE(Cached(cache, Request(program)));
  age("a", 4), age("b", 3), age("c", 2), age("d", 1);
  EXPECT_TRUE(Cached(cache, Request("a")));  // The entry is now the most recently used.
  EXPECT_FALSE(Cached(cache, Request("e")));
  EXPECT_FALSE(std::filesystem::exists(path("b")));
  for (const char* program : {"a", "c", "d", "e"}) EXPECT_TRUE(std::filesystem::exists(path(program))) << program;
}

TEST_F(ExecutableCacheTest, ConcurrentBuildsAreShared) {
  ExecutableCache cache({.folder = ""});
  std::atomic<int> asked = 0, cached = 0;
  const ExecutableCache::BuildFunction build = [&](const BuildRequest& request) {
    while (asked < 8) std::this_thread::yield();
    return Build()(request);
  };
  // A thread that calls Get when the build has ended builds again, so a round may share nothing.
  for (int round = 0; cached == 0 && round < 1000; ++round) {
    asked = builds_ = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&] {
        ++asked;
        cached += cache.Get(Request("p"), "", build)->cached;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(8 - cached, builds_);
  }
  EXPECT_GT(cached, 0);
  EXPECT_FALSE(Cached(cache, Request("p")));  // The response was not stored.
}

TEST_F(ExecutableCacheTest, ErrorsAreNotKept) {
  ExecutableCache cache({.folder = folder_});
  const auto failed = cache.Get(Request("p"), "", [](const BuildRequest&) -> absl::StatusOr<BuildResponse> {
    return absl::InvalidArgumentError("no");
  });
  EXPECT_EQ(failed.status().message(), "no");
  EXPECT_FALSE(Cached(cache, Request("p")));
}

TEST_F(ExecutableCacheTest, BuildSucceedsIfTheFolderCannotBeWritten) {
  std::ofstream(folder_) << "a file in its place";
  ExecutableCache cache({.folder = folder_});
  EXPECT_FALSE(Cached(cache, Request("p")));
  EXPECT_FALSE(Cached(cache, Request("p")));
}

}  // namespace
}  // namespace xlad::service
