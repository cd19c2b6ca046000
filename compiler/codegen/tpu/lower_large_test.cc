// Programs whose arrays are larger than the memory of the machine that compiles them.
#include <gtest/gtest.h>

#include "compiler/codegen/tpu/lower.h"
#include "hlo/text/text.h"

namespace xlad::compiler {
namespace {

// A product, an elementwise instruction, a transpose and a reduction of arrays of 4 TiB.
const char* const kLarge = R"(HloModule large
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
ENTRY e {
  x = f32[1048576,1048576] parameter(0)
  y = f32[1048576,1048576] parameter(1)
  p = f32[1048576,1048576] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[1048576,1048576] transpose(p), dimensions={1,0}
  d = f32[1048576,1048576] subtract(t, x)
  z = f32[] constant(3)
  ROOT r = f32[1048576] reduce(d, z), dimensions={1}, to_apply=sum
})";

TEST(LowerLarge, ArraysNeedNoMemory) {
  const auto module = *hlo::ParseText(kLarge);
  const machine::Chip chip = *machine::BuiltInChip("v5e");
  const absl::StatusOr<LoweredLlo> lowered = LowerToLlo(*module->entry(), chip);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  ASSERT_EQ(lowered->bytes.size(), lowered->program.buffers.size());
  ASSERT_EQ(lowered->constants.size(), lowered->bytes.size());
  EXPECT_EQ(lowered->bytes.at(lowered->parameters.at(0)), int64_t{4} << 40);
  size_t constants = 0;
  for (const std::string& constant : lowered->constants) constants += constant.size();
  EXPECT_EQ(constants, sizeof(float)) << "only the constant has contents";
  const absl::StatusOr<std::string> listing = LloListing(*module, chip);
  ASSERT_TRUE(listing.ok()) << listing.status();
  for (const char* word : {"vmat.push", "loop", "dma.in"}) EXPECT_NE(listing->find(word), std::string::npos) << word;
}

}  // namespace
}  // namespace xlad::compiler
