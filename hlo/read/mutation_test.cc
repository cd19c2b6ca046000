// Damaged programs: random edits never cause a crash, and a program that still parses survives a round trip.
#include <algorithm>
#include <random>

#include "gtest/gtest.h"
#include "hlo/read/read.h"
#include "hlo/testing/test_material.h"
#include "hlo/testing/test_programs.h"
#include "hlo/testing/test_round_trip.h"

namespace xlad::hlo {
namespace {

constexpr absl::string_view kTokens[] = {
    "{", "}", "(", ")", "[", "]", ",", "=", "%", "\"", "/*", "*/", "//", "...", "->", "<=", "T(", "-", "ROOT ",
    "ENTRY ",
    "HloModule", "f32[", "f32[1000000000]{0}", "f32[36893488147419103232]", "99999999999999999999", "-1", "nan(0x",
    "parameter(1000000000)", "constant({...})", "devices=[1048576,1048576]<=[1099511627776]",
    "mesh['a'=9223372036854775807]",
    "metadata={", "sharding={{{{", "token[]", "(((((((((", "1e999", absl::string_view("\0\xff", 2), "dimensions={",
    "\n", "to_apply={"};

static_assert(std::none_of(std::begin(kTokens), std::end(kTokens), [](auto token) { return token.empty(); }));

using Rng = std::mt19937_64;

size_t Below(Rng& rng, size_t n) { return n == 0 ? 0 : std::uniform_int_distribution<size_t>(0, n - 1)(rng); }

// Applies one to four edits: changes a byte or a bit, inserts a token (into text) or a repeated byte (into a proto),
// removes a piece, duplicates a piece, or, rarely, truncates.
std::string Mutate(const std::string& program, Rng& rng, bool text) {
  std::string mutant = program;
  for (size_t edit = 0, edits = 1 + Below(rng, 4); edit < edits && !mutant.empty(); ++edit) {
    const size_t at = Below(rng, mutant.size());
    const size_t length = std::min(mutant.size() - at, 1 + Below(rng, 40));
    switch (Below(rng, 6)) {
      case 0: mutant[at] = static_cast<char>(Below(rng, 256)); break;
      case 1: mutant[at] = static_cast<char>(mutant[at] ^ (1 << Below(rng, 8))); break;
      case 2: {
        const absl::string_view token = kTokens[Below(rng, std::size(kTokens))];
        if (text) {
          mutant.insert(at, token.data(), token.size());
        } else {
          mutant.insert(at, std::string(1 + Below(rng, 9), static_cast<char>(Below(rng, 256))));
        }
        break;
      }
      case 3: mutant.erase(at, length); break;
      case 4: mutant.insert(Below(rng, mutant.size()), mutant.substr(at, length)); break;
      default:
        if (Below(rng, 8) == 0) mutant.resize(at);
    }
  }
  return mutant;
}

// Reads the bytes. If that succeeds, the module must survive round trips through text and proto.
void CheckMutant(const std::string& bytes) {
  const absl::StatusOr<std::unique_ptr<Module>> module = ReadModule(bytes);
  if (!module.ok()) {
    EXPECT_FALSE(module.status().message().empty());
    return;
  }
  const absl::Status status = CheckRoundTrips(**module);
  ASSERT_TRUE(status.ok()) << status;
}

std::vector<std::string> Programs() {
  std::vector<std::string> programs;
  for (const absl::string_view snippet : InstructionSnippets()) programs.emplace_back(snippet);
  for (const absl::string_view module : ModuleSnippets()) programs.emplace_back(module);
  for (const absl::string_view literal : LiteralSnippets()) programs.emplace_back(literal);
  for (const absl::string_view sharding : ShardingSnippets()) {
    programs.push_back("f32[8] add(f32[8] x, f32[8] y), sharding=" + std::string(sharding));
  }
  for (const absl::string_view groups : ReplicaGroupSnippets()) {
    programs.push_back("f32[8] all-to-all(f32[8] x), replica_groups=" + std::string(groups));
  }
  return programs;
}

// Writes the programs to the folder in XLAD_FUZZ_SEEDS, unchanged, printed and as protos. They are the seeds for
// `scripts/fuzz.sh`, and `tests/e2e/jaxlib_hlo_e2e.py` reads them with jaxlib.
TEST(Mutants, AreMadeOfSeeds) {
  const char* const root = std::getenv("XLAD_FUZZ_SEEDS");
  if (root == nullptr) GTEST_SKIP() << "XLAD_FUZZ_SEEDS names no folder";
  int written = 0;
  const auto write = [&](const std::string& form, const std::string& bytes) {
    const std::filesystem::path folder = std::filesystem::path(root) / form;
    std::filesystem::create_directories(folder);
    std::ofstream(folder / std::to_string(written), std::ios::binary) << bytes;
  };
  for (const std::string& program : Programs()) {
    const absl::StatusOr<std::unique_ptr<Module>> module = ParseText(program);
    ASSERT_TRUE(module.ok()) << module.status() << program;
    ++written;
    write("text", program);
    write("printed", PrintText(**module));
    write("proto", *SerializeProto(**module));
  }
}

TEST(Mutants, OfTextSurvive) {
  Rng rng(1);
  for (const std::string& program : Programs()) {
    for (int i = 0; i < 60; ++i) CheckMutant(Mutate(program, rng, /*text=*/true));
  }
}

TEST(Mutants, OfProtosSurvive) {
  Rng rng(2);
  for (const std::string& program : Programs()) {
    const absl::StatusOr<std::unique_ptr<Module>> module = ParseText(program);
    ASSERT_TRUE(module.ok()) << module.status() << program;
    const std::string proto = *SerializeProto(**module);
    for (int i = 0; i < 60; ++i) CheckMutant(Mutate(proto, rng, /*text=*/false));
  }
}

TEST(Mutants, EveryTruncatedProgramSurvives) {
  for (const std::string& program : Programs()) {
    for (size_t cut = 0; cut < program.size(); cut += program.size() > 400 ? 7 : 1) CheckMutant(program.substr(0, cut));
  }
}

TEST(Mutants, OfAnExampleSurvive) {
  const std::vector<std::string> texts = MaterialFiles("XLAD_EXAMPLES", "digits_mlp/step.dp4_tp2.hlo");
  if (texts.empty()) GTEST_SKIP() << "XLAD_EXAMPLES names no directory with digits_mlp";
  Rng rng(3);
  const std::string text = MaterialBytes(texts[0]);
  const std::string proto = MaterialBytes(texts[0] + ".pb");
  for (int i = 0; i < 300; ++i) {
    CheckMutant(Mutate(text, rng, /*text=*/true));
    CheckMutant(Mutate(proto, rng, /*text=*/false));
    CheckMutant(text.substr(0, Below(rng, text.size())));
    CheckMutant(proto.substr(0, Below(rng, proto.size())));
  }
}

}  // namespace
}  // namespace xlad::hlo
