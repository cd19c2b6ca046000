#include "tests/compiled/test_harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/kernel_abi.h"
#include "base/testing/case_count.h"
#include "compiler/codegen/nvptx/gpu_emitter.h"
#include "compiler/kernel/build_kernel.h"
#include "compiler/kernel/candidate_schedules.h"
#include "compiler/kernel/gpu_target.h"
#include "compiler/kernel/object_emitter.h"
#include "compiler/testing/random_schedule.h"
#include "hlo/analysis/leaves.h"
#include "hlo/eval/evaluate.h"
#include "hlo/text/text.h"
#include "runtime/devices/cpu/cpu_device.h"

namespace xlad::compiler {
namespace {

using hlo::Computation;
using hlo::Instruction;
using hlo::Opcode;
using tensor::Array;
using tensor::ElementType;

// Arrays in device memory, each followed by guard bytes that must not change.
class Buffers {
 public:
  explicit Buffers(runtime::Device* device) : device_(*device) {}

  void Add(int64_t bytes, absl::Span<const std::byte> contents) {
    memory_.push_back(*device_.Allocate(bytes + kGuard));
    std::memset(memory_.back()->address(), 0xcd, static_cast<size_t>(bytes + kGuard));
    if (!contents.empty()) std::memcpy(memory_.back()->address(), contents.data(), contents.size());
    addresses_.push_back(memory_.back()->address());
  }
  void ExpectGuards() const {
    for (const auto& memory : memory_) {
      const auto* end = static_cast<const unsigned char*>(memory->address()) + memory->bytes();
      for (int64_t i = 1; i <= kGuard; ++i) ASSERT_EQ(*(end - i), 0xcd) << "a kernel wrote beyond its buffer";
    }
  }
  const std::vector<void*>& addresses() const { return addresses_; }

 private:
  static constexpr int64_t kGuard = 128;
  runtime::Device& device_;
  std::vector<std::unique_ptr<runtime::DeviceMemory>> memory_;
  std::vector<void*> addresses_;
};

template <typename T>
void FillIntegers(Random& random, absl::Span<T> values, bool specials) {
  for (T& value : values) {
    value = specials ? static_cast<T>(random.Next()) : static_cast<T>(random.Below(19)) - static_cast<T>(9);
    if (specials && random.Below(4) == 0) {
      const T few[] = {0, 1, static_cast<T>(-1), std::numeric_limits<T>::min(), std::numeric_limits<T>::max()};
      value = few[random.Below(5)];
    }
  }
}

double RandomFloat(Random& random, bool specials) {
  static const double kSpecials[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1e-40, -1e-40, 3e38, 1.0, -1.0, 0.5};
  if (specials && random.Below(3) == 0) return kSpecials[random.Below(11)];
  return (random.Unit() - 0.5) * 8;
}

}  // namespace

std::string Program(const std::string& body, const std::string& type) {
  std::string text = "HloModule m\n";
  for (const auto& [name, opcode] : std::vector<std::pair<std::string, std::string>>{
           {"add", "add"}, {"mul", "multiply"}, {"max", "maximum"}, {"min", "minimum"}}) {
    absl::StrAppend(&text, name, " {\n a = T[] parameter(0)\n b = T[] parameter(1)\n ROOT r = T[] ", opcode,
                    "(a, b)\n}\n");
  }
  for (const char* direction : {"LT", "GE"}) {
    if (type[0] == 'c') break;  // Complex numbers are not ordered.
    absl::StrAppend(&text, direction, " {\n a = T[] parameter(0)\n b = T[] parameter(1)\n ROOT r = pred[] ",
                    "compare(a, b), direction=", direction, "\n}\n");
  }
  return absl::StrReplaceAll(absl::StrCat(text, "ENTRY e {\n", body, "\n}\n"), {{"T[", type + "["}});
}

const Instruction* AsKernel(hlo::Module* module) {
  Computation* entry = module->entry();
  const Instruction* root = entry->root();
  bool alone =
      root->opcode() != Opcode::kTuple && root->operand_count() == std::ssize(entry->parameters());
  for (int64_t i = 0; alone && i < root->operand_count(); ++i) alone = root->operand(i) == entry->parameter(i);
  if (alone && root->opcode() != Opcode::kParameter) return root;
  auto wrapper = std::make_unique<Computation>("wrapper");
  Computation* outer = module->Add(std::move(wrapper));
  std::vector<Instruction*> operands;
  for (const Instruction* parameter : entry->parameters()) {
    auto copy = std::make_unique<Instruction>(Opcode::kParameter, parameter->shape());
    copy->set_number(parameter->number());
    operands.push_back(outer->Add(std::move(copy)));
  }
  auto fusion = std::make_unique<Instruction>(Opcode::kFusion, root->shape());
  fusion->mutable_called().push_back(entry);
  fusion->mutable_attributes().fusion_kind = "kLoop";
  Instruction* added = outer->Add(std::move(fusion), operands);
  outer->set_root(added);
  return added;
}

tensor::Array RandomArray(Random& random, const tensor::Shape& shape, bool specials) {
  Array array(shape);
  const auto floats = [&](auto example) {
    for (auto& value : array.values<decltype(example)>()) {
      value = static_cast<decltype(example)>(RandomFloat(random, specials));
    }
  };
  switch (shape.type) {
    case ElementType::kPred:
      for (std::byte& value : array.bytes()) value = static_cast<std::byte>(random.Below(2));
      break;
    case ElementType::kF32:
    case ElementType::kC64:
      floats(float{});
      break;
    case ElementType::kF64:
    case ElementType::kC128:
      floats(double{});
      break;
    case ElementType::kF16:
      floats(_Float16{});
      break;
    case ElementType::kBF16:
      for (uint16_t& value : array.values<uint16_t>()) {
        const float wide = static_cast<float>(RandomFloat(random, specials));
        uint32_t bits;
        std::memcpy(&bits, &wide, sizeof(bits));
        value = static_cast<uint16_t>(bits >> 16);
      }
      break;
    case ElementType::kS8:
      FillIntegers(random, array.values<int8_t>(), specials);
      break;
    case ElementType::kU8:
      FillIntegers(random, array.values<uint8_t>(), specials);
      break;
    case ElementType::kS16:
      FillIntegers(random, array.values<int16_t>(), specials);
      break;
    case ElementType::kU16:
      FillIntegers(random, array.values<uint16_t>(), specials);
      break;
    case ElementType::kS32:
      FillIntegers(random, array.values<int32_t>(), specials);
      break;
    case ElementType::kU32:
      FillIntegers(random, array.values<uint32_t>(), specials);
      break;
    case ElementType::kS64:
      FillIntegers(random, array.values<int64_t>(), specials);
      break;
    case ElementType::kU64:
      FillIntegers(random, array.values<uint64_t>(), specials);
      break;
    default: {
      // For small types, returns any bit pattern of the type's width.
      const int bits = tensor::BitWidth(shape.type);
      for (std::byte& byte : array.bytes()) {
        int64_t value = random.Below(uint64_t{1} << bits);
        if (tensor::IsSigned(shape.type) && value >= (1 << (bits - 1))) value -= 1 << bits;
        byte = static_cast<std::byte>(value);
      }
    }
  }
  return array;
}

absl::StatusOr<std::vector<Array>> RunEvaluated(const hlo::Module& module, const std::vector<Array>& inputs) {
  std::vector<hlo::Literal> literals;
  for (const Array& input : inputs) literals.emplace_back(input);
  XLAD_ASSIGN_OR_RETURN(const hlo::Literal result, hlo::Evaluate(module, literals));
  std::vector<Array> arrays;
  for (const Array* array : hlo::ArrayLeaves(result)) arrays.push_back(*array);
  return arrays;
}

namespace {

// The largest number of programs in a batch in which each is also compiled as one tile.
constexpr size_t kFewCases = 6;

struct Launch {
  std::string symbol;
  hlo::Shape result;
  EmittedKernel kernel;
  std::vector<std::pair<int, int>> in_place;
  bool has_other_schedule = false;
  std::string schedule;  // Its text.
};

// Emits the kernel of `request` as about five tiles and, if `as_one_tile` is set and it can be divided, also as one.
// Sets the request's kernel to that of five tiles. A kernel for GPUs can be divided only in one way.
absl::Status EmitUsual(ObjectEmitter* emitter, bool as_one_tile, KernelRequest* request,
                       std::vector<Launch>* launches) {
  const std::string symbol = request->symbol;
  const auto emit = [&](int64_t tiles) -> absl::Status {
    request->symbol = absl::StrCat(symbol, "_", tiles);
    request->wanted_tiles = tiles;
    request->kernel = ScheduleFusion(*request->root, tiles);
    XLAD_ASSIGN_OR_RETURN(const EmittedKernel kernel, emitter->EmitKernel(*request));
    launches->push_back({request->symbol, request->root->shape(), kernel, request->in_place});
    return absl::OkStatus();
  };
  if (IsGpu(emitter->target())) return emit(1);
  XLAD_RETURN_IF_ERROR(emit(5));
  const auto divided = request->kernel;
  if (as_one_tile && launches->back().kernel.tiles > 1) XLAD_RETURN_IF_ERROR(emit(1));
  request->kernel = divided;
  return absl::OkStatus();
}

// Runs a kernel of a loaded executable.
absl::StatusOr<std::vector<Array>> RunKernel(runtime::Device* device, const runtime::LoadedExecutable& loaded,
                                             const Launch& launch, const std::vector<Array>& inputs, int threads) {
  XLAD_ASSIGN_OR_RETURN(const int number, loaded.FindKernel(launch.symbol));
  XLAD_ASSIGN_OR_RETURN(auto stream, device->MakeStream(threads));
  XLAD_ASSIGN_OR_RETURN(auto launcher, loaded.MakeLauncher(0, stream.get()));
  Buffers buffers(device);
  for (const Array& input : inputs) buffers.Add(input.shape().bytes(), input.bytes());
  const std::vector<tensor::Shape> leaves = hlo::LeafShapes(launch.result);
  std::vector<Array> results;
  for (const tensor::Shape& shape : leaves) {
    results.emplace_back(shape);
    buffers.Add(shape.bytes(), {});
  }
  std::vector<void*> addresses = buffers.addresses();
  for (const auto& [result, operand] : launch.in_place) {
    addresses[inputs.size() + static_cast<size_t>(result)] = addresses[operand];
  }
  Buffers scratch(device);
  scratch.Add(launch.kernel.scratch_bytes, {});
  XLAD_RETURN_IF_ERROR(launcher->RunKernel(number, addresses, scratch.addresses()[0], launch.kernel.tiles));
  for (size_t i = 0; i < results.size(); ++i) {
    XLAD_RETURN_IF_ERROR(stream->CopyToHost(results[i].bytes(), addresses[inputs.size() + i]));
  }
  buffers.ExpectGuards();
  scratch.ExpectGuards();
  return results;
}

void ExpectEqual(const std::vector<Array>& actual, const std::vector<Array>& expected, const std::string& text,
                 const hlo::Tolerance& tolerance) {
  ASSERT_EQ(actual.size(), expected.size()) << text;
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(actual[i].shape(), expected[i].shape()) << text;
    const hlo::Difference difference = hlo::Compare(actual[i], expected[i], tolerance);
    EXPECT_EQ(difference.mismatches, 0) << "result " << i << ", element " << difference.first << ": compiled "
                                        << difference.actual << ", evaluated " << difference.expected << "\n"
                                        << text;
  }
}

// `reference` says how the expected results were computed.
void ExpectSameBits(const std::vector<Array>& actual, const std::vector<Array>& expected, const std::string& reference,
                    const std::string& text) {
  for (size_t i = 0; i < actual.size(); ++i) {
    const absl::Span<const std::byte> found = actual[i].bytes(), wanted = expected[i].bytes();
    EXPECT_TRUE(std::equal(found.begin(), found.end(), wanted.begin()))
        << "result " << i << " has bits that differ from those " << reference << "\n"
        << text;
  }
}

// Compares the results of all launches of one program, on different numbers of threads, with the expected results.
template <typename F>
void CompareRuns(F&& run, const std::vector<Launch>& launches, const std::vector<Array>& expected,
                 const std::string& text, const hlo::Tolerance& tolerance) {
  std::vector<Array> of_usual_schedule;
  for (const Launch& launch : launches) {
    std::vector<Array> of_one_thread;
    const std::vector<int> threads = launch.kernel.tiles > 1 ? std::vector<int>{1, 2, 3, 7} : std::vector<int>{1};
    for (const int count : threads) {
      const auto actual = run(launch, count);
      ASSERT_TRUE(actual.ok()) << actual.status() << "\n" << text;
      if (count == 1) of_one_thread = *actual;
      if (of_usual_schedule.empty()) of_usual_schedule = *actual;
      if (launch.has_other_schedule) {
        ExpectSameBits(*actual, of_usual_schedule, "of the usual schedule", absl::StrCat(text, launch.schedule));
      }
      if (count == 1) ExpectEqual(*actual, expected, text, tolerance);
      ExpectSameBits(*actual, of_one_thread, "on one thread", text);
    }
  }
}

}  // namespace

hlo::Tolerance Ulp(uint64_t ulp) { return {hlo::Tolerance::Kind::kUlp, ulp, 0, 0}; }
hlo::Tolerance Close(double relative) { return {hlo::Tolerance::Kind::kClose, 0, relative, relative}; }

std::vector<Array> Batch::RandomInputsOf(const hlo::Module& module, bool specials) {
  std::vector<Array> inputs;
  for (const Instruction* parameter : module.entry()->parameters()) {
    inputs.push_back(RandomArray(*random_, parameter->shape().array(), specials));
  }
  return inputs;
}

void Batch::Add(const std::string& text, const hlo::Tolerance& tolerance, bool specials) {
  auto module = hlo::ParseText(text);
  ASSERT_TRUE(module.ok()) << module.status() << "\n" << text;
  std::vector<Array> inputs = RandomInputsOf(**module, specials);
  cases_.push_back({text, *std::move(module), {std::move(inputs)}, tolerance, {}});
}

void Batch::AddOrdinaryAndSpecial(const std::string& text, const hlo::Tolerance& tolerance) {
  Add(text, tolerance);
  if (testing::Test::HasFatalFailure()) return;
  cases_.back().inputs.push_back(RandomInputsOf(*cases_.back().module, /*specials=*/true));
}

void Batch::AddOn(const std::string& text, std::vector<Array> inputs, const hlo::Tolerance& tolerance) {
  auto module = hlo::ParseText(text);
  ASSERT_TRUE(module.ok()) << module.status() << "\n" << text;
  cases_.push_back({text, *std::move(module), {std::move(inputs)}, tolerance, {}});
}

void Batch::Run() {
  RunOn(Target());
  Target gpu;
  gpu.set_device_kind(kGpuSim);
  RunOn(gpu);
}

std::vector<absl::StatusOr<ScheduledKernel>> Batch::OtherSchedules(const ScheduledKernel& usual, size_t number) {
  std::vector<absl::StatusOr<ScheduledKernel>> others = {RandomScheduled(usual.kernel, random_.get())};
  if (!cases_[number].has_candidates) return others;
  const std::vector<KernelSchedule> candidates = CandidateSchedules(usual);
  const int64_t share = std::clamp<int64_t>(std::ssize(candidates), 1, 4);
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (TriesCase(static_cast<int64_t>(i + number), share)) {
      others.push_back(ApplySchedule(usual.kernel, candidates[i]));
    }
  }
  return others;
}

void Batch::RunOn(const Target& target) {
  // The code of a simulated GPU is not what a GPU runs, so by default it is not optimized.
  auto emitter = IsGpu(target) ? MakeGpuEmitter(target, {.quick = !AllCases()}) : ObjectEmitter::Create(target);
  ASSERT_TRUE(emitter.ok()) << emitter.status();
  std::vector<std::unique_ptr<hlo::Module>> modules;
  std::vector<std::vector<Launch>> launches(cases_.size());
  for (size_t i = 0; i < cases_.size(); ++i) {
    modules.push_back(cases_[i].module->Clone());
    KernelRequest request;
    request.root = AsKernel(modules.back().get());
    request.symbol = absl::StrCat("kernel", i);
    request.in_place = cases_[i].in_place;
    const bool as_one_tile = AllCases() || cases_.size() <= kFewCases || random_->Below(4) == 0;
    const absl::Status emitted = EmitUsual(emitter->get(), as_one_tile, &request, &launches[i]);
    ASSERT_TRUE(emitted.ok()) << emitted << "\n" << cases_[i].text;
    if (IsGpu(target)) continue;
    const bool has_schedules = request.kernel != nullptr && request.in_place.empty();
    ASSERT_TRUE(has_schedules || !cases_[i].has_candidates) << "no schedules to try\n" << cases_[i].text;
    if (!has_schedules) continue;
    const auto others = OtherSchedules(*request.kernel, i);
    ASSERT_TRUE(others.size() > 1 || !cases_[i].has_candidates) << "no candidates to try\n" << cases_[i].text;
    for (size_t other = 0; other < others.size(); ++other) {
      ASSERT_TRUE(others[other].ok()) << others[other].status() << "\n" << cases_[i].text;
      request.symbol = absl::StrCat("kernel", i, "_other", other);
      request.kernel = std::make_shared<ScheduledKernel>(*others[other]);
      const auto kernel = (*emitter)->EmitKernel(request);
      ASSERT_TRUE(kernel.ok()) << kernel.status() << "\n" << cases_[i].text;
      launches[i].push_back({request.symbol, request.root->shape(), *kernel, request.in_place, true,
                             ScheduleText(others[other]->schedule)});
    }
  }
  if (std::getenv("XLAD_TEST_IR") != nullptr) std::fputs((*emitter)->IrText().c_str(), stderr);
  auto object = (*emitter)->Finish();
  ASSERT_TRUE(object.ok()) << object.status();
  if (std::getenv("XLAD_TEST_ASM") != nullptr) std::fputs((*emitter)->AssemblyText()->c_str(), stderr);
  Executable executable;
  executable.set_kernel_abi_version(XLAD_KERNEL_ABI_VERSION);
  executable.set_object_code(*std::move(object));
  const std::unique_ptr<runtime::Device> device = runtime::MakeCpuDevice();
  const auto loaded = device->Load(std::move(executable));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  for (size_t i = 0; i < cases_.size(); ++i) {
    const std::string& text = cases_[i].text;
    for (const std::vector<Array>& inputs : cases_[i].inputs) {
      const auto expected = RunEvaluated(*cases_[i].module, inputs);
      ASSERT_TRUE(expected.ok()) << expected.status() << "\n" << text;
      const auto run = [&](const Launch& launch, int threads) {
        return RunKernel(device.get(), **loaded, launch, inputs, threads);
      };
      CompareRuns(run, launches[i], *expected, text, cases_[i].tolerance);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

void ExpectSame(const std::string& text, const hlo::Tolerance& tolerance, bool specials, uint64_t seed) {
  Batch batch(seed);
  batch.Add(text, tolerance, specials);
  batch.Run();
}

}  // namespace xlad::compiler
