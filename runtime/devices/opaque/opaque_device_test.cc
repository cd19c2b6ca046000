// Tests what the opaque device does when it loads a program. The conformance suite tests the rest.
#include "runtime/devices/opaque/opaque_device.h"

#include <gtest/gtest.h>

#include "base/kernel_abi.h"
#include "runtime/devices/cpu/host_target.h"
#include "runtime/devices/cpu/matrix_code.h"
#include "tensor/element_type.h"

namespace xlad::runtime {
namespace {

// A program that multiplies a matrix of f32[rows, columns] by one of f32[columns, columns].
Executable MakeProduct(int64_t rows, int64_t columns) {
  Executable executable;
  executable.set_kernel_abi_version(XLAD_KERNEL_ABI_VERSION);
  *executable.mutable_target() = HostTarget("opaque");
  DotOp* dot = executable.add_library_ops()->mutable_dot();
  for (ArrayShape* shape : {dot->mutable_lhs(), dot->mutable_rhs(), dot->mutable_result()}) {
    shape->set_element_type(static_cast<int>(tensor::ElementType::kF32));
    shape->add_dims(shape == &dot->rhs() ? columns : rows);
    shape->add_dims(columns);
  }
  dot->add_lhs_contracting(1);
  dot->add_rhs_contracting(0);
  return executable;
}

TEST(OpaqueDevice, GeneratesMatrixCodeForAProgramThatNeedsIt) {
  const auto device = MakeOpaqueDevice();
  ASSERT_TRUE(device.ok()) << device.status();
  const std::shared_ptr<MatrixCode> code = MatrixCodeOfProcess();
  EXPECT_FALSE(code->is_needed().has_value());
  ASSERT_TRUE((*device)->Load(MakeProduct(64, 64)).ok());
  EXPECT_EQ(code->is_needed(), false);
  ASSERT_TRUE((*device)->Load(MakeProduct(256, 1024)).ok());
  EXPECT_EQ(code->is_needed(), true);
}

}  // namespace
}  // namespace xlad::runtime
