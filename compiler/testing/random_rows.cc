#include "compiler/testing/random_rows.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tensor/small_float.h"

namespace xlad::compiler {
namespace {

class Writer {
 public:
  explicit Writer(uint64_t seed) : random_(SeededRandom(seed)) {}

  std::string Write() {
    type_ = Pick({"f32", "f32", "f32", "f64", "s32", "bf16"});
    const int64_t rows = 2 + Below(4), columns = Pick<int64_t>({2, 3, 5, 8, 13, 17, 32, 33, 67, 130});
    switch (Below(4)) {
      case 0:
        SetDims({rows, 2, columns}, 2);
        break;
      case 1:
        SetDims({rows, columns, 3}, 1);
        break;
      default:
        SetDims({rows, columns}, 1);
    }
    AddParameters();
    rows_.push_back(Reduce());
    const int steps = 2 + Below(14);
    for (int i = 0; i < steps; ++i) Step();
    std::vector<std::string> results, shapes;
    const auto add = [&](const std::string& name, const std::string& shape) {
      results.push_back(name);
      shapes.push_back(shape);
    };
    add(full_.back(), Full());
    if (Below(2) == 0) add(rows_.back(), Row());
    if (Below(3) == 0 && full_.size() > 2) add(full_[full_.size() - 2], Full());
    const std::string shape = results.size() == 1 ? shapes[0] : absl::StrCat("(", absl::StrJoin(shapes, ", "), ")");
    const std::string root = absl::StrCat("  ROOT root = ", shape, " ", results.size() == 1 ? "negate(" : "tuple(",
                                          absl::StrJoin(results, ", "), ")\n");
    std::string entry;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      absl::StrAppend(&entry, "  p", i, " = ", parameters_[i], " parameter(", i, ")\n");
    }
    std::vector<std::string> names;
    for (size_t i = 0; i < parameters_.size(); ++i) names.push_back(absl::StrCat("p", i));
    return absl::StrCat("HloModule m\n", Reducers(), "fused {\n", body_, root, "}\nENTRY e {\n", entry,
                        "  ROOT f = ", shape, " fusion(", absl::StrJoin(names, ", "),
                        "), kind=kInput, calls=fused\n}\n");
  }

 private:
  int64_t Below(int64_t n) { return static_cast<int64_t>(random_->Below(static_cast<uint64_t>(n))); }
  template <typename T>
  T Pick(const std::vector<T>& from) {
    return from[Below(std::ssize(from))];
  }
  std::string Pick(const std::vector<const char*>& from) { return from[Below(std::ssize(from))]; }

  void SetDims(std::vector<int64_t> dims, size_t row_dims) {
    dims_ = std::move(dims);
    row_dims_ = row_dims;
  }
  std::string Shape(const std::vector<int64_t>& dims) const {
    return absl::StrCat(type_, "[", absl::StrJoin(dims, ","), "]");
  }
  std::string Full() const { return Shape(dims_); }
  std::string Row() const { return Shape({dims_.begin(), dims_.begin() + row_dims_}); }
  std::string Dimensions(size_t begin, size_t end) const {
    std::vector<size_t> list;
    for (size_t d = begin; d < end; ++d) list.push_back(d);
    return absl::StrCat("dimensions={", absl::StrJoin(list, ","), "}");
  }

  std::string Reducers() const {
    std::string text;
    for (const char* opcode : {"add", "maximum", "minimum"}) {
      absl::StrAppend(&text, "reduce_", opcode, " {\n  a = T[] parameter(0)\n  b = T[] parameter(1)\n  ROOT r = T[] ",
                      opcode, "(a, b)\n}\n");
    }
    return absl::StrReplaceAll(text, {{"T[", type_ + "["}});
  }

  std::string Add(const std::string& shape, const std::string& what) {
    const std::string name = absl::StrCat("v", values_++);
    absl::StrAppend(&body_, "  ", name, " = ", shape, " ", what, "\n");
    return name;
  }
  std::string AddParameter(const std::string& shape) {
    parameters_.push_back(shape);
    return Add(shape, absl::StrCat("parameter(", parameters_.size() - 1, ")"));
  }

  void AddParameters() {
    const int count = 1 + static_cast<int>(Below(2));
    for (int i = 0; i < count; ++i) full_.push_back(AddParameter(Full()));
    if (Below(2) == 0) rows_.push_back(AddParameter(Row()));
    if (Below(2) == 0) {
      const std::vector<int64_t> columns(dims_.begin() + static_cast<int64_t>(row_dims_), dims_.end());
      const std::string column = AddParameter(Shape(columns));
      full_.push_back(Add(Full(), absl::StrCat("broadcast(", column, "), ", Dimensions(row_dims_, dims_.size()))));
    }
    if (Below(3) == 0) {
      std::vector<int64_t> larger = dims_;
      larger.back() += 3;
      const std::string x = AddParameter(Shape(larger));
      std::vector<std::string> ranges;
      for (size_t d = 0; d + 1 < dims_.size(); ++d) ranges.push_back(absl::StrCat("[0:", dims_[d], "]"));
      ranges.push_back(absl::StrCat("[2:", dims_.back() + 2, "]"));
      full_.push_back(Add(Full(), absl::StrCat("slice(", x, "), slice={", absl::StrJoin(ranges, ","), "}")));
    }
    if (Below(3) == 0) {
      full_.push_back(
          Add(Full(), absl::StrCat("reverse(", full_[0], "), ", Dimensions(dims_.size() - 1, dims_.size()))));
    }
  }

  // Clamps values to -16 .. 16, so that sums of small integers are exact.
  std::string Bounded(const std::string& shape, const std::string& value) {
    const std::string low = Add(Shape({}), "constant(-16)"), high = Add(Shape({}), "constant(16)");
    return Add(shape, absl::StrCat("clamp(", low, ", ", value, ", ", high, ")"));
  }

  std::string Reduce() {
    const std::string opcode = Pick({"add", "add", "maximum", "minimum"});
    const std::string initial = Add(Shape({}), absl::StrCat("constant(", Pick({"0", "2", "-9"}), ")"));
    const std::string total =
        Add(Row(), absl::StrCat("reduce(", Pick(full_), ", ", initial, "), ", Dimensions(row_dims_, dims_.size()),
                                ", to_apply=reduce_", opcode));
    return Bounded(Row(), total);
  }

  std::string Binary(const std::string& shape, const std::vector<std::string>& from) {
    const std::string opcode = Pick({"add", "subtract", "multiply", "maximum", "minimum"});
    return Bounded(shape, Add(shape, absl::StrCat(opcode, "(", Pick(from), ", ", Pick(from), ")")));
  }

  void Step() {
    switch (Below(8)) {
      case 0:
        rows_.push_back(Reduce());
        break;
      case 1:
        rows_.push_back(Binary(Row(), rows_));
        break;
      case 2:
      case 3: {
        const std::string row = Add(Full(), absl::StrCat("broadcast(", Pick(rows_), "), ", Dimensions(0, row_dims_)));
        const std::string sum = Add(Full(), absl::StrCat("subtract(", Pick(full_), ", ", row, ")"));
        full_.push_back(Bounded(Full(), sum));
        break;
      }
      case 4: {
        const std::string less = Add(absl::StrReplaceAll(Full(), {{type_ + "[", "pred["}}),
                                     absl::StrCat("compare(", Pick(full_), ", ", Pick(full_), "), direction=LT"));
        full_.push_back(Add(Full(), absl::StrCat("select(", less, ", ", Pick(full_), ", ", Pick(full_), ")")));
        break;
      }
      case 5: {
        const int64_t along = Below(std::ssize(dims_));
        full_.push_back(Bounded(Full(), Add(Full(), absl::StrCat("iota(), iota_dimension=", along))));
        break;
      }
      case 6: {
        int64_t elements = 1;
        for (const int64_t size : dims_) elements *= size;
        const std::string flat = Add(Shape({elements}), absl::StrCat("reshape(", Pick(full_), ")"));
        full_.push_back(Add(Full(), absl::StrCat("reshape(", flat, ")")));
        break;
      }
      default:
        full_.push_back(Binary(Full(), full_));
    }
  }

  std::unique_ptr<Random> random_;
  std::string type_;
  std::vector<int64_t> dims_;
  size_t row_dims_ = 1;
  std::vector<std::string> parameters_;  // The shapes of the parameters.
  std::string body_;
  std::vector<std::string> full_, rows_;  // Names of values.
  int values_ = 0;
};

}  // namespace

std::string RandomRowProgram(uint64_t seed) { return Writer(seed).Write(); }

tensor::Array RandomIntegers(const tensor::Shape& shape, Random* random) {
  tensor::Array array(shape);
  const auto fill = [&](auto values, const auto& encode) {
    for (auto& value : values) value = encode(static_cast<float>(random->Below(17)) - 8);
  };
  switch (shape.type) {
    case tensor::ElementType::kF32:
      fill(array.values<float>(), [](float x) { return x; });
      break;
    case tensor::ElementType::kF64:
      fill(array.values<double>(), [](float x) { return double{x}; });
      break;
    case tensor::ElementType::kBF16:
      fill(array.values<uint16_t>(), tensor::EncodeBf16);
      break;
    default:
      fill(array.values<int32_t>(), [](float x) { return static_cast<int32_t>(x); });
  }
  return array;
}

}  // namespace xlad::compiler
