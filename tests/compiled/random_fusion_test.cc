// Random fusions: graphs of exact operations over random shapes, which must agree with the evaluator in all bits.
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/testing/case_count.h"
#include "tensor/shape.h"
#include "tests/compiled/test_harness.h"

namespace xlad::compiler {
namespace {

using tensor::Dims;

struct Value {
  std::string name;
  std::string type;
  Dims dims;
};

// Writes one program whose operations have exactly defined bits, so that any difference is an error.
class Writer {
 public:
  explicit Writer(Random* random) : random_(*random) {}

  std::string Write() {
    const int parameters = 1 + Below(3);
    for (int i = 0; i < parameters; ++i) {
      Dims dims;
      const int ndim = Below(4);
      for (int d = 0; d < ndim; ++d) dims.push_back(Size());
      Add(Pick({"f32", "f32", "f32", "s32", "bf16", "f64", "pred", "u8"}), dims, absl::StrCat("parameter(", i, ")"));
    }
    position_ = Add("s32", {}, absl::StrCat("parameter(", parameters, ")"));
    const int length = 3 + Below(20);
    for (int i = 0; i < length; ++i) Step();
    std::vector<std::string> names, shapes;
    const int roots = 1 + Below(3);
    for (int i = 0; i < roots; ++i) {
      const Value& value = values_[values_.size() - 1 - static_cast<size_t>(i)];
      names.push_back(value.name);
      shapes.push_back(Shape(value));
    }
    return absl::StrCat("HloModule m\n", reducers_, "ENTRY e {\n", body_, "  ROOT t = (", absl::StrJoin(shapes, ", "),
                        ") tuple(", absl::StrJoin(names, ", "), ")\n}\n");
  }

 private:
  int Below(int n) { return static_cast<int>(random_.Below(static_cast<uint64_t>(n))); }
  int64_t Size() { return Pick<int64_t>({0, 1, 1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 33}); }
  template <typename T>
  T Pick(std::vector<T> from) {
    return from[Below(static_cast<int>(from.size()))];
  }
  std::string Pick(std::vector<const char*> from) { return Pick<const char*>(std::move(from)); }
  static std::string Shape(const Value& value) {
    return absl::StrCat(value.type, "[", absl::StrJoin(value.dims, ","), "]");
  }

  Value Add(const std::string& type, const Dims& dims, const std::string& expression) {
    const Value value{absl::StrCat("v", values_.size()), type, dims};
    absl::StrAppend(&body_, "  ", value.name, " = ", Shape(value), " ", expression, "\n");
    values_.push_back(value);
    return value;
  }

  Value Any() { return values_[Below(static_cast<int>(values_.size()))]; }
  // Returns another value of the same type and sizes if one of eight random tries finds one, otherwise `value`.
  Value Like(const Value& value) {
    for (int i = 0; i < 8; ++i) {
      const Value other = Any();
      if (other.type == value.type && other.dims == value.dims) return other;
    }
    return value;
  }
  static bool IsFloat(const Value& v) { return v.type[0] == 'f' || v.type[0] == 'b'; }

  void Step() {
    const Value x = Any();
    if (tensor::Product(x.dims) > 3000) return;
    switch (Below(15)) {
      case 0:
        return Unary(x);
      case 1:
      case 2:
        return Binary(x);
      case 3:
        return Broadcast(x);
      case 4:
        return Reshape(x);
      case 5:
        return Transpose(x);
      case 6:
        return Slice(x);
      case 7:
        return Reverse(x);
      case 8:
        return Concatenate(x);
      case 9:
        return Select(x);
      case 10:
        return Convert(x);
      case 11:
        return Pad(x);
      case 12:
        return DynamicSlice(x);
      case 13:
        return Reduce(x);
      default:
        return Iota(x);
    }
  }

  void Unary(const Value& x) {
    if (x.type == "pred") {
      Add(x.type, x.dims, absl::StrCat("not(", x.name, ")"));
    } else if (x.type != "u8") {
      const std::string op =
          IsFloat(x) ? Pick({"negate", "abs", "floor", "sqrt", "copy"}) : Pick({"negate", "abs", "not"});
      Add(x.type, x.dims, absl::StrCat(op, "(", x.name, ")"));
    }
  }

  void Binary(const Value& x) {
    const Value y = Like(x);
    const std::string op = x.type == "pred" ? Pick({"and", "or", "xor"})
                           : IsFloat(x)     ? Pick({"add", "subtract", "multiply", "divide", "maximum", "minimum"})
                                        : Pick({"add", "subtract", "multiply", "and", "xor", "maximum", "remainder"});
    Add(x.type, x.dims, absl::StrCat(op, "(", x.name, ", ", y.name, ")"));
  }

  void Broadcast(const Value& x) {
    Dims dims, mapping;
    for (const int64_t size : x.dims) {
      if (Below(2) == 0) dims.push_back(1 + Below(5));
      mapping.push_back(std::ssize(dims));
      dims.push_back(size);
    }
    if (Below(2) == 0 || dims.empty()) dims.push_back(1 + Below(9));
    if (dims.size() > 5 || tensor::Product(dims) > 4000) return;
    Add(x.type, dims, absl::StrCat("broadcast(", x.name, "), dimensions={", absl::StrJoin(mapping, ","), "}"));
  }

  void Reshape(const Value& x) {
    int64_t rest = tensor::Product(x.dims);
    Dims dims;
    while (rest > 1 && dims.size() < 3) {
      int64_t factor = 1 + Below(8);
      while (rest % factor != 0) --factor;
      dims.push_back(factor);
      rest /= factor;
    }
    dims.push_back(rest);
    std::swap(dims[0], dims[Below(static_cast<int>(dims.size()))]);
    Add(x.type, dims, absl::StrCat("reshape(", x.name, ")"));
  }

  void Transpose(const Value& x) {
    Dims order(x.dims.size()), dims;
    for (size_t d = 0; d < order.size(); ++d) order[d] = static_cast<int64_t>(d);
    for (size_t d = order.size(); d > 1; --d)
      std::swap(order[d - 1], order[Below(static_cast<int>(d))]);
    for (const int64_t d : order) dims.push_back(x.dims[d]);
    Add(x.type, dims, absl::StrCat("transpose(", x.name, "), dimensions={", absl::StrJoin(order, ","), "}"));
  }

  void Slice(const Value& x) {
    Dims dims;
    std::vector<std::string> parts;
    for (const int64_t size : x.dims) {
      const int64_t start = Below(static_cast<int>(size) + 1),
                    limit = start + Below(static_cast<int>(size - start) + 1);
      const int64_t stride = 1 + Below(3);
      dims.push_back((limit - start + stride - 1) / stride);
      parts.push_back(absl::StrCat("[", start, ":", limit, ":", stride, "]"));
    }
    Add(x.type, dims, absl::StrCat("slice(", x.name, "), slice={", absl::StrJoin(parts, ", "), "}"));
  }

  void Reverse(const Value& x) {
    Dims which;
    for (size_t d = 0; d < x.dims.size(); ++d) {
      if (Below(2) == 0) which.push_back(d);
    }
    Add(x.type, x.dims, absl::StrCat("reverse(", x.name, "), dimensions={", absl::StrJoin(which, ","), "}"));
  }

  void Concatenate(const Value& x) {
    if (x.dims.empty()) return;
    const size_t d = Below(static_cast<int>(x.dims.size()));
    const Value y = Like(x);
    Dims dims = x.dims;
    dims[d] *= 2;
    Add(x.type, dims, absl::StrCat("concatenate(", x.name, ", ", y.name, "), dimensions={", d, "}"));
  }

  void Select(const Value& x) {
    const Value y = Like(x), z = Like(x);
    const Value p =
        Add("pred", x.dims,
            absl::StrCat("compare(", x.name, ", ", y.name, "), direction=", Pick({"LT", "GE", "EQ", "NE"})));
    Add(x.type, x.dims, absl::StrCat("select(", p.name, ", ", z.name, ", ", y.name, ")"));
  }

  void Convert(const Value& x) {
    const std::string type = Pick({"f32", "bf16", "f16", "f64", "s32", "pred", "u8"});
    Add(type, x.dims, absl::StrCat("convert(", x.name, ")"));
  }

  void Pad(const Value& x) {
    if (x.dims.empty()) return;
    const Value filler = Add(x.type, {}, absl::StrCat("constant(", x.type == "pred" ? "true" : "3", ")"));
    Dims dims;
    std::vector<std::string> parts;
    for (const int64_t size : x.dims) {
      const int64_t low = Below(4) - 1, high = Below(4) - 1, interior = Below(3) == 0 ? 1 : 0;
      const int64_t inner = size + std::max<int64_t>(size - 1, 0) * interior;
      dims.push_back(inner + low + high);
      if (dims.back() < 0) return;
      parts.push_back(absl::StrCat(low, "_", high, "_", interior));
    }
    Add(x.type, dims, absl::StrCat("pad(", x.name, ", ", filler.name, "), padding=", absl::StrJoin(parts, "x")));
  }

  void DynamicSlice(const Value& x) {
    if (x.dims.empty()) return;
    Dims dims;
    std::vector<std::string> starts(x.dims.size(), position_.name);
    for (const int64_t size : x.dims) dims.push_back(Below(static_cast<int>(size) + 1));
    Add(x.type, dims,
        absl::StrCat("dynamic-slice(", x.name, ", ", absl::StrJoin(starts, ", "), "), dynamic_slice_sizes={",
                     absl::StrJoin(dims, ","), "}"));
  }

  void Reduce(const Value& x) {
    if (x.dims.empty()) return;
    const std::string op = x.type == "pred" ? "or" : x.type == "s32" ? Pick({"add", "maximum"}) : "maximum";
    const std::string reducer = absl::StrCat("reduce_", op, "_", x.type);
    if (reducers_.find(reducer + " {") == std::string::npos) {
      absl::StrAppend(&reducers_, reducer, " {\n  a = ", x.type, "[] parameter(0)\n  b = ", x.type,
                      "[] parameter(1)\n  ROOT r = ", x.type, "[] ", op, "(a, b)\n}\n");
    }
    const Value initial = Add(x.type, {}, absl::StrCat("constant(", x.type == "pred" ? "false" : "1", ")"));
    Dims dims, which;
    for (size_t d = 0; d < x.dims.size(); ++d) {
      if (Below(2) == 0) {
        which.push_back(d);
      } else {
        dims.push_back(x.dims[d]);
      }
    }
    Add(x.type, dims,
        absl::StrCat("reduce(", x.name, ", ", initial.name, "), dimensions={", absl::StrJoin(which, ","),
                     "}, to_apply=", reducer));
  }

  void Iota(const Value& x) {
    if (x.dims.empty() || x.type == "pred") return;
    Add(x.type, x.dims, absl::StrCat("iota(), iota_dimension=", Below(static_cast<int>(x.dims.size()))));
  }

  Random& random_;
  std::string body_, reducers_;
  std::vector<Value> values_;
  Value position_;
};

class RandomFusion : public testing::TestWithParam<int> {};

TEST_P(RandomFusion, AgreesWithTheEvaluator) {
  const std::unique_ptr<Random> random = SeededRandom(static_cast<uint64_t>(GetParam()));
  Batch batch(static_cast<uint64_t>(GetParam()));
  for (int i = 0; i < 60; ++i) batch.Add(Writer(random.get()).Write());
  batch.Run();
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomFusion, testing::Range<int>(1, 1 + static_cast<int>(CaseCount(2, 5))));

}  // namespace
}  // namespace xlad::compiler
