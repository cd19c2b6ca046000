// Kernels that a GPU's blocks compute in several parts, and kernels with one thread per row: sort, topk, scan, batch
// norms, select-and-scatter and random bits. The sizes are close to the sizes of chunks and blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/testing/case_count.h"
#include "hlo/text/text.h"
#include "tests/compiled/checked_run.h"
#include "tests/compiled/test_harness.h"

namespace xlad::compiler {
namespace {

constexpr char kComputations[] = R"(HloModule m
LT { x = f32[] parameter(0) y = f32[] parameter(1) ROOT r = pred[] compare(x, y), direction=LT }
GE { x = f32[] parameter(0) y = f32[] parameter(1) ROOT r = pred[] compare(x, y), direction=GE }
ADD { x = f32[] parameter(0) y = f32[] parameter(1) ROOT r = f32[] add(x, y) }
KEYS {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  x = f32[] parameter(2)
  y = f32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=GT
}
)";

std::string ScheduleProgram(const std::string& body) {
  return absl::StrCat(kComputations, "ENTRY e {\n", body, "\n}\n");
}

// Programs that are compared with the evaluator. Their kernels must access memory without errors.
class CheckedBatch {
 public:
  void Add(const std::string& text, const hlo::Tolerance& tolerance = {}, bool specials = false) {
    batch_.Add(text, tolerance, specials);
    texts_.push_back(text);
  }
  void Run() {
    batch_.Run();
    for (const std::string& text : texts_) {
      auto module = *hlo::ParseText(text);
      KernelRequest request;
      request.root = AsKernel(module.get());
      request.symbol = "checked";
      const auto run = RunChecked(request, RandomOperands(request, 1), {});
      ASSERT_TRUE(run.ok()) << run.status();
      EXPECT_EQ(run->report.message, "") << text;
    }
  }

 private:
  Batch batch_;
  std::vector<std::string> texts_;
};

std::string SortOf(const std::string& shape, int dimension) {
  return ScheduleProgram(
      absl::StrReplaceAll("k = s32[#] parameter(0)\nv = f32[#] parameter(1)\n"
                          "ROOT r = (s32[#], f32[#]) sort(k, v), dimensions={@}, is_stable=true, "
                          "to_apply=KEYS",
                          {{"#", shape}, {"@", absl::StrCat(dimension)}}));
}

TEST(GpuSchedules, Sorts) {
  CheckedBatch batch;
  // Random keys are from -9 to 9. Many of them are equal, which tests the order of equal elements.
  std::vector<int64_t> sizes = {0, 1, 31, 257, 4097};
  if (AllCases()) sizes.insert(sizes.end(), {2, 256, 1021});
  for (const int64_t size : sizes) batch.Add(SortOf(absl::StrCat(size), 0));
  for (const char* shape : {"3,257", "257,3", "1,5", "0,7", "7,0"}) {
    for (const int dimension : {0, 1}) {
      if (AllCases() || dimension == shape[0] % 2) batch.Add(SortOf(shape, dimension));
    }
  }
  batch.Add(SortOf("2,37,3", 1));
  batch.Run();
}

TEST(GpuSchedules, Topk) {
  CheckedBatch batch;
  for (const char* type : {"f32", "s32", "bf16"}) {
    std::vector<std::pair<int, int>> sizes = {{1, 1000}, {65, 67}};
    if (AllCases() || type[0] == 's') sizes.insert(sizes.end(), {{1, 1}, {5, 5}, {100, 257}});
    for (const auto& [k, size] : sizes) {
      batch.Add(ScheduleProgram(absl::StrReplaceAll(
                    "x = $[3,#] parameter(0)\nROOT r = ($[3,@], s32[3,@]) topk(x), k=@, largest=true",
                    {{"$", type}, {"#", absl::StrCat(size)}, {"@", absl::StrCat(k)}})),
                {}, type[0] == 'f');
    }
  }
  batch.Run();
}

// A scan of x with a step (x, carry) -> (result, new carry).
std::string ScanOf(const std::string& type, const std::string& opcode, const std::string& sizes,
                   const std::string& attributes) {
  const std::vector<std::string> parts = absl::StrSplit(sizes, '|');  // The sizes of the input and of a slice.
  return absl::StrReplaceAll(R"(HloModule m
step {
  x = $[%] parameter(0)
  c = $[%] parameter(1)
  s = $[%] @(x, c)
  n = $[%] negate(s)
  ROOT t = ($[%], $[%]) tuple(n, s)
}
ENTRY e {
  x = $[#] parameter(0)
  c = $[%] parameter(1)
  ROOT r = ($[#], $[%]) scan(x, c), num_carries=1, to_apply=step, )",
                             {{"$", type}, {"@", opcode}, {"#", parts[0]}, {"%", parts[1]}}) +
         attributes + "\n}\n";
}

TEST(GpuSchedules, Scans) {
  CheckedBatch batch;
  for (const char* type : {"f32", "bf16", "s32", "f64"}) {
    for (const char* opcode : {"add", "maximum"}) {
      batch.Add(ScanOf(type, opcode, "5,101|5", "dimensions={1}"));
      batch.Add(ScanOf(type, opcode, "101,5|5", "dimensions={0}, is_reverse=true"));
      batch.Add(ScanOf(type, opcode, "3,17,7|3,7", "dimensions={1}"));
    }
  }
  for (const char* sizes : {"301|", "1|", "0|"}) batch.Add(ScanOf("f32", "add", sizes, "dimensions={0}"));
  batch.Add(ScanOf("f32", "add", "0,4|4", "dimensions={0}"));
  batch.Add(ScanOf("f32", "add", "4,0|0", "dimensions={0}"));
  batch.Add(ScanOf("f32", "add", "3,300|300", "dimensions={0}"));
  batch.Run();
}

TEST(GpuSchedules, BatchNorms) {
  CheckedBatch batch;
  const auto add = [&](const std::string& sizes, int feature, int64_t features, const std::string& body) {
    batch.Add(ScheduleProgram(absl::StrReplaceAll(body, {{"#", sizes},
                                                         {"@", absl::StrCat("epsilon=0.5, feature_index=", feature)},
                                                         {"%", absl::StrCat(features)}})),
              Close(1e-4));
  };
  const std::string training =
      "x = f32[#] parameter(0)\ns = f32[%] parameter(1)\no = f32[%] parameter(2)\n"
      "ROOT r = (f32[#], f32[%], f32[%]) batch-norm-training(x, s, o), @";
  const std::string gradient =
      "x = f32[#] parameter(0)\ns = f32[%] parameter(1)\nm = f32[%] parameter(2)\nv = f32[%] parameter(3)\n"
      "w = f32[%] abs(v)\ng = f32[#] parameter(4)\n"
      "ROOT r = (f32[#], f32[%], f32[%]) batch-norm-grad(x, s, m, w, g), @";
  for (const std::string& body : {training, gradient}) {
    add("1,1", 1, 1, body);
    add("2,3,1", 1, 3, body);
    add("7,3,11,13", 1, 3, body);
    add("257,2", 1, 2, body);
    add("3,509", 0, 3, body);
    add("5,0", 1, 0, body);
    add("5,0", 0, 5, body);
  }
  batch.Run();
}

TEST(GpuSchedules, SelectAndScatter) {
  CheckedBatch batch;
  const auto add = [&](const std::string& x, const std::string& s, const std::string& window) {
    batch.Add(
        ScheduleProgram(absl::StrReplaceAll("x = f32[#] parameter(0)\ns = f32[%] parameter(1)\nz = f32[] parameter(2)\n"
                                            "ROOT r = f32[#] select-and-scatter(x, s, z), window={@}, select=GE, "
                                            "scatter=ADD",
                                            {{"#", x}, {"%", s}, {"@", window}})),
        Close(1e-5));
  };
  add("5,9,7,3", "5,4,3,3", "size=1x3x3x1 stride=1x2x2x1");
  add("5,3,9,7", "5,3,5,4", "size=1x1x3x3 stride=1x1x2x2 pad=0_0x0_0x1_1x1_1");
  add("300,4", "300,2", "size=1x2 stride=1x2");
  add("6,4", "3,2", "size=2x2 stride=2x2");
  add("0,4", "0,2", "size=1x2 stride=1x2");
  add("7,11", "7,11", "size=1x1");
  batch.Run();
}

TEST(GpuSchedules, RandomBits) {
  CheckedBatch batch;
  for (const char* algorithm : {"rng_three_fry", "rng_philox"}) {
    for (const char* shape : {"u32[1]", "u32[255]", "u32[257]", "u32[31,33]", "u64[509]", "u32[0]", "u8[1021]"}) {
      batch.Add(ScheduleProgram(absl::StrCat("s = u64[2] parameter(0)\nROOT r = (u64[2], ", shape,
                                             ") rng-bit-generator(s), algorithm=", algorithm)),
                {}, true);
    }
  }
  batch.Run();
}

// LT does not order NaNs. In any resulting order, every element must occur exactly once, and two threads must not write
// the same place.
TEST(GpuSchedules, SortsOfNansKeepAllElements) {
  for (const int64_t size : {5, 257, 1021, 5003}) {
    auto module = *hlo::ParseText(ScheduleProgram(absl::StrReplaceAll(
        "x = f32[#] parameter(0)\nROOT r = f32[#] sort(x), dimensions={0}, to_apply=LT", {{"#", absl::StrCat(size)}})));
    KernelRequest request;
    request.root = AsKernel(module.get());
    request.symbol = "sorted";
    std::vector<tensor::Array> inputs = RandomOperands(request, 7);
    const auto random = SeededRandom(8);
    for (float& x : inputs[0].values<float>()) {
      if (random->Below(3) == 0) x = NAN;
    }
    const auto run = RunChecked(request, inputs, {});
    ASSERT_TRUE(run.ok()) << run.status();
    EXPECT_EQ(run->report.message, "");
    const auto bits = [](const tensor::Array& array) {
      std::vector<uint32_t> sorted(array.values<uint32_t>().begin(), array.values<uint32_t>().end());
      std::sort(sorted.begin(), sorted.end());
      return sorted;
    };
    EXPECT_EQ(bits(run->results[0]), bits(inputs[0]));
  }
}

}  // namespace
}  // namespace xlad::compiler
