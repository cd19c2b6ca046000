// Evaluates training steps of the example job directories and compares the losses with the expected loss curves.
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "gtest/gtest.h"
#include "hlo/eval/evaluate.h"
#include "hlo/text/text.h"
#include "tensor/safetensors.h"

namespace xlad::hlo {
namespace {

using nlohmann::json;
using tensor::Array;
using tensor::NamedArrays;

// The rows [first, first + count) of an array.
Array Rows(const Array& array, int64_t first, int64_t count) {
  tensor::Shape shape = array.shape();
  const int64_t row = shape.dims[0] == 0 ? 0 : shape.bytes() / shape.dims[0];
  shape.dims[0] = count;
  const auto bytes = array.bytes().subspan(first * row, static_cast<size_t>(count * row));
  return Array(shape, std::vector<std::byte>(bytes.begin(), bytes.end()));
}

Array Scalar(int32_t value) { return Array::FromValues<int32_t>(tensor::ElementType::kS32, {}, {value}); }

class Example {
 public:
  explicit Example(const std::string& folder) {
    FileSystem& files = RealFileSystem();
    manifest_ = json::parse(files.Read(JoinPath(folder, "manifest.json")).value());
    curve_ = json::parse(files.Read(JoinPath(folder, "curve.json")).value());
    state_ = tensor::ReadSafetensors(files, JoinPath(folder, "state.safetensors")).value();
    data_ = tensor::ReadSafetensors(files, JoinPath(folder, "data.safetensors")).value();
    module_ = ParseText(files.Read(JoinPath(folder, "step.single.hlo")).value()).value();
  }

  double tolerance() const { return manifest_.at("tolerance").at("loss_relative").get<double>(); }
  double Curve(int64_t step) const {
    return curve_["meshes"]["single"]["loss"][step].get<double>();
  }

  // Runs one step and returns its loss.
  absl::StatusOr<double> Step(int64_t step) {
    const auto [batch, count] = Batches();
    std::vector<Literal> inputs;
    for (const json& parameter : manifest_["parameters"]) {
      const auto kind = parameter["kind"].get<std::string>(), name = parameter["name"].get<std::string>();
      if (kind == "step") {
        inputs.emplace_back(Scalar(static_cast<int32_t>(step)));
      } else if (kind == "data") {
        inputs.emplace_back(Rows(data_.at(name), step % count * batch, batch));
      } else {
        inputs.emplace_back(state_.at(name));
      }
    }
    XLAD_ASSIGN_OR_RETURN(Literal root, Evaluate(*module_, inputs));
    double loss = NAN;
    for (const json& result : manifest_["results"]) {
      Array& value = root.tuple[result["index"].get<size_t>()].array;
      if (result["kind"] == "loss") loss = double{value.values<float>()[0]};
      if (result["kind"] != "state" && result["kind"] != "rng") continue;
      state_[manifest_["parameters"][result["feeds"].get<size_t>()]["name"].get<std::string>()] = std::move(value);
    }
    return loss;
  }

 private:
  std::pair<int64_t, int64_t> Batches() const {
    const json& batches = manifest_.at("batches");
    return {batches.at("batch").get<int64_t>(), batches.at("count").get<int64_t>()};
  }

  json manifest_, curve_;
  NamedArrays state_, data_;
  std::unique_ptr<Module> module_;
};

struct Run {
  const char* name;
  int64_t steps;
};

class ExamplesTest : public ::testing::TestWithParam<Run> {};

TEST_P(ExamplesTest, ReproducesTheLossCurve) {
  const char* examples = std::getenv("XLAD_EXAMPLES");
  if (examples == nullptr) GTEST_SKIP() << "XLAD_EXAMPLES is not set";
  const char* all = std::getenv("XLAD_EVAL_STEPS");
  Example example(JoinPath(examples, GetParam().name));
  const int64_t steps = all != nullptr ? std::atoll(all) : GetParam().steps;
  for (int64_t step = 0; step < steps; ++step) {
    const absl::StatusOr<double> loss = example.Step(step);
    ASSERT_TRUE(loss.ok()) << loss.status();
    if (all != nullptr) GTEST_LOG_(INFO) << step << " " << *loss << " " << example.Curve(step);
    ASSERT_NEAR(*loss, example.Curve(step), example.tolerance() * std::fabs(example.Curve(step))) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Single, ExamplesTest,
                         ::testing::Values(Run{"digits_mlp", 10}, Run{"dropout_rng", 10}, Run{"nano_gpt", 1},
                                           Run{"nano_gpt_bf16", 1}, Run{"cnn", 1}, Run{"lstm", 1}, Run{"moe", 1}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace xlad::hlo
