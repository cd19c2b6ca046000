// Golden tests. Comments in the programs of sharding/testdata/ list the expectations and the import options.
//
//   // rule: %NAME TEXT       the op rule of an instruction
//   // expect: %NAME TEXT     its shardings after propagation, one per array leaf, separated by "; "
//   // results: TEXT          the shardings of the entry's results
//   // error: TEXT            Import or Propagate fails with a message that contains TEXT
//   // rebind: MESH           ImportOptions.rebind
//   // feed: R P              result R feeds parameter P
//   // mesh: TEXT             the imported mesh
//
// The other expectations of a file with rules are not checked.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hlo/text/text.h"
#include "sharding/import/import.h"
#include "sharding/propagate/propagate.h"
#include "sharding/rules/op_rule.h"

namespace xlad::sharding {
namespace {

struct Golden {
  std::string program;
  std::vector<std::pair<std::string, std::string>> rules, expectations;
  std::string results, error, mesh;
  ImportOptions options;
};

std::pair<std::string, std::string> NameAndText(absl::string_view rest) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(rest, absl::MaxSplits(' ', 1));
  return {parts.first.substr(1), parts.second};
}

Golden Read(const std::string& path) {
  std::ifstream file(path);
  Golden golden;
  for (std::string line; std::getline(file, line);) {
    absl::string_view rest = line;
    if (!absl::ConsumePrefix(&rest, "// ")) {
      golden.program += line + "\n";
    } else if (absl::ConsumePrefix(&rest, "rule: ")) {
      golden.rules.push_back(NameAndText(rest));
    } else if (absl::ConsumePrefix(&rest, "expect: ")) {
      golden.expectations.push_back(NameAndText(rest));
    } else if (absl::ConsumePrefix(&rest, "results: ")) {
      golden.results = std::string(rest);
    } else if (absl::ConsumePrefix(&rest, "error: ")) {
      golden.error = std::string(rest);
    } else if (absl::ConsumePrefix(&rest, "mesh: ")) {
      golden.mesh = std::string(rest);
    } else if (absl::ConsumePrefix(&rest, "rebind: ")) {
      golden.options.rebind = *ParseMesh(rest);
    } else if (absl::ConsumePrefix(&rest, "feed: ")) {
      const std::vector<std::string> numbers = absl::StrSplit(rest, ' ');
      golden.options.feeds.push_back({std::stol(numbers[0]), std::stol(numbers[1])});
    }
  }
  return golden;
}

const hlo::Instruction* Named(const hlo::Module& module, const std::string& name) {
  for (const auto& computation : module.computations()) {
    for (const auto& instruction : computation->instructions()) {
      if (instruction->name() == name) return instruction.get();
    }
  }
  return nullptr;
}

std::string Text(const Mesh& mesh, const ValueSharding& shardings) {
  return absl::StrJoin(shardings, "; ", [&](std::string* out, const TensorSharding& sharding) {
    out->append(ToString(mesh, sharding));
  });
}

std::vector<std::string> Files() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator("sharding/testdata")) {
    if (entry.path().extension() == ".hlo") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void CheckRules(const Golden& golden) {
  auto module = hlo::ParseText(golden.program);
  ASSERT_TRUE(module.ok()) << module.status();
  for (const auto& [name, text] : golden.rules) {
    const hlo::Instruction* instruction = Named(**module, name);
    ASSERT_NE(instruction, nullptr) << name;
    EXPECT_EQ(RuleOf(*instruction).ToString(), text) << name;
  }
}

void CheckPropagation(const Golden& golden) {
  auto module = hlo::ParseText(golden.program);
  ASSERT_TRUE(module.ok()) << module.status();
  auto imported = Import(*std::move(module), golden.options);
  absl::Status status = imported.status();
  if (imported.ok()) status = Propagate(&*imported);
  if (!golden.error.empty()) {
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(golden.error));
    return;
  }
  ASSERT_TRUE(status.ok()) << status;
  if (!golden.mesh.empty()) EXPECT_EQ(imported->mesh.ToString(), golden.mesh);
  for (const auto& [name, text] : golden.expectations) {
    const hlo::Instruction* instruction = Named(*imported->module, name);
    ASSERT_NE(instruction, nullptr) << name << " is not in\n" << hlo::PrintText(*imported->module);
    ASSERT_TRUE(imported->shardings.contains(instruction)) << name;
    EXPECT_EQ(Text(imported->mesh, imported->shardings.at(instruction)), text) << name;
  }
  if (!golden.results.empty()) EXPECT_EQ(Text(imported->mesh, imported->results), golden.results);
}

TEST(Golden, Files) {
  const std::vector<std::string> files = Files();
  ASSERT_GT(files.size(), 20u) << "run in the root of the source tree";
  for (const std::string& path : files) {
    SCOPED_TRACE(path);
    const Golden golden = Read(path);
    CheckRules(golden);
    if (golden.rules.empty()) CheckPropagation(golden);
  }
}

}  // namespace
}  // namespace xlad::sharding
