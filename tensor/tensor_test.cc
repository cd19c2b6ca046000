#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "tensor/box.h"
#include "tensor/indices.h"
#include "tensor/safetensors.h"
#include "tensor/sub_byte.h"

namespace xlad::tensor {
namespace {

Array RandomBytes(Shape shape, Random* random) {
  Array array(std::move(shape));
  for (std::byte& byte : array.bytes()) byte = static_cast<std::byte>(random->Below(2));
  return array;
}

TEST(Shape, ToStringRoundTrips) {
  for (const char* text : {"f32[]", "s32[0]", "pred[3,1,7]", "bf16[128,256]", "c128[2]", "f8e4m3fn[4]", "u4[8]"}) {
    const auto shape = ParseShape(text);
    ASSERT_TRUE(shape.ok()) << text;
    EXPECT_EQ(shape->ToString(), text);
  }
  for (const char* bad : {"", "f32", "f32[", "f33[1]", "f32[-1]", "f32[1,]", "f32[a]", "f32[4294967296,4294967296]"}) {
    EXPECT_FALSE(ParseShape(bad).ok()) << bad;
  }
}

TEST(ElementTypes, TheRealPartOfAComplexTypeHasHalfItsWidth) {
  int complex = 0;
  for (int number = 0; number < 40; ++number) {
    const auto type = static_cast<ElementType>(number);
    if (!IsComplex(type)) {
      EXPECT_EQ(RealPartOf(type), type);
      continue;
    }
    ++complex;
    EXPECT_TRUE(IsFloating(RealPartOf(type)));
    EXPECT_EQ(2 * BitWidth(RealPartOf(type)), BitWidth(type));
  }
  EXPECT_EQ(complex, 2);
}

TEST(ElementTypes, UnsignedTypesByWidth) {
  for (const ElementType type : {ElementType::kU1, ElementType::kU2, ElementType::kU4, ElementType::kU8,
                                 ElementType::kU16, ElementType::kU32, ElementType::kU64}) {
    EXPECT_EQ(UnsignedOfWidth(BitWidth(type)), type);
  }
  for (const int bits : {0, 3, 128}) EXPECT_EQ(UnsignedOfWidth(bits), ElementType::kInvalid);
}

TEST(Shape, HugeSizesAreErrors) {
  EXPECT_EQ(*CheckedElements(ElementType::kF32, {int64_t{1} << 40, 0, 3}), 0);
  // The strides would overflow.
  EXPECT_FALSE(CheckedElements(ElementType::kF32, {1LL << 40, 0, 1LL << 40}).ok());
  EXPECT_FALSE(CheckedElements(ElementType::kF32, {int64_t{1} << 33, int64_t{1} << 33}).ok());
  EXPECT_FALSE(CheckedElements(ElementType::kC128, {int64_t{1} << 60}).ok());
}

TEST(Indices, CountTheElementsOfAContainer) {
  int64_t sum = 0;
  for (const int64_t i : Indices(std::vector<std::string>(5))) sum = 10 * sum + i;
  EXPECT_EQ(sum, 1234);
  for (const int64_t i : Indices(Dims{})) ADD_FAILURE() << i;
}

TEST(Indices, PermutationsAndTheirInverses) {
  EXPECT_EQ(Select({7, 8, 9}, {2, 0, 2}), (Dims{9, 7, 9}));
  EXPECT_EQ(Inverse({}), Dims{});
  Dims permutation = {0, 1, 2, 3};
  do {
    EXPECT_EQ(Select(permutation, Inverse(permutation)), (Dims{0, 1, 2, 3}));
    EXPECT_EQ(Select(Inverse(permutation), permutation), (Dims{0, 1, 2, 3}));
  } while (std::next_permutation(permutation.begin(), permutation.end()));
}

TEST(Indices, MultiIndicesAreInRowMajorOrder) {
  const Dims dims = {2, 3, 5};
  MultiIndices indices(dims);
  for (int round = 0; round < 2; ++round) {  // The second loop starts from the first index again.
    int64_t count = 0;
    for (const Dims& index : indices) {
      EXPECT_EQ(MultiIndexAt(dims, count), index);
      EXPECT_EQ(LinearIndex(dims, index), count++);
    }
    EXPECT_EQ(count, 30);
  }
}

TEST(Indices, AScalarHasOneMultiIndexAndAnEmptyArrayNone) {
  int64_t count = 0;
  for (const Dims& index : MultiIndices({})) count += 1 + std::ssize(index);
  EXPECT_EQ(count, 1);
  for (const Dims& index : MultiIndices({2, 0, 3})) ADD_FAILURE() << index.size();
}

TEST(SubByte, WrapsToTheWidth) {
  EXPECT_EQ(WrapSubByte(ElementType::kS4, 8), -8);
  EXPECT_EQ(WrapSubByte(ElementType::kS4, -9), 7);
  EXPECT_EQ(WrapSubByte(ElementType::kU4, 17), 1);
  EXPECT_EQ(WrapSubByte(ElementType::kU4, -1), 15);
  EXPECT_EQ(WrapSubByte(ElementType::kS2, 2), -2);
  EXPECT_EQ(WrapSubByte(ElementType::kS1, 1), -1);
  EXPECT_EQ(WrapSubByte(ElementType::kU1, 3), 1);
  EXPECT_EQ(WrapSubByte(ElementType::kF4E2M1FN, 0x1F), 0x0F);
  EXPECT_EQ(SignExtend(0x80, 8), -128);
  EXPECT_EQ(LowBits(-1, 64), ~uint64_t{0});
}

// Extracting all boxes of a grid and inserting them into a new array copies the array.
TEST(Box, SplitsRoundTrip) {
  const auto random = SeededRandom(1);
  for (int round = 0; round < 300; ++round) {
    Shape shape{round % 2 == 0 ? ElementType::kF32 : ElementType::kU8, {}};
    const int64_t ndim = random->Below(4);
    Dims parts, padded;
    for (int64_t d = 0; d < ndim; ++d) {
      shape.dims.push_back(random->Below(7));
      parts.push_back(1 + random->Below(4));
      padded.push_back((shape.dims.back() + parts.back() - 1) / parts.back());
    }
    const Array whole = RandomBytes(shape, random.get());
    Array rebuilt(shape);
    for (const Dims& index : MultiIndices(parts)) {
      Box box{Dims(parts.size()), Dims(parts.size())};
      for (const int64_t d : Indices(parts)) {
        box.lo[d] = std::min(shape.dims[d], index[d] * padded[d]);
        box.hi[d] = std::min(shape.dims[d], (index[d] + 1) * padded[d]);
      }
      InsertBox(ExtractBox(whole, box, padded), box, &rebuilt);
    }
    EXPECT_EQ(rebuilt, whole) << shape.ToString();
  }
}

TEST(Safetensors, RoundTrips) {
  const auto random = SeededRandom(2);
  NamedArrays arrays;
  arrays["a"] = RandomBytes({ElementType::kF32, {3, 4}}, random.get());
  arrays["b.c"] = RandomBytes({ElementType::kBF16, {}}, random.get());
  arrays["empty"] = Array(Shape{ElementType::kS64, {0, 5}});
  arrays["p"] = RandomBytes({ElementType::kPred, {7}}, random.get());
  const auto read = ParseSafetensors(SerializeSafetensors(arrays));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, arrays);
}

TEST(Safetensors, TypesWithoutANameAreStoredAsBytes) {
  NamedArrays arrays;
  arrays["s4"] = Array::FromValues<int8_t>(ElementType::kS4, {3}, {-8, -1, 7});
  arrays["c128"] = Array::FromValues<double>(ElementType::kC128, {1, 2}, {1, 2, 3, 4});
  arrays["f32"] = Array::FromValues<float>(ElementType::kF32, {2}, {1, 2});
  const auto read = ParseSafetensors(SerializeSafetensors(arrays));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->at("s4"), Array::FromValues<uint8_t>(ElementType::kU8, {3}, {0x08, 0x0F, 0x07}));
  EXPECT_EQ(read->at("c128").shape(), (Shape{ElementType::kU8, {1, 2, 16}}));
  for (const auto& [name, array] : arrays) {
    const auto restored = FromStored(read->at(name), array.shape());
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_EQ(*restored, array) << name;
  }
  EXPECT_EQ(FromStored(arrays["f32"], {ElementType::kF32, {3}}).status().message(),
            "found f32[2], expected f32[3] or its bytes as u8");
  EXPECT_EQ(FromStored(arrays["f32"], {ElementType::kS4, {2}}).status().message(), "found f32[2], expected s4[2]");
}

// A name may be any bytes, for example that of an HLO instruction. JSON has only UTF-8.
TEST(Safetensors, NamesThatAreNotUtf8AreWritten) {
  NamedArrays arrays;
  arrays["a\xff"] = Array::FromValues<float>(ElementType::kF32, {2}, {1, 2});
  arrays["\xc3\xbc"] = Array::FromValues<float>(ElementType::kF32, {1}, {3});
  const auto read = ParseSafetensors(SerializeSafetensors(arrays));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, (NamedArrays{{"a\xef\xbf\xbd", arrays["a\xff"]}, {"\xc3\xbc", arrays["\xc3\xbc"]}}));
  EXPECT_TRUE(ParseSafetensorsIndex(SafetensorsHeader({}, {{"\xff", "\xfe"}}), 1 << 20).ok());
}

TEST(Safetensors, NamesOfOneTensorOnly) {
  for (const std::string name : {"", "w", "a\"b\\", "\xc3\xbc", "\xef\xbf\xbd", "__metadata", "\n"}) {
    EXPECT_TRUE(CheckSafetensorsName(name).ok()) << name;
    const NamedArrays arrays = {{name, Array::FromValues<float>(ElementType::kF32, {2}, {1, 2})}};
    const auto read = ParseSafetensors(SerializeSafetensors(arrays));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, arrays);
  }
  EXPECT_EQ(CheckSafetensorsName("__metadata__").message(),
            "found the name __metadata__, expected another one: safetensors files have metadata under it");
  for (const std::string name : {"\xff", "a\xc3", "\xed\xa0\x80", "\xc0\x80"}) {
    EXPECT_EQ(CheckSafetensorsName(name).message(),
              "found a name that is not UTF-8, expected UTF-8, as safetensors files require");
  }
}

std::string FileWithHeader(const std::string& header) {
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), 8) + header;
}

TEST(Safetensors, HeadersAreRefusedAtTheirFirstForeignValue) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"([1])", "has a list"},
      {R"({"w":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})", "tensor \"w\" has a list in \"shape\""},
      {R"({"w":{"dtype":"F32","shape":[2.5],"data_offsets":[0,8]}})", "tensor \"w\" has the number 2.5"},
      {R"({"w":{"dtype":{"a":1},"shape":[2],"data_offsets":[0,8]}})", "tensor \"w\" is nested too deeply"},
      {R"({"w":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]}})", "18446744073709551615"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}})", "has 3 data_offsets"},
      {R"({"w":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"w":{}})", "tensor \"w\" occurs twice"},
      {R"({"w":{"dtype":"F99","shape":[0],"data_offsets":[0,0]}})", "unknown dtype \"F99\""},
      {R"({"w":{"dtype":"F32","data_offsets":[0,4]}})", "tensor \"w\" has no \"shape\""},
      {R"({"w":{"dtype":"F32","shape":[]}})", "tensor \"w\" has no \"data_offsets\""},
      {R"({"w":{"shape":[],"data_offsets":[0,4]}})", "tensor \"w\" has no \"dtype\""},
      {R"({"w":{"dtype":"F32","shape":[2],"shape":[3],"data_offsets":[0,24]}})", "tensor \"w\" has \"shape\" twice"},
      {R"({"":{"dtype":5}})", "tensor \"\" has the number 5 in \"dtype\""},
      {R"({"w":)", "error at its byte 6"},
      {std::string(20'000'000, '['), "has a list"},
  };
  for (const auto& [header, words] : cases) {
    const auto read = ParseSafetensorsIndex(FileWithHeader(header), 1 << 30);
    ASSERT_FALSE(read.ok()) << header.substr(0, 80);
    EXPECT_THAT(std::string(read.status().message()), ::testing::HasSubstr(words)) << header.substr(0, 80);
  }
  EXPECT_TRUE(ParseSafetensorsIndex(FileWithHeader(R"({"__metadata__":{"format":"pt"}})"), 1 << 20).ok());
}

TEST(Safetensors, TruncatedAndMutatedFilesDoNotCrash) {
  const auto random = SeededRandom(3);
  NamedArrays arrays;
  arrays["weights"] = RandomBytes({ElementType::kF32, {4, 4}}, random.get());
  arrays["bias"] = RandomBytes({ElementType::kF32, {4}}, random.get());
  const std::string bytes = SerializeSafetensors(arrays);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(ParseSafetensors(absl::string_view(bytes).substr(0, size)).ok()) << size;
  }
  for (int round = 0; round < 5000; ++round) {
    std::string mutant = bytes;
    for (int i = 0; i < 3; ++i) mutant[random->Below(mutant.size())] = static_cast<char>(random->Next());
    (void)ParseSafetensors(mutant).ok();
  }
}

}  // namespace
}  // namespace xlad::tensor
