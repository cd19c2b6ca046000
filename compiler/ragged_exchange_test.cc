// Compares compiled exchanges of rows whose sizes are data (ragged-all-to-all) with the evaluator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "compiler/testing/run_steps.h"
#include "hlo/eval/evaluate.h"
#include "hlo/text/text.h"

namespace xlad::compiler {
namespace {

using tensor::Array;
using tensor::ElementType;

// A random exchange among groups of `size` devices, with `entries` entries for each pair of devices of a group.
struct Exchange {
  Exchange(int devices_, int size_, int entries_, Random* random)
      : devices(devices_), size(size_), entries(entries_), rows(1 + static_cast<int64_t>(random->Below(5))) {
    const auto n = static_cast<size_t>(devices);
    for (auto* table : {&start, &rows_sent, &target, &rows_received}) {
      table->assign(n, std::vector<int32_t>(static_cast<size_t>(size * entries)));
    }
    for (int to = 0; to < devices; ++to) {
      // Some rows before and between the received rows are not written.
      int32_t at = static_cast<int32_t>(random->Below(2));
      for (int s = 0; s < size; ++s) {
        const int from = to / size * size + s;
        for (int e = 0; e < entries; ++e) {
          const int here = to % size * entries + e;
          start[from][here] = static_cast<int32_t>(random->Below(static_cast<uint64_t>(rows)));
          rows_sent[from][here] =
              static_cast<int32_t>(random->Below(static_cast<uint64_t>(rows - start[from][here]) + 1));
          target[from][here] = at;
          rows_received[to][s * entries + e] = rows_sent[from][here];
          at += rows_sent[from][here] + static_cast<int32_t>(random->Below(2));
        }
      }
      output_rows = std::max<int64_t>(output_rows, at + 1);
    }
  }

  std::string Text() const {
    const std::string vector = absl::StrCat("s32[", size * entries, "]");
    std::string text = absl::StrCat("HloModule m, num_partitions=", devices, "\nENTRY e {\n  x = f32[", rows,
                                    ",2] parameter(0)\n  o = f32[", output_rows, ",2] parameter(1)\n");
    const char* const names[] = {"start", "sent", "target", "received"};
    for (int p = 0; p < 4; ++p) absl::StrAppend(&text, "  ", names[p], " = ", vector, " parameter(", p + 2, ")\n");
    absl::StrAppend(&text, "  ROOT r = f32[", output_rows, ",2] ragged-all-to-all(x, o, start, sent, target, received)",
                    ", channel_id=1, replica_groups={");
    for (int d = 0; d < devices; ++d) {
      absl::StrAppend(&text, d % size == 0 ? (d == 0 ? "{" : ",{") : ",", d, d % size == size - 1 ? "}" : "");
    }
    return text + "}\n}\n";
  }

  std::vector<Array> Inputs(int device) const {
    const auto floats = [device](int64_t count, float first) {
      std::vector<float> values;
      for (int64_t i = 0; i < 2 * count; ++i) values.push_back(first * static_cast<float>(1000 * device + i + 1));
      return Array::FromValues<float>(ElementType::kF32, {count, 2}, values);
    };
    std::vector<Array> inputs;
    inputs.push_back(floats(rows, 1));
    inputs.push_back(floats(output_rows, -1));
    for (const auto* table : {&start, &rows_sent, &target, &rows_received}) {
      inputs.push_back(Array::FromValues<int32_t>(ElementType::kS32, {size * entries}, (*table)[device]));
    }
    return inputs;
  }

  int devices, size, entries;
  int64_t rows, output_rows = 1;
  std::vector<std::vector<int32_t>> start, rows_sent, target, rows_received;  // Indexed by device.
};

void Check(const Exchange& exchange) {
  auto module = hlo::ParseText(exchange.Text());
  ASSERT_TRUE(module.ok()) << module.status();
  std::vector<std::vector<Array>> inputs;
  std::vector<std::vector<hlo::Literal>> literals;
  for (int d = 0; d < exchange.devices; ++d) {
    inputs.push_back(exchange.Inputs(d));
    literals.emplace_back();
    for (const Array& array : exchange.Inputs(d)) literals.back().push_back(hlo::Literal(array));
  }
  const auto expected =
      hlo::Evaluate(std::vector<const Module*>(static_cast<size_t>(exchange.devices), module->get()), literals);
  ASSERT_TRUE(expected.ok()) << expected.status();
  const auto compilation = CompileToSteps(*std::move(module), CompileRequest());
  ASSERT_TRUE(compilation.ok()) << compilation.status();
  const auto found = RunSteps(*compilation, inputs);
  ASSERT_TRUE(found.ok()) << found.status();
  for (size_t d = 0; d < inputs.size(); ++d) {
    const auto a = (*found)[d][0].bytes(), b = (*expected)[d].array.bytes();
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << "device " << d << " of\n" << exchange.Text();
  }
}

TEST(RaggedExchange, HasTheResultsOfTheEvaluator) {
  const auto random = SeededRandom(7);
  for (int round = 0; round < 60; ++round) {
    const int groups = 1 + static_cast<int>(random->Below(2)), size = 1 + static_cast<int>(random->Below(4));
    Check(Exchange(groups * size, size, 1 + static_cast<int>(random->Below(2)), random.get()));
    if (HasFailure()) return;
  }
}

TEST(RaggedExchange, RefusesOffsetsThatDoNotFitTheGroup) {
  const auto random = SeededRandom(7);
  Exchange exchange(2, 2, 1, random.get());
  std::string text = exchange.Text();
  for (size_t at; (at = text.find("s32[2]")) != std::string::npos;) text.replace(at, 6, "s32[3]");
  auto module = hlo::ParseText(text);
  ASSERT_TRUE(module.ok()) << module.status();
  const auto compilation = CompileToSteps(*std::move(module), CompileRequest());
  EXPECT_THAT(std::string(compilation.status().message()),
              ::testing::HasSubstr("found 3 offsets, expected a multiple of 2"));
}

}  // namespace
}  // namespace xlad::compiler
