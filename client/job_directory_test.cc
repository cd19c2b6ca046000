#include "client/job_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "base/hash.h"

namespace xlad::client {
namespace {

using ::testing::HasSubstr;

// Files in memory, which can only be read.
class MemoryFiles final : public FileSystem {
 public:
  std::map<std::string, std::string> files;
  absl::StatusOr<std::string> Read(const std::string& path) override {
    const auto found = files.find(path);
    if (found == files.end()) return absl::NotFoundError(absl::StrCat("cannot open ", path, ": No such file"));
    return found->second;
  }
  absl::StatusOr<std::string> ReadRange(const std::string& path, int64_t offset, int64_t size) override {
    XLAD_ASSIGN_OR_RETURN(const std::string bytes, Read(path));
    return bytes.substr(offset, size);
  }
  absl::StatusOr<int64_t> Size(const std::string& path) override {
    XLAD_ASSIGN_OR_RETURN(const std::string bytes, Read(path));
    return std::ssize(bytes);
  }
  absl::Status WriteAtomically(const std::string&, absl::string_view) override { return absl::InternalError("no"); }
  bool Exists(const std::string& path) override { return files.contains(path); }
  bool IsDirectory(const std::string& path) override { return path == "job"; }
  absl::StatusOr<std::vector<std::string>> List(const std::string&) override { return absl::InternalError("no"); }
  absl::Status MakeDirectories(const std::string&) override { return absl::InternalError("no"); }
  absl::Status Remove(const std::string&) override { return absl::InternalError("no"); }
  absl::StatusOr<std::unique_ptr<File>> Open(const std::string&, OpenMode) override {
    return absl::InternalError("no");
  }
  absl::Status Rename(const std::string&, const std::string&) override { return absl::InternalError("no"); }
  absl::Status SyncDirectory(const std::string&) override { return absl::InternalError("no"); }
  absl::Status RemoveDirectory(const std::string&) override { return absl::InternalError("no"); }
  absl::StatusOr<int64_t> FreeBytes(const std::string&) override { return absl::InternalError("no"); }
};

constexpr char kManifest[] = R"({
  "name": "tiny",
  "parameters": [{"index": 0, "name": "w", "shape": "f32[4]", "kind": "state"},
                 {"index": 1, "name": "x", "shape": "f32[2,4]", "kind": "data"},
                 {"index": 2, "name": "t", "shape": "s32[]", "kind": "step"}],
  "results": [{"index": 0, "name": "w", "shape": "f32[4]", "feeds": 0, "kind": "state"},
              {"index": 1, "name": "loss", "shape": "f32[]", "feeds": null, "kind": "loss"}],
  "steps": 10, "batches": {"batch": 2, "count": 3},
  "meshes": [{"name": "single", "axes": {}, "files": ["s.hlo", "s.hlo.pb"]},
             {"name": "dp2_tp2", "axes": {"dp": 2, "tp": 2}, "files": ["m.hlo.pb"]}]
})";

MemoryFiles Files(const std::string& manifest = kManifest) {
  MemoryFiles files;
  files.files = {{"job/manifest.json", manifest}, {"job/s.hlo", "single"},        {"job/m.hlo.pb", "mesh"},
                 {"job/state.safetensors", "st"}, {"job/data.safetensors", "da"}};
  return files;
}

TEST(JobDirectory, SelectsTheProgramOfTheMesh) {
  MemoryFiles files = Files();
  const auto single = ReadJobDirectory(files, "job", "", -1);
  ASSERT_TRUE(single.ok()) << single.status();
  EXPECT_EQ(single->program, "single");
  EXPECT_EQ(single->spec.steps(), 10);
  EXPECT_EQ(single->spec.results(1).feeds(), -1);
  for (const char* mesh : {"dp=2,tp=2", "dp=2, tp=2", "dp=3,tp=1"}) {  // The manifest lacks the last sizes.
    const auto job = ReadJobDirectory(files, "job", mesh, 5);
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->program, "mesh");
    EXPECT_EQ(job->spec.mesh_size(), 2);
    EXPECT_EQ(job->spec.steps(), 5);
  }
}

TEST(JobDirectory, ReadsTheProtoIfTheTextElidesValues) {
  MemoryFiles files = Files();
  files.files["job/s.hlo"] = "c = f32[99] constant({...})";
  files.files["job/s.hlo.pb"] = "complete";
  const auto job = ReadJobDirectory(files, "job", "", -1);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->program, "complete");
  EXPECT_EQ(job->program_path, "job/s.hlo.pb");
}

TEST(JobDirectory, StateAndDataAreFilesOrUris) {
  MemoryFiles files = Files();
  files.files["job/state.safetensors"] = std::string((4 << 20) + 5, 's');  // Is hashed in two parts.
  const auto own = ReadJobDirectory(files, "job", "", -1);
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(own->spec.state_blob(), Sha256Hex(files.files["job/state.safetensors"]));
  EXPECT_EQ(own->spec.data_blob(), Sha256Hex("da"));
  EXPECT_EQ(own->state_path, "job/state.safetensors");
  EXPECT_EQ(own->data_path, "job/data.safetensors");

  files = Files(absl::StrReplaceAll(kManifest, {{"\"steps\"", R"("state": "file:/s", "data": "file:/d", "steps")"}}));
  files.files.erase("job/state.safetensors");
  files.files.erase("job/data.safetensors");
  const auto by_uri = ReadJobDirectory(files, "job", "", -1, {"file:/other", ""});
  ASSERT_TRUE(by_uri.ok()) << by_uri.status();
  EXPECT_EQ(by_uri->spec.state_uri(), "file:/other") << "a flag replaces the manifest's URI";
  EXPECT_EQ(by_uri->spec.data_uri(), "file:/d");
  EXPECT_EQ(by_uri->spec.state_blob() + by_uri->spec.data_blob() + by_uri->state_path + by_uri->data_path, "");

  files = Files(absl::StrReplaceAll(kManifest, {{"\"steps\"", R"("state": "s.safetensors", "steps")"}}));
  EXPECT_THAT(std::string(ReadJobDirectory(files, "job", "", -1).status().message()),
              HasSubstr("job/manifest.json: state: found"));
}

TEST(JobDirectory, MeshFlagsAreChecked) {
  for (const char* bad : {"dp", "dp=", "dp=0", "dp=x", "dp=2,dp=2", "=2", "dp=2,,tp=2", "dp=99999999"}) {
    const auto axes = ParseMeshFlag(bad);
    EXPECT_FALSE(axes.ok()) << bad;
    EXPECT_THAT(std::string(axes.status().message()), HasSubstr("found")) << bad;
  }
}

TEST(JobDirectory, ErrorsHaveFileFieldFoundAndExpected) {
  const struct {
    const char* from;
    const char* to;
    const char* message;
  } kCases[] = {
      {"\"kind\": \"step\"", "\"kind\": \"stepp\"", "parameters[2]: found kind \"stepp\", expected"},
      {"\"kind\": \"loss\"", "\"kind\": \"lost\"",
       "results[1]: found kind \"lost\", expected \"state\", \"rng\", \"loss\" or \"metric\""},
      {"f32[2,4]", "f33[2,4]", "parameters[1]: found shape \"f33[2,4]\", expected"},
      {"\"feeds\": 0", "\"feeds\": 7", "results[0]: found feeds 7, expected a parameter index below 3"},
      {"\"feeds\": 0", "\"feeds\": -5", "results[0]: found feeds -5, expected"},
      {"\"feeds\": null", "\"feeds\": -2", "results[1]: found feeds -2, expected"},
      {"\"index\": 1, \"name\": \"x\"", "\"index\": 5, \"name\": \"x\"", "parameters[1]: found index 5, expected 1"},
      {"\"steps\": 10", "\"steps\": \"ten\"", "job/manifest.json: "},
      {"\"steps\": 10,", "", "job/manifest.json: "},
      {"\"batch\": 2", "\"batch\": 0", "batch"},
      {"\"s.hlo\", \"s.hlo.pb\"", "\"s.txt\"", "lists no file"},
      {"\"s.hlo\", \"s.hlo.pb\"", "\"gone.hlo\"", "gone.hlo"},
      {"{", "", "job/manifest.json: "},
  };
  for (const auto& test : kCases) {
    MemoryFiles files = Files(absl::StrReplaceAll(kManifest, {{test.from, test.to}}));
    const auto job = ReadJobDirectory(files, "job", "", -1);
    ASSERT_FALSE(job.ok()) << test.message;
    EXPECT_THAT(std::string(job.status().message()), HasSubstr(test.message));
  }
  MemoryFiles files = Files();
  EXPECT_THAT(std::string(ReadJobDirectory(files, "job", "pp=2", -1).status().message()),
              HasSubstr("expected one of single; dp=2,tp=2"));
  EXPECT_FALSE(ReadJobDirectory(files, "elsewhere", "", -1).ok());
}

}  // namespace
}  // namespace xlad::client
