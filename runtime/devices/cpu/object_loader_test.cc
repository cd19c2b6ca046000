// Object code that cannot be loaded. runtime/devices/conformance/ tests object code that can be loaded.
#include "runtime/devices/cpu/object_loader.h"

#include <gtest/gtest.h>

#include <string>

namespace xlad::runtime {
namespace {

TEST(ObjectLoader, RefusesBytesThatAreNotAnObject) {
  std::string elf(
      "\x7f"
      "ELF",
      4);
  elf.resize(200, '\0');
  for (const std::string& bytes : {std::string("not an object"), std::string(1000, 'x'), elf, elf.substr(0, 5)}) {
    const auto object = LoadedObject::Load(bytes);
    // A damaged object may be rejected only when a symbol is looked up for the first time.
    if (object.ok()) {
      EXPECT_FALSE((*object)->Find("kernel").ok());
    } else {
      EXPECT_EQ(object.status().code(), absl::StatusCode::kInvalidArgument) << object.status();
    }
  }
}

}  // namespace
}  // namespace xlad::runtime
