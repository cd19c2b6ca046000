#include "hlo/analysis/transparent.h"

namespace xlad::hlo {

bool IsTransparent(const Instruction& instruction) {
  switch (instruction.opcode()) {
    case Opcode::kTuple:
    case Opcode::kGetTupleElement:
    case Opcode::kParameter:
    case Opcode::kConstant:
    case Opcode::kReshape:
      return true;
    default:
      return false;
  }
}

}  // namespace xlad::hlo
