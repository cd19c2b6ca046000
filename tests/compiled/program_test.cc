// Native programs: loops, branches, copies and library ops around kernels.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"
#include "base/kernel_abi.h"
#include "compiler/kernel/object_emitter.h"
#include "hlo/text/text.h"
#include "runtime/devices/cpu/cpu_device.h"

namespace xlad::compiler {
namespace {

using tensor::ElementType;

BufferSlice Slice(int allocation, int64_t offset, int64_t bytes) {
  BufferSlice slice;
  slice.set_allocation(allocation);
  slice.set_offset(offset);
  slice.set_bytes(bytes);
  return slice;
}

Step StepOfKernel(const std::string& symbol, const std::vector<BufferSlice>& buffers) {
  Step step;
  step.set_name(symbol);
  step.mutable_kernel()->set_symbol(symbol);
  for (const BufferSlice& slice : buffers) *step.mutable_kernel()->add_buffers() = slice;
  return step;
}

Step Copy(const BufferSlice& from, const BufferSlice& to) {
  Step step;
  *step.mutable_copy()->mutable_from() = from;
  *step.mutable_copy()->mutable_to() = to;
  return step;
}

// Emits kernels for instructions that are given as text and a program that calls the kernels, and runs the program.
class Machine {
 public:
  Machine() : emitter_(*ObjectEmitter::Create(Target())), device_(runtime::MakeCpuDevice()) {}

  // Adds a kernel that computes the root of `body`. `in_place` and `wanted_tiles` are those of KernelRequest. Returns
  // the number of tiles.
  int64_t AddKernel(const std::string& symbol, const std::string& body, std::vector<std::pair<int, int>> in_place = {},
                    int64_t wanted_tiles = 1) {
    auto module = hlo::ParseText(
        "HloModule m\nadd {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = "
        "f32[] add(a, b)\n}\nENTRY e {\n" +
        body + "\n}\n");
    EXPECT_TRUE(module.ok()) << module.status();
    modules_.push_back(*std::move(module));
    KernelRequest request;
    request.root = modules_.back()->entry()->root();
    request.symbol = symbol;
    request.in_place = std::move(in_place);
    request.wanted_tiles = wanted_tiles;
    const auto kernel = emitter_->EmitKernel(request);
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    return kernel.ok() ? kernel->tiles : 0;
  }

  absl::StatusOr<int64_t> AddProgram(std::vector<Step> steps, int arguments, int64_t arena_bytes,
                                     const std::string& symbol = "program") {
    NativeProgramRequest request;
    request.symbol = symbol;
    request.steps = std::move(steps);
    request.arguments = arguments;
    request.arena_bytes = arena_bytes;
    XLAD_ASSIGN_OR_RETURN(const EmittedKernel program, emitter_->EmitProgram(request));
    return program.scratch_bytes;
  }

  // Runs the program on copies of the buffers and returns the contents of the copies after the run.
  absl::StatusOr<std::vector<std::vector<float>>> Run(std::vector<std::vector<float>> buffers, int64_t scratch_bytes,
                                                      const std::vector<LibraryOp>& ops = {}) {
    Executable executable;
    executable.set_kernel_abi_version(XLAD_KERNEL_ABI_VERSION);
    for (const LibraryOp& op : ops) *executable.add_library_ops() = op;
    XLAD_ASSIGN_OR_RETURN(*executable.mutable_object_code(), emitter_->Finish());
    XLAD_ASSIGN_OR_RETURN(auto loaded, device_->Load(std::move(executable)));
    XLAD_ASSIGN_OR_RETURN(auto stream, device_->MakeStream(3));
    XLAD_ASSIGN_OR_RETURN(auto launcher, loaded->MakeLauncher(0, stream.get()));
    XLAD_ASSIGN_OR_RETURN(const int kernel, loaded->FindKernel("program"));
    std::vector<std::unique_ptr<runtime::DeviceMemory>> memory;
    std::vector<void*> addresses;
    for (const std::vector<float>& buffer : buffers) {
      memory.push_back(*device_->Allocate(static_cast<int64_t>(4 * buffer.size())));
      addresses.push_back(memory.back()->address());
      std::memcpy(addresses.back(), buffer.data(), 4 * buffer.size());
    }
    auto scratch = *device_->Allocate(scratch_bytes);
    XLAD_RETURN_IF_ERROR(launcher->RunKernel(kernel, addresses, scratch->address(), 1));
    for (size_t i = 0; i < buffers.size(); ++i) std::memcpy(buffers[i].data(), addresses[i], 4 * buffers[i].size());
    return buffers;
  }

  std::string Ir() const { return emitter_->IrText(); }

 private:
  std::unique_ptr<ObjectEmitter> emitter_;
  std::unique_ptr<runtime::Device> device_;
  std::vector<std::unique_ptr<hlo::Module>> modules_;
};

TEST(Program, TilesOfAKernelInALoop) {
  // x <- x + y, one hundred times, in tiles of 64 elements.
  Machine machine;
  const std::string sum_text = "x = f32[1000] parameter(0)\n y = f32[1000] parameter(1)\n ROOT z = f32[1000] add(x, y)";
  EXPECT_EQ(machine.AddKernel("sum", sum_text, {{0, 0}}, 100), 16);
  Step loop;
  loop.mutable_while_()->set_trip_count(100);
  const BufferSlice x = Slice(0, 0, 4000), y = Slice(1, 0, 4000);
  *loop.mutable_while_()->add_body() = StepOfKernel("sum", {x, y, x});
  const auto scratch = machine.AddProgram({loop}, 2, 0);
  ASSERT_TRUE(scratch.ok()) << scratch.status();
  std::vector<float> first(1000), second(1000), sum(1000);
  for (size_t i = 0; i < 1000; ++i) {
    first[i] = static_cast<float>(i);
    second[i] = static_cast<float>(i % 7);
    sum[i] = first[i] + 100 * second[i];
  }
  const auto result = machine.Run({first, second}, *scratch);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ((*result)[0], sum);
}

// The first element of each sum is 1 and all others are 2^-24, so that 1 + 2^-24 is rounded to 1. If a sum is one chain
// of additions, all elements but the first are lost. If it has several accumulators, one accumulator loses elements.
TEST(Program, SumsHaveSeveralAccumulators) {
  constexpr int64_t kChannels = 3;
  constexpr float kTiny = 1.0F / (1 << 24);
  Machine machine;
  std::vector<Step> steps;
  std::vector<std::vector<float>> buffers = {{0}};
  // The sum over `outer`, which has one or two dimensions, and over the last dimension.
  const auto add_sum = [&](const std::vector<int64_t>& outer, int64_t length) {
    const std::string symbol = absl::StrCat("sum_", absl::StrJoin(outer, "_"), "_", length);
    machine.AddKernel(symbol, absl::Substitute("x = f32[$0,$1,$2] parameter(0)\n z = f32[] parameter(1)\n ROOT s = "
                                               "f32[$1] reduce(x, z), dimensions={$3}, to_apply=add",
                                               absl::StrJoin(outer, ","), kChannels, length,
                                               outer.size() == 1 ? "0,2" : "0,1,3"));
    int64_t count = kChannels * length;
    for (const int64_t size : outer) count *= size;
    const int first = static_cast<int>(buffers.size());
    buffers.push_back(std::vector<float>(static_cast<size_t>(count), kTiny));
    buffers.push_back(std::vector<float>(kChannels));
    for (int64_t c = 0; c < kChannels; ++c) buffers[buffers.size() - 2][static_cast<size_t>(c * length)] = 1;
    const BufferSlice x = Slice(first, 0, 4 * count), sum = Slice(first + 1, 0, 4 * kChannels);
    steps.push_back(StepOfKernel(symbol, {x, Slice(0, 0, 4), sum}));
  };
  for (const int64_t length : {3, 5, 7, 8, 12, 17, 25, 31, 49, 64, 100, 200}) {
    if (length >= 8) add_sum({1}, length);  // Shorter rows have one accumulator.
    add_sum({16}, length);
  }
  add_sum({16, 1}, 3);
  add_sum({16, 2}, 3);
  const auto scratch = machine.AddProgram(steps, static_cast<int>(buffers.size()), 0);
  ASSERT_TRUE(scratch.ok()) << scratch.status();
  const auto result = machine.Run(buffers, *scratch);
  ASSERT_TRUE(result.ok()) << result.status();
  for (size_t i = 1; i < buffers.size(); i += 2) {
    const double count = static_cast<double>(buffers[i].size()) / kChannels;
    const double exact = 1 + (count - 1) * kTiny, bound = (count / 8 + 1) * kTiny;
    for (const float sum : (*result)[i + 1]) EXPECT_NEAR(sum, exact, bound) << steps[i / 2].name();
  }
}

TEST(Program, CountedLoopSwapsItsState) {
  // (a, b) <- (a + b, a), ten times: Fibonacci numbers. The new a is kept in scratch.
  Machine machine;
  machine.AddKernel("sum", "x = f32[2] parameter(0)\n y = f32[2] parameter(1)\n ROOT z = f32[2] add(x, y)");
  Step loop;
  loop.mutable_while_()->set_trip_count(10);
  const BufferSlice a = Slice(0, 0, 8), b = Slice(1, 0, 8), next = Slice(NativeProgramRequest::kScratch, 64, 8);
  *loop.mutable_while_()->add_body() = StepOfKernel("sum", {a, b, next});
  *loop.mutable_while_()->add_body() = Copy(a, b);
  *loop.mutable_while_()->add_body() = Copy(next, a);
  const auto scratch = machine.AddProgram({loop}, 2, 72);
  ASSERT_TRUE(scratch.ok()) << scratch.status();
  EXPECT_EQ(*scratch, 128);
  const auto result = machine.Run({{1, 2}, {0, 1}}, *scratch);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ((*result)[0], (std::vector<float>{89, 233}));
  EXPECT_EQ((*result)[1], (std::vector<float>{55, 144}));
}

TEST(Program, LoopUntilAPredicate) {
  Machine machine;
  machine.AddKernel("less",
                    "x = f32[] parameter(0)\n l = f32[] parameter(1)\n ROOT p = pred[] compare(x, l), "
                    "direction=LT");
  machine.AddKernel("twice", "x = f32[] parameter(0)\n ROOT y = f32[] add(x, x)", {{0, 1}});
  Step loop;
  loop.mutable_while_()->set_trip_count(-1);
  const BufferSlice x = Slice(0, 0, 4), limit = Slice(1, 0, 4), predicate = Slice(NativeProgramRequest::kScratch, 0, 1);
  *loop.mutable_while_()->mutable_predicate() = predicate;
  *loop.mutable_while_()->add_condition() = StepOfKernel("less", {x, limit, predicate});
  *loop.mutable_while_()->add_body() = StepOfKernel("twice", {x, x, x});
  const auto scratch = machine.AddProgram({loop}, 2, 1);
  ASSERT_TRUE(scratch.ok()) << scratch.status();
  const auto result = machine.Run({{3}, {1000}}, *scratch);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ((*result)[0][0], 1536);
}

TEST(Program, BranchesByIndexAndPredicate) {
  for (const bool is_predicate : {false, true}) {
    for (const int32_t selector : {-1, 0, 1, 2, 7}) {
      Machine machine;
      Step branches;
      branches.mutable_if_()->set_selector_is_predicate(is_predicate);
      *branches.mutable_if_()->mutable_selector() = Slice(0, 0, is_predicate ? 1 : 4);
      for (int i = 0; i < (is_predicate ? 2 : 3); ++i) {
        *branches.mutable_if_()->add_branches()->add_steps() = Copy(Slice(2, 4 * i, 4), Slice(1, 0, 4));
      }
      const auto scratch = machine.AddProgram({branches}, 3, 0);
      ASSERT_TRUE(scratch.ok()) << scratch.status();
      float as_float;
      std::memcpy(&as_float, &selector, sizeof(selector));
      const auto result = machine.Run({{as_float}, {0}, {10, 20, 30}}, *scratch);
      ASSERT_TRUE(result.ok()) << result.status();
      const float of_index = selector == 0 ? 10 : selector == 1 ? 20 : 30;
      EXPECT_EQ((*result)[1][0], is_predicate ? (selector != 0 ? 10 : 20) : of_index) << selector;
    }
  }
}

LibraryOp SmallDot() {
  LibraryOp op;
  for (ArrayShape* shape :
       {op.mutable_dot()->mutable_lhs(), op.mutable_dot()->mutable_rhs(), op.mutable_dot()->mutable_result()}) {
    shape->set_element_type(static_cast<int>(ElementType::kF32));
    shape->add_dims(2);
    shape->add_dims(2);
  }
  op.mutable_dot()->add_lhs_contracting(1);
  op.mutable_dot()->add_rhs_contracting(0);
  return op;
}

TEST(Program, LibraryOpsInLoops) {
  Machine machine;
  Step loop, dot;
  dot.mutable_library()->set_op(0);
  const BufferSlice x = Slice(0, 0, 16), y = Slice(NativeProgramRequest::kScratch, 0, 16);
  for (const BufferSlice& slice : {x, x, y}) *dot.mutable_library()->add_buffers() = slice;
  loop.mutable_while_()->set_trip_count(3);
  *loop.mutable_while_()->add_body() = dot;
  *loop.mutable_while_()->add_body() = Copy(y, x);
  const auto scratch = machine.AddProgram({loop}, 1, 16);
  ASSERT_TRUE(scratch.ok()) << scratch.status();
  const auto result = machine.Run({{1, 1, 0, 1}}, *scratch, {SmallDot()});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ((*result)[0], (std::vector<float>{1, 8, 0, 1}));
}

TEST(Program, FailingLibraryOpEndsTheProgramWithItsError) {
  Machine machine;
  Step dot;
  dot.mutable_library()->set_op(5);
  for (int i = 0; i < 3; ++i) *dot.mutable_library()->add_buffers() = Slice(0, 0, 16);
  const auto scratch = machine.AddProgram({dot, Copy(Slice(1, 0, 16), Slice(0, 0, 16))}, 2, 0);
  ASSERT_TRUE(scratch.ok()) << scratch.status();
  const auto result = machine.Run({{1, 2, 3, 4}, {5, 6, 7, 8}}, *scratch, {SmallDot()});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << result.status();
  EXPECT_NE(result.status().message().find("library op 5"), absl::string_view::npos) << result.status();
}

TEST(Program, CallsProgramsAndPassesScratch) {
  Machine machine;
  // The inner program keeps the kernel's result in scratch.
  machine.AddKernel("norm",
                    "x = f32[4] parameter(0)\n z = f32[] parameter(1)\n ROOT s = f32[] reduce(x, z), "
                    "dimensions={0}, to_apply=add");
  const BufferSlice x = Slice(0, 0, 16), zero = Slice(1, 0, 4), inner = Slice(NativeProgramRequest::kScratch, 0, 4);
  const auto inner_scratch =
      machine.AddProgram({StepOfKernel("norm", {x, zero, inner}), Copy(inner, Slice(2, 0, 4))}, 3, 4, "inner");
  ASSERT_TRUE(inner_scratch.ok()) << inner_scratch.status();
  const BufferSlice in_scratch = Slice(NativeProgramRequest::kScratch, 0, 4);
  const auto scratch =
      machine.AddProgram({StepOfKernel("inner", {x, zero, in_scratch}), Copy(in_scratch, Slice(2, 0, 4))}, 3, 4);
  ASSERT_TRUE(scratch.ok()) << scratch.status();
  EXPECT_EQ(*scratch, 128);
  const auto result = machine.Run({{1, 2, 3, 4}, {0}, {0}}, *scratch);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ((*result)[2][0], 10);
}

TEST(Program, RefusesStepsThatDoNotFit) {
  Machine machine;
  machine.AddKernel("twice", "x = f32[] parameter(0)\n ROOT y = f32[] add(x, x)");
  Step collective;
  collective.set_name("all-reduce.1");
  collective.mutable_collective();
  const BufferSlice x = Slice(0, 0, 4);
  const std::vector<std::pair<Step, std::string>> bad = {
      {collective, "all-reduce.1"},
      {Step(), "a collective or empty"},
      {StepOfKernel("nothing", {x}), "'nothing'"},
      {StepOfKernel("twice", {x}), "with this number of buffers"},
      {Copy(Slice(1, 0, 4), x), "allocation 1"},
      {Copy(Slice(-2, 0, 4), x), "allocation -2"},
      {Copy(Slice(0, 0, 8), x), "different sizes"},
  };
  int n = 0;
  for (const auto& [step, words] : bad) {
    const auto scratch = machine.AddProgram({step}, 1, 0, absl::StrCat("bad", n++));
    EXPECT_EQ(scratch.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(scratch.status().message().find(words), absl::string_view::npos) << scratch.status();
  }
}

}  // namespace
}  // namespace xlad::compiler
