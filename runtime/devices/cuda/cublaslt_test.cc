// Products by cuBLASLt: differential tests, and failures of the library. The tests use a test double of the library
// (tests/cublaslt_double).
#include "runtime/devices/cuda/cublaslt.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/testing/case_count.h"
#include "runtime/devices/cuda/cuda_device_fixture.h"

namespace xlad::runtime {
namespace {

using tensor::ElementType;
using ::testing::AllOf;
using ::testing::HasSubstr;

class CublasLtTest : public CudaLibraryOpTest {
 protected:
  absl::StatusOr<std::unique_ptr<Device>> Make() override {
    XLAD_ASSIGN_OR_RETURN(const cuda::Driver* const driver, cuda::LoadDriver(kDouble));
    XLAD_ASSIGN_OR_RETURN(const cuda::CublasLt* const products, cuda::LoadCublasLt(kCublasLtDouble));
    return MakeCudaDevice(driver, 0, products);
  }
  // An executable whose op 0 is the product of f32[4,5] and f32[5,6].
  static Executable Product() {
    Executable executable = MakeExecutable("");
    *executable.add_library_ops() = MakeDot({{4, 5}, {5, 6}, {4, 6}, {}, {1}, {0}}, kAllF32);
    return executable;
  }
  // A number that the double counts: the "Objects" that exist, or the "Products" that were enqueued.
  static int Counted(const std::string& what) {
    void* const library = dlopen(kCublasLtDouble, RTLD_NOW);
    return reinterpret_cast<int (*)()>(dlsym(library, ("xladCublasLtDouble" + what).c_str()))();
  }
  int64_t Random(int64_t first, int64_t last) { return first + static_cast<int64_t>(random_() % (last - first + 1)); }
  // If `fours`, most sizes are multiples of 4.
  std::vector<int64_t> RandomSizes(int64_t most, bool fours) {
    const std::vector<int64_t> all = fours ? std::vector<int64_t>{0, 1, 4, 4, 6, 8, 12, 16}
                                           : std::vector<int64_t>{0, 1, 1, 2, 3, 4, 5, 7, 8, 13, 16, 17};
    std::vector<int64_t> sizes(Random(0, most));
    for (int64_t& size : sizes) size = all[Random(Random(0, 4) == 0 ? 0 : 1, std::ssize(all) - 1)];
    return sizes;
  }
  static constexpr DotTypes kAllF32 = {ElementType::kF32, ElementType::kF32, ElementType::kF32};
  LibraryOp RandomDot(ElementType operands, ElementType result, bool fours = false);
};

constexpr ElementType kDotTypes[][2] = {
    {ElementType::kF32, ElementType::kF32},  {ElementType::kBF16, ElementType::kBF16},
    {ElementType::kBF16, ElementType::kF32}, {ElementType::kF16, ElementType::kF16},
    {ElementType::kF16, ElementType::kF32},  {ElementType::kF64, ElementType::kF64},
};

// The dimensions of each operand are in random order, so that operands are transposed and batches are not outermost.
LibraryOp CublasLtTest::RandomDot(ElementType operands, ElementType result, bool fours) {
  constexpr int64_t kMaxProducts = 4000;  // xlad's own kernels are interpreted, so large dots are slow.
  std::vector<int64_t> batch, m, n, k;
  int64_t products = 0;
  do {
    batch = RandomSizes(2, fours), m = RandomSizes(2, fours), n = RandomSizes(2, fours), k = RandomSizes(2, fours);
    products = 1;
    for (const auto* sizes : {&batch, &m, &n, &k}) {
      for (const int64_t size : *sizes) products *= size;
    }
  } while (products > kMaxProducts);
  LibraryOp op;
  DotOp& dot = *op.mutable_dot();
  const auto place = [&](const std::vector<int64_t>& free, bool is_lhs) {
    std::vector<int64_t> sizes = batch;
    sizes.insert(sizes.end(), k.begin(), k.end());
    sizes.insert(sizes.end(), free.begin(), free.end());
    std::vector<size_t> order(sizes.size());
    std::iota(order.begin(), order.end(), 0);
    // The free dimensions keep their order, because the result has them in this order.
    std::shuffle(order.begin(), order.end(), random_);
    std::vector<int64_t> dims, batch_at(batch.size()), k_at(k.size());
    size_t next_free = 0;
    for (const size_t i : order) {
      if (i < batch.size())
        batch_at[i] = std::ssize(dims);
      else if (i < batch.size() + k.size())
        k_at[i - batch.size()] = std::ssize(dims);
      dims.push_back(i < batch.size() + k.size() ? sizes[i] : free[next_free++]);
    }
    SetShape(is_lhs ? dot.mutable_lhs() : dot.mutable_rhs(), operands, dims);
    (is_lhs ? dot.mutable_lhs_batch() : dot.mutable_rhs_batch())->Assign(batch_at.begin(), batch_at.end());
    (is_lhs ? dot.mutable_lhs_contracting() : dot.mutable_rhs_contracting())->Assign(k_at.begin(), k_at.end());
  };
  place(m, true);
  place(n, false);
  std::vector<int64_t> result_dims = batch;
  result_dims.insert(result_dims.end(), m.begin(), m.end());
  result_dims.insert(result_dims.end(), n.begin(), n.end());
  SetShape(dot.mutable_result(), result, result_dims);
  return op;
}

TEST_F(CublasLtTest, RandomDots) {
  const int dots = CaseCount(120, 400);
  int by_library = 0;
  for (int i = 0; i < dots; ++i) {
    const auto& [operands, result] = kDotTypes[Random(0, std::ssize(kDotTypes) - 1)];
    const LibraryOp op = RandomDot(operands, result);
    const int before = Counted("Products");
    Compare(op, op.dot());
    by_library += Counted("Products") > before;
  }
  EXPECT_GT(by_library, dots / 4);
  EXPECT_LT(by_library, dots) << "xlad's own kernels compute some of them";
}

// The library computes products of s8 whose sizes and strides it supports, and xlad's own kernels compute the others.
// The double refuses products that do not follow the library's rules.
TEST_F(CublasLtTest, RandomDotsOfS8) {
  const int dots = CaseCount(60, 200);
  int by_library = 0;
  for (int i = 0; i < dots; ++i) {
    const LibraryOp op = RandomDot(ElementType::kS8, ElementType::kS32, /*fours=*/true);
    const int before = Counted("Products");
    Compare(op, op.dot());
    by_library += Counted("Products") > before;
  }
  EXPECT_GT(by_library, dots / 50);
  EXPECT_LT(by_library, dots * 3 / 4);
}

TEST_F(CublasLtTest, FormsOfS8) {
  struct Case {
    DotDims dims;
    int calls;
  };
  const Case cases[] = {
      {{{5, 16}, {12, 16}, {5, 12}, {}, {1}, {1}}, 1},
      {{{3, 5, 16}, {3, 12, 16}, {3, 5, 12}, {0}, {2}, {2}}, 1},
      {{{2, 5, 3, 8}, {2, 4, 3, 8}, {2, 3, 5, 4}, {0, 2}, {3}, {3}}, 2},
      {{{5, 16}, {16, 12}, {5, 12}, {}, {1}, {0}}, 0},  // A is not transposed.
      {{{16, 5}, {12, 16}, {5, 12}, {}, {0}, {1}}, 0},  // B is transposed.
      {{{5, 18}, {12, 18}, {5, 12}, {}, {1}, {1}}, 0},  // k is not a multiple of 4.
      {{{5, 16}, {10, 16}, {5, 10}, {}, {1}, {1}}, 0},  // m is not a multiple of 4.
      {{{5, 16, 2}, {12, 16}, {5, 2, 12}, {}, {1}, {1}}, 0},
  };
  for (const auto& [dims, calls] : cases) {
    const LibraryOp op = MakeDot(dims, {ElementType::kS8, ElementType::kS8, ElementType::kS32});
    const int before = Counted("Products");
    Compare(op, op.dot());
    EXPECT_EQ(Counted("Products"), before + calls) << op.ShortDebugString();
  }
}

// Sums of f64 are not rounded to f32: 2^30 + 1 needs 31 bits.
TEST_F(CublasLtTest, SumsOfF64) {
  const LibraryOp op = MakeDot({{2}, {2}, {}, {}, {0}, {0}}, {ElementType::kF64, ElementType::kF64, ElementType::kF64});
  const double lhs[] = {1 << 15, 1}, rhs[] = {1 << 15, 1};
  const auto bytes = [](const double* values) {
    const auto* const from = reinterpret_cast<const std::byte*>(values);
    return std::vector<std::byte>(from, from + 2 * sizeof(double));
  };
  const auto device = *Make();
  const int before = Counted("Products");
  const std::vector<std::byte> found = RunOn(device.get(), op, {bytes(lhs), bytes(rhs)}, sizeof(double));
  EXPECT_EQ(Counted("Products"), before + 1);
  double sum = 0;
  std::memcpy(&sum, found.data(), sizeof(sum));
  EXPECT_EQ(sum, (1 << 30) + 1.0);
}

// The forms of matrix products in JAX's training steps. The library computes all of them.
TEST_F(CublasLtTest, FormsThatTheLibraryComputes) {
  struct Case {
    DotDims dims;
    int calls = 1;
  };
  const Case cases[] = {
      {{{20, 37}, {37, 18}, {20, 18}, {}, {1}, {0}}},
      {{{37, 20}, {37, 18}, {20, 18}, {}, {0}, {0}}},                     // The gradient of weights.
      {{{20, 37}, {18, 37}, {20, 18}, {}, {1}, {1}}},                     // The gradient of activations.
      {{{9, 70}, {65, 9}, {70, 65}, {}, {0}, {1}}},                       // Both operands are transposed.
      {{{3, 5, 37}, {37, 4, 6}, {3, 5, 4, 6}, {}, {2}, {0}}},             // Several dimensions are merged into one.
      {{{3, 5, 4}, {3, 4, 6}, {3, 5, 6}, {0}, {2}, {1}}},                 // A batch.
      {{{2, 5, 3, 4}, {2, 7, 3, 4}, {2, 3, 5, 7}, {0, 2}, {3}, {3}}, 2},  // Heads of attention that are not outermost.
      {{{17}, {17}, {}, {}, {0}, {0}}},
      {{{5, 17}, {17}, {5}, {}, {1}, {0}}},
      {{{17}, {17, 5}, {5}, {}, {0}, {0}}},
      {{{4, 1}, {1, 6}, {4, 6}, {}, {1}, {0}}},
  };
  for (const auto& [dims, calls] : cases) {
    for (const auto& [operands, result] : kDotTypes) {
      const LibraryOp op = MakeDot(dims, {operands, operands, result});
      const int before = Counted("Products");
      Compare(op, op.dot());
      EXPECT_EQ(Counted("Products"), before + calls) << op.ShortDebugString();
    }
  }
}

// A result of 16 bits is the sum in f32, rounded once. The algorithm that the double would prefer rounds twice.
TEST_F(CublasLtTest, SumsAreInF32) {
  const auto device = *Make();
  for (const ElementType type : {ElementType::kBF16, ElementType::kF16}) {
    const DotDims dims = {{19, 3000}, {3000, 23}, {19, 23}, {}, {1}, {0}};
    const LibraryOp narrow = MakeDot(dims, {type, type, type}), wide = MakeDot(dims, {type, type, ElementType::kF32});
    const std::vector<std::vector<std::byte>> inputs = {RandomBytes(narrow.dot().lhs()),
                                                        RandomBytes(narrow.dot().rhs())};
    const auto found = RunOn(device.get(), narrow, inputs, 19 * 23 * 2);
    const auto sums = RunOn(device.get(), wide, inputs, 19 * 23 * 4);
    for (size_t i = 0; i < 19 * 23; ++i) {
      float sum;
      std::memcpy(&sum, sums.data() + 4 * i, 4);
      const uint16_t expected =
          type == ElementType::kBF16 ? tensor::EncodeBf16(sum) : std::bit_cast<uint16_t>(static_cast<_Float16>(sum));
      uint16_t bits;
      std::memcpy(&bits, found.data() + 2 * i, 2);
      ASSERT_EQ(bits, expected) << "element " << i << ", sum " << sum;
    }
  }
}

TEST_F(CublasLtTest, ObjectsAreDestroyed) {
  const int before = Counted("Objects");
  const LibraryOp op = MakeDot({{4, 5}, {5, 6}, {4, 6}, {}, {1}, {0}}, kAllF32);
  Compare(op, op.dot());
  EXPECT_EQ(Counted("Objects"), before);
}

TEST_F(CublasLtTest, LibrariesThatCannotBeUsed) {
  const auto message = [](const std::string& library) { return Message(cuda::LoadCublasLt(library).status()); };
  EXPECT_THAT(
      message("libcublasLt_that_is_not_installed.so.12"),
      AllOf(HasSubstr("libcublasLt_that_is_not_installed.so.12) cannot be loaded"), HasSubstr("XLAD_CUBLASLT")));
  EXPECT_THAT(message("libm.so.6"),
              HasSubstr("libm.so.6 has no function cublasLtGetVersion, expected cuBLASLt 12.0.0"));
  Configure("cublaslt=110403");
  EXPECT_THAT(message(kCublasLtDouble),
              AllOf(HasSubstr("found cuBLASLt 11.4.3"), HasSubstr("expected 12.0.0 or later")));
}

// xlad's own kernels compute the products if the library does not work on the GPU or proposes no algorithm.
TEST_F(CublasLtTest, ProductsWithoutTheLibrary) {
  const LibraryOp op = MakeDot({{4, 5}, {5, 6}, {4, 6}, {}, {1}, {0}}, kAllF32);
  for (const char* const settings : {"fail=cublasLtCreate:1", "fail=cublasLtMatmulAlgoGetHeuristic:15"}) {
    Configure(settings);
    const int before = Counted("Products");
    Compare(op, op.dot());
    EXPECT_EQ(Counted("Products"), before) << settings;
  }
}

TEST_F(CublasLtTest, FailuresWhenAnExecutableIsLoaded) {
  // A batch, so that all attributes are set.
  Executable executable = MakeExecutable("");
  *executable.add_library_ops() = MakeDot({{3, 5, 4}, {3, 4, 6}, {3, 5, 6}, {0}, {2}, {1}}, kAllF32);
  const auto device = *Make();
  for (const std::string function :
       {"cublasLtMatmulDescCreate", "cublasLtMatmulDescSetAttribute", "cublasLtMatrixLayoutCreate",
        "cublasLtMatrixLayoutSetAttribute", "cublasLtMatmulPreferenceCreate", "cublasLtMatmulPreferenceSetAttribute",
        "cublasLtMatmulAlgoGetHeuristic"}) {
    const int objects = Counted("Objects");
    for (int calls = 0; calls < 9; ++calls) {
      Configure(absl::StrCat("fail=", function, ":14:", calls));
      const absl::Status status = device->Load(executable).status();
      if (status.ok()) break;
      EXPECT_THAT(Message(status), AllOf(HasSubstr("executable 'job', op 0"), HasSubstr("GPU 0 (test double)"),
                                         HasSubstr("cuBLASLt 13.1.0"), HasSubstr("CUBLAS_STATUS_INTERNAL_ERROR (14)")));
      EXPECT_EQ(Counted("Objects"), objects) << function << " after " << calls << " calls";
    }
    Configure(absl::StrCat("fail=", function, ":14"));
    EXPECT_FALSE(device->Load(executable).ok()) << function;
    Configure(absl::StrCat("fail=", function, ":3"));
    EXPECT_EQ(device->Load(executable).status().code(), absl::StatusCode::kResourceExhausted) << function;
  }
}

// An executable of a product of f32[4,5] and f32[5,6], loaded on a device, with 4 KiB of memory.
struct LoadedProduct {
  LoadedProduct(Device* device, Executable executable) {
    loaded = *device->Load(std::move(executable));
    stream = *device->MakeStream();
    launcher = *loaded->MakeLauncher(0, stream.get());
    memory = *device->Allocate(4 << 10);
  }
  // Enqueues the product. The result begins at byte `result` of the memory.
  absl::Status Run(int64_t result) {
    auto* const address = static_cast<std::byte*>(memory->address());
    return launcher->RunLibraryOp(0, std::vector<void*>{address, address + 1024, address + result});
  }

  std::unique_ptr<LoadedExecutable> loaded;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Launcher> launcher;
  std::unique_ptr<DeviceMemory> memory;
};

TEST_F(CublasLtTest, FailuresOfAProduct) {
  const auto device = *Make();
  LoadedProduct product(device.get(), Product());
  Configure("fail=cublasLtMatmul:13");
  const absl::Status status = product.Run(/*result=*/2048);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(Message(status), AllOf(HasSubstr("cublasLtMatmul"), HasSubstr("CUBLAS_STATUS_EXECUTION_FAILED (13)")));
  EXPECT_EQ(product.stream->Synchronize(), status) << "the stream keeps its first error";
}

// The codes of CUDA and of the library overlap: CUDA_ERROR_INVALID_VALUE and CUBLAS_STATUS_NOT_INITIALIZED are both 1.
TEST_F(CublasLtTest, AnErrorOfAsynchronousWorkIsNotTakenForACodeOfTheLibrary) {
  const cuda::Driver& driver = **cuda::LoadDriver(kDouble);
  const cuda::CublasLt& products = **cuda::LoadCublasLt(kCublasLtDouble);
  const auto gpu = cuda::Gpu::Open(&driver, 0);  // Its context is current.
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  cuda::StreamHandle stream = nullptr;
  ASSERT_EQ(driver.cuStreamCreate(&stream, 0), cuda::kSuccess);
  // tests/cuda_driver_double/driver_double_hooks.h
  using Enqueue = void (*)(cuda::StreamHandle, cuda::Result (*work)(void*), void (*drop)(void*), void* argument);
  const auto enqueue = reinterpret_cast<Enqueue>(dlsym(dlopen(kDouble, RTLD_NOW), "xladCudaDoubleEnqueue"));
  for (const cuda::Result code : {1, 2, 99, 700}) {
    static cuda::Result returned;
    returned = code;
    enqueue(stream, [](void*) { return returned; }, [](void*) {}, nullptr);
    EXPECT_EQ(driver.cuStreamSynchronize(stream), code);
    cuda::LtHandle handle = nullptr;
    EXPECT_EQ(products.cublasLtCreate(&handle), cuda::kLtExecutionFailed) << code;
    Configure("");
  }
  EXPECT_EQ(driver.cuStreamDestroy_v2(stream), cuda::kSuccess);
}

// A product that accesses memory outside of allocations fails like a kernel.
TEST_F(CublasLtTest, IllegalAddresses) {
  const auto device = *Make();
  LoadedProduct product(device.get(), Product());
  ASSERT_TRUE(product.Run(/*result=*/1 << 20).ok());
  const absl::Status status = product.stream->Synchronize();
  EXPECT_THAT(Message(status), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
}

}  // namespace
}  // namespace xlad::runtime
