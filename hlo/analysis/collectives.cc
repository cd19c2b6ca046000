#include "hlo/analysis/collectives.h"

#include <algorithm>

namespace xlad::hlo {

bool ContainsCollective(const Computation& computation) {
  return std::any_of(computation.instructions().begin(), computation.instructions().end(), [](const auto& instruction) {
    return IsCollective(instruction->opcode()) ||
           std::any_of(instruction->called().begin(), instruction->called().end(),
                       [](const Computation* called) { return ContainsCollective(*called); });
  });
}

}  // namespace xlad::hlo
