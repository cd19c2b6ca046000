// Programs in which numbers are replaced by extreme ones: each is refused, or evaluated within the limits.
#include <cctype>
#include <random>

#include "base/file_system.h"
#include "hlo/eval/test_programs.h"

namespace xlad::hlo {
namespace {

constexpr const char* kExtremes[] = {"0",
                                     "1",
                                     "2",
                                     "3",
                                     "7",
                                     "-1",
                                     "-2",
                                     "64",
                                     "1000",
                                     "2147483647",
                                     "4294967296",
                                     "9223372036854775807",
                                     "-9223372036854775808",
                                     "4611686018427387904"};

// The text with one number replaced.
std::string Mutate(const std::string& text, std::mt19937* random) {
  std::vector<std::pair<size_t, size_t>> numbers;
  for (size_t i = 0; i < text.size(); ++i) {
    const char before = i == 0 ? ' ' : text[i - 1];
    if (std::isdigit(static_cast<unsigned char>(text[i])) == 0 || std::isalnum(static_cast<unsigned char>(before))) {
      continue;
    }
    size_t end = i;
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
    numbers.emplace_back(i, end - i);
    i = end;
  }
  const auto [at, length] = numbers[(*random)() % numbers.size()];
  std::string mutant = text;
  return mutant.replace(at, length, kExtremes[(*random)() % std::size(kExtremes)]);
}

TEST(Hostile, MutantsTerminate) {
  const std::string directory = "hlo/testdata/hostile";
  std::vector<std::string> programs;
  const auto names = RealFileSystem().List(directory);
  ASSERT_TRUE(names.ok()) << names.status();
  for (const std::string& name : *names) {
    const auto text = RealFileSystem().Read(JoinPath(directory, name));
    ASSERT_TRUE(text.ok()) << text.status();
    programs.push_back(*text);
  }
  std::mt19937 random(11);
  EvaluateLimits limits;
  limits.instructions = 20'000;
  limits.live_bytes = 1 << 22;
  limits.element_steps = 1e7;
  int evaluated = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = programs[round % programs.size()];
    for (unsigned changes = random() % 4; changes > 0; --changes) text = Mutate(text, &random);
    const auto module = ParseText(text);
    if (!module.ok() || (*module)->entry() == nullptr) continue;
    std::vector<Literal> inputs;
    int64_t bytes = 0;
    for (const Instruction* parameter : (*module)->entry()->parameters()) {
      const Shape& shape = parameter->shape();
      if (!shape.is_array() || !tensor::CheckedElements(shape.type(), shape.dims()).ok()) bytes = 1 << 30;
      if (bytes < 1 << 20) bytes += shape.bytes();
      if (bytes < 1 << 20) inputs.emplace_back(tensor::Array(shape.array()));
    }
    if (bytes >= 1 << 20) continue;
    const int64_t devices = absl::StrContains(text, "replica_count=2") ? 2 : 1;
    const auto result = Evaluate(std::vector<const Module*>(devices, module->get()),
                                 std::vector<std::vector<Literal>>(devices, inputs), limits);
    if (result.ok()) ++evaluated;
  }
  EXPECT_GT(evaluated, 500);
}

}  // namespace
}  // namespace xlad::hlo
