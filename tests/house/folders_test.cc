// Checks that folders include only the folders that the table of docs/architecture.md allows, that includes have no
// cycles, and that headers of libraries are included only in the folders that wrap them, and in bench/.
#include <map>
#include <set>

#include "gtest/gtest.h"
#include "tests/house/source_tree.h"

namespace xlad::house {
namespace {

using Folders = std::set<std::string>;

// The folders that a folder may include directly, besides its own files. cli, bench, tests, examples and scripts may
// include all folders.
const std::map<std::string, Folders>& AllowedIncludes() {
  static const auto* const table = new std::map<std::string, Folders>{
      {"base", {}},
      {"proto", {}},
      {"machine", {"base"}},
      {"tensor", {"base"}},
      {"storage", {"base", "proto", "tensor"}},
      {"observe", {"base", "proto", "tensor"}},
      {"security", {"base", "proto", "tensor"}},
      {"hlo", {"base", "proto", "tensor"}},
      {"collectives/plan", {"base", "tensor", "machine"}},
      {"collectives/exec", {"base", "tensor", "proto", "security", "collectives/plan"}},
      {"sharding", {"base", "tensor", "hlo", "collectives/plan"}},
      {"compiler", {"base", "tensor", "proto", "hlo", "sharding", "collectives/plan", "machine"}},
      {"simulate", {"base", "tensor", "proto", "hlo", "sharding", "compiler", "collectives/plan", "machine"}},
      {"runtime", {"base", "tensor", "proto", "storage", "collectives/plan", "collectives/exec", "machine"}},
      {"worker", {"base", "tensor", "proto", "storage", "security", "collectives/plan", "collectives/exec", "runtime"}},
      {"service",
       {"base", "tensor", "proto", "storage", "observe", "security", "hlo", "sharding", "compiler", "collectives/plan",
        "simulate"}},
      {"client", {"base", "tensor", "proto", "storage", "hlo"}},
  };
  return *table;
}

const Folders kFree = {"cli", "bench", "tests", "examples", "scripts"};

// Returns the folder of the included file, or "" for headers of other projects.
std::string FolderOfInclude(const std::string& include) {
  const std::string folder = FolderOf(include);
  const bool ours = folder != include && (AllowedIncludes().contains(folder) || kFree.contains(folder));
  return ours ? folder : "";
}

TEST(FoldersTest, IncludesFollowTheTable) {
  for (const SourceFile& file : CppFiles()) {
    const std::string folder = FolderOf(file.path);
    if (kFree.contains(folder)) continue;
    const auto row = AllowedIncludes().find(folder);
    if (row == AllowedIncludes().end()) {
      ADD_FAILURE() << file.path << ": folder " << folder << " is not in the table of docs/architecture.md";
      continue;
    }
    for (const std::string& include : IncludesOf(file).quoted) {
      const std::string other = FolderOfInclude(include);
      EXPECT_TRUE(other.empty() || other == folder || row->second.contains(other))
          << file.path << " includes " << include << ": " << folder << "/ may not include " << other << "/";
    }
  }
}

// Depth-first search over `edges`. Returns the first cycle found as "a -> b -> a", or "" if there is none.
std::string FindCycle(const std::map<std::string, Folders>& edges) {
  std::set<std::string> done;
  std::vector<std::string> path;
  std::string cycle;
  const auto visit = [&](const auto& self, const std::string& node) -> void {
    if (!cycle.empty() || done.contains(node)) return;
    const auto open = std::find(path.begin(), path.end(), node);
    if (open != path.end()) {
      for (auto it = open; it != path.end(); ++it) cycle += *it + " -> ";
      cycle += node;
      return;
    }
    path.push_back(node);
    const auto found = edges.find(node);
    if (found != edges.end()) {
      for (const std::string& next : found->second) self(self, next);
    }
    path.pop_back();
    done.insert(node);
  };
  for (const auto& [node, next] : edges) visit(visit, node);
  return cycle;
}

TEST(FoldersTest, FindCycleFindsOne) {
  EXPECT_EQ(FindCycle({{"a", {"b"}}, {"b", {"c"}}, {"c", {}}}), "");
  EXPECT_EQ(FindCycle({{"a", {"b"}}, {"b", {"c"}}, {"c", {"b"}}}), "b -> c -> b");
}

TEST(FoldersTest, NoCyclesBetweenFolders) {
  EXPECT_EQ(FindCycle(AllowedIncludes()), "");
  std::map<std::string, Folders> edges;
  for (const SourceFile& file : CppFiles()) {
    const std::string folder = FolderOf(file.path);
    if (kFree.contains(folder)) continue;
    for (const std::string& include : IncludesOf(file).quoted) {
      const std::string other = FolderOfInclude(include);
      if (!other.empty() && other != folder) edges[folder].insert(other);
    }
  }
  EXPECT_EQ(FindCycle(edges), "");
}

// The sub-folders of a folder, lowest first ("" is the folder itself). A file may include files of its own sub-folder
// and of earlier sub-folders. "NAME/*" is every other folder in NAME; these do not include each other. Tests,
// fuzz targets and testing/ folders may include all files of their own folder.
const std::map<std::string, std::vector<std::string>>& SubfolderOrder() {
  static const auto* const order = new std::map<std::string, std::vector<std::string>>{
      {"base", {"", "process", "net"}},
      {"hlo", {"", "infer", "build", "analysis", "verify", "text", "wire", "read", "eval", "graph"}},
      {"sharding",
       {"model", "rules", "cost", "import", "propagate", "partition", "partition/ops", "explain", "proof", ""}},
      {"compiler",
       {"analysis", "passes", "kernel", "buffers", "steps", "codegen/llvm", "codegen/nvptx", "codegen/tpu", "codegen",
        ""}},
      {"service",
       {"log", "placement", "state", "attempts", "jobs", "workers", "credentials", "blobs", "build_queue", "", "http",
        "rpc", "build"}},
      {"runtime", {"", "devices/cpu", "devices/opaque", "devices/*", "devices/registry", "devices/conformance"}},
  };
  return *order;
}

bool IsForTests(const std::string& path) {
  return EndsWith(path, "_test.cc") || EndsWith(path, "_fuzz.cc") || path.find("/testing/") != std::string::npos;
}

std::string Directory(const std::string& path) { return std::filesystem::path(path).parent_path().generic_string(); }

// Returns the position of a file's sub-folder in `order`, or -1 if `order` does not contain it.
int Level(const std::string& path, const std::string& folder, const std::vector<std::string>& order) {
  const std::string directory = Directory(path);
  const std::string sub = directory == folder ? "" : directory.substr(folder.size() + 1);
  auto found = std::find(order.begin(), order.end(), sub);
  if (found == order.end()) found = std::find(order.begin(), order.end(), Directory(sub) + "/*");
  return found == order.end() ? -1 : static_cast<int>(found - order.begin());
}

TEST(FoldersTest, SubfoldersIncludeOnlyLowerOnes) {
  for (const SourceFile& file : CppFiles()) {
    const std::string folder = FolderOf(file.path);
    const auto row = SubfolderOrder().find(folder);
    if (row == SubfolderOrder().end() || IsForTests(file.path)) continue;
    const int level = Level(file.path, folder, row->second);
    EXPECT_GE(level, 0) << file.path << ": " << Directory(file.path) << " is not in the order of " << folder << "/";
    for (const std::string& include : IncludesOf(file).quoted) {
      if (FolderOf(include) != folder) continue;
      const int included = Level(include, folder, row->second);
      EXPECT_TRUE(included < level || Directory(include) == Directory(file.path))
          << file.path << " includes " << include << ", which is not below it in the order";
    }
  }
}

TEST(FoldersTest, NoCyclesBetweenSubfolders) {
  std::map<std::string, Folders> edges;
  for (const SourceFile& file : CppFiles()) {
    if (IsForTests(file.path) || kFree.contains(FolderOf(file.path))) continue;
    for (const std::string& include : IncludesOf(file).quoted) {
      if (FolderOfInclude(include).empty() || Directory(include) == Directory(file.path)) continue;
      edges[Directory(file.path)].insert(Directory(include));
    }
  }
  EXPECT_EQ(FindCycle(edges), "");
}

TEST(FoldersTest, NoCyclesBetweenHeaders) {
  std::map<std::string, Folders> edges;
  for (const SourceFile& file : CppFiles()) {
    for (const std::string& include : IncludesOf(file).quoted) {
      if (!FolderOfInclude(include).empty()) edges[file.path].insert(include);
    }
  }
  EXPECT_EQ(FindCycle(edges), "");
}

TEST(FoldersTest, IncludesOfOurFilesExist) {
  for (const SourceFile& file : CppFiles()) {
    for (const std::string& include : IncludesOf(file).quoted) {
      if (FolderOfInclude(include).empty() || EndsWith(include, ".pb.h")) continue;
      EXPECT_TRUE(std::filesystem::exists(include)) << file.path << " includes " << include;
    }
  }
}

struct Vendor {
  const char* name;
  std::vector<std::string> prefixes;       // The prefixes of the paths of its headers.
  std::vector<std::string> allowed_paths;  // A file may include these headers if its path contains one of these texts.
};

const std::vector<Vendor>& Vendors() {
  static const auto* const vendors = new std::vector<Vendor>{
      {"LLVM", {"llvm/", "llvm-c/"}, {"compiler/codegen/llvm/", "compiler/codegen/nvptx/", "runtime/devices/cpu/"}},
      {"gRPC", {"grpc/", "grpcpp/"}, {"/grpc_"}},
      {"CUDA", {"cuda.h", "cuda_", "cublas", "nvrtc"}, {"runtime/devices/cuda/"}},
      {"NCCL", {"nccl"}, {"/nccl", "runtime/devices/cuda/"}},
      {"UCX", {"ucp/", "ucs/", "uct/", "ucm/"}, {"/transports/ucx"}},
      {"MPI", {"mpi.h", "mpi"}, {"/transports/mpi"}},
      {"oneDNN", {"dnnl", "oneapi/dnnl"}, {"runtime/devices/cpu/"}},
      {"spdlog", {"spdlog/", "fmt/"}, {"base/"}},
  };
  return *vendors;
}

TEST(FoldersTest, VendorHeadersStayInTheirFolders) {
  for (const SourceFile& file : CppFiles()) {
    // bench/ measures the peers themselves.
    if (StartsWith(file.path, "bench/")) continue;
    const Includes includes = IncludesOf(file);
    std::vector<std::string> all = includes.quoted;
    all.insert(all.end(), includes.bracketed.begin(), includes.bracketed.end());
    for (const std::string& include : all) {
      for (const Vendor& vendor : Vendors()) {
        const auto names = [&](const std::string& prefix) { return StartsWith(include, prefix); };
        const auto allowed = [&](const std::string& part) { return file.path.find(part) != std::string::npos; };
        if (!std::any_of(vendor.prefixes.begin(), vendor.prefixes.end(), names)) continue;
        std::string paths;
        for (const std::string& path : vendor.allowed_paths) paths += " " + path;
        EXPECT_TRUE(std::any_of(vendor.allowed_paths.begin(), vendor.allowed_paths.end(), allowed))
            << file.path << " includes " << include << ": " << vendor.name
            << " headers are only for files whose path contains one of" << paths;
      }
      const bool service = EndsWith(include, ".grpc.pb.h");
      EXPECT_TRUE(!service || file.path.find("/grpc_") != std::string::npos) << file.path << " includes " << include;
    }
  }
}

}  // namespace
}  // namespace xlad::house
