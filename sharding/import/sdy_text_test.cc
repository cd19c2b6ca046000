// Tests the parser of Shardy's attribute text: all forms, errors, and damaged text.
#include "sharding/import/sdy_text.h"

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace xlad::sharding {
namespace {

using testing::HasSubstr;

const Mesh kMesh("mesh", {{"a", 2}, {"b", 4}, {"one", 1}});

std::string RoundTrip(absl::string_view text, int64_t ndim) {
  const auto shardings = ParseSdyShardings(text);
  if (!shardings.ok()) return std::string(shardings.status().message());
  const auto resolved = Resolve(kMesh, (*shardings)[0], ndim);
  return resolved.ok() ? ToString(kMesh, *resolved) : std::string(resolved.status().message());
}

TEST(SdyText, ReadsEveryForm) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(#sdy.sharding<@mesh, [{"a"}, {}]>)", R"([{"a"}, {}])"},
      {R"(#sdy.sharding<@mesh, [{\"a\"}, {\"b\", ?}]>)", R"([{"a"}, {"b", ?}])"},
      {R"(#sdy.sharding<@mesh,[{"b":(2)2,"a"},{?}p3]>)", R"([{"b":(2)2, "a"}, {?}p3])"},
      {R"(#sdy.sharding<@mesh, [{"b":(1)2, "b":(2)2}, {"one"}]>)", R"([{"b"}, {}])"},
      {R"(#sdy.sharding<@mesh, [{}, {}], replicated={"a"}, unreduced={"b"}>)",
       R"([{}, {}], replicated={"a"}, unreduced={"b"})"},
      {R"(#sdy.sharding<@mesh, [{}, {}], unreduced=max{"b"}>)", R"([{}, {}], unreduced=max{"b"})"},
      {R"(#sdy.sharding_per_value<[<@mesh, [{"a"}, {}]>, <@mesh, []>]>)", R"([{"a"}, {}])"},
      {R"(#sdy.sharding<mesh<["a"=2]>, [{"a"}, {}]>)", R"([{"a"}, {}])"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(RoundTrip(text, 2), expected) << text;
}

TEST(SdyText, ErrorsNameWhatWasExpected) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "expected '#sdy.sharding'"},
      {"#sdy.sharding<@mesh>", "expected ','"},
      {"#sdy.sharding<@mesh, [{\"a\"}, {}]", "found the end, expected '>'"},
      {"#sdy.sharding<@mesh, [{?, \"a\"}, {}]>", "expected '}' after '?'"},
      {"#sdy.sharding<@mesh, [{\"a\"}, {}]> more", "expected the end"},
      {"#sdy.sharding<@mesh, [{\"a\":(0)2}, {}]>", "found \\\"a\\\":(0)2}, {}]>, expected a sub-axis \"x\":(pre)size"},
      {"#sdy.sharding<@mesh, [{?}p1001, {}]>", "character 27: found 1001, {}]>, expected a priority of at most 1000"},
      {"#sdy.sharding<@mesh, [{\"b\":(3)2}, {}]>", "expected a part of an axis of 4"},
      {"#sdy.sharding<@mesh, [{\"b\":(99999999999999999999)2}, {}]>", "expected a number"},
      {"#sdy.sharding<@mesh, [{\"b\"}, {\"b\":(2)2}]>", "used twice"},
      {"#sdy.sharding<@mesh, [{\"a\"}, {}], replicated={\"a\"}>", "used twice"},
      {"#sdy.sharding<@mesh, [{\"c\"}, {}]>", "expected one of the mesh a=2,b=4"},
      {"#sdy.sharding<@mesh, [{}]>", "found a sharding of 1 dimension, expected 2"},
      {"#sdy.sharding<mesh<[\"a\"=0]>, [{}, {}]>", "found 0]>, [{}, {}]>, expected an axis size of at least 1"},
      {"#sdy.sharding<mesh<[\"a\"=2, \"a\"=2]>, [{}, {}]>", "found \\\"a\\\"=2]>, [{}, {}]>, expected a name that no"},
  };
  for (const auto& [text, message] : cases) EXPECT_THAT(RoundTrip(text, 2), HasSubstr(message)) << text;
}

// The products of the two numbers of the refused sub-axes are 2^64; the axis has size 2^24.
TEST(SdyText, SubAxisBeyond64Bits) {
  const Mesh large("mesh", {{"x", kMaxDevices}});
  for (const char* numbers : {"(1099511627776)16777216", "(2199023255552)8388608", "(4611686018427387904)4"}) {
    const std::string text = absl::StrCat("#sdy.sharding<@mesh, [{\"x\":", numbers, "}]>");
    const auto shardings = ParseSdyShardings(text);
    ASSERT_TRUE(shardings.ok()) << shardings.status();
    EXPECT_EQ(Resolve(large, (*shardings)[0], 1).status(),
              absl::InvalidArgumentError(
                  absl::StrCat("found sub-axis \"x\":", numbers, ", expected a part of an axis of 16777216")));
  }
  const auto halves = ParseSdyShardings(R"(#sdy.sharding<@mesh, [{"x":(2)8388608}]>)");
  EXPECT_EQ(ToString(large, *Resolve(large, (*halves)[0], 1)), R"([{"x":(2)8388608}])");
}

TEST(SdyText, ReadsMeshesInEveryQuoting) {
  for (const char* text : {R"({mesh = #sdy.mesh<["a"=2, "b"=4]>})", R"({mesh = "#sdy.mesh<[\"a\"=2, \"b\"=4]>"})",
                           R"(mesh = #sdy.mesh<["a"=2, "b"=4], device_ids=[0, 1, 2, 3, 4, 5, 6, 7]>)",
                           R"({mesh = #sdy.mesh<["a"=2,"b"=4]>, empty_mesh = #sdy.mesh<[]>})"}) {
    const auto meshes = ParseSdyMeshes(text);
    ASSERT_TRUE(meshes.ok()) << text << ": " << meshes.status();
    EXPECT_EQ((*meshes)[0].first, "mesh");
    EXPECT_EQ(Mesh("", (*meshes)[0].second.axes).ToString(), "a=2,b=4");
  }
  EXPECT_TRUE(ParseSdyMeshes("{}")->empty());
  EXPECT_FALSE(ParseSdyMeshes("{mesh = #sdy.mesh<[\"a\"=4294967296, \"b\"=4294967296]>}").ok());
  EXPECT_FALSE(ParseSdyMeshes("{mesh = #sdy.mesh<[\"a\"=2, \"a\"=2]>}").ok());
}

TEST(SdyText, DeviceIdsArePermutations) {
  const auto parse = [](absl::string_view axes, absl::string_view ids) {
    return ParseSdyMeshes(absl::StrCat("{mesh = #sdy.mesh<[", axes, "], device_ids=", ids, ">}")).status();
  };
  EXPECT_TRUE(parse("\"a\"=2, \"b\"=2", "[3, 1, 0, 2]").ok());
  EXPECT_TRUE(parse("", "[5]").ok());  // A mesh without axes has one device, whose id is arbitrary.
  for (const char* ids : {"[0]", "[0, 1, 2]", "[0, 1, 2, 3, 4]", "[0, 1, 2, 2]", "[0, 1, 2, 4]",
                          "[0, 1, 2, 9223372036854775807]"}) {
    const absl::Status status = parse("\"a\"=2, \"b\"=2", ids);
    EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("found ", absl::string_view(ids).substr(0, 24)))) << status;
    EXPECT_THAT(status.message(), HasSubstr("expected each of the mesh's 4 devices once")) << status;
  }
  EXPECT_THAT(parse("", "[0, 1]").message(), HasSubstr("expected each of the mesh's 1 device once"));
}

TEST(SdyText, ReadsAxisLists) {
  for (const char* text : {R"(#sdy<manual_axes{"a", "b"}>)", R"({"a","b"})", R"(["a", "b"])"}) {
    const auto axes = ParseSdyAxes(text);
    ASSERT_TRUE(axes.ok()) << text << ": " << axes.status();
    EXPECT_EQ(ToString(kMesh, *ResolveAxes(kMesh, *axes)), "a,b");
  }
}

// After one to three random edits, text is either parsed or refused, without a crash.
TEST(SdyText, MutatedTextIsParsedOrRefused) {
  std::mt19937 random(11);
  const std::string seeds[] = {R"(#sdy.sharding_per_value<[<@mesh, [{"a", ?}p1, {"b":(2)2}], replicated={"a"}>]>)",
                               R"(#sdy.sharding<mesh<["a"=2], device_ids=[0, 1]>, [{"a"}], unreduced=max{"b"}>)",
                               R"({mesh = #sdy.mesh<["a"=2, "b"=4]>, e = #sdy.mesh<[]>})"};
  const std::string letters = "<>[]{}()@#\"\\,:=?p0123456789abmesh ";
  for (int i = 0; i < 20'000; ++i) {
    std::string text = seeds[random() % 3];
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0 && !text.empty(); --edits) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text.erase(at, 1 + random() % 4);
          break;
        case 1:
          text.insert(at, 1, letters[random() % letters.size()]);
          break;
        default:
          text[at] = letters[random() % letters.size()];
      }
    }
    const auto shardings = ParseSdyShardings(text);
    if (shardings.ok()) {
      for (const SdySharding& sharding : *shardings) (void)Resolve(kMesh, sharding, std::ssize(sharding.dims));
    }
    (void)ParseSdyMeshes(text);
    (void)ParseSdyAxes(text);
  }
}

}  // namespace
}  // namespace xlad::sharding
