// Round trips of the available programs through text and proto, equality of a program's text and proto, and errors for
// StableHLO artifacts.
#include "base/testing/case_count.h"
#include "gtest/gtest.h"
#include "hlo/read/read.h"
#include "hlo/testing/test_material.h"
#include "hlo/testing/test_round_trip.h"
#include "hlo/text/text.h"

namespace xlad::hlo {
namespace {

void ExpectRoundTrips(const std::string& path) {
  SCOPED_TRACE(path);
  const absl::StatusOr<std::unique_ptr<Module>> module = ReadModule(MaterialBytes(path));
  ASSERT_TRUE(module.ok()) << module.status();
  const absl::Status status = CheckRoundTrips(**module);
  EXPECT_TRUE(status.ok()) << status.message().substr(0, 2000);
}

// Tries every `share`-th file, or all files if XLAD_ALL_CASES is set.
void ExpectAllRoundTrip(const char* variable, const std::string& suffix, size_t share = 1) {
  const std::vector<std::string> files = MaterialFiles(variable, suffix);
  if (files.empty()) GTEST_SKIP() << variable << " names no directory with *" << suffix;
  for (size_t i = 0; i < files.size(); i += CaseCount(share, 1)) ExpectRoundTrips(files[i]);
}

TEST(Material, ExamplesRoundTrip) { ExpectAllRoundTrip("XLAD_EXAMPLES", ".hlo"); }
TEST(Material, ExampleProtosRoundTrip) { ExpectAllRoundTrip("XLAD_EXAMPLES", ".hlo.pb"); }
TEST(Material, ConformanceRoundTrips) { ExpectAllRoundTrip("XLAD_CONFORMANCE", ".hlo"); }
TEST(Material, CorpusRoundTrips) { ExpectAllRoundTrip("XLAD_CORPUS", ".hlo.zst", 4); }

TEST(Material, TextAndProtoOfAnExampleAreTheSameProgram) {
  const std::vector<std::string> files = MaterialFiles("XLAD_EXAMPLES", ".hlo");
  if (files.empty()) GTEST_SKIP() << "XLAD_EXAMPLES names no directory with programs";
  for (const std::string& file : files) {
    const absl::StatusOr<std::unique_ptr<Module>> text = ReadModule(MaterialBytes(file));
    const absl::StatusOr<std::unique_ptr<Module>> proto = ReadModule(MaterialBytes(file + ".pb"));
    ASSERT_TRUE(text.ok() && proto.ok()) << file << text.status() << proto.status();
    // XLA's proto has no field for the number of partitions.
    (*proto)->num_partitions = (*text)->num_partitions;
    EXPECT_TRUE(PrintText(**text) == PrintText(**proto)) << file;
  }
}

TEST(Material, ArtifactsAreRefusedWithAClearError) {
  const std::vector<std::string> files = MaterialFiles("XLAD_EXAMPLES", ".mlirbc");
  if (files.empty()) GTEST_SKIP() << "XLAD_EXAMPLES names no directory with artifacts";
  for (const std::string& file : files) {
    EXPECT_NE(ReadModule(MaterialBytes(file)).status().message().find("StableHLO"), absl::string_view::npos) << file;
  }
}

}  // namespace
}  // namespace xlad::hlo
