#include "compiler/analysis/flops.h"

#include <algorithm>
#include <cmath>

#include "compiler/analysis/hlo_names.h"
#include "hlo/analysis/counts.h"
#include "hlo/analysis/lapack.h"
#include "hlo/analysis/leaves.h"

namespace xlad::compiler {
namespace {

bool IsNumber(ElementType type) { return tensor::IsFloating(type) || tensor::IsComplex(type); }

double ElementsOf(const Shape& shape) { return static_cast<double>(hlo::ElementsOfLargestLeaf(shape)); }

// Whether an instruction counts as one operation for each element.
bool Computes(const Instruction& instruction) {
  const Opcode opcode = instruction.opcode();
  const bool converts = opcode == Opcode::kConvert || opcode == Opcode::kBitcastConvert;
  return hlo::IsElementwise(opcode) && !converts && instruction.shape().is_array() &&
         IsNumber(instruction.shape().type());
}

// Counts the operations of a computation on scalars.
double OperationsOf(const Computation& computation) {
  return static_cast<double>(std::count_if(computation.instructions().begin(), computation.instructions().end(),
                                           [](const auto& instruction) { return Computes(*instruction); }));
}

// A multiply-add of complex numbers has four multiplications and four additions.
double RealFlops(const Instruction& instruction) {
  return tensor::IsComplex(instruction.operand(0)->shape().type()) ? 4 : 1;
}

// In a ragged dot, each row of the left operand is multiplied by the matrix of its own group only.
double RaggedDotFlops(const Instruction& dot) {
  const hlo::DotDimensions& dimensions = *dot.attributes().dot;
  const Dims& ragged = dot.attributes().ragged_dims;
  const bool is_contracted = ragged.size() == 1 && std::count(dimensions.lhs_contracting.begin(),
                                                              dimensions.lhs_contracting.end(), ragged[0]) > 0;
  // If the ragged dimension is contracted, the result has a matrix for each group: the sum over the group's part.
  const double groups = is_contracted ? static_cast<double>(dot.operand(2)->shape().elements()) : 1;
  return hlo::DotFlops(dot) / std::max(1.0, groups);
}

// Operations for each element of the updates of a scatter, or of the source of a select-and-scatter.
double ScatterFlops(const Instruction& scatter) {
  if (scatter.opcode() == Opcode::kScatter) {
    return ElementsOf(scatter.operand(scatter.operand_count() - 1)->shape()) * OperationsOf(*scatter.called()[0]);
  }
  return ElementsOf(scatter.operand(1)->shape()) *
         (hlo::WindowElements(scatter) * OperationsOf(*scatter.called()[0]) + OperationsOf(*scatter.called()[1]));
}

// The operations for one matrix of m rows and n columns: the terms of third degree of the counts in LAPACK Working
// Note 41. `other` is the number of rows of a triangular matrix, or of reflectors. A decomposition into eigenvalues or
// singular values counts as its reduction to a condensed form, because the number of its iterations is not known.
double LapackFlops(absl::string_view routine, double m, double n, double other) {
  const double k = std::min(m, n), longest = std::max(m, n);
  if (routine == "potrf") return n * n * n / 3;
  if (routine == "trsm") return other * m * n;
  if (routine == "getrf") return 2 * m * n * k - (m + n) * k * k + 2 * k * k * k / 3;
  if (routine == "geqrf" || routine == "geqp3") return 2 * longest * k * k - 2 * k * k * k / 3;
  if (routine == "orgqr" || routine == "ungqr") {
    return 4 * m * n * other - 2 * (m + n) * other * other + 4 * other * other * other / 3;
  }
  if (routine == "syevd" || routine == "heevd" || routine == "sytrd" || routine == "hetrd") return 4 * n * n * n / 3;
  if (routine == "gesdd" || routine == "gesvd") return 4 * longest * k * k - 4 * k * k * k / 3;
  if (routine == "geev" || routine == "gees" || routine == "gehrd") return 10 * n * n * n / 3;
  return 0;
}

double LinearAlgebraFlops(const Instruction& instruction) {
  std::string routine;
  if (instruction.opcode() == Opcode::kCholesky) routine = "potrf";
  if (instruction.opcode() == Opcode::kTriangularSolve) routine = "trsm";
  if (hlo::IsLapackCall(instruction)) {
    const auto call = hlo::LapackCallOf(instruction);
    if (call.ok()) routine = call->routine;
  }
  if (routine.empty()) return 0;
  // A dimension of an operand, counted from the last one.
  const auto size = [&](int64_t operand, size_t from_end) {
    const Dims& dims = instruction.operand(operand)->shape().dims();
    return dims.size() < from_end ? 1.0 : static_cast<double>(dims[dims.size() - from_end]);
  };
  const bool makes_q = routine == "orgqr" || routine == "ungqr", applies_q = routine == "ormqr" || routine == "unmqr";
  const int64_t matrix = applies_q ? 2 : routine == "trsm" ? 1 : 0;
  const double m = size(matrix, 2), n = size(matrix, 1);
  const double matrices = static_cast<double>(instruction.operand(matrix)->shape().elements()) / std::max(1.0, m * n);
  if (applies_q) {
    const double k = size(1, 1), a = size(0, 2);
    // The reflectors have `a` elements. The other dimension of the matrix is m * n / a.
    return matrices * (4 * m * n * k - 2 * m * n / std::max(1.0, a) * k * k);
  }
  return matrices * LapackFlops(routine, m, n, makes_q ? size(1, 1) : size(0, 1));
}

}  // namespace

double FlopsOf(const Instruction& instruction) {
  switch (instruction.opcode()) {
    case Opcode::kFusion: {
      double sum = 0;
      for (const auto& inner : instruction.called()[0]->instructions()) sum += FlopsOf(*inner);
      return sum;
    }
    case Opcode::kDot:
      return RealFlops(instruction) * hlo::DotFlops(instruction);
    case Opcode::kRaggedDot:
      return RealFlops(instruction) * RaggedDotFlops(instruction);
    case Opcode::kConvolution:
      return RealFlops(instruction) * hlo::ConvolutionFlops(instruction);
    case Opcode::kCholesky:
    case Opcode::kTriangularSolve:
    case Opcode::kCustomCall:
      return instruction.operand_count() == 0 || !instruction.operand(0)->shape().is_array()
                 ? 0
                 : RealFlops(instruction) * LinearAlgebraFlops(instruction);
    case Opcode::kScatter:
    case Opcode::kSelectAndScatter:
      return ScatterFlops(instruction);
    case Opcode::kFft: {
      const double elements = ElementsOf(instruction.operand(0)->shape());
      double points = 1;
      for (const int64_t length : instruction.attributes().fft_length) points *= static_cast<double>(length);
      return 5 * elements * std::log2(std::max(points, 1.0));
    }
    case Opcode::kReduce:
    case Opcode::kScan:
      return ElementsOf(instruction.operand(0)->shape()) * OperationsOf(*instruction.called()[0]);
    case Opcode::kReduceWindow:
      return ElementsOf(instruction.shape()) * hlo::WindowElements(instruction) *
             OperationsOf(*instruction.called()[0]);
    default:
      break;
  }
  return Computes(instruction) ? ElementsOf(instruction.shape()) : 0;
}

}  // namespace xlad::compiler
