// Partitions the training steps of the examples for all their meshes. Compares the losses of their first steps with
// JAX's, and the bytes that a device sends with XLA's.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/str_join.h"
#include "base/file_system.h"
#include "base/testing/case_count.h"
#include "hlo/read/read.h"
#include "hlo/text/text.h"
#include "hlo/wire/proto.h"
#include "sharding/explain/explain.h"
#include "sharding/pipeline.h"
#include "sharding/proof/equivalence.h"
#include "tensor/safetensors.h"

namespace xlad::sharding {
namespace {

using nlohmann::json;

struct Example {
  const char* name;
  int steps;              // The number of steps that the evaluator runs.
  bool bytes_within_xla;  // Whether sent bytes must not exceed XLA's.
  bool all_sizes;         // Whether OtherMeshSizes tries all four sizes of the mesh instead of one.
};

std::string Folder(const Example& example) {
  const char* root = std::getenv("XLAD_EXAMPLES");
  return root == nullptr ? "" : JoinPath(root, example.name);
}

json ReadJson(const std::string& path) {
  const absl::StatusOr<std::string> text = RealFileSystem().Read(path);
  return text.ok() ? json::parse(*text) : json();
}

class Examples : public testing::TestWithParam<Example> {
 protected:
  void SetUp() override {
    folder_ = Folder(GetParam());
    if (folder_.empty() || !RealFileSystem().Exists(folder_)) GTEST_SKIP() << "XLAD_EXAMPLES has no such example";
    manifest_ = ReadJson(JoinPath(folder_, "manifest.json"));
    curve_ = ReadJson(JoinPath(folder_, "curve.json"));
    // The tests loop over the meshes.
    ASSERT_TRUE(manifest_.contains("meshes") && !manifest_["meshes"].empty()) << folder_ << "/manifest.json";
    ASSERT_TRUE(curve_.contains("meshes")) << folder_ << "/curve.json";
  }

  // Partitions the step for the mesh of this name. `rebind` replaces the sizes of its axes, for example "dp=3,tp=2".
  absl::StatusOr<PipelineResult> Pipeline(const std::string& mesh, const std::string& rebind = "") {
    XLAD_ASSIGN_OR_RETURN(const std::string text, RealFileSystem().Read(JoinPath(folder_, "step." + mesh + ".hlo.pb")));
    XLAD_ASSIGN_OR_RETURN(std::unique_ptr<hlo::Module> module, hlo::ReadModule(text));
    PipelineOptions options;
    if (!rebind.empty()) {
      XLAD_ASSIGN_OR_RETURN(options.import.rebind, ParseMesh(rebind));
    }
    for (const json& result : manifest_["results"]) {
      if (result["kind"] == "state" && result["feeds"].is_number()) {
        options.import.feeds.push_back({result["index"], result["feeds"]});
      }
    }
    return RunPipeline(std::move(module), options);
  }

  // Runs `steps` steps and compares their losses with the curve of the mesh named `curve`.
  void FollowCurve(const PartitionedProgram& program, const std::string& curve, int steps);

  std::string folder_;
  json manifest_, curve_;
};

// The inputs of step t, given the state.
absl::StatusOr<std::vector<hlo::Literal>> Inputs(const json& manifest, const tensor::NamedArrays& state,
                                                 const tensor::NamedArrays& data, int64_t t) {
  std::vector<hlo::Literal> inputs;
  const int64_t batch = manifest["batches"]["batch"], count = manifest["batches"]["count"];
  for (const json& parameter : manifest["parameters"]) {
    const std::string name = parameter["name"], kind = parameter["kind"];
    if (kind == "step") {
      inputs.emplace_back(tensor::Array::FromValues<int32_t>(tensor::ElementType::kS32, {}, {static_cast<int32_t>(t)}));
      continue;
    }
    const auto& from = kind == "data" ? data : state;
    if (!from.contains(name)) {
      return absl::NotFoundError(absl::StrCat(kind == "data" ? "data" : "state", ".safetensors has no tensor ", name));
    }
    const tensor::Array& whole = from.at(name);
    if (kind != "data") {
      inputs.emplace_back(whole);
      continue;
    }
    tensor::Box box = tensor::FullBox(whole.shape());
    box.lo[0] = t % count * batch;
    box.hi[0] = box.lo[0] + batch;
    inputs.emplace_back(tensor::ExtractBox(whole, box, box.sizes()));
  }
  return inputs;
}

tensor::NamedArrays ReadTensors(const std::string& path) {
  absl::StatusOr<tensor::NamedArrays> arrays = tensor::ReadSafetensors(RealFileSystem(), path);
  return arrays.ok() ? *std::move(arrays) : tensor::NamedArrays();
}

void Examples::FollowCurve(const PartitionedProgram& program, const std::string& curve, int steps) {
  const tensor::NamedArrays data = ReadTensors(JoinPath(folder_, "data.safetensors"));
  tensor::NamedArrays state = ReadTensors(JoinPath(folder_, "state.safetensors"));
  for (int64_t t = 0; t < steps; ++t) {
    absl::StatusOr<std::vector<hlo::Literal>> inputs = Inputs(manifest_, state, data, t);
    ASSERT_TRUE(inputs.ok()) << inputs.status();
    absl::StatusOr<hlo::Literal> step = EvaluatePartitioned(program, *inputs);
    ASSERT_TRUE(step.ok()) << step.status();
    for (const json& entry : manifest_["results"]) {
      const tensor::Array& value = step->tuple[entry["index"].get<size_t>()].array;
      if (entry["kind"] == "loss") {
        const double loss = value.values<float>()[0];
        const double expected = curve_["meshes"][curve]["loss"][t];
        EXPECT_NEAR(loss, expected, manifest_["tolerance"]["loss_relative"].get<double>() * std::abs(expected));
      }
      if (!entry["feeds"].is_number()) continue;
      state[manifest_["parameters"][entry["feeds"].get<size_t>()]["name"]] = value;
    }
  }
}

TEST_P(Examples, StepsFollowTheCurve) {
  const json& meshes = manifest_["meshes"];
  // By default, the last two meshes are tried: every example has a mesh with its most axes among them.
  for (size_t m = AllCases() || meshes.size() < 2 ? 0 : meshes.size() - 2; m < meshes.size(); ++m) {
    const std::string name = meshes[m]["name"];
    SCOPED_TRACE(name);
    absl::StatusOr<PipelineResult> result = Pipeline(name);
    ASSERT_TRUE(result.ok()) << result.status();
    FollowCurve(result->partitioned, name, GetParam().steps);
  }
}

// Tries mesh sizes, some of which divide neither the batch nor the widths. By default, only the last mesh with the most
// axes has other sizes.
TEST_P(Examples, OtherMeshSizes) {
  const json* widest = &manifest_["meshes"].front();
  for (const json& mesh : manifest_["meshes"]) {
    if (mesh["axes"].size() >= (*widest)["axes"].size()) widest = &mesh;
  }
  for (const json& mesh : manifest_["meshes"]) {
    const std::string name = mesh["name"];
    const std::vector<std::string> axes = [&] {
      std::vector<std::string> names;
      for (const auto& [axis, size] : mesh["axes"].items()) names.push_back(axis);
      return names;
    }();
    if (axes.empty()) continue;
    if (!AllCases() && &mesh != widest) continue;
    // The name of a mesh lists its axes in order; a JSON object does not keep the order of its keys.
    const bool swapped = axes.size() == 2 && name.find(axes[0]) > name.find(axes[1]);
    const std::string first = axes[swapped ? 1 : 0], second = axes.size() == 2 ? axes[swapped ? 0 : 1] : "";
    std::vector<std::pair<int, int>> sizes = {{3, 2}, {2, 3}, {5, 1}, {1, 6}};
    if (!GetParam().all_sizes) sizes.resize(1);
    for (const auto& [a, b] : sizes) {
      const std::string rebind =
          axes.size() == 2 ? absl::StrCat(first, "=", a, ",", second, "=", b) : absl::StrCat(first, "=", a * b);
      SCOPED_TRACE(rebind);
      absl::StatusOr<PipelineResult> result = Pipeline(name, rebind);
      // A program with manual computations has the shapes of one mesh size and cannot be used for another.
      const std::string message(result.status().message());
      if (message.find("export the program for that mesh") != std::string::npos) continue;
      ASSERT_TRUE(result.ok()) << result.status();
      FollowCurve(result->partitioned, name, 1);
    }
  }
}

TEST_P(Examples, BytesAndCauses) {
  for (const json& mesh : manifest_["meshes"]) {
    const std::string name = mesh["name"];
    SCOPED_TRACE(name);
    absl::StatusOr<PipelineResult> result = Pipeline(name);
    ASSERT_TRUE(result.ok()) << result.status();
    absl::StatusOr<Explanation> explanation = Explain(result->partitioned);
    ASSERT_TRUE(explanation.ok()) << explanation.status();
    for (const ExplainedCollective& collective : explanation->collectives) {
      ASSERT_FALSE(collective.because.empty()) << collective.op;
      const std::string& last = collective.because.back();
      EXPECT_TRUE(last.find("annotated") != std::string::npos || last.find("manual computation") != std::string::npos)
          << collective.kind << " of " << collective.op << " ends at " << collective.because.back();
    }
    const int64_t xla = mesh["sent_bytes_xla"];
    if (GetParam().bytes_within_xla) EXPECT_LE(explanation->bytes_per_device, xla);
    if (std::getenv("XLAD_SHOW") != nullptr) {
      std::cout << GetParam().name << " " << name << ": " << explanation->bytes_per_device << " bytes, XLA " << xla
                << ", " << explanation->collectives.size() << " collectives\n";
      for (const PassTime& time : result->times) std::cout << "  " << time.pass << " " << time.ns / 1000 << " us\n";
      for (const ExplainedCollective& c : explanation->collectives) {
        std::cout << "  " << c.kind << " " << c.bytes << " x " << c.trip_count.value_or(-1) << " over "
                  << absl::StrJoin(c.axes, ",") << " for " << c.op << ": " << absl::StrJoin(c.because, " <- ") << "\n";
      }
      for (const std::string& warning : result->partitioned.warnings) std::cout << "  warning: " << warning << "\n";
      if (const char* folder = std::getenv("XLAD_SHOW_FOLDER")) {
        const std::string file = JoinPath(folder, absl::StrCat(GetParam().name, ".", name, ".hlo"));
        const hlo::Module& local = *result->partitioned.variants[0].module;
        ASSERT_TRUE(RealFileSystem().WriteAtomically(file, hlo::PrintText(local)).ok());
        const absl::StatusOr<std::string> proto = hlo::SerializeProto(local);
        ASSERT_TRUE(proto.ok()) << proto.status();
        ASSERT_TRUE(RealFileSystem().WriteAtomically(file + ".pb", *proto).ok());
      }
    }
  }
}

std::string ExampleName(const testing::TestParamInfo<Example>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(All, Examples,
                         testing::Values(Example{"digits_mlp", 2, true, true}, Example{"dropout_rng", 2, true, true},
                                         Example{"nano_gpt", 1, true, false}, Example{"nano_gpt_bf16", 1, true, false},
                                         Example{"cnn", 1, false, false}, Example{"lstm", 1, true, false},
                                         Example{"moe", 1, true, false}, Example{"ring_shard_map", 1, true, false}),
                         ExampleName);

}  // namespace
}  // namespace xlad::sharding
