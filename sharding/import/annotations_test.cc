#include "sharding/import/annotations.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hlo/text/text.h"

namespace xlad::sharding {
namespace {

// The error of a program whose attributes are `attributes` and whose parameter has the attribute `annotation`.
std::string ErrorOf(absl::string_view attributes, absl::string_view annotation) {
  const auto module = hlo::ParseText(
      absl::StrCat("HloModule m", attributes, "\nENTRY e {\n  ROOT x = f32[8] parameter(0), ", annotation, "\n}"));
  EXPECT_TRUE(module.ok()) << module.status();
  return module.ok() ? std::string(Annotations::Create(**module).status().message()) : "";
}

// Only errors in the attribute xla.sdy.meshes begin with its name.
TEST(Annotations, ErrorsNameThePlaceOfTheMesh) {
  const std::string error =
      ErrorOf(R"(, frontend_attributes={xla.sdy.meshes={m = #sdy.mesh<["a"=0]>}})", "metadata={}");
  EXPECT_TRUE(absl::StartsWith(error, "xla.sdy.meshes: ")) << error;
  for (const char* annotation : {R"(frontend_attributes={xla.sdy.sharding="#sdy.sharding<mesh<[\"a\"=0]>, [{}]>"})",
                                 R"(sharding={mesh['a'=2], device_ids=(5,7), [{'a'}]})"}) {
    const std::string inner = ErrorOf("", annotation);
    EXPECT_TRUE(absl::StartsWith(inner, "3:3: %x: ")) << inner;
  }
}

}  // namespace
}  // namespace xlad::sharding
