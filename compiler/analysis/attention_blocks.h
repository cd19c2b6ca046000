// Divides an attention into blocks of rows, and finds the masked columns of each block.
#pragma once

#include "proto/executable.pb.h"

namespace xlad::compiler {

// Sets block_rows, block_columns and zero_after_block_columns of an op. All other fields must have been set before.
//
// A causal mask, or another comparison of row and column positions, sets all scores of the last columns of a block to a
// constant. The op checks at run time that exp(constant - maximum of the row) is zero in these columns. If all sums
// over columns, including those in products, add only zeros in these columns, the columns do not need to be computed.
// Numbers that are multiplied by such a zero are assumed to be finite.
void ChooseBlocks(AttentionOp* op);

}  // namespace xlad::compiler
